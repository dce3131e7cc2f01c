"""Reads the body of one event in order, and never beyond its end."""

from __future__ import annotations

from typing import Final

from streaming.source.binlog.format.faults import BadEvent

_WIDTHS: Final = {252: 2, 253: 3, 254: 8}  # of a length-encoded number that begins so


class ByteReader:
    """A place in a body. Each method raises BadEvent if the body ends too early."""

    __slots__ = ("_body", "at")

    def __init__(self, body: bytes, at: int = 0) -> None:
        self._body = body
        self.at = at

    @property
    def left(self) -> int:
        return len(self._body) - self.at

    def take(self, size: int) -> bytes:
        if size > self.left or size < 0:
            raise BadEvent(
                f"the event ends {max(0, self.left)} bytes on, but {size} bytes are to be read"
            )
        self.at += size
        return self._body[self.at - size : self.at]

    def number(self, width: int) -> int:
        """Unsigned, little-endian."""
        return int.from_bytes(self.take(width), "little")

    def length_encoded(self) -> int:
        first = self.take(1)[0]
        if first < 251:
            return first
        if first not in _WIDTHS:
            raise BadEvent(f"a length-encoded number begins with byte {first}")
        return self.number(_WIDTHS[first])

    def variable(self) -> int:
        """Unsigned, of 1 to 9 bytes: as many as the first byte has ones at its low end, and one."""
        first = self.take(1)[0]
        more = (~first & first + 1).bit_length() - 1
        found = first | self.number(more) << 8
        return found >> min(more + 1, 8)

    def sized(self, size: int) -> ByteReader:
        """A reader of the next bytes alone; this one stands behind them."""
        return ByteReader(self.take(size))

    def text(self, size: int) -> str:
        """A name: the servers write names in UTF-8."""
        raw = self.take(size)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise BadEvent(f"the name {raw[:80]!r} is no UTF-8") from error

    def rest(self) -> bytes:
        return self.take(self.left)
