"""One message in Avro's binary encoding, a value at a time: slow and strict.

A number must fit into 64 bits (an int into 32), a text must be UTF-8, and a length or count may not
promise more than the message has. Negative counts of blocks are those that tell their size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from streaming.protocols.json_text.strict_json import Malformed

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_MOST_SHIFT: Final = 63
_INT64, _INT32 = range(-(2**63), 2**63), range(-(2**31), 2**31)


class DatumReader:
    """``at``: the next byte. Each method raises Malformed where its value is not there."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def end(self) -> None:
        """Nothing may be left."""
        if self.at != len(self.data):
            raise Malformed

    def long(self) -> int:
        found = shift = 0
        data = self.data
        while True:
            if self.at >= len(data) or shift > _MOST_SHIFT:
                raise Malformed
            byte = data[self.at]
            self.at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if found >> 64:
            raise Malformed
        return (found >> 1) ^ -(found & 1)

    def integer(self) -> int:
        found = self.long()
        if found not in _INT32:
            raise Malformed
        return found

    def index(self, count: int) -> int:
        """Which of so many branches or symbols."""
        found = self.long()
        if not 0 <= found < count:
            raise Malformed
        return found

    def boolean(self) -> bool:
        found = self._take(1)
        if found > b"\x01":
            raise Malformed
        return found == b"\x01"

    def single(self) -> float:
        return float(_FLOAT.unpack(self._take(4))[0])

    def double(self) -> float:
        return float(_DOUBLE.unpack(self._take(8))[0])

    def octets(self) -> bytes:
        return self._take(self.long())

    def text(self) -> str:
        try:
            return self.octets().decode()
        except UnicodeDecodeError as error:
            raise Malformed from error

    def items(self) -> Iterator[None]:
        """One for each item of an array or map; the caller reads it. An item has at least a
        byte."""
        while count := self.long():
            if count < 0:
                count = -count
                self.long()  # the block's size
            if count > len(self.data) - self.at:
                raise Malformed
            for _ in range(count):
                yield

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise Malformed
        self.at += size
        return self.data[self.at - size : self.at]
