"""The rows of a SELECT as the server sends them: where each one begins, found as bytes come.

The text protocol sends each row as a packet: three bytes of length, a number, the row. Pure: bytes
go in by ``space`` and ``received``, whole rows come out by ``take``. The buffer is used again and
again; it grows only where one row alone is larger.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

LONGEST: Final = 0xFFFFFF  # a row of this size or more goes on in the next packet
HEADER: Final = 4
SLACK: Final = 16  # bytes behind the last row that a gather of words may touch
_END, _ERROR = 0xFE, 0xFF  # the first byte of a packet that ends the result
_END_BELOW: Final = 9  # bytes; a row may begin with 0xFE too, and is longer then
_HEAD: Final = struct.Struct("<IB")


class GarbledRows(Exception):
    """The bytes are no rows of a result: one sentence says where they go wrong."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Whole rows. ``data`` is overwritten by the buffer's next ``space`` or ``take``."""

    data: Bytes
    begin: Offsets
    end: Offsets

    def __len__(self) -> int:
        return len(self.begin)


class PacketBuffer:
    """Bytes of one result. ``size``: how many are gathered before ``is_full``."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._bytes = bytearray(size + SLACK)
        self._filled = 0
        self._at = 0  # where the first packet begins that was not walked yet
        self._begin: list[int] = []
        self._end = 0  # of the last row in ``_begin``
        self._is_long = False  # the row at ``_at`` has several packets
        self.is_over = False  # the server has sent the whole result
        self.error: bytes | None = None  # the packet in which it says why it broke off

    def space(self) -> memoryview:
        """Where the next bytes belong: never empty."""
        self._compact()
        if self._filled + SLACK >= len(self._bytes):
            larger = bytearray(2 * len(self._bytes))
            larger[: self._filled] = memoryview(self._bytes)[: self._filled]
            self._bytes = larger
        return memoryview(self._bytes)[self._filled : len(self._bytes) - SLACK]

    def received(self, count: int) -> None:
        """So many bytes were put into ``space``. Raises GarbledRows."""
        self._filled += count
        self._walk()

    @property
    def is_full(self) -> bool:
        """Whether rows should be taken before more bytes are asked for."""
        if self._is_long:
            return bool(self._begin) or self._long_row() is not None
        return self.is_over or (self._filled >= self._size and bool(self._begin))

    def take(self) -> Rows | None:
        """The whole rows, which are forgotten; None: there are none."""
        if not self._begin:
            return self._take_long()
        begin = np.array(self._begin, np.int64)
        end = np.append(begin[1:] - HEADER, self._end)
        self._begin = []
        return Rows(np.frombuffer(self._bytes, np.uint8), begin, end)

    def _walk(self) -> None:
        buffer, filled, at = self._bytes, self._filled, self._at
        append, head = self._begin.append, _HEAD.unpack_from
        while at + HEADER < filled and not self.is_over and not self._is_long:
            word, first = head(buffer, at)
            length = word & LONGEST
            after = at + HEADER + length
            if length == LONGEST:
                self._is_long = True
            elif after > filled:
                break
            elif first >= _END and (first == _ERROR or length < _END_BELOW):
                self.is_over = True
                self.error = bytes(buffer[at + HEADER : after]) if first == _ERROR else None
                at = after
            elif not length:
                raise GarbledRows("a packet of a result is empty")
            else:
                append(at + HEADER)
                at = self._end = after
        self._at = at

    def _compact(self) -> None:
        """Move what was not walked to the front, once the rows before it are gone."""
        if self._begin or not self._at:
            return
        rest = self._filled - self._at
        self._bytes[:rest] = self._bytes[self._at : self._filled]
        self._filled, self._at = rest, 0

    def _long_row(self) -> list[tuple[int, int]] | None:
        """The parts of the row at ``_at``; None: it has not come as a whole."""
        parts, at = [], self._at
        while at + HEADER <= self._filled:
            length = int.from_bytes(self._bytes[at : at + 3], "little")
            parts.append((at + HEADER, at + HEADER + length))
            at += HEADER + length
            if length < LONGEST:
                return parts if at <= self._filled else None
        return None

    def _take_long(self) -> Rows | None:
        if not self._is_long or (parts := self._long_row()) is None:
            return None
        view = memoryview(self._bytes)
        row = b"".join([*(view[begin:end] for begin, end in parts), bytes(SLACK)])
        view.release()
        self._at, self._is_long = parts[-1][1], False
        self._walk()
        size = np.array([len(row) - SLACK], np.int64)
        return Rows(np.frombuffer(row, np.uint8), np.zeros(1, np.int64), size)
