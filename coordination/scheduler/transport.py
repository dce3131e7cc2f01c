"""Messages between captures: what the rest sees of it, and the half of it that needs no network.

    send ──► post ──► outbox of the peer ──due──► batch ───────► accept ──► inbox ──► receive
                             ▲                      │               │
                             └───── settle ◄────────┴─── answer ◄───┘

A message arrives at least once while its peer lives under the same ID; within a session of its
outbox it arrives once, and in order. A batch for an ID that is not the receiver's own is rejected:
a reset capture keeps its address, not its ID (docs/cluster.md 14). Nothing waits for ever: what a
peer does not take is dropped, oldest heartbeats first, when it has grown over the limits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from coordination.model import CaptureID
from coordination.scheduler.envelope import Answer, Batch, Delivery, Frame, dump_batch
from coordination.scheduler.messages import Heartbeat, HeartbeatResponse, Message, encode
from coordination.scheduler.outbox import Outbox, TransportLimits

MAX_HEARD: Final = 1024  # senders whose last numbers are kept; far more than a cluster has


class Transport(Protocol):
    """Messages of one capture, by capture ID. ``wake`` was given to it: called, on any thread, when
    something can be received."""

    def send(self, messages: Sequence[Message]) -> None:
        """Never blocks on a peer and never raises for one. Messages to the capture itself arrive
        too; those from another ID than its own (of before a reset) do not."""
        ...

    def receive(self) -> list[Message]:
        """All that has come since the last call, each sender's in the order of sending."""
        ...

    def set_self(self, capture_id: CaptureID) -> None:
        """Be this capture from now on, *before* others can learn the ID: until then they are told
        that they are wrong. What was to be sent or received under another ID is dropped."""
        ...

    def close(self) -> None:
        """What was not sent yet is not sent. Closing twice is fine."""
        ...


@dataclass(slots=True)
class TransportCounts:
    """Since the start; what was lost or came twice is no error, only worth knowing."""

    sent: int = 0  # frames, those sent again included
    received: int = 0
    repeated: int = 0  # had arrived before
    early: int = 0  # something before it is missing: it comes again
    malformed: int = 0
    dropped: int = 0  # never arrived: too much, too large, no address, rejected, stale
    rejected: int = 0  # batches of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A batch on its way out; `settle` or `fail` must follow."""

    to: CaptureID
    session: int
    data: bytes


@dataclass(slots=True)
class _Heard:
    session: int
    next_number: int


