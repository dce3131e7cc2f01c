"""Messages between captures: what the rest sees of it, and the half of it that needs no network.

    send ──► post ──► outbox of the peer ──due──► batch ───────► accept ──► inbox ──► receive
                             ▲                      │               │
                             └───── settle ◄────────┴─── answer ◄───┘

    batch   one line of JSON (session, from, address, to, base), then for each message:
            number (8 bytes), length (4 bytes), the message as `messages.encode` gives it
    answer  JSON: {"received": n}, or {"rejected": true}

A message arrives at least once while its peer lives under the same ID; within a session of its
outbox it arrives once, and in order. A batch for an ID that is not the receiver's own is rejected:
a reset capture keeps its address, not its ID (docs/cluster.md 14). Nothing waits for ever: what a
peer does not take is dropped, oldest first, when it has grown over the limits. Whoever still wants
it sends it again."""

from __future__ import annotations

import json
import struct
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from coordination.model import CaptureID
from coordination.scheduler.messages import MalformedMessage, Message, decode, encode

MIB: Final = 1024 * 1024
# TiCDC's ``[debug.messages]``, where it has such a limit. An outbox is one peer's.
MAX_BATCH_COUNT: Final = 1024
MAX_BATCH_BYTES: Final = 8 * MIB  # TiCDC: 64 MB, but it is held and sent again as a whole
MAX_OUTBOX_COUNT: Final = 8192
MAX_OUTBOX_BYTES: Final = 32 * MIB
MAX_INBOX_COUNT: Final = 102_400
MAX_INBOX_BYTES: Final = 256 * MIB
MAX_BATCH_RECEIVED_BYTES: Final = 256 * MIB
RETRY_MIN_S: Final = 0.05
RETRY_MAX_S: Final = 1.0
FORGET_S: Final = 30.0  # peers without an address, and outboxes without messages
MAX_SENDERS: Final = 1024  # whose last numbers are kept; far more than a cluster has

_FRAME: Final = struct.Struct(">QI")


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


class Frame(NamedTuple):
    number: int  # counted up from 1 in each session, without gaps
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """All that one capture has under way to another; the next one waits for the answer."""

    sender: CaptureID
    address: str  # where the sender listens: for people, and for what cuts lines in tests
    to: CaptureID
    session: int  # of the sender's outbox; a later one has a higher number
    base: int  # the sender holds nothing below this number any more
    frames: tuple[Frame, ...]


def dump_batch(batch: Batch) -> bytes:
    header = {
        "session": batch.session,
        "from": batch.sender,
        "address": batch.address,
        "to": batch.to,
        "base": batch.base,
    }
    parts = [json.dumps(header, separators=(",", ":")).encode(), b"\n"]
    for number, data in batch.frames:
        parts += (_FRAME.pack(number, len(data)), data)
    return b"".join(parts)


def load_batch(data: bytes) -> Batch:
    """Raises MalformedMessage. The messages stay bytes."""
    end = data.find(b"\n")
    try:
        header = json.loads(data[: max(0, end)])
        frames, at = [], end + 1
        while at < len(data):
            number, length = _FRAME.unpack_from(data, at)
            (content,) = struct.unpack_from(f"{length}s", data, at + _FRAME.size)
            frames.append(Frame(number, content))
            at += _FRAME.size + length
        return Batch(
            sender=CaptureID(str(header["from"])),
            address=str(header["address"]),
            to=CaptureID(str(header["to"])),
            session=int(header["session"]),
            base=int(header["base"]),
            frames=tuple(frames),
        )
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise MalformedMessage(f"not a batch of messages: {error!r}") from error


def load_messages(batch: Batch) -> list[Message | None]:
    """None for each that is malformed, or not of who says that it sent it."""
    messages: list[Message | None] = []
    for frame in batch.frames:
        try:
            message = decode(frame.data)
        except MalformedMessage:
            messages.append(None)
        else:
            is_right = (message.sender, message.to) == (batch.sender, batch.to)
            messages.append(message if is_right else None)
    return messages


