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
from dataclasses import dataclass, replace
from enum import StrEnum

from coordination.errors import TidelakeError
from coordination.model import CaptureID, ChangefeedID, ProcessorEpoch, Revision
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import (
    AddTable,
    Body,
    DispatchTableRequest,
    DispatchTableResponse,
    Header,
    Heartbeat,
    HeartbeatResponse,
    Liveness,
    Message,
    RemoveTable,
    TableState,
    TableStatus,
)
from coordination.scheduler.reports import SpanReports
from coordination.scheduler.table_span import TableExecutor, TableSpans, TaskError


class OwnerConflict(TidelakeError):
    """Two captures say that they are the owner with one and the same election revision."""


class Dropped(StrEnum):
    """Why a message, or a dispatch in it, was not followed."""

    NOT_FOR_US = "it is for another capture or changefeed"
    CHANGEFEED_EPOCH = "it is of another changefeed epoch"
    STALE_OWNER = "its owner is no longer in power"
    PROCESSOR_EPOCH = "it is for another processor epoch"
    REFUSED = "it is late, finds nothing to remove, or finds a task under way"
    UNKNOWN = "it is not for agents"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    version: str
    capture_id: CaptureID
    changefeed_id: ChangefeedID
    changefeed_epoch: int
    epoch: ProcessorEpoch

    def reset_epoch(self, epoch: ProcessorEpoch) -> AgentInfo:
        return replace(self, epoch=epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerInfo:
    id: CaptureID
    revision: Revision
    version: str = ""


NO_OWNER = OwnerInfo(id=CaptureID(""), revision=Revision(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTick:
    """What came of a tick. ``barrier`` is None until an owner has sent one: nothing may be applied
    above where it was added then."""

    outbox: tuple[Message, ...]
    barrier: Barrier | None
    liveness: Liveness
    errors: tuple[TaskError, ...]
    dropped: tuple[tuple[Dropped, Message], ...]


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
        self.info = AgentInfo(
            version=version,
            capture_id=capture_id,
            changefeed_id=changefeed_id,
            changefeed_epoch=changefeed_epoch,
            epoch=new_epoch(),
        )
        self.owner = owner
        self.liveness = Liveness.ALIVE
        self.spans = TableSpans(executor)
        self._executor = executor
        self._new_epoch = new_epoch
        self._barrier: Barrier | None = None
        self._reports = SpanReports()

    def stop(self) -> None:
        """The capture is to end (a signal, say): the owner is told with the next heartbeat."""
        self.liveness = Liveness.STOPPING

    def serve_again(self) -> None:
        """A drain was taken back."""
        self.liveness = Liveness.ALIVE

    def tick(self, inbox: Sequence[Message]) -> AgentTick:
        """Take the messages in their order, go on with all tasks, answer."""
        dropped: list[tuple[Dropped, Message]] = []
        heartbeats: list[tuple[Heartbeat, ProcessorEpoch]] = []
        for message in inbox:
            reason = self._receive(message, heartbeats)
            if reason is not None:
                dropped.append((reason, message))
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
        return AgentTick(
            outbox=tuple(self._to_owner(body) for body in bodies),
            barrier=self._barrier,
            liveness=self.liveness,
            errors=tuple(errors),
            dropped=tuple(dropped),
        )

    def _receive(
        self, message: Message, heartbeats: list[tuple[Heartbeat, ProcessorEpoch]]
    ) -> Dropped | None:
        header, info = message.header, self.info
        if (message.to, message.changefeed_id) != (info.capture_id, info.changefeed_id):
            return Dropped.NOT_FOR_US
        if header.changefeed_epoch != info.changefeed_epoch:
            return Dropped.CHANGEFEED_EPOCH
        if not self._accept_owner(message.sender, header.owner_revision, header.version):
            return Dropped.STALE_OWNER
        match message.body:
            case Heartbeat() as heartbeat:
                self._heed(heartbeat)
                heartbeats.append((heartbeat, header.processor_epoch))
                return None
            case AddTable() | RemoveTable() as request:
                return self._dispatch(request, header.processor_epoch)
            case _:
                return Dropped.UNKNOWN

    def _accept_owner(self, owner_id: CaptureID, revision: Revision, version: str) -> bool:
        """False for an owner of the past. A newer one is adopted: the spans stay as they are, with
        their streams and fences, but what the old one sent and is still under way is stale."""
        if revision == self.owner.revision:
            if owner_id != self.owner.id:
                raise OwnerConflict(
                    f"captures {self.owner.id} and {owner_id} both own changefeed"
                    f" {self.info.changefeed_id} with revision {revision}"
                )
            return True
        if revision < self.owner.revision:
            return False
        self.owner = OwnerInfo(id=owner_id, revision=revision, version=version)
        self.info = self.info.reset_epoch(self._new_epoch())
        return True

    def _heed(self, heartbeat: Heartbeat) -> None:
        if heartbeat.barrier is not None:  # without one, the last one holds
            self._barrier = heartbeat.barrier
        if heartbeat.is_stopping:
            self.stop()

    def _dispatch(self, request: DispatchTableRequest, epoch: ProcessorEpoch) -> Dropped | None:
        if epoch != self.info.epoch:
            return Dropped.PROCESSOR_EPOCH
        return None if self.spans.accept(request) else Dropped.REFUSED

    def _answer(self, heartbeats: Sequence[tuple[Heartbeat, ProcessorEpoch]]) -> HeartbeatResponse:
        newest, epoch = heartbeats[-1]
        # what an owner has seen of another epoch says nothing about this one's sequences
        since = newest.seen if epoch == self.info.epoch else 0
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
            header=Header(
                version=self.info.version,
                owner_revision=self.owner.revision,
                processor_epoch=self.info.epoch,
                changefeed_epoch=self.info.changefeed_epoch,
            ),
            sender=self.info.capture_id,
            to=self.owner.id,
            changefeed_id=self.info.changefeed_id,
            body=body,
        )