class MessageExchange:
    """The outboxes and the inbox of one capture. No lock, clock or network: its user has them.

    ``session`` must be above those of an earlier exchange with the same capture ID, if there was
    one: the time of the start will do.
    """

    def __init__(
        self,
        capture_id: CaptureID | None,
        *,
        limits: TransportLimits,
        address: str = "",
        session: int = 1,
    ) -> None:
        self.counts = TransportCounts()
        self._self = capture_id
        self._limits = limits
        self.address = address  # where we listen
        self._session = session
        self._outboxes: dict[CaptureID, Outbox] = {}
        self._heard: OrderedDict[CaptureID, _Heard] = OrderedDict()
        self._inbox: list[Message] = []
        self._inbox_bytes = 0

    @property
    def capture_id(self) -> CaptureID | None:
        return self._self

    def set_self(self, capture_id: CaptureID) -> None:
        if capture_id == self._self:
            return
        self._self = capture_id
        self.counts.dropped += sum(map(len, self._outboxes.values())) + len(self._inbox)
        self._outboxes.clear()
        self._heard.clear()
        self._inbox.clear()
        self._inbox_bytes = 0

    def post(self, messages: Sequence[Message], now_s: float) -> bool:
        """Take messages to be sent; True if one was for ourselves and can be received."""
        is_received = False
        for message in messages:
            if message.sender != self._self:
                self.counts.dropped += 1
            elif message.to == self._self:
                is_received |= self._receive_own(message)
            else:
                self._offer(message, now_s)
        return is_received

    def take_due(self, now_s: float) -> list[Parcel]:
        """What is to be sent now, at most one batch for each peer."""
        parcels = []
        for to, outbox in list(self._outboxes.items()):
            if frames := outbox.batch(now_s):
                parcels.append(self._parcel(to, outbox, frames))
            elif not len(outbox) and now_s - outbox.used_s > self._limits.forget_s:
                del self._outboxes[to]
        return parcels

    def next_due_s(self) -> float | None:
        """When `take_due` has something; None if only news can bring something."""
        dues = [due for outbox in self._outboxes.values() if (due := outbox.due_s) is not None]
        return min(dues, default=None)

    def settle(self, parcel: Parcel, answer: Answer, now_s: float) -> None:
        outbox = self._outbox_of(parcel)
        if outbox is None:
            return
        outbox.unresolved_since_s = None
        if answer.is_rejected:
            self.counts.rejected += 1
            self.counts.dropped += len(outbox)
            outbox.clear(self._new_session(), now_s)
        else:
            outbox.answered(answer.received, now_s)

    def fail(self, parcel: Parcel, now_s: float, *, has_address: bool = True) -> None:
        """No answer came, or there is nowhere to send to."""
        outbox = self._outbox_of(parcel)
        if outbox is None:
            return
        outbox.failed(now_s)
        if has_address:
            outbox.unresolved_since_s = None
        elif outbox.unresolved_since_s is None:
            outbox.unresolved_since_s = now_s
        elif now_s - outbox.unresolved_since_s > self._limits.forget_s:
            self.counts.dropped += len(outbox)
            del self._outboxes[parcel.to]

    def accept(self, delivery: Delivery) -> Answer:
        """Take a peer's batch, as far as it goes on without a gap and there is room."""
        batch = delivery.batch
        if batch.to != self._self:
            return Answer(is_rejected=True)
        heard = self._hear(batch)
        if batch.session < heard.session:  # late: nobody waits for this answer
            self.counts.repeated += len(batch.frames)
            return Answer()
        heard.next_number = max(heard.next_number, batch.base)
        for (number, data), message in zip(batch.frames, delivery.messages, strict=True):
            if number != heard.next_number:
                self.counts.repeated += number < heard.next_number
                self.counts.early += number > heard.next_number
            elif self._has_room:
                heard.next_number += 1
                self._receive(message, len(data), batch)
        return Answer(received=heard.next_number - 1)

    def take(self) -> list[Message]:
        inbox, self._inbox, self._inbox_bytes = self._inbox, [], 0
        return inbox

    def _offer(self, message: Message, now_s: float) -> None:
        data = encode(message)
        if len(data) > self._limits.max_recv_msg_bytes // 2:  # no receiver would take it
            self.counts.dropped += 1
            return
        outbox = self._outboxes.get(message.to)
        if outbox is None:
            outbox = Outbox(self._new_session(), self._limits, now_s)
            self._outboxes[message.to] = outbox
        dropped = outbox.dropped
        is_heartbeat = isinstance(message.body, Heartbeat | HeartbeatResponse)
        outbox.offer(data, is_heartbeat=is_heartbeat, now_s=now_s)
        self.counts.dropped += outbox.dropped - dropped

    def _parcel(self, to: CaptureID, outbox: Outbox, frames: tuple[Frame, ...]) -> Parcel:
        assert self._self is not None
        self.counts.sent += len(frames)
        batch = Batch(
            sender=self._self,
            address=self.address,
            to=to,
            session=outbox.session,
            base=frames[0].number,
            frames=frames,
        )
        return Parcel(to=to, session=outbox.session, data=dump_batch(batch))

    def _outbox_of(self, parcel: Parcel) -> Outbox | None:
        """None if we, or what we hold for that peer, have changed since."""
        outbox = self._outboxes.get(parcel.to)
        return outbox if outbox is not None and outbox.session == parcel.session else None

    def _new_session(self) -> int:
        self._session += 1
        return self._session

    def _hear(self, batch: Batch) -> _Heard:
        heard = self._heard.get(batch.sender)
        if heard is None or heard.session < batch.session:
            heard = self._heard[batch.sender] = _Heard(batch.session, batch.base)
        self._heard.move_to_end(batch.sender)
        if len(self._heard) > MAX_HEARD:
            self._heard.popitem(last=False)
        return heard

    @property
    def _has_room(self) -> bool:
        return (
            len(self._inbox) < self._limits.server_max_pending_message_count
            and self._inbox_bytes < self._limits.server_max_pending_bytes
        )

    def _receive(self, message: Message | None, size: int, batch: Batch) -> None:
        if message is None or (message.sender, message.to) != (batch.sender, batch.to):
            self.counts.malformed += 1
            return
        self.counts.received += 1
        self._inbox.append(message)
        self._inbox_bytes += size

    def _receive_own(self, message: Message) -> bool:
        if not self._has_room:
            self.counts.dropped += 1
            return False
        self.counts.received += 1
        self._inbox.append(message)
        return True
