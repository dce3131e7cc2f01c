"""The processor role of a capture: an agent and a replica for each changefeed that runs.

    etcd: runs, launched ──► OPEN ──stopped, removed, a new epoch──► CLOSING ──is_closed──► (gone)
                              │ ▲                                                             │
    messages ──► agent ──► replica ──► statuses, errors ──► task position          a new epoch opens

An agent lives as long as a changefeed's epoch; it and its streams stay when the owner changes. A
replica for a new epoch is opened only when nothing of the old one runs any more; a replica that
does not close in time ends the capture.
A reactor of one thread: everything slow happens in the data plane.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from coordination.capture.context import SessionContext
from coordination.errors import Fenced, TryAgain
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.changefeed_state import ChangefeedReactorState
from coordination.metadata.feed_state import known_state
from coordination.metadata.global_state import GlobalReactorState
from coordination.metadata.records import ChangefeedInfo, RunningError, SchedState, TaskPosition
from coordination.metadata.running_errors import PROCESSOR_UNKNOWN, log_failure
from coordination.scheduler.agent import Agent, OwnerInfo
from coordination.scheduler.messages import (
    AddTable,
    DispatchTableResponse,
    Liveness,
    Message,
)
from coordination.scheduler.replica import Replica
from coordination.scheduler.table_status import TableState
from coordination.trust.close_deadlines import Closings

logger = logging.getLogger(__name__)

MAX_INBOX: Final = 10_000  # messages of one changefeed that are kept while its agent does not tick
_SAYS: Final = {
    TableState.REPLICATING: "table taken",
    TableState.STOPPED: "table given up",
}


@dataclass(slots=True, kw_only=True)
class _Refusal:
    """A changefeed epoch whose replica could not be opened."""

    epoch: int
    report: RunningError
    is_written: bool = False


@dataclass(slots=True, kw_only=True)
class _Run:
    """The run of one changefeed epoch on this capture."""

    epoch: int
    agent: Agent
    replica: Replica
    errors: list[RunningError] = field(default_factory=list)  # not seen in etcd yet
    warnings: list[RunningError] = field(default_factory=list)
    concern: RunningError | None = None  # that lasts now
    names: dict[int, str] = field(default_factory=dict)  # of tables, for log lines
    shown: dict[int, TableState] = field(default_factory=dict)  # by table, as last logged


class ProcessorReactor:
    """See the module's picture. ``owns`` says whether this capture has the owner role right now; if
    not, changefeeds whose schedule rows name it as their owner are released. ``wake`` has the next
    tick come soon; any thread."""

    def __init__(
        self, role: SessionContext, *, owns: Callable[[], bool], wake: Callable[[], None]
    ) -> None:
        self.is_stopping = False
        self._role = role
        self._owns = owns
        self._wake = wake
        self._is_waiting = True  # for something of which nobody tells
        self._runs: dict[ChangefeedName, _Run] = {}
        self._closing = Closings("the replica", role.end_within_s)
        self._inboxes: dict[str, list[Message]] = {}
        self._outbox: list[Message] = []
        self._refused: dict[ChangefeedName, _Refusal] = {}

    @property
    def span_count(self) -> int:
        return sum(run.replica.get_table_span_count() for run in self._runs.values())

    @property
    def due_at(self) -> float:
        """When the next tick is due though nothing happens; monotonic."""
        return float("-inf") if self.is_stopping or self._is_waiting else float("inf")

    @property
    def is_closed(self) -> bool:
        return not self._runs and not self._closing.names()

    def post(self, messages: Sequence[Message]) -> None:
        """Take messages for agents; the next tick, which comes soon, reads them. Messages for an
        agent that is not here (yet) are dropped: the owner sends again what still matters."""
        for message in messages:
            inbox = self._inboxes.setdefault(message.changefeed_id, [])
            if len(inbox) < MAX_INBOX:
                inbox.append(message)
        if messages:
            self._wake()

    def serve_again(self) -> None:
        """Take a drain back: the agents report ALIVE again."""
        self.is_stopping = False
        for run in self._runs.values():
            run.agent.liveness = Liveness.ALIVE

    def take_outbox(self) -> list[Message]:
        taken, self._outbox = self._outbox, []
        return taken

    def close(self, *, drop: bool) -> None:
        """Begin to close all replicas; `is_closed` says when that is done."""
        for name in list(self._runs):
            self._retire(name, drop=drop)
        self._closing.close(drop=drop)

    def tick(self, state: GlobalReactorState, now_s: float) -> None:
        """Follow etcd and run the agents. Raises ``CaptureSuicide`` if a replica does not close in
        time; an error of one changefeed is only reported."""
        self._closing.check(now_s)
        self._is_waiting = False
        for name in [each for each in self._runs if each not in state.changefeeds]:
            self._retire(name)
        for changefeed in list(state.changefeeds.values()):
            self._follow(changefeed)
        for name, run in list(self._runs.items()):
            self._tick_run(run, state.changefeeds[name])
        self._is_waiting |= bool(self._closing.names())
        self._inboxes.clear()

    def _follow(self, changefeed: ChangefeedReactorState) -> None:
        """Open or close the changefeed's replica as etcd says; and release the changefeed, if this
        capture is named as its owner without having the owner role."""
        info, row, name = changefeed.info, changefeed.schedule, changefeed.name
        if info is not None and row is not None and row.owner == self._role.id and not self._owns():
            changefeed.add_group(changefeed.writes().release(self._role.id))
        runs = info is not None and known_state(info).is_running
        run = self._runs.get(name)
        if run is not None and (info is None or not runs or info.epoch != run.epoch):
            self._retire(name)
            run = None
        if run is None and info is not None and runs and name.id not in self._closing.names():
            self._open(info, changefeed)

    def _open(self, info: ChangefeedInfo, changefeed: ChangefeedReactorState) -> None:
        role, capture, owner = self._role, self._role.capture, _owner_in(changefeed)
        if owner is None:
            return  # no owner yet: late messages of an earlier owner must not find an agent
        refusal = self._refused.get(info.name)
        if refusal is not None and refusal.epoch == info.epoch:
            self._write_refusal(refusal, changefeed)
            return
        try:
            replica = capture.data_plane.open_replica(info, role.trust, self._wake)
        except (Fenced, TryAgain):
            self._is_waiting = True
            return
        except Exception as error:  # noqa: BLE001 - it is reported, and the other changefeeds go on
            log_failure(logger, f"could not open a replica changefeed_id={info.id}", error)
            refusal = _Refusal(epoch=info.epoch, report=self._role.report(error, PROCESSOR_UNKNOWN))
            self._refused[info.name] = refusal
            self._write_refusal(refusal, changefeed)
            return
        agent = Agent(
            capture_id=role.id,
            changefeed_id=info.id,
            changefeed_epoch=info.epoch,
            version=role.info.version,
            replica=replica,
            new_epoch=role.new_epoch,
            owner=owner,
        )
        self._runs[info.name] = _Run(epoch=info.epoch, agent=agent, replica=replica)
        logger.info("replica opened changefeed_id=%s changefeed_epoch=%s", info.id, info.epoch)

    def _retire(self, name: ChangefeedName, *, drop: bool = False) -> None:
        run = self._runs.pop(name)
        self._closing.begin(name.id, run.replica, drop=drop)
        logger.info("replica closes changefeed_id=%s changefeed_epoch=%s", name.id, run.epoch)

    def _tick_run(self, run: _Run, changefeed: ChangefeedReactorState) -> None:
        run.agent.named = _owner_in(changefeed) or run.agent.named
        try:
            self._tick_agent(run, self._inboxes.get(changefeed.name.id, ()))
        except Exception as error:  # noqa: BLE001 - one changefeed must not end the others
            log_failure(logger, f"an agent failed changefeed_id={changefeed.name.id}", error)
            run.errors.append(self._role.report(error, PROCESSOR_UNKNOWN))
        self._write_reports(run, changefeed)

    def _tick_agent(self, run: _Run, inbox: Sequence[Message]) -> None:
        if self.is_stopping:
            run.agent.liveness = Liveness.STOPPING
        trouble = run.replica.take_trouble()
        run.errors += trouble.errors
        run.warnings += trouble.warnings
        run.concern = trouble.concern
        outbox = run.agent.tick(inbox)
        self._outbox += outbox
        self.is_stopping |= run.agent.liveness is Liveness.STOPPING
        run.replica.set_barrier(run.agent.barrier)
        self._log_spans(run, inbox, outbox)

    def _log_spans(self, run: _Run, inbox: Sequence[Message], outbox: Sequence[Message]) -> None:
        """Log a line for each table that this capture has begun or ceased to replicate."""
        for message in inbox:
            if isinstance(message.body, AddTable):
                run.names[message.body.span.table_id] = str(message.body.span.name)
        for message in outbox:
            if not isinstance(message.body, DispatchTableResponse):
                continue
            table_id, state = message.body.status.table_id, message.body.status.state
            if state in _SAYS and run.shown.get(table_id, TableState.STOPPED) is not state:
                run.shown[table_id] = state
                logger.info(
                    "%s changefeed_id=%s table=%s checkpoint_ts=%d",
                    *(_SAYS[state], message.changefeed_id, run.names.get(table_id, table_id)),
                    message.body.status.checkpoint_ts,
                )

    def _write_refusal(self, refusal: _Refusal, changefeed: ChangefeedReactorState) -> None:
        last = changefeed.last_reports.get(self._role.id)
        refusal.is_written |= last is not None and last.error == refusal.report
        if not refusal.is_written:
            changefeed.report(self._role.id, refusal.epoch, refusal.report, None)

    def _write_reports(self, run: _Run, changefeed: ChangefeedReactorState) -> None:
        """Report the first error and the oldest warning, each until it was seen in etcd, even if
        the owner has cleared it since (`last_reports`). Later errors are dropped: the first one
        stops the run."""
        last = changefeed.last_reports.get(self._role.id) or TaskPosition()
        if run.errors and last.error == run.errors[0]:
            run.errors.clear()  # the first one stops the run
        if run.warnings and last.warning == run.warnings[0]:
            del run.warnings[0]
        error = run.errors[0] if run.errors else None
        warning = run.warnings[0] if run.warnings else None
        if error is not None or warning is not None:
            changefeed.report(self._role.id, run.epoch, error, warning)
        stored = changefeed.task_positions.get(self._role.id) or TaskPosition()
        if stored.concern(run.epoch) != run.concern:
            changefeed.report_concern(self._role.id, run.epoch, run.concern)


def _owner_in(changefeed: ChangefeedReactorState) -> OwnerInfo | None:
    """The capture that runs the changefeed, as etcd says; None while nobody does."""
    row = changefeed.schedule
    if row is None or row.owner_state is not SchedState.LAUNCHED or row.owner is None:
        return None
    return OwnerInfo(id=row.owner, launch=row.launches)
