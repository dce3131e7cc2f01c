"""What stands around the rows of many messages: the same bytes for thousands of them.

    message = length of the key, key, value                      (`contract.with_key`)
    key     = … {"id":1} …            value = … {"before":…} …   (``envelope.py``)

A frame is all that is not the two inner objects. The schemas in it are longer than a row: they are
compared as bytes, and left out of what is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.contract import KEY_LENGTH, NO_KEY
from streaming.protocols.debezium.envelope import inner
from streaming.protocols.json_text.quote_scanner import Indexes, Mask
from streaming.protocols.json_text.strict_json import Malformed

_WIDTH: Final = KEY_LENGTH.size


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """Where the keys and the values of messages lie. ``is_whole``: which have both; a message
    without a key has one without bytes. The others' places are nonsense."""

    buffer: pa.Buffer
    keys: Indexes
    values: Indexes  # where keys end
    ends: Indexes
    is_whole: Mask

    @staticmethod
    def of(messages: pa.BinaryArray) -> Sides:
        count = len(messages)
        offsets = np.frombuffer(messages.buffers()[1], np.int32)[messages.offset :][: count + 1]
        bounds = offsets.astype(np.int64)
        starts, ends = bounds[:-1], bounds[1:]
        buffer = messages.buffers()[2] or pa.py_buffer(b"")
        numbers = max(0, buffer.size - _WIDTH + 1)
        is_whole: Mask = ends - starts > _WIDTH
        length = np.zeros(count, np.int64)
        data = np.frombuffer(buffer, np.uint8)
        length[is_whole] = np.ndarray(numbers, "<u4", data, strides=(1,))[starts[is_whole]]
        keys = starts + _WIDTH
        values = np.where(length == NO_KEY, keys, keys + length)
        is_whole &= values < ends  # a tombstone's length is beyond all
        return Sides(buffer, keys, values, ends, is_whole)

    def message(self, place: int) -> tuple[bytes, bytes]:
        """A whole one's key and value."""
        key, value, end = (int(each[place]) for each in (self.keys, self.values, self.ends))
        return self.buffer[key:value].to_pybytes(), self.buffer[value:end].to_pybytes()


@dataclass(frozen=True, slots=True)
class Frame:
    """The bytes before and behind the inner objects of the key and of the value."""

    key: tuple[bytes, bytes]
    value: tuple[bytes, bytes]

    @staticmethod
    def of(key: bytes, value: bytes) -> Frame | None:
        """None where it cannot be told from the inner objects."""
        try:
            begin, end = inner(key) if key else (0, 0)
            first, last = inner(value)
        except Malformed:
            return None
        return Frame((key[:begin], key[end:]), (value[:first], value[last:]))

    def rows(self, sides: Sides, places: Indexes) -> tuple[pa.BinaryArray, Indexes]:
        """The messages at these places, which rise, that are in this frame: each one's inner object
        of the value, and right behind it that of the key. And their places."""
        before, behind = (len(each) for each in self.key)
        first, last = (len(each) for each in self.value)
        keys, values, ends = sides.keys[places], sides.values[places], sides.ends[places]
        bounds = np.column_stack(
            (keys, keys + before, values - behind, values + first, ends - last, ends)
        )
        fits = (bounds[:, 1] < bounds[:, 2]) & (bounds[:, 3] < bounds[:, 4])
        if not any(self.key):  # there may be none
            fits |= (keys == values) & (bounds[:, 3] < bounds[:, 4])
        bounds, places = bounds[fits], places[fits]
        # Of a message: before the key's object, that, between both, the value's object, its end.
        pieces = _pieces(sides.buffer, bounds)
        is_in = np.ones(len(places), np.bool_)
        around = (self.key[0], 0), (self.key[1] + self.value[0], 2), (self.value[1], 4)
        for piece, at in around:
            if piece:  # a piece is not copied: it may be longer than a row
                is_in &= _are(pieces, piece)[at::6]
        kept = np.flatnonzero(is_in)
        order = np.column_stack((kept * 6 + 3, kept * 6 + 1)).ravel()
        return _joined(pieces.take(pa.array(order))), places[kept]


def _are(pieces: pa.BinaryArray, piece: bytes) -> Mask:
    found: Mask = pc.equal(pieces, pa.scalar(piece, pa.binary())).to_numpy(zero_copy_only=False)
    return found


def _pieces(buffer: pa.Buffer, bounds: Indexes) -> pa.BinaryArray:
    """The bytes between each of these places and the next; they rise."""
    flat = np.append(np.ascontiguousarray(bounds).ravel(), bounds[-1:, -1])
    assert (flat[1:] >= flat[:-1]).all(), "Arrow would read outside of its memory"
    offsets = pa.py_buffer(flat.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), max(0, len(flat) - 1), [None, offsets, buffer])


def _joined(pairs: pa.BinaryArray) -> pa.BinaryArray:
    """Each two of them as one."""
    count = len(pairs) // 2
    offsets = np.frombuffer(pairs.buffers()[1], np.int32)[: 2 * count + 1 : 2]
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pairs.buffers()[2]]
    return pa.Array.from_buffers(pa.binary(), count, buffers)