def dump_answer(received: int | None) -> bytes:
    """All up to this number have arrived; None: nobody here has the ID that the batch is for."""
    return json.dumps({"rejected": True} if received is None else {"received": received}).encode()


def load_answer(data: bytes) -> int | None:
    """Raises MalformedMessage."""
    try:
        document = json.loads(data)
        return None if document.get("rejected") else int(document["received"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedMessage(f"not an answer to messages: {error!r}") from error


class Parcel(NamedTuple):
    """A batch on its way out; `settle` or `fail` must follow."""

    to: CaptureID
    session: int
    data: bytes


@dataclass(slots=True)
class Outbox:
    """What is to be sent to one capture, until that capture says that it has it. Messages get their
    numbers with the batch that they go in, and only what has none is dropped: so there are no
    gaps."""

    session: int
    used_s: float  # when something was last offered
    retry_at_s: float = 0.0
    pause_s: float = RETRY_MIN_S
    is_under_way: bool = False
    unresolved_since_s: float | None = None
    waiting: deque[bytes] = field(default_factory=deque)
    numbered: deque[Frame] = field(default_factory=deque)
    size: int = 0  # of both, in bytes
    last_number: int = 0

    def offer(self, data: bytes, now_s: float) -> None:
        self.used_s = now_s
        self.waiting.append(data)
        self.size += len(data)
        while self.waiting and (
            len(self.waiting) + len(self.numbered) > MAX_OUTBOX_COUNT
            or self.size > MAX_OUTBOX_BYTES
        ):
            self.size -= len(self.waiting.popleft())

    @property
    def due_s(self) -> float | None:
        """From when on there is a batch; None while one is under way, or nothing is here."""
        is_empty = not self.waiting and not self.numbered
        return None if self.is_under_way or is_empty else self.retry_at_s

    def take_batch(self) -> tuple[Frame, ...]:
        """It is under way then: the same numbers as before, where an answer did not come."""
        size = sum(len(frame.data) for frame in self.numbered)
        while self.waiting and (
            not self.numbered
            or (
                len(self.numbered) < MAX_BATCH_COUNT
                and size + len(self.waiting[0]) <= MAX_BATCH_BYTES
            )
        ):
            self.last_number += 1
            self.numbered.append(Frame(self.last_number, self.waiting.popleft()))
            size += len(self.numbered[-1].data)
        self.is_under_way = True
        return tuple(self.numbered)

    def answered(self, received: int, now_s: float) -> None:
        """All numbers up to ``received`` have arrived; none new is a reason to wait."""
        before = len(self.numbered)
        while self.numbered and self.numbered[0].number <= received:
            self.size -= len(self.numbered.popleft().data)
        if len(self.numbered) == before:
            self.failed(now_s)
        else:
            self.is_under_way, self.retry_at_s, self.pause_s = False, now_s, RETRY_MIN_S

    def failed(self, now_s: float) -> None:
        """What was under way has perhaps arrived: it is sent again after a pause."""
        self.is_under_way, self.retry_at_s = False, now_s + self.pause_s
        self.pause_s = min(2 * self.pause_s, RETRY_MAX_S)


class MessageExchange:
    """The outboxes and the inbox of one capture. No lock, clock or network: its user has them.

    ``session`` must be above those of an earlier exchange with the same capture ID, if there was
    one: the time of the start will do.
    """

    def __init__(
        self, capture_id: CaptureID | None, *, address: str = "", session: int = 1
    ) -> None:
        self.address = address  # where we listen
        self.inbox: list[Message] = []
        self._inbox_bytes = 0
        self._self = capture_id
        self._session = session
        self._outboxes: dict[CaptureID, Outbox] = {}
        # of each sender: its session, and the number that is expected next
        self._expected: OrderedDict[CaptureID, tuple[int, int]] = OrderedDict()

    def set_self(self, capture_id: CaptureID) -> None:
        if capture_id != self._self:
            self._self = capture_id
            self._outboxes.clear()
            self._expected.clear()
            self.take()

    def post(self, messages: Sequence[Message], now_s: float) -> bool:
        """Take messages to be sent; True if one was for ourselves and can be received."""
        is_received = False
        for message in messages:
            if message.sender != self._self:
                continue
            if message.to == self._self:
                if self._has_room:
                    self.inbox.append(message)
                    is_received = True
                continue
            data = encode(message)
            if len(data) <= MAX_BATCH_RECEIVED_BYTES // 2:  # else no receiver would take it
                outbox = self._outboxes.get(message.to)
                if outbox is None:
                    outbox = self._outboxes[message.to] = Outbox(self._new_session(), now_s)
                outbox.offer(data, now_s)
        return is_received

    def take_due(self, now_s: float) -> list[Parcel]:
        """What is to be sent now, at most one batch for each peer."""
        assert self._self is not None or not self._outboxes
        parcels = []
        for to, outbox in list(self._outboxes.items()):
            if outbox.due_s is not None and outbox.due_s <= now_s:
                frames = outbox.take_batch()
                batch = Batch(
                    sender=self._self or CaptureID(""),
                    address=self.address,
                    to=to,
                    session=outbox.session,
                    base=frames[0].number,
                    frames=frames,
                )
                parcels.append(Parcel(to, outbox.session, dump_batch(batch)))
            elif not outbox.size and now_s - outbox.used_s > FORGET_S:
                del self._outboxes[to]
        return parcels

    def next_due_s(self) -> float | None:
        """When `take_due` has something; None if only news can bring something."""
        dues = [due for outbox in self._outboxes.values() if (due := outbox.due_s) is not None]
        return min(dues, default=None)

    def settle(self, parcel: Parcel, received: int | None, now_s: float) -> None:
        """An answer has come, as `load_answer` gives it."""
        outbox = self._outbox_of(parcel)
        if outbox is None:
            return
        outbox.unresolved_since_s = None
        if received is not None:
            outbox.answered(received, now_s)
        else:  # the peer is not who these messages were for
            outbox.failed(now_s)
            self._outboxes[parcel.to] = Outbox(
                self._new_session(), outbox.used_s, outbox.retry_at_s, outbox.pause_s
            )

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
        elif now_s - outbox.unresolved_since_s > FORGET_S:
            del self._outboxes[parcel.to]

    def accept(self, batch: Batch, messages: Sequence[Message | None]) -> int | None:
        """Take a peer's batch, as far as it goes on without a gap and there is room; the answer.
        ``messages``: those of the batch, as `load_messages` gives them."""
        if batch.to != self._self:
            return None
        session, expected = self._expected.pop(batch.sender, (0, 0))
        if batch.session < session:  # late: nobody waits for this answer
            self._expected[batch.sender] = (session, expected)
            return 0
        expected = batch.base if batch.session > session else max(expected, batch.base)
        for (number, data), message in zip(batch.frames, messages, strict=True):
            if number == expected and self._has_room:
                expected += 1
                if message is not None:
                    self.inbox.append(message)
                    self._inbox_bytes += len(data)
        self._expected[batch.sender] = (batch.session, expected)
        if len(self._expected) > MAX_SENDERS:
            self._expected.popitem(last=False)
        return expected - 1

    def take(self) -> list[Message]:
        inbox, self.inbox, self._inbox_bytes = self.inbox, [], 0
        return inbox

    def _outbox_of(self, parcel: Parcel) -> Outbox | None:
        """None if we, or what we hold for that peer, have changed since."""
        outbox = self._outboxes.get(parcel.to)
        return outbox if outbox is not None and outbox.session == parcel.session else None

    def _new_session(self) -> int:
        self._session += 1
        return self._session

    @property
    def _has_room(self) -> bool:
        return len(self.inbox) < MAX_INBOX_COUNT and self._inbox_bytes < MAX_INBOX_BYTES
