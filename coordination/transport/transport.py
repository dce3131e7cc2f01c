"""Messages between captures: the `Transport` that a capture uses, and a batch of them as bytes.

    batch   one line of JSON (from, address, to), then for each message: length (4 bytes), message
    message one byte for its kind, then what that kind's `encode` gives:
            s  between owners and agents (`scheduler`)    w  about workers of jobs (`jobmaster`)
    answer  JSON: {}, or {"rejected": true}

A message arrives once or never; in rare cases twice, or after later ones. That is enough: owners
and agents, job masters and executors repeat what still matters with the next heartbeat, and order
what they read by epochs, fences, worker IDs and sequences (docs/cluster.md 2, 17, 21). The
simulations lose, double and delay single messages to prove it.

A batch for an ID that is not the receiver's own is rejected: a reset capture keeps its address, not
its ID (docs/cluster.md 14)."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from coordination.jobmaster.messages import (
    MalformedWorkerMessage,
    WorkerMessage,
    decode_worker_message,
    encode_worker_message,
)
from coordination.model import CaptureID
from coordination.scheduler.messages import MalformedMessage, Message, decode, encode

MIB: Final = 1024 * 1024
# Values of TiCDC's ``[debug.messages]``, if it has such a limit. WAITING limits hold for each peer.
MAX_BATCH_COUNT: Final = 1024
MAX_BATCH_BYTES: Final = 8 * MIB  # TiCDC: 64 MB
MAX_WAITING_COUNT: Final = 8192
MAX_WAITING_BYTES: Final = 32 * MIB
MAX_INBOX_COUNT: Final = 102_400
MAX_INBOX_BYTES: Final = 256 * MIB
MAX_BATCH_RECEIVED_BYTES: Final = 256 * MIB

_FRAME: Final = struct.Struct(">I")  # the length of the message behind it
_SCHEDULER, _WORKER = b"s", b"w"

PeerMessage = Message | WorkerMessage


class Transport(Protocol):
    """Sends and receives one capture's messages, by capture ID. An implementation is given a
    ``wake``, which it calls, on any thread, when something can be received."""

    def send(self, messages: Sequence[PeerMessage]) -> None:
        """Send messages; never blocks on a peer, and never raises because of one. Messages to the
        capture itself arrive too. A message whose sender is not the capture's present ID (one from
        before a reset) is dropped."""
        ...

    def receive(self) -> list[PeerMessage]:
        """All messages since the last call, in the order in which they came. Never blocks."""
        ...

    def set_self(self, capture_id: CaptureID) -> None:
        """Set the capture's ID. Call it *before* others can learn the ID: until then batches for it
        are rejected. Messages that wait to be sent or received under another ID are dropped."""
        ...

    def close(self) -> None:
        """End it; messages that were not sent yet are dropped. Idempotent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The messages that one capture sends to another in one call."""

    sender: CaptureID
    address: str  # where the sender listens: for people, and for tests that cut connections
    to: CaptureID
    messages: tuple[bytes, ...]


def dump_message(message: PeerMessage) -> bytes:
    if isinstance(message, WorkerMessage):
        return _WORKER + encode_worker_message(message)
    return _SCHEDULER + encode(message)


def load_message(data: bytes) -> PeerMessage:
    """Raises MalformedMessage."""
    kind, rest = data[:1], data[1:]
    if kind == _SCHEDULER:
        return decode(rest)
    if kind != _WORKER:
        raise MalformedMessage(f"not a kind of message: {kind!r}")
    try:
        return decode_worker_message(rest)
    except MalformedWorkerMessage as error:
        raise MalformedMessage(str(error)) from error


def dump_batch(batch: Batch) -> bytes:
    header = {"from": batch.sender, "address": batch.address, "to": batch.to}
    parts = [json.dumps(header, separators=(",", ":")).encode(), b"\n"]
    for data in batch.messages:
        parts += (_FRAME.pack(len(data)), data)
    return b"".join(parts)


def load_batch(data: bytes) -> Batch:
    """The batch in the bytes; its messages stay encoded. Raises MalformedMessage."""
    end = data.find(b"\n")
    try:
        header = json.loads(data[: max(0, end)])
        messages: list[bytes] = []
        at = end + 1
        while at < len(data):
            (length,) = _FRAME.unpack_from(data, at)
            messages += struct.unpack_from(f"{length}s", data, at + _FRAME.size)
            at += _FRAME.size + length
        return Batch(
            sender=CaptureID(str(header["from"])),
            address=str(header["address"]),
            to=CaptureID(str(header["to"])),
            messages=tuple(messages),
        )
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise MalformedMessage(f"not a batch of messages: {error!r}") from error


def load_messages(batch: Batch) -> list[PeerMessage]:
    """The messages of a batch, without those that are malformed, or whose sender or receiver is not
    the batch's."""
    messages: list[PeerMessage] = []
    for data in batch.messages:
        try:
            message = load_message(data)
        except MalformedMessage:
            continue
        if (message.sender, message.to) == (batch.sender, batch.to):
            messages.append(message)
    return messages


def dump_answer(*, is_rejected: bool) -> bytes:
    """The answer to a batch. It is rejected by a capture that does not have the ID that it is
    for."""
    return json.dumps({"rejected": True} if is_rejected else {}).encode()


def is_rejected(answer: bytes) -> bool:
    """Whether an answer rejects the batch. Raises MalformedMessage if it is no answer."""
    try:
        return bool(json.loads(answer).get("rejected"))
    except (ValueError, AttributeError) as error:
        raise MalformedMessage(f"not an answer to messages: {error!r}") from error
