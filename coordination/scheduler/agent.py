"""An agent: runs one changefeed's spans on one capture, as the changefeed's owner says (TiCDC's).

    inbox ─► for us? this changefeed epoch? not a stale owner? ─► heartbeat: barrier, liveness
                                              │                  └► dispatch: this processor epoch?
                                              │                     a new fence? ─► the span's task
                                              └► a newer owner: adopted, new processor epoch
    tasks ─► statuses ─► outbox

Pure: messages go in and come out, and all that happens in between happens in `tick`. What
TiCDC's gets wrong: its epoch never changes, so that nothing is ever stale; a heartbeat without a
barrier lifts the barrier; errors of tasks are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from coordination.errors import TidelakeError
from coordination.model import CaptureID, ChangefeedID, ProcessorEpoch, Revision
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import (
    AddTable,
    Body,
    DispatchTableResponse,
    Heartbeat,
    HeartbeatResponse,
    Liveness,
    Message,
    RemoveTable,
    TableState,
    TableStatus,
)
from coordination.scheduler.reports import SpanReports
from coordination.scheduler.table_span import TableExecutor, TableSpans


class OwnerConflict(TidelakeError):
    """Two captures say that they are the owner with one and the same election revision."""


class OwnerInfo(NamedTuple):
    id: CaptureID
    revision: Revision


NO_OWNER = OwnerInfo(CaptureID(""), Revision(0))


class AgentTick(NamedTuple):
    """What came of a tick; the errors are those of spans' tasks."""

    outbox: tuple[Message, ...]
    errors: list[Exception]


class Agent:
    """See the module's picture. One thread; ``new_epoch`` gives a UUID that was never used."""

    def __init__(
        self,
        *,
        capture_id: CaptureID,
        changefeed_id: ChangefeedID,
        changefeed_epoch: int,
        version: str,
        executor: TableExecutor,
        new_epoch: Callable[[], ProcessorEpoch],
        owner: OwnerInfo = NO_OWNER,
    ) -> None:
        """``owner``: who is the owner as far as etcd says. Without it the first message decides,
        and that may be one of an owner of the past."""
        self.capture_id = capture_id
        self.changefeed_id = changefeed_id
        self.changefeed_epoch = changefeed_epoch
        self.epoch = new_epoch()
        self.owner = owner
        self.liveness = Liveness.ALIVE
        self.barrier: Barrier | None = None  # None: nothing may be applied above where it was added
        self.spans = TableSpans(executor)
        self._version = version
        self._executor = executor
        self._new_epoch = new_epoch
        self._reports = SpanReports()

    def tick(self, inbox: Sequence[Message]) -> AgentTick:
        """Take the messages in their order, go on with all tasks, answer. Raises OwnerConflict."""
        heartbeats: list[tuple[Heartbeat, ProcessorEpoch]] = []
        for message in inbox:
            if self._is_ours(message) and self._accept_owner(message):
                self._receive(message, heartbeats)
        responses, errors = self.spans.poll()
        bodies: list[Body] = []
        for response in responses:
            self._reports.observe(response.status)
            bodies.append(
                DispatchTableResponse(
                    status=response.status,
                    is_remove=response.is_remove,
                    sequence=self._reports.sequence,
                )
            )
        for status in self.spans.take_changed():
            self._reports.observe(status)
        if heartbeats:  # one answer does for all: it holds what any of them asked for
            bodies.append(self._answer(heartbeats))
        return AgentTick(tuple(self._to_owner(body) for body in bodies), errors)

    def _is_ours(self, message: Message) -> bool:
        return (
            message.to == self.capture_id
            and message.changefeed_id == self.changefeed_id
            and message.changefeed_epoch == self.changefeed_epoch
        )

    def _accept_owner(self, message: Message) -> bool:
        """False for an owner of the past. A newer one is adopted: the spans stay as they are, with
        their streams and fences, but what the old one sent and is still under way is stale."""
        owner_id, revision = message.sender, message.owner_revision
        if revision == self.owner.revision:
            if owner_id != self.owner.id:
                raise OwnerConflict(
                    f"captures {self.owner.id} and {owner_id} both own changefeed"
                    f" {self.changefeed_id} with revision {revision}"
                )
            return True
        if revision < self.owner.revision:
            return False
        self.owner = OwnerInfo(owner_id, revision)
        self.epoch = self._new_epoch()
        return True

    def _receive(
        self, message: Message, heartbeats: list[tuple[Heartbeat, ProcessorEpoch]]
    ) -> None:
        match message.body:
            case Heartbeat() as heartbeat:
                if heartbeat.barrier is not None:  # without one, the last one holds
                    self.barrier = heartbeat.barrier
                if heartbeat.is_stopping:
                    self.liveness = Liveness.STOPPING
                heartbeats.append((heartbeat, message.processor_epoch))
            case AddTable() | RemoveTable() as request if message.processor_epoch == self.epoch:
                self.spans.accept(request)
            case _:
                pass  # a dispatch for the agent under another owner, or not for agents

    def _answer(self, heartbeats: Sequence[tuple[Heartbeat, ProcessorEpoch]]) -> HeartbeatResponse:
        newest, epoch = heartbeats[-1]
        # what an owner has seen of another epoch says nothing about this one's sequences
        since = newest.seen if epoch == self.epoch else 0
        if since > self._reports.sequence:
            since = 0
        statuses = {status.table_id: status for status in self._reports.since(since)}
        for table_id in (t for heartbeat, _ in heartbeats for t in heartbeat.table_ids):
            if table_id not in statuses:
                absent = TableStatus(table_id, TableState.ABSENT)
                statuses[table_id] = self._reports.last(table_id) or absent
        return HeartbeatResponse(
            statuses=tuple(statuses.values()),
            liveness=self.liveness,
            sequence=self._reports.sequence,
            since=since,
            checksum=self._reports.checksum,
            answers=newest.number,
            scan=self._executor.get_scan(),
        )

    def _to_owner(self, body: Body) -> Message:
        return Message(
            version=self._version,
            owner_revision=self.owner.revision,
            processor_epoch=self.epoch,
            changefeed_epoch=self.changefeed_epoch,
            sender=self.capture_id,
            to=self.owner.id,
            changefeed_id=self.changefeed_id,
            body=body,
        )
