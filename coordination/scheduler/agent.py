"""An agent: has one changefeed's spans replicated on one capture, as the changefeed's owner orders.

    inbox ─► for us? this changefeed epoch? not a stale owner? ─► heartbeat: barrier, liveness
                                              │                  └► dispatch: this processor epoch?
                                              │                     a new fence? ─► the data plane
                                              └► a newer owner: adopted, new processor epoch
    what has changed in the data plane ─► statuses ─► outbox

The data plane has the spans and their states. The agent passes the owner's orders on to it, and
reports the states to the owner. An order that does not fit the span's state is dropped: the owner
decides by the states that are reported, and sends it again. (TiCDC's agent keeps a task and a state
for each span.)

Pure: messages go in and come out of `tick`. Two faults of TiCDC's agent are avoided: its epoch
never changes, so that no message is ever stale; and a heartbeat without a barrier lifts the
barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from coordination.model import CaptureID, ChangefeedID, ProcessorEpoch
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import (
    AddTable,
    Body,
    DispatchTableRequest,
    DispatchTableResponse,
    Heartbeat,
    HeartbeatResponse,
    Liveness,
    Message,
    RemoveTable,
)
from coordination.scheduler.replica import Replica
from coordination.scheduler.reports import SpanReports
from coordination.scheduler.table_status import Statuses, TableState, TableStatus


class OwnerInfo(NamedTuple):
    id: CaptureID
    launch: int


NO_OWNER = OwnerInfo(CaptureID(""), 0)


class Agent:
    """See the module's picture. One thread; ``new_epoch`` gives a UUID that was never used."""

    def __init__(
        self,
        *,
        capture_id: CaptureID,
        changefeed_id: ChangefeedID,
        changefeed_epoch: int,
        version: str,
        replica: Replica,
        new_epoch: Callable[[], ProcessorEpoch],
        owner: OwnerInfo = NO_OWNER,
    ) -> None:
        """``owner``: the owner in etcd. Without it the sender of the first message is taken for the
        owner, and that message may be a late one of an earlier owner. ``named`` is to follow what
        etcd says."""
        self.capture_id = capture_id
        self.changefeed_id = changefeed_id
        self.changefeed_epoch = changefeed_epoch
        self.epoch = new_epoch()
        self.owner = owner
        self.named = owner  # the owner in etcd, as last read; a newer one may have written already
        self.liveness = Liveness.ALIVE
        self.barrier: Barrier | None = None  # None: nothing is applied above a span's first ts
        # The newest fence that each span was ever given here, by table ID. Fences are kept when
        # spans and owners go: a late AddTable must not bring back a span that was removed.
        self.fences: dict[int, int] = {}
        self._version = version
        self._replica = replica
        self._new_epoch = new_epoch
        self._reports = SpanReports()

    def tick(self, inbox: Sequence[Message]) -> tuple[Message, ...]:
        """Take the messages in their order; returns the messages to send. Raises the errors of the
        data plane."""
        heartbeats: list[tuple[Heartbeat, ProcessorEpoch]] = []
        for message in inbox:
            if self._is_ours(message) and self._accept_owner(message):
                self._receive(message, heartbeats)
        bodies: list[Body] = []
        for table_id in self._replica.take_changed():
            bodies += self._look_at(table_id)
        if heartbeats:  # one answer to all of them, with every span that any of them asks for
            bodies.append(self._answer(heartbeats))
        return tuple(self._to_owner(body) for body in bodies)

    def _is_ours(self, message: Message) -> bool:
        return (
            message.to == self.capture_id
            and message.changefeed_id == self.changefeed_id
            and message.changefeed_epoch == self.changefeed_epoch
        )

    def _accept_owner(self, message: Message) -> bool:
        """False for a message of an earlier owner. A newer owner is adopted: the spans stay as they
        are, with their streams and fences, but dispatches of the owner before it become stale.

        A launch is one owner's. But an etcd that was restored from a backup gives its number away a
        second time. Then both owners write until the first has noticed. If two owners have one
        number, the owner that etcd names counts.
        """
        sender = OwnerInfo(message.sender, message.launch)
        if sender == self.owner:
            return True
        is_newer = sender.launch > self.owner.launch
        is_named = sender.launch == self.owner.launch and sender == self.named
        if not (is_newer or is_named):
            return False
        self.owner = sender
        self.epoch = self._new_epoch()
        return True

    def _receive(
        self, message: Message, heartbeats: list[tuple[Heartbeat, ProcessorEpoch]]
    ) -> None:
        match message.body:
            case Heartbeat() as heartbeat:
                if heartbeat.barrier is not None:  # without one, the last barrier holds
                    self.barrier = heartbeat.barrier
                if heartbeat.is_stopping:
                    self.liveness = Liveness.STOPPING
                heartbeats.append((heartbeat, message.processor_epoch))
            case AddTable() | RemoveTable() as request if message.processor_epoch == self.epoch:
                self._dispatch(request)
            case _:
                pass  # a dispatch for another processor epoch, or a message that is not for agents

    def _dispatch(self, request: DispatchTableRequest) -> None:
        """Follow an order, unless its fence is old or it does not fit the span's state. A newer
        fence counts as seen even if the order does not fit."""
        is_add = isinstance(request, AddTable)
        table_id = request.span.table_id if isinstance(request, AddTable) else request.table_id
        seen = self.fences.get(table_id, 0)
        # A remove carries the fence of the last assignment, not one of its own.
        if request.fence < seen or (is_add and request.fence == seen):
            return
        self.fences[table_id] = request.fence
        state = self._replica.get_table_span_status(table_id).state
        if isinstance(request, RemoveTable):
            self._replica.remove_table_span(table_id)
        # Only an absent span is prepared, only a prepared one is written; else the order is late.
        elif state is (TableState.ABSENT if request.is_secondary else TableState.PREPARED):
            self._replica.add_table_span(
                request.span, request.checkpoint, request.fence, is_prepare=request.is_secondary
            )

    def _look_at(self, table_id: int) -> Iterator[DispatchTableResponse]:
        """Take note of a span's status. If its state has changed, the owner is told at once; other
        changes wait for the next heartbeat."""
        before = self._reports.last(table_id)
        status = self._replica.get_table_span_status(table_id)
        if status.state is TableState.STOPPED:
            status = self._replica.take_stopped(table_id) or status
        if status.resolved_ts < status.checkpoint_ts:  # the span has read nothing yet
            status = status._replace(resolved_ts=status.checkpoint_ts)
        self._reports.observe(status)
        is_news = before is None or before.state is not status.state
        if is_news and status.state is not TableState.ABSENT:
            yield DispatchTableResponse(status=status, sequence=self._reports.sequence)
        if status.state is TableState.STOPPED:
            self._reports.observe(TableStatus(table_id, TableState.ABSENT))

    def _answer(self, heartbeats: Sequence[tuple[Heartbeat, ProcessorEpoch]]) -> HeartbeatResponse:
        newest, epoch = heartbeats[-1]
        # A `seen` of another processor epoch says nothing about this one's sequences.
        since = newest.seen if epoch == self.epoch else 0
        if since > self._reports.sequence:
            since = 0
        statuses = {status.table_id: status for status in self._reports.since(since)}
        for table_id in (t for heartbeat, _ in heartbeats for t in heartbeat.table_ids):
            if table_id not in statuses:
                absent = TableStatus(table_id, TableState.ABSENT)
                statuses[table_id] = self._reports.last(table_id) or absent
        return HeartbeatResponse(
            statuses=Statuses.of(statuses.values()),
            liveness=self.liveness,
            sequence=self._reports.sequence,
            since=since,
            checksum=self._reports.checksum,
            read_positions=self._replica.get_read_positions(),
        )

    def _to_owner(self, body: Body) -> Message:
        return Message(
            version=self._version,
            launch=self.owner.launch,
            processor_epoch=self.epoch,
            changefeed_epoch=self.changefeed_epoch,
            sender=self.capture_id,
            to=self.owner.id,
            changefeed_id=self.changefeed_id,
            body=body,
        )
