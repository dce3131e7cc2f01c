"""Many messages in Avro's binary encoding walked through side by side, a field at a time.

Nothing in these bytes says where a field ends but the fields before it. So there is a place in each
message, and a step reads the same field of all of them: a whole number of one to ten bytes, or a
text by its length. A length that lies leads behind the message's end, and the message is not right
from there on. No place leaves the bytes, however wrong the messages are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]
Indexes = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

WORD: Final = 8  # bytes
_PADDING: Final = 3 * WORD  # behind the last message, so that a word can be read at each place
_GOES_ON: Final = np.uint64(0x8080808080808080)  # in each byte of a number but the last
_DIGITS: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
# From the lowest bit that ends a number to the number's bytes: bit 0, 8, … to 1, 2, …
_TO_BYTES: Final = np.uint64(0x0102030405060708)
_JOINS: Final = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(by))
    for low, high, by in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
_ONE, _SEVEN, _TOP = np.uint64(1), np.uint64(7), np.uint64(56)
_BYTE, _LOWEST = np.uint64(8), np.uint64(0xFF)
_WORD_BITS: Final = 56  # of a number in its first eight bytes
MASKS: Final = np.array([2 ** (8 * size) - 1 for size in range(WORD + 1)], np.uint64)
_MIX, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
_MOST: Final = 10  # bytes of a number of 64 bits


@dataclass(frozen=True, slots=True, eq=False)
class Bytes:
    """Messages one behind the other, and then some bytes of zero."""

    buffer: pa.Buffer
    data: npt.NDArray[np.uint8]
    windows: npt.NDArray[Any]  # the eight bytes at each place
    starts: Indexes
    ends: Indexes

    @staticmethod
    def of(values: pa.BinaryArray) -> Bytes:
        """The bytes of messages, none of which is null."""
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        data = np.empty(last - first + _PADDING, np.uint8)
        data[last - first :] = 0
        if last > first:
            data[: last - first] = np.frombuffer(values.buffers()[2], np.uint8)[first:last]
        bounds = offsets.astype(np.int64) - first
        windows = np.ndarray(len(data) - WORD + 1, f"S{WORD}", data, strides=(1,))
        return Bytes(pa.py_buffer(data), data, windows, bounds[:-1], bounds[1:])

    def words(self, at: Indexes) -> Words:
        """The eight bytes at these places, the first byte lowest."""
        found: Words = self.windows[at].view("<u8")
        return found

    def pieces(self, begins: Indexes, ends: Indexes, is_there: Mask | None) -> pa.BinaryArray:
        """The bytes between these places, which rise; null where it is not there (None: none)."""
        bounds = np.empty(2 * len(begins), np.int64)
        bounds[::2] = begins
        bounds[1::2] = ends if is_there is None else np.where(is_there, ends, begins)
        assert (bounds[1:] >= bounds[:-1]).all(), "Arrow would read outside of its memory"
        assert not len(bounds) or 0 <= bounds[0] <= bounds[-1] <= len(self.data)
        offsets = pa.py_buffer(bounds.astype(np.int32))
        count = max(0, len(bounds) - 1)
        whole = pa.Array.from_buffers(pa.binary(), count, [None, offsets, self.buffer])
        indices = np.arange(0, len(bounds), 2)
        return whole.take(pa.array(indices, mask=None if is_there is None else ~is_there))

    def hashed(self, begins: Indexes, ends: Indexes) -> Words:
        """A number for the bytes between these places: where they are alike, so is it."""
        lengths = ends - begins
        found = lengths.astype(np.uint64)
        for word in self._words(begins, lengths):
            found = (found ^ word) * _MIX
            found ^= found >> _HALF
        return found

    def are(self, begins: Indexes, ends: Indexes, piece: bytes) -> Mask:
        """Where the bytes between these places are ``piece``."""
        lengths = ends - begins
        found: Mask = lengths == len(piece)
        for number, word in enumerate(self._words(begins, np.minimum(lengths, len(piece)))):
            found &= word == _word_of(piece, number)
        return found

    def _words(self, begins: Indexes, lengths: Indexes) -> Iterator[Words]:
        """Word for word, with zeros behind the lengths."""
        last = len(self.windows) - 1
        for at in range(0, int(lengths.max(initial=0)), WORD):
            here = self.words(np.minimum(begins + at, last))
            yield here & MASKS[between(lengths - at, 0, WORD)]


def between(values: Indexes, least: int, most: int) -> Indexes:
    """As ``np.clip``, which takes longer for some thousand values than for their comparison."""
    found: Indexes = np.minimum(np.maximum(values, least), most)
    return found


def _word_of(piece: bytes, number: int) -> np.uint64:
    return np.uint64(int.from_bytes(piece[number * WORD :][:WORD], "little"))


class Walk:
    """``at``: where each message goes on, never behind its end; ``is_right``: whether all up to
    there was as it must be. If not, the rest is nonsense."""

    def __init__(self, of: Bytes, at: Indexes, ends: Indexes) -> None:
        self.of = of
        self.at = at
        self.ends = ends
        self.is_right = np.ones(len(at), np.bool_)

    def part(self, rows: Indexes) -> Walk:
        return Walk(self.of, self.at[rows], self.ends[rows])

    def join(self, part: Walk, rows: Indexes) -> None:
        self.at[rows] = part.at
        self.is_right[rows] &= part.is_right

    def go(self, to: Indexes) -> None:
        self.is_right &= to <= self.ends
        self.at = np.minimum(to, self.ends)

    def byte(self) -> npt.NDArray[np.uint8]:
        """One byte of each: an index of a union or an enum, or a boolean."""
        found: npt.NDArray[np.uint8] = self.of.data[self.at]
        self.go(self.at + 1)
        return found

    def expect(self, byte: int) -> None:
        self.is_right &= self.byte() == byte

    def number(self) -> Indexes:
        """An int or a long."""
        value, size, is_right = numbers(self.of, self.at)
        self.is_right &= is_right
        self.go(self.at + size)
        return value

    def span(self) -> tuple[Indexes, Indexes]:
        """Where a text or bytes begin and end."""
        length = self.number()
        self.is_right &= length >= 0
        begins = self.at
        # An untrue length must not wrap around.
        self.go(begins + between(length, 0, len(self.of.data)))
        return begins, self.at

    def fixed(self, size: int) -> Indexes:
        """Where that many bytes begin."""
        begins = self.at
        self.go(begins + size)
        return begins


def numbers(of: Bytes, at: Indexes) -> tuple[Indexes, Indexes, Mask]:
    """The zigzag numbers at these places, their bytes, and whether they are numbers of 64 bits."""
    small = of.data[at]
    if not len(at) or small.max() < 0x80:
        value = small.astype(np.int64)
        return (value >> 1) ^ -(value & 1), np.ones(len(at), np.int64), np.ones(len(at), np.bool_)
    return _decoded(of, at, of.words(at))


def numbers_behind(of: Bytes, at: Indexes) -> tuple[Indexes, Indexes, Indexes, Mask]:
    """The bytes at these places, and what `numbers` finds behind them."""
    words = of.words(at)
    ninth = of.data[at + WORD].astype(np.uint64)
    found = _decoded(of, at + 1, (words >> _BYTE) | (ninth << _TOP))
    return (words & _LOWEST).view(np.int64), *found


def _decoded(of: Bytes, at: Indexes, words: Words) -> tuple[Indexes, Indexes, Mask]:
    """``words``: the eight bytes at these places."""
    stops = ~words & _GOES_ON
    stop = stops & (~stops + _ONE)  # the lowest
    size = ((stop >> _SEVEN) * _TO_BYTES >> _TOP).view(np.int64)
    found = words & (stop - _ONE) & _DIGITS
    for low, high, by in _JOINS:
        found = (found & low) | ((found & high) >> by)
    is_right = np.ones(len(at), np.bool_)
    long = np.flatnonzero(size == 0)  # nine or ten bytes
    if len(long):
        places = at[long]
        ninth, tenth = (of.data[places + WORD + n].astype(np.uint64) for n in range(2))
        has_tenth = ninth >= 0x80
        more = (ninth & np.uint64(0x7F)) << np.uint64(_WORD_BITS)
        more |= np.where(has_tenth, tenth & _ONE, np.uint64(0)) << np.uint64(_WORD_BITS + 7)
        found[long] |= more
        size[long] = np.where(has_tenth, _MOST, _MOST - 1)
        is_right[long] = ~has_tenth | (tenth <= 1)
    return (found >> _ONE).view(np.int64) ^ -(found & _ONE).view(np.int64), size, is_right


def texts(pieces: pa.BinaryArray) -> tuple[pa.StringArray, Mask | None]:
    """The pieces as texts, and which of them are UTF-8 or null; None: all."""
    try:
        return pieces.cast(pa.string()), None
    except pa.ArrowInvalid:
        fine = np.array([_is_utf8(each) for each in pieces.to_pylist()], np.bool_)
        return pc.if_else(pa.array(fine), pieces, None).cast(pa.string()), fine


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True
