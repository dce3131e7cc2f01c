"""Where a byte stands in a text, by words of 64 bits: a bit for each byte of the text."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Indexes = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

BITS: Final = 64
PIECE: Final = 1 << 20  # bytes whose words stay in the processor's cache
_NONE: Final = np.zeros(0, np.int64)
_ONE: Final = np.uint64(1)
# A number whose every six bits are others: of a bit times it the highest six say which bit.
_FACTOR: Final = 0x03F79D71B4CB0A89
_SHIFT: Final = np.uint64(58)
_PLACES: Final = np.zeros(BITS, np.int64)
for _bit in range(BITS):
    _PLACES[(_FACTOR << _bit) % (1 << BITS) >> 58] = _bit


def places_of(data: Bytes, byte: int) -> Indexes:
    """The places of a byte that is rare, rising."""
    pieces = range(0, len(data), PIECE)
    found = [places(bits_of(data[begin : begin + PIECE], byte)) + begin for begin in pieces]
    return np.concatenate([_NONE, *found])


def bits_of(data: Bytes, byte: int) -> Words:
    """Where this byte stands."""
    found = np.packbits(data == byte, bitorder="little")
    if missing := -len(found) % 8:
        found = np.append(found, np.zeros(missing, np.uint8))
    return found.view(np.uint64)


def places(words: Words) -> Indexes:
    """The bits that are set, rising."""
    at = np.flatnonzero(words)
    left, found, count = words[at], [_NONE], len(at)
    while len(at):
        lowest = left & (~left + _ONE)
        found.append(at * BITS + _PLACES[lowest * np.uint64(_FACTOR) >> _SHIFT])
        left ^= lowest
        more = np.flatnonzero(left)
        if len(more) > count // 4:  # they stand close together
            bits = np.unpackbits(words.view(np.uint8), bitorder="little")
            return np.flatnonzero(bits.view(np.bool_))
        at, left = at[more], left[more]
    return found[1] if len(found) == 2 else np.sort(np.concatenate(found))
