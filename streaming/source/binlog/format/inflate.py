"""What is compressed among the events, as ordinary events: MariaDB's single ones (their rows, by
zlib), and MySQL's TRANSACTION_PAYLOAD (a whole transaction, by zstd).

A transaction may be far larger than its payload. So events come in pieces of a bounded size.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.source.binlog.format.byte_reader import ByteReader
from streaming.source.binlog.format.events import HEADER_BYTES, PADDING, Events
from streaming.source.binlog.format.faults import BadEvent
from streaming.source.binlog.format.type_codes import (
    INFLATED,
    IS_PACKED,
    UPDATES,
    WRITES,
    EventType,
)

PIECE_BYTES: Final = 32 << 20  # of inflated events
_MOST_INFLATED: Final = 1 << 30  # bytes of one event: max_allowed_packet is no larger
_FIRST_READ_BYTES: Final = 1 << 12  # often the first event is all that is asked for
_READ_BYTES: Final = 1 << 20
_MOST_PAYLOAD: Final = (
    1 << 31
) - 1  # of a transaction when inflated: its rows' numbers count bytes
_ZSTD: Final = 0
_NOT_COMPRESSED: Final = 255

OnFault = Callable[[int, BadEvent], None]  # gets the number of the event


def pieces(events: Events, on_fault: OnFault) -> Iterator[Events]:
    """The same events in the same order, with inflated ones in the places of what was compressed.
    Where nothing is compressed that is one piece. An event that cannot be inflated goes to
    ``on_fault``."""
    packed = np.flatnonzero(IS_PACKED[events.kind])
    if not len(packed):
        yield events
        return
    piece = _Piece(events)
    done = 0
    for number in packed.tolist():
        piece.take_plain(done, number)
        done = number + 1
        try:
            for event, base in _events_in(events, number):
                piece.add(event, number, base)
                if piece.size >= PIECE_BYTES:
                    yield piece.events()
                    piece = _Piece(events)
        except BadEvent as fault:
            on_fault(number, fault)
    piece.take_plain(done, len(events))
    yield piece.events()


@dataclass(slots=True, eq=False)
class _Piece:
    """Events of a block, and inflated ones behind its bytes."""

    block: Events
    size: int = 0
    _inflated: list[bytes] = field(default_factory=list)
    _rows: list[tuple[int, int, int]] = field(default_factory=list)  # origin, base, at or -1
    _plain: list[tuple[int, int, int]] = field(default_factory=list)  # from, to, inflated before

    def take_plain(self, begin: int, end: int) -> None:
        if begin < end:
            self._plain.append((begin, end, len(self._inflated)))

    def add(self, event: bytes, number: int, base: int) -> None:
        self._inflated.append(event)
        self._rows.append((int(self.block.origin[number]), base, self.size))
        self.size += len(event)

    def events(self) -> Events:
        behind = self._behind()
        if not self._plain:
            return behind
        runs: list[Events] = []
        done = 0
        for begin, end, before in self._plain:
            if done < before:
                runs.append(behind.take(np.arange(done, before)))
                done = before
            runs.append(self.block.take(np.arange(begin, end)))
        if done < len(behind):
            runs.append(behind.take(np.arange(done, len(behind))))
        data = np.concatenate([self.block.data, behind.data])
        shift = {id(behind.data): len(self.block.data), id(self.block.data): 0}
        return Events(
            data=data,
            at=np.concatenate([run.at + shift[id(run.data)] for run in runs]),
            end=np.concatenate([run.end + shift[id(run.data)] for run in runs]),
            stop=np.concatenate([run.stop + shift[id(run.data)] for run in runs]),
            kind=np.concatenate([run.kind for run in runs]),
            origin=np.concatenate([run.origin for run in runs]),
            base=np.concatenate([run.base for run in runs]),
        )

    def _behind(self) -> Events:
        """The inflated events by themselves. They have no checksums."""
        data = np.frombuffer(b"".join([*self._inflated, bytes(PADDING)]), np.uint8)
        origin, base, at = (
            (np.array(column, np.int64) for column in zip(*self._rows, strict=True))
            if self._rows
            else (np.empty(0, np.int64),) * 3
        )
        stop = at + np.array([len(event) for event in self._inflated], np.int64)
        return Events(data, at, stop, stop, data[at + 4], origin, base)


def _events_in(events: Events, number: int) -> Iterator[tuple[bytes, int]]:
    """The whole events that one event holds, without checksums, and where the numbers of their
    rows begin."""
    if events.kind[number] == EventType.TRANSACTION_PAYLOAD:
        yield from payload_events(events.body(number))
    else:
        yield _inflated_rows(events, number), int(events.base[number])


def _inflated_rows(events: Events, number: int) -> bytes:
    """The head of the event is not compressed: the head of its body, the count of its columns, and
    the bitmap of those that are there (for an UPDATE twice)."""
    body = events.body(number)
    kind = INFLATED[EventType(events.kind[number])]
    reader = ByteReader(body)
    reader.take(8)
    if kind >= WRITES[1]:
        extra = reader.number(2)
        reader.take(extra - 2)
    columns = reader.length_encoded()
    reader.take((columns + 7) // 8 * (2 if kind in UPDATES else 1))
    rows = body[: reader.at] + inflated(reader.rest())
    head = bytearray(events.whole(number)[:HEADER_BYTES])
    head[4] = kind
    head[9:13] = (HEADER_BYTES + len(rows)).to_bytes(4, "little")
    return bytes(head) + rows


def payload_events(body: bytes) -> Iterator[tuple[bytes, int]]:
    """The events in the body of a TRANSACTION_PAYLOAD, and where the numbers of their rows begin.
    They are inflated as they are asked for. Raises BadEvent.

    The numbers of an event's rows begin with the bytes before it, which are more than the rows
    before it: so they rise over the whole payload, whoever looks at whichever of its tables."""
    reader = ByteReader(body)
    compression, size = _ZSTD, 0
    while tag := reader.length_encoded():
        value = reader.sized(reader.length_encoded())
        if tag == 2:
            compression = value.length_encoded()
        elif tag == 3:
            size = value.length_encoded()
    raw = reader.rest()
    if compression not in (_ZSTD, _NOT_COMPRESSED):
        raise BadEvent(f"a transaction is compressed by method {compression}: only zstd is known")
    if size > _MOST_PAYLOAD:
        raise BadEvent(
            f"a compressed transaction has {size} bytes when inflated: {_MOST_PAYLOAD} are read"
        )
    if compression == _NOT_COMPRESSED:
        chunks: Iterator[bytes] = iter([raw])
    else:
        chunks = _zstd(raw, size)
    yield from _split(chunks, size if compression == _ZSTD else len(raw))


def _zstd(raw: bytes, size: int) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.BufferReader(raw), "zstd") as stream:
        left, most = size, _FIRST_READ_BYTES
        while left > 0:
            try:
                chunk = stream.read(min(left, most))
            except (OSError, pa.ArrowException) as error:
                raise BadEvent(f"a transaction cannot be inflated: {error}") from error
            if not chunk:
                return
            left -= len(chunk)
            most = _READ_BYTES
            yield chunk


def _split(chunks: Iterator[bytes], size: int) -> Iterator[tuple[bytes, int]]:
    """Whole events out of bytes that come piece by piece."""
    waiting, begin = b"", 0  # ``begin``: how many bytes of the transaction stand before them
    for chunk in chunks:
        waiting = waiting + chunk if waiting else chunk
        at = 0
        while at + HEADER_BYTES <= len(waiting):
            length = int.from_bytes(waiting[at + 9 : at + 13], "little")
            if length < HEADER_BYTES or begin + at + length > size:
                raise BadEvent("a compressed transaction holds an event without an end")
            if at + length > len(waiting):
                break
            yield waiting[at : at + length], begin + at
            at += length
        begin += at
        waiting = waiting[at:]
    if waiting or begin != size:
        raise BadEvent("a compressed transaction has not the size that it says")


def inflated(raw: bytes) -> bytes:
    """MariaDB's compressed part of an event: a byte with the width of its size, the size when
    inflated (big-endian), then zlib. Raises BadEvent."""
    body = ByteReader(raw)
    head = body.number(1)
    size = int.from_bytes(body.take(head & 0x07), "big")
    if head & 0xF0 != 0x80:
        raise BadEvent(f"a compressed event begins with byte {head}: only zlib (128) is known")
    if size > _MOST_INFLATED:
        raise BadEvent(f"a compressed event says that it has {size} bytes when inflated")
    inflater = zlib.decompressobj()
    try:
        out = inflater.decompress(body.rest(), size + 1)
    except zlib.error as error:
        raise BadEvent(f"a compressed event cannot be inflated: {error}") from error
    if len(out) != size:
        raise BadEvent(f"a compressed event has not the {size} bytes that it says when inflated")
    return out
