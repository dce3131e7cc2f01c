"""Values in Avro's binary encoding, as the specification writes them."""

from __future__ import annotations

import struct
from collections.abc import Iterable

NULL = b"\x00"


def long(value: int) -> bytes:
    """An int or long; also the index of a union or an enum."""
    left = (value << 1) ^ (value >> 63) & (2**64 - 1)
    left &= 2**64 - 1
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def octets(value: bytes) -> bytes:
    return long(len(value)) + value


def text(value: str) -> bytes:
    return octets(value.encode())


def boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def single(value: float) -> bytes:
    return struct.pack("<f", value)


def double(value: float) -> bytes:
    return struct.pack("<d", value)


def branch(index: int, value: bytes = b"") -> bytes:
    """A union's value."""
    return long(index) + value


def blocks(items: Iterable[bytes]) -> bytes:
    """An array, or a map whose items have their names before them, in one block."""
    every = list(items)
    return (long(len(every)) + b"".join(every) if every else b"") + NULL
