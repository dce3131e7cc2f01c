"""One changefeed at its owner: launched, run, stopped, released.

    schedule row                                 this owner
    REMOVED                               ─────► launches the changefeed at itself
    REMOVED, and the info is REMOVED      ─────► deletes all keys of the changefeed
    LAUNCHED here, by this object         ─────► decides (feed state), runs a `Term`
    LAUNCHED here, by an earlier object   ─────► releases it, to launch it anew (a refused term too)
    LAUNCHED at another, living capture   ─────► makes it REMOVING (of a dead one: see `owner.py`)
    REMOVING, owned here                  ─────► ends the run, then releases it

A launch is used by one ``ChangefeedOwner`` only. Its number ranks the owners for the agents: so
messages of a launch that is over are told apart from those of the next one.
Within a launch every changefeed epoch is run once: a run that failed goes on under a new epoch,
after its back-off."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from coordination.capture.context import SessionContext
from coordination.capture.owner.term import UNSEEN, Term
from coordination.errors import (
    CaptureSuicide,
    ConfigError,
    Fenced,
    TermRefused,
    TidelakeError,
    TryAgain,
)
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.changefeed_state import ChangefeedReactorState
from coordination.metadata.feed_state import (
    Decision,
    FeedEvent,
    FeedStateManager,
    error_stuck_s,
    known_state,
    next_state,
)
from coordination.metadata.global_state import GlobalReactorState
from coordination.metadata.records import (
    NO_ROW,
    ChangefeedInfo,
    FeedState,
    RunningError,
    SchedState,
    ScheduleRow,
)
from coordination.metadata.running_errors import OWNER_UNKNOWN
from coordination.model import NO_TS, CaptureID, Ownership
from coordination.ports import ShownState
from coordination.scheduler.coordinator import Coordinator
from coordination.scheduler.messages import Message
from coordination.trust.close_deadlines import Closings

logger = logging.getLogger(__name__)

MAX_NAMES: Final = 10  # of tables, in a log line
LAUNCH_AGAIN_S: Final = 5.0  # after a refused term: its claimer may be about to be elected


class ChangefeedOwner:
    """One changefeed, as long as this capture is elected. One thread. An exception in it becomes
    the changefeed's error; a refused term ends the launch, and the changefeed is launched anew
    after ``LAUNCH_AGAIN_S``. Only ``CaptureSuicide`` and ``Fenced`` are raised."""

    def __init__(
        self,
        name: ChangefeedName,
        role: SessionContext,
        ownership: Ownership,
        wake: Callable[[], None],
    ) -> None:
        """``wake`` has the next tick come soon; any thread."""
        self.name = name
        self._role = role
        self._ownership = ownership
        self._wake = wake
        self._reached_ts = NO_TS  # by all tables that do not wait for an operator
        self._feed_state = FeedStateManager(
            random=role.capture.rng.random, tries_again=role.capture.tries_again
        )
        self._launch: int | None = None  # the number of the launch that this object made
        self._is_first = False  # that launch is the changefeed's first: no capture has spans of it
        self._term: Term | None = None
        self._placed: dict[int, CaptureID] = {}  # tables, by an operator: in the next term too
        self._closing = Closings("the control writer", role.end_within_s)
        self._ran_epoch: int | None = None
        self._errors: list[RunningError] = []  # of the run of that epoch
        self._refusal: RunningError | None = None  # a refused term, until etcd has it as a warning
        self._unclaimed: RunningError | None = None  # why the term is not claimed yet
        self._launch_again_at = float("inf")
        self._has_said_wait = False
        self._logged: tuple[str, str] | None = None  # code and message of the last error
        self._shown: ShownState | None = None  # in the control tables, without a control writer

    @property
    def coordinator(self) -> Coordinator | None:
        """The coordinator of the present term, once that is claimed."""
        return self._term.coordinator if self._term is not None else None

    @property
    def is_closed(self) -> bool:
        return self._term is None and not self._closing.names()

    @property
    def due_at(self) -> float:
        """When the next tick is due though nothing happens; monotonic."""
        if self._term is not None:
            return self._term.due_at
        does_rest = self._shown is not None and self.is_closed
        return float("inf") if does_rest else float("-inf")

    def close(self, *, drop: bool) -> None:
        """Begin to end its run; `is_closed` says when that is done. `drop`: write nothing more."""
        self._withdraw()
        self._end_run(drop=drop)

    def check_end(self, now_s: float) -> None:
        """Raises ``CaptureSuicide`` if a closed control writer does not end in time."""
        self._closing.check(now_s)

    def _end_run(self, *, drop: bool) -> None:
        if self._term is not None:
            self._closing.begin(self.name.id, self._term.control, drop=drop)
            self._term = None
        self._closing.close(drop=drop)

    def tick(
        self,
        changefeed: ChangefeedReactorState,
        inbox: Sequence[Message],
        cluster: GlobalReactorState,
        now_s: float,
    ) -> Sequence[Message]:
        """One tick; returns the messages to send to agents."""
        try:
            return self._tick(changefeed, inbox, cluster, now_s)
        except (CaptureSuicide, Fenced):
            raise
        except TermRefused as error:
            self._resign(error, now_s)
        except Exception as error:  # noqa: BLE001 - the other changefeeds go on
            self._fail(error)
        return ()

    def _tick(
        self,
        changefeed: ChangefeedReactorState,
        inbox: Sequence[Message],
        cluster: GlobalReactorState,
        now_s: float,
    ) -> Sequence[Message]:
        self.check_end(now_s)
        info, row = changefeed.info, changefeed.schedule or NO_ROW
        if now_s >= self._launch_again_at:
            self._launch, self._launch_again_at = None, float("inf")
        if info is None or not self._holds_launch(row):
            self.close(drop=False)
            if info is not None and self.is_closed:
                self._move_launch(changefeed, info, row, cluster)
            return ()
        self._decide(changefeed, info, now_s)
        if not self._feed_state.should_run or (self._term and self._term.epoch != info.epoch):
            self._end_run(drop=False)
        if self._feed_state.should_run and self.is_closed and self._ran_epoch != info.epoch:
            self._withdraw()
            self._open(info)
        self._show_ended(info)
        return self._run(changefeed, inbox, cluster, now_s)

    # the launch

    def _holds_launch(self, row: ScheduleRow) -> bool:
        return (row.owner_state, row.owner, row.launches) == (
            SchedState.LAUNCHED,
            self._role.id,
            self._launch,
        )

    def _move_launch(
        self,
        changefeed: ChangefeedReactorState,
        info: ChangefeedInfo,
        row: ScheduleRow,
        cluster: GlobalReactorState,
    ) -> None:
        """One step towards a launch here, or towards the deletion of a removed changefeed."""
        writes, ours = changefeed.writes(), self._role.id
        if row.owner_state is SchedState.REMOVED:
            if info.state is FeedState.REMOVED:
                changefeed.add_group(*writes.cleanup(changefeed.task_positions))
                return
            self._launch, self._is_first = row.launches + 1, row.launches == 0
            self._ran_epoch = None
            changefeed.add_group(writes.launch(ours))
        elif row.owner is None:
            return  # a broken row: left to an operator
        elif row.owner == ours:
            changefeed.add_group(writes.release(ours))
        elif row.owner_state is SchedState.LAUNCHED and not cluster.is_gone(row.owner):
            # The owner before this one is to end (`OwnerReactor` releases those of dead captures).
            changefeed.add_group(writes.stop_owner())

    # the run

    def _decide(
        self, changefeed: ChangefeedReactorState, info: ChangefeedInfo, now_s: float
    ) -> None:
        if self._ran_epoch != info.epoch:
            self._errors.clear()
            self._refusal = None
        try:
            self._feed_state.error_stuck_s = error_stuck_s(info.config)
        except ConfigError as error:
            self._fail(error)
        errors = [*changefeed.reported("error"), *self._errors]
        warnings = changefeed.reported("warning")
        if self._refusal is not None and info.warning == self._refusal:
            self._refusal = None
        warnings += [self._refusal] if self._refusal is not None else []
        decision = self._feed_state.decide(
            info,
            changefeed.status,
            errors,
            warnings,
            now_s,
            reached_ts=self._reached_ts,
            concerns=[*self._concerns(), *changefeed.concerns()],
            is_caught_up=self._term is not None and self._term.is_caught_up,
        )
        if decision is not None:
            self._log_decision(info, decision)
            changefeed.add_group(changefeed.writes(by_owner=True).feed_event(decision))
        changefeed.clear_reports()
        if self._term is not None:
            self._term.control.set_shown(shown_state_of(info, decision))

    def _concerns(self) -> list[RunningError]:
        """Why the term is not claimed yet: no capture has begun to work that would report it."""
        term = self._term
        said = term.control.trouble() if term is not None and term.coordinator is None else None
        if said is None:
            self._unclaimed = None
        elif self._unclaimed is None or self._unclaimed.message != said:
            self._unclaimed = self._role.report(TidelakeError(said), OWNER_UNKNOWN).lasting()
        return [] if self._unclaimed is None else [self._unclaimed]

    def _show_ended(self, info: ChangefeedInfo) -> None:
        """Have the control tables show the state of a changefeed that does not run: it has no
        control writer that would write it there."""
        shown, role = shown_state_of(info), self._role
        if shown.state.is_running or not self.is_closed or shown == self._shown:
            return
        self._shown = shown
        role.capture.data_plane.show(info, role.trust, self._ownership, shown, self._wake)

    def _withdraw(self) -> None:
        """Stop showing its state: from now on its control writer does that."""
        if self._shown is not None:
            self._role.capture.data_plane.withdraw(self.name.id)
            self._shown = None

    def _log_decision(self, info: ChangefeedInfo, decision: Decision) -> None:
        """Log a decision. An error gets one ERROR line, even if it comes again with each retry."""
        error = decision.error
        before = None if known_state(info) is FeedState.NORMAL else self._logged
        if error is None:
            logger.info("changefeed changes changefeed_id=%s event=%s", info.id, decision.event)
            return
        self._logged = (error.code, error.message)
        is_news = self._logged != before and decision.event is not FeedEvent.WARNING
        logger.log(
            logging.ERROR if is_news else logging.INFO,
            "changefeed changes changefeed_id=%s event=%s why=%s: %s",
            *(info.id, decision.event, error.code, error.message),
        )
        if decision.event is FeedEvent.ERROR:
            again_s = self._feed_state.retries_in_s(self._role.capture.clock.monotonic())
            logger.info("it is tried again in %.0f s changefeed_id=%s", again_s, info.id)

    def _open(self, info: ChangefeedInfo) -> None:
        role = self._role
        self._ran_epoch = info.epoch
        try:
            control = role.capture.data_plane.open_control_writer(
                info, role.trust, self._ownership, self._wake
            )
            try:
                self._term = Term(
                    info,
                    control,
                    capture=role.info,
                    launch=self._launch or 0,
                    settings=role.capture.scheduler,
                    rng=role.capture.rng,
                    placed=self._placed,
                )
            except Exception:
                self._closing.begin(self.name.id, control, drop=True)
                raise
        except TryAgain:
            self._ran_epoch = None

    def _run(
        self,
        changefeed: ChangefeedReactorState,
        inbox: Sequence[Message],
        cluster: GlobalReactorState,
        now_s: float,
    ) -> Sequence[Message]:
        term = self._term
        if term is None:
            return ()
        alive = set(cluster.captures)  # they may have spans; dead ones count within their grace
        if not self._is_first and not cluster.knows_the_dead(now_s):
            alive.add(UNSEEN)  # a capture with spans may have died before this owner could see it
            self._say_that_it_waits()
        gone = {each for each in alive if cluster.is_gone(each)}
        unreached = {each.id for each in cluster.captures.values() if not each.is_reached}
        ticked = term.tick(inbox, alive, now_s, unreached=unreached, gone=gone)
        if ticked is None:
            return ()
        self._log_moves(term)
        self._reached_ts = ticked.others_ts
        if ticked.is_known:
            changefeed.add_group(
                changefeed.writes(by_owner=True).advance_checkpoint(
                    ticked.checkpoint_ts,
                    ticked.min_table_barrier_ts,
                    term.epoch,
                    awaits=ticked.awaits,
                )
            )
        return ticked.outbox

    def _say_that_it_waits(self) -> None:
        if not self._has_said_wait and (grace_s := self._role.capture.grace_s):
            logger.info(
                "waits for up to %.0f s before a capture gets a table that none reports: the "
                "table's capture may have died right before this owner led changefeed_id=%s",
                *(grace_s, self.name.id),
            )
        self._has_said_wait = True

    def _log_moves(self, term: Term) -> None:
        """Log one line for all tables that move from one capture to another in this tick."""
        if term.coordinator is None:
            return
        tables = term.coordinator.replication.tables
        by_way: dict[tuple[str, str, str], list[str]] = {}
        for move in term.coordinator.replication.take_moves():
            span = tables.get(move.table_id)
            names = by_way.setdefault((move.why, move.origin, move.dest), [])
            names.append(str(span.name) if span is not None else str(move.table_id))
        for (why, origin, dest), names in by_way.items():
            shown = ",".join(names[:MAX_NAMES]) + (",…" if len(names) > MAX_NAMES else "")
            logger.info(
                "tables move changefeed_id=%s why=%s from=%s to=%s count=%d tables=%s",
                *(self.name.id, why, origin, dest, len(names), shown),
            )

    def _resign(self, error: TermRefused, now_s: float) -> None:
        """End the launch of this changefeed, because its term was refused. The capture stays
        elected: the election is decided in etcd, not in Delta."""
        logger.warning("its owner resigns changefeed_id=%s: %s", self.name.id, error)
        self._refusal = self._role.report(error, OWNER_UNKNOWN)
        self._launch_again_at = now_s + LAUNCH_AGAIN_S
        self._end_run(drop=True)

    def _fail(self, error: Exception) -> None:
        """End the run of this epoch. The error is kept, and counts in each tick until the
        changefeed's state has changed in etcd: nothing runs in this epoch any more."""
        self._end_run(drop=False)
        report = self._role.report(error, OWNER_UNKNOWN)
        if any((each.code, each.message) == (report.code, report.message) for each in self._errors):
            return
        if not isinstance(error, TidelakeError):  # a TidelakeError is logged with the decision
            logger.error("a changefeed fails changefeed_id=%s", self.name.id, exc_info=error)
        self._errors.append(report)


def shown_state_of(info: ChangefeedInfo, decision: Decision | None = None) -> ShownState:
    """The changefeed's state and message for the control tables: as etcd has them, or will have
    them once the decision is written."""
    state = known_state(info)
    told = [each for each in (info.error, info.warning) if each is not None]
    if decision is not None:
        state = next_state(state, decision.event)
    if decision is not None and decision.error is not None:
        told = [decision.error]
    elif state in (FeedState.PENDING, FeedState.FAILED):
        told = told[:1]  # why it is so, whatever the clock of the capture that warned
    if state is FeedState.NORMAL or not told:
        return ShownState(state=state)
    last = max(told, key=lambda each: each.time)
    return ShownState(state=state, code=last.code, message=last.message)
