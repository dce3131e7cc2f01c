"""One changefeed at its owner: launched, run, stopped, released.

    schedule row                                          this owner
    REMOVED ──launch: here─────► LAUNCHED, by us ───────► decides (feed state), runs a `Term`
                                 LAUNCHED, of another ──► of a dead one: released; else REMOVING
                                 LAUNCHED, of us before ─► released, to be launched anew
                                 REMOVING, ours ────────► stops, then released
    REMOVED and the info removed ────────────────────────► cleaned up

A launch is used by one owner's reactor only: its number, the owner revision, ranks the owners for
the agents, so what came of one that is over cannot be taken for what comes of the next one. Within
a launch every changefeed epoch is run once: a run that failed goes on under a new epoch, after its
back-off."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from coordination.capture_context import SessionContext
from coordination.closing import Closings
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
from coordination.metadata.model import (
    NO_ROW,
    ChangefeedInfo,
    FeedState,
    RunningError,
    SchedState,
    ScheduleRow,
)
from coordination.model import Ownership, Revision
from coordination.owner.term import UNSEEN, Term
from coordination.ports import Standing
from coordination.running_errors import OWNER_UNKNOWN
from coordination.scheduler.coordinator import Coordinator
from coordination.scheduler.messages import Message

logger = logging.getLogger(__name__)

MAX_NAMES: Final = 10  # of tables, in a log line
LAUNCH_AGAIN_S: Final = 5.0  # after a refused term: who has claimed it may be about to lead


class ChangefeedOwner:
    """One thread. What goes wrong in it is the changefeed's error; a refused term ends its launch,
    and it is launched anew a little later. Only what ends the capture is raised."""

    def __init__(self, name: ChangefeedName, role: SessionContext, ownership: Ownership) -> None:
        self.name = name
        self._role = role
        self._ownership = ownership
        self._feed_state = FeedStateManager(
            random=role.capture.rng.random, tries_again=role.capture.tries_again
        )
        self._owner_revision: int | None = None  # that we asked for
        self._is_first = False  # nobody has ever had a span of it before that launch
        self._term: Term | None = None
        self._closing = Closings("the control writer", role.end_within_s)
        self._ran_epoch: int | None = None
        self._errors: list[RunningError] = []  # of the run of that epoch
        self._refusal: RunningError | None = None  # of a term, until it is seen in etcd
        self._launch_again_at = float("inf")
        self._logged: tuple[str, str] | None = None  # code and message of the last error
        self._shown: Standing | None = None  # since nothing of it runs

    @property
    def coordinator(self) -> Coordinator | None:
        """Of the term that runs, once it is claimed."""
        return self._term.coordinator if self._term is not None else None

    @property
    def is_closed(self) -> bool:
        return self._term is None and not self._closing.names()

    def close(self, *, drop: bool) -> None:
        """Begin to end it all; `is_closed` says when that is over."""
        self._withdraw()
        self._end_run(drop=drop)

    def check_end(self, now_s: float) -> None:
        """Raises ``CaptureSuicide`` when what was closed does not end."""
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
        """What is to be sent."""
        try:
            return self._tick(changefeed, inbox, cluster, now_s)
        except (CaptureSuicide, Fenced):
            raise
        except TermRefused as error:
            self._resign(error, now_s)
        except Exception as error:  # noqa: BLE001 - the others go on
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
            self._owner_revision, self._launch_again_at = None, float("inf")
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
            self._owner_revision,
        )

    def _move_launch(
        self,
        changefeed: ChangefeedReactorState,
        info: ChangefeedInfo,
        row: ScheduleRow,
        cluster: GlobalReactorState,
    ) -> None:
        """One step towards a launch here, or towards the end of what was removed."""
        writes, ours = changefeed.writes(), self._role.id
        if row.owner_state is SchedState.REMOVED:
            if info.state is FeedState.REMOVED:
                changefeed.add_group(*writes.cleanup(changefeed.task_positions))
                return
            self._owner_revision, self._is_first = row.launches + 1, row.launches == 0
            self._ran_epoch = None
            changefeed.add_group(writes.launch(ours))
        elif row.owner is None:
            return  # a broken row: an operator's
        elif row.owner == ours:
            changefeed.add_group(writes.release(ours, changefeed.status or row.task_position))
        elif row.owner_state is SchedState.LAUNCHED and not cluster.is_gone(row.owner):
            # it was the owner before: it is to let go (the dead's are taken from them by who leads)
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
        decision = self._feed_state.decide(info, changefeed.status, errors, warnings, now_s)
        if decision is not None:
            self._log_decision(info, decision)
            changefeed.add_group(changefeed.writes(by_owner=True).feed_event(decision))
        changefeed.clear_reports()
        if self._term is not None:
            self._term.control.set_standing(standing_of(info, decision))

    def _show_ended(self, info: ChangefeedInfo) -> None:
        """Have the control tables say how a changefeed stands that does not run, and so has no
        control writer that would say it."""
        standing, role = standing_of(info), self._role
        if standing.state.is_running or not self.is_closed or standing == self._shown:
            return
        self._shown = standing
        role.capture.data_plane.show(
            info=info,
            identity=role.identity,
            ownership=self._ownership,
            fence=role.capture.fence,
            standing=standing,
        )

    def _withdraw(self) -> None:
        """From now on its control writer says how it stands."""
        if self._shown is not None:
            self._role.capture.data_plane.withdraw(self.name.id)
            self._shown = None

    def _log_decision(self, info: ChangefeedInfo, decision: Decision) -> None:
        """An error is one ERROR line, however often it is met again while it is tried again."""
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

    def _open(self, info: ChangefeedInfo) -> None:
        role = self._role
        self._ran_epoch = info.epoch
        try:
            control = role.capture.data_plane.open_control_writer(
                info=info,
                identity=role.identity,
                ownership=self._ownership,
                fence=role.capture.fence,
                wake=role.capture.woken.set,
            )
            try:
                self._term = Term(
                    info,
                    control,
                    capture=role.info,
                    owner_revision=Revision(self._owner_revision or 0),
                    settings=role.capture.scheduler,
                    rng=role.capture.rng,
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
        alive = set(cluster.captures)  # those who may have spans: the dead too, within their grace
        if not self._is_first and not cluster.knows_the_dead(now_s):
            alive.add(UNSEEN)  # somebody may have had spans before this owner could see who lives
        gone = {each for each in alive if cluster.is_gone(each)}
        unreached = {each.id for each in cluster.captures.values() if not each.is_reached}
        ticked = term.tick(inbox, alive, now_s, unreached=unreached, gone=gone)
        if ticked is None:
            return ()
        self._log_moves(term)
        if ticked.is_known:
            changefeed.add_group(
                changefeed.writes(by_owner=True).advance_checkpoint(
                    ticked.checkpoint_ts, ticked.min_table_barrier_ts, term.epoch
                )
            )
        return ticked.outbox

    def _log_moves(self, term: Term) -> None:
        """One line for all tables that go from one capture to another in this tick."""
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
        """Of this changefeed alone; who leads the cluster is not decided in Delta."""
        logger.warning("its owner resigns changefeed_id=%s: %s", self.name.id, error)
        self._refusal = self._role.report(error, OWNER_UNKNOWN)
        self._launch_again_at = now_s + LAUNCH_AGAIN_S
        self._end_run(drop=True)

    def _fail(self, error: Exception) -> None:
        """Reported in each tick until it is written: nothing runs any more in this epoch."""
        self._end_run(drop=False)
        report = self._role.report(error, OWNER_UNKNOWN)
        if any((each.code, each.message) == (report.code, report.message) for each in self._errors):
            return
        if not isinstance(error, TidelakeError):  # what is known is said when it is decided upon
            logger.error("a changefeed fails changefeed_id=%s", self.name.id, exc_info=error)
        self._errors.append(report)


def standing_of(info: ChangefeedInfo, decision: Decision | None = None) -> Standing:
    """How a changefeed stands, for the control tables: as etcd has it, or will have it once the
    decision is written."""
    state = known_state(info)
    told = [each for each in (info.error, info.warning) if each is not None]
    if decision is not None:
        state = next_state(state, decision.event)
        told += [decision.error] if decision.error is not None else []
    if state is FeedState.NORMAL or not told:
        return Standing(state=state)
    return Standing(state=state, message=max(told, key=lambda each: each.time).message)
