"""The values of a batch's events, which TiCDC compresses one by one, each within its frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.protocols.compressed import MAX_BYTES, texts_of
from streaming.protocols.contract import KEY_LENGTH, NO_KEY
from streaming.protocols.json_text.quote_scanner import Mask

_WIDTH: Final = 8  # of an event's length
_TEXT: Final = np.frombuffer(b'{"', np.uint8)


def are_texts(messages: pa.Array) -> Mask:
    """Messages whose first event is not compressed: then none is. Events without a value, and
    messages that are not framed, count as such."""
    if not pa.types.is_binary(messages.type):
        messages = messages.cast(pa.binary())
    bounds = np.frombuffer(messages.buffers()[1], np.int32)[messages.offset :][: len(messages) + 1]
    data = np.frombuffer(messages.buffers()[2] or b"", np.uint8)
    starts, ends = bounds[:-1].astype(np.int64), bounds[1:].astype(np.int64)
    found: Mask = np.ones(len(messages), np.bool_)
    at = np.flatnonzero(ends - starts >= KEY_LENGTH.size)
    length = np.ndarray(max(0, len(data) - 3), "<u4", data, strides=(1,))[starts[at]]
    first = starts[at] + KEY_LENGTH.size + length.astype(np.int64) + _WIDTH
    has_value = (length != NO_KEY) & (first + len(_TEXT) <= ends[at])
    at, first = at[has_value], first[has_value]
    found[at] = (data[first] == _TEXT[0]) & (data[first + 1] == _TEXT[1])
    return found


def messages_of_texts(messages: Sequence[bytes | None]) -> Iterator[bytes | None]:
    """The messages with the texts of their events. One that is not framed, or whose texts have more
    than ``MAX_BYTES`` in all, stays as it is."""
    cut = [[] if each is None else _values(each) for each in messages]
    texts = texts_of(value for values in cut for value in values)
    for message, values in zip(messages, cut, strict=True):
        made, size = list[bytes](), 0
        for _ in values:
            text = next(texts) or b""
            size += len(text)
            made += [len(text).to_bytes(_WIDTH, "big"), text] if size <= MAX_BYTES else []
        if message is None or not values or size > MAX_BYTES:
            yield message
        else:
            yield b"".join((message[: _value_begins(message)], *made))


def _value_begins(message: bytes) -> int:
    (length,) = KEY_LENGTH.unpack_from(message)
    return KEY_LENGTH.size + int(length)


def _values(message: bytes) -> list[bytes]:
    """The values of its events; none where it is not framed."""
    if len(message) < KEY_LENGTH.size:
        return []
    at, found = _value_begins(message), list[bytes]()
    while at < len(message):
        begin = at + _WIDTH
        at = begin + int.from_bytes(message[at:begin], "big")
        if begin > len(message) or at > len(message):
            return []
        found.append(message[begin:at])
    return found
