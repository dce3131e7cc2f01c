"""The events of a block: headers, ends and checksums, for all of them at once or for one."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streaming.source.binlog.format.faults import CHECKSUM, BadEvent
from streaming.source.binlog.format.type_codes import EventType

HEADER_BYTES: Final = 19
CHECKSUM_BYTES: Final = 4
_IN_USE: Final = 1  # flag of the FORMAT_DESCRIPTION of a file that is written; not in its checksum
PADDING: Final = 64  # zero bytes behind the events: the widest value may be read at any place

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]


def words_of(data: Bytes, dtype: Any) -> npt.NDArray[Any]:
    """``data`` as words that begin at every byte."""
    width = np.dtype(dtype).itemsize
    return np.ndarray((len(data) - width + 1,), dtype, data, 0, (1,))


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``body``: what is between header and checksum."""

    kind: int
    time_s: int
    server_id: int
    end_offset: int  # where it ends in its file, mod 2**32; 0: not told
    flags: int
    body: bytes


def event_at(
    data: bytes | bytearray | memoryview, at: int, *, checksum: bool, checks_crc: bool = True
) -> Event:
    """The event whose header begins at ``at``. Raises BadEvent if it is not whole, or if its
    checksum is wrong."""
    head = bytes(data[at : at + HEADER_BYTES])
    size = int.from_bytes(head[9:13], "little")
    least = HEADER_BYTES + (CHECKSUM_BYTES if checksum else 0)
    if len(head) < HEADER_BYTES or not least <= size <= len(data) - at:
        raise BadEvent(f"an event of {size} bytes begins {len(data) - at} bytes before the end")
    whole = bytes(data[at : at + size])
    if checksum and checks_crc:
        check_crc(whole)
    return Event(
        kind=head[4],
        time_s=int.from_bytes(head[:4], "little"),
        server_id=int.from_bytes(head[5:9], "little"),
        end_offset=int.from_bytes(head[13:17], "little"),
        flags=int.from_bytes(head[17:19], "little"),
        body=whole[HEADER_BYTES : size - CHECKSUM_BYTES if checksum else size],
    )


def check_crc(event: bytes) -> None:
    """Raises BadEvent if the CRC32 at the end of a whole event is not that of its bytes."""
    told = int.from_bytes(event[-CHECKSUM_BYTES:], "little")
    covered = bytearray(event[:-CHECKSUM_BYTES])
    if covered[4] == EventType.FORMAT_DESCRIPTION:
        covered[17] &= ~_IN_USE
    if zlib.crc32(covered) != told:
        raise BadEvent("the CRC32 of the event is wrong: its bytes were changed", CHECKSUM)


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Events side by side. They are whole: ``at <= body < end <= stop``, within ``data``."""

    data: Bytes  # with PADDING behind the last event
    at: Offsets  # where the header begins
    end: Offsets  # where the body ends
    stop: Offsets  # where the event ends, with its checksum
    kind: Bytes
    origin: Offsets  # which event of the slice each is, or came from
    base: Offsets  # where the numbers of its rows begin

    def __len__(self) -> int:
        return len(self.at)

    def take(self, chosen: npt.NDArray[Any]) -> Events:
        return Events(
            data=self.data,
            at=self.at[chosen],
            end=self.end[chosen],
            stop=self.stop[chosen],
            kind=self.kind[chosen],
            origin=self.origin[chosen],
            base=self.base[chosen],
        )

    def body(self, number: int) -> bytes:
        return self.data[int(self.at[number]) + HEADER_BYTES : int(self.end[number])].tobytes()

    def whole(self, number: int) -> bytes:
        return self.data[int(self.at[number]) : int(self.stop[number])].tobytes()


def events_of(
    data: bytes, at: Offsets, *, checksum: bool, checks_crc: bool
) -> tuple[Events, list[tuple[int, bytes, BadEvent]]]:
    """The whole events that begin at ``at``; and those that are not: their number, their bytes as
    far as they are there, and why."""
    padded = np.zeros(len(data) + PADDING, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    limits = np.append(at[1:], len(data))
    read_at = np.minimum(at, max(0, len(data) - HEADER_BYTES))
    size = words_of(padded, "<u4")[read_at + 9].astype(np.int64)
    tail = CHECKSUM_BYTES if checksum else 0
    is_whole = (size >= HEADER_BYTES + tail) & (at + size <= limits)
    bad = [
        (
            number,
            data[int(at[number]) : int(limits[number])],
            BadEvent(
                f"the event says that it has {size[number]} bytes; "
                f"{limits[number] - at[number]} bytes are there"
            ),
        )
        for number in np.flatnonzero(~is_whole).tolist()
    ]
    events = Events(
        data=padded,
        at=at,
        end=at + size - tail,
        stop=at + size,
        kind=padded[read_at + 4],
        origin=np.arange(len(at)),
        base=np.zeros(len(at), np.int64),
    )
    if bad:
        events = events.take(is_whole)
    if checksum and checks_crc:
        wrong = wrong_checksums(data, events)
        for number in wrong.tolist():
            fault = BadEvent("the CRC32 of the event is wrong: its bytes were changed", CHECKSUM)
            bad.append((int(events.origin[number]), events.whole(number), fault))
        if len(wrong):
            events = events.take(np.delete(np.arange(len(events)), wrong))
    return events, bad


def wrong_checksums(data: bytes, events: Events) -> Offsets:
    """Which events have other bytes than their CRC32 says, by their numbers. A FORMAT_DESCRIPTION
    is not looked at."""
    view, crc = memoryview(data), zlib.crc32
    ranges = zip(events.at.tolist(), events.end.tolist(), strict=True)
    found = np.array([crc(view[at:end]) for at, end in ranges], np.uint32)
    wrong = found != words_of(events.data, "<u4")[events.end]
    wrong &= events.kind != EventType.FORMAT_DESCRIPTION
    return np.flatnonzero(wrong)


def joined(events: Sequence[bytes]) -> tuple[bytes, Offsets]:
    """Whole events one behind the other, and where each begins."""
    sizes = np.array([0, *(len(event) for event in events)], np.int64)
    return b"".join(events), np.cumsum(sizes)[:-1]
