"""The events in the messages of a chunk: a message has several keys, and as many values.

    message = length of the key, key, value                         (`contract.with_key`)
    key     = version 1 (8 bytes), then length (8 bytes) and JSON of each event
    value   =                           length (8 bytes) and JSON of each event

Numbers of 8 bytes are big-endian. The value of a resolved event has no JSON: its length is 0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.protocols.contract import KEY_LENGTH, NO_KEY, with_key
from streaming.protocols.json_text.quote_scanner import Indexes, Mask

_VERSION: Final = 1
_LENGTH: Final = struct.Struct(">Q")
_WIDTH: Final = _LENGTH.size
_TOO_LARGE: Final = 1 << 40  # for a length
# Messages with so few events are cut side by side; one by one goes faster for what is left of a
# few messages.
_SIDE_BY_SIDE: Final = 64
_FEW: Final = 8

_Bounds = tuple[int, int, int, int]  # of an event's key and value in the chunk's bytes


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """Events by message and by their place in it. ``is_whole``: by message, whether it is framed
    right; a message that is not is one event without a key and a value."""

    message: Indexes
    index: npt.NDArray[np.int32]
    keys: pa.BinaryArray
    values: pa.BinaryArray
    is_whole: Mask


def frames_of(messages: pa.BinaryArray) -> Frames:
    count = len(messages)
    if not count:
        empty = pa.array([], pa.binary())
        none = np.zeros(0, np.int64)
        return Frames(none, none.astype(np.int32), empty, empty, np.zeros(0, np.bool_))
    offsets = np.frombuffer(messages.buffers()[1], np.int32)[messages.offset :][: count + 1]
    bounds = offsets.astype(np.int64)
    buffer = messages.buffers()[2] or pa.py_buffer(b"")
    data = np.frombuffer(buffer, np.uint8)
    cut = _Cut(data, bounds[:-1], bounds[1:])
    cut.side_by_side()
    cut.one_by_one()
    found = np.concatenate([np.zeros((0, 6), np.int64), *cut.found])
    is_whole = cut.is_right & (cut.key == cut.key_end)
    torn = np.flatnonzero(~is_whole)
    none = np.stack([torn, torn * 0, *[bounds[torn]] * 4], axis=1)
    found = np.concatenate([found[is_whole[found[:, 0]]], none])
    found = found[np.argsort(found[:, 0], kind="stable")]  # by rising index already
    return Frames(
        message=found[:, 0],
        index=found[:, 1].astype(np.int32),
        keys=_pieces(buffer, found[:, 2:4]),
        values=_pieces(buffer, found[:, 4:6]),
        is_whole=is_whole,
    )


class _Cut:
    """``key`` and ``value``: where each message goes on. ``is_right``: whether it was right up to
    there. ``found``: message, index and bounds of events."""

    def __init__(self, data: npt.NDArray[np.uint8], starts: Indexes, ends: Indexes) -> None:
        self.data = data
        head = KEY_LENGTH.size
        self.is_right = ends - starts >= head + _WIDTH
        length = self._number(starts, "<u4", self.is_right)
        self.is_right &= (length != NO_KEY) & (length <= ends - starts - head)
        length = np.where(self.is_right, length, 0)
        self.key = starts + head
        self.key_end = self.key + length
        self.value, self.value_end = self.key_end.copy(), ends
        self.is_right &= length >= _WIDTH
        self.is_right &= self._number(self.key, ">u8", self.is_right) == _VERSION
        self.key = self.key + _WIDTH
        self.is_right &= self.key < self.key_end  # no message is without an event
        self.found: list[Indexes] = []

    def _number(self, at: Indexes, kind: str, there: Mask) -> Indexes:
        """The numbers there; 0 elsewhere. One that is too large for a length is -1."""
        found = np.zeros(len(at), np.int64)
        count = len(self.data) - np.dtype(kind).itemsize + 1
        if count > 0:
            numbers = np.ndarray(count, kind, self.data, strides=(1,))[at[there]]
            found[there] = np.where(numbers < _TOO_LARGE, numbers, _TOO_LARGE).astype(np.int64)
            found[found == _TOO_LARGE] = -1
        return found

    def _left(self) -> Indexes:
        return np.flatnonzero(self.is_right & (self.key < self.key_end))

    def side_by_side(self) -> None:
        for index in range(_SIDE_BY_SIDE):
            at = self._left()
            if len(at) <= _FEW:
                break
            key, value = self.key[at], self.value[at]
            there = (self.key_end[at] - key >= _WIDTH) & (self.value_end[at] - value >= _WIDTH)
            keys = self._number(key, ">u8", there)
            values = self._number(value, ">u8", there)
            key, value = key + _WIDTH, value + _WIDTH
            there &= (keys > 0) & (keys <= self.key_end[at] - key)
            there &= (values >= 0) & (values <= self.value_end[at] - value)
            self.is_right[at[~there]] = False
            at, key, value = at[there], key[there], value[there]
            self.key[at], self.value[at] = key + keys[there], value + values[there]
            number = np.full(len(at), index)
            self.found.append(
                np.stack([at, number, key, self.key[at], value, self.value[at]], axis=1)
            )
        self._is_ended()

    def one_by_one(self) -> None:
        """What is left: whole messages where they are few, else those with many events."""
        seen = np.zeros(len(self.key), np.int64)
        for part in self.found:
            seen[part[:, 0]] += 1
        for message in self._left().tolist():
            events = self._events(message)
            self.is_right[message] = events is not None
            if events is not None:
                self.key[message], self.value[message] = events[-1][1], events[-1][3]
                first = int(seen[message])
                rows = [(message, first + n, *each) for n, each in enumerate(events)]
                self.found.append(np.array(rows, np.int64))
        self._is_ended()

    def _events(self, message: int) -> list[_Bounds] | None:
        key, key_end = int(self.key[message]), int(self.key_end[message])
        value, value_end = int(self.value[message]), int(self.value_end[message])
        data, events = self.data.data, list[_Bounds]()
        while key < key_end:
            if key_end - key < _WIDTH or value_end - value < _WIDTH:
                return None
            (keys,), (values,) = _LENGTH.unpack_from(data, key), _LENGTH.unpack_from(data, value)
            key, value = key + _WIDTH, value + _WIDTH
            if not 0 < keys <= key_end - key or values > value_end - value:
                return None
            events.append((key, key + keys, value, value + values))
            key, value = key + keys, value + values
        return events

    def _is_ended(self) -> None:
        """A message without a further key has no further value either."""
        self.is_right &= (self.key < self.key_end) | (self.value == self.value_end)


def _pieces(buffer: pa.Buffer, bounds: Indexes) -> pa.BinaryArray:
    """The bytes within each of these bounds, which rise."""
    flat = np.ascontiguousarray(bounds).ravel()
    assert (flat[1:] >= flat[:-1]).all(), "Arrow would read outside of its memory"
    if not len(flat):
        return pa.array([], pa.binary())
    offsets = pa.py_buffer(flat.astype(np.int32))
    every = pa.Array.from_buffers(pa.binary(), len(flat) - 1, [None, offsets, buffer])
    return every.take(pa.array(np.arange(0, len(flat), 2)))


def events_in(message: bytes) -> list[tuple[bytes, bytes]]:
    """Key and value of each event of a message; none if it is not framed right."""
    frames = frames_of(pa.array([message], pa.binary()))
    if not frames.is_whole.all():
        return []
    return list(zip(frames.keys.to_pylist(), frames.values.to_pylist(), strict=True))


def framed(events: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The message with these events."""
    keys, values = [_LENGTH.pack(_VERSION)], []
    for key, value in events:
        keys.append(_LENGTH.pack(len(key)) + key)
        values.append(_LENGTH.pack(len(value)) + value)
    return with_key(b"".join(keys), b"".join(values)) or b""


def one_event_each(message: bytes, indexes: Sequence[int]) -> list[bytes]:
    """For each of these events of a message the message that has it alone."""
    events = events_in(message)
    if len(events) < 2:
        return [message] * len(indexes)
    return [framed([events[index]]) for index in indexes]
