"""What travels between two captures: a batch of messages in bytes, and its answer.

    batch   one line of JSON (session, from, address, to, base), then for each message:
            number (8 bytes), length (4 bytes), the message as `messages.encode` gives it
    answer  JSON: {"received": n}, or {"rejected": true}

Every message has its number, so that what stands between two captures may lose single messages.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from coordination.model import CaptureID
from coordination.scheduler.messages import MalformedMessage, Message, decode

_FRAME: Final = struct.Struct(">QI")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """``received``: all messages up to this number have arrived. ``is_rejected``: nobody here has
    the ID that the batch is for."""

    received: int = 0
    is_rejected: bool = False


class Delivery(NamedTuple):
    """A batch with its messages decoded, None for each that is malformed."""

    batch: Batch
    messages: tuple[Message | None, ...]


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
        return Batch(
            sender=CaptureID(str(header["from"])),
            address=str(header["address"]),
            to=CaptureID(str(header["to"])),
            session=int(header["session"]),
            base=int(header["base"]),
            frames=_load_frames(data, end + 1),
        )
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise MalformedMessage(f"not a batch of messages: {error!r}") from error


def _load_frames(data: bytes, at: int) -> tuple[Frame, ...]:
    frames = []
    while at < len(data):
        number, length = _FRAME.unpack_from(data, at)
        at += _FRAME.size
        if at + length > len(data):
            raise ValueError(f"message {number} is cut off")
        frames.append(Frame(number, data[at : at + length]))
        at += length
    return tuple(frames)


def unpack(data: bytes) -> Delivery:
    """Raises MalformedMessage only if the batch as a whole cannot be read."""
    batch = load_batch(data)
    return Delivery(batch, tuple(_decode(frame.data) for frame in batch.frames))


def _decode(data: bytes) -> Message | None:
    try:
        return decode(data)
    except MalformedMessage:
        return None


def dump_answer(answer: Answer) -> bytes:
    document = {"rejected": True} if answer.is_rejected else {"received": answer.received}
    return json.dumps(document).encode()


def load_answer(data: bytes) -> Answer:
    """Raises MalformedMessage."""
    try:
        document = json.loads(data)
        if document.get("rejected"):
            return Answer(is_rejected=True)
        return Answer(received=int(document["received"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedMessage(f"not an answer to messages: {error!r}") from error
