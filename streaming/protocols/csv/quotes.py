"""Where the quotes of a text lead: 64 bytes are one word of bits, and a byte is within quotes if
the quotes up to it are odd in number. Pure.

Readers agree on a text whose quotes all stand as a writer sets them: one that opens at a row's
beginning, behind a delimiter or behind one that closes, and one that closes before the like. All
others are *odd*: there one reader sees another field than the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from streaming.protocols.json_text.byte_places import (
    BITS,
    PIECE,
    Bytes,
    Indexes,
    Words,
    bits_of,
    places,
)

_LF: Final = ord("\n")
_ZERO, _ONE, _TOP = np.uint64(0), np.uint64(1), np.uint64(63)
_SHIFTS: Final = tuple(np.uint64(1 << each) for each in range(6))


@dataclass(frozen=True, slots=True, eq=False)
class Quotes:
    """``inside``: by bit, each byte behind which a quote is open. ``lines``: the ends of lines that
    are outside. ``odd``: quotes that are odd if all lines end alike; of a delimiter of one
    byte."""

    inside: Words
    lines: Indexes
    odd: Indexes

    @staticmethod
    def of(data: Bytes, quote: int, delimiter: int | None, *, has_cr: bool) -> Quotes:
        """``has_cr``: each line's end is two bytes."""
        size = (len(data) + BITS - 1) // BITS
        inside, lines, odd = np.zeros((3, size), np.uint64)
        to_line = np.uint64(1 + has_cr)  # from a row's last byte
        is_open, is_behind = _ZERO, _ONE
        for begin in range(0, len(data), PIECE):
            # One word more than is kept: what stands behind the others.
            piece = data[begin : begin + PIECE + BITS]
            at = bits_of(piece, quote)
            count = min(len(at), PIECE // BITS)
            part = slice(begin // BITS, begin // BITS + count)
            here = _odd_so_far(at, is_open)
            ends = bits_of(piece, _LF)
            ends &= ~here
            inside[part], lines[part] = here[:count], ends[:count]
            is_open = here[count - 1] >> _TOP
            if delimiter is not None:
                before = bits_of(piece, delimiter)
                here &= at  # those that open
                at ^= here  # those that close
                behind = before | here
                before |= ends
                before |= at
                here &= ~_up(before, is_behind)
                is_behind = before[count - 1] >> _TOP
                at &= ~(_down(behind, _ONE) | _down(ends, to_line))
                np.bitwise_or(here[:count], at[:count], out=odd[part])
        return Quotes(inside, places(lines), places(odd))


def _odd_so_far(bits: Words, first: np.uint64) -> Words:
    """By bit, whether the bits up to it, and ``first``, are odd in number."""
    found, shifted = bits.copy(), np.empty_like(bits)
    for each in _SHIFTS:
        found ^= np.left_shift(found, each, out=shifted)
    np.right_shift(found, _TOP, out=shifted)
    shifted ^= np.bitwise_xor.accumulate(shifted)  # of all words before
    if first:
        shifted ^= _ONE
    found ^= np.subtract(_ZERO, shifted, out=shifted)
    return found


def _up(bits: Words, first: np.uint64) -> Words:
    """Each bit at the place behind its own."""
    found = bits << _ONE
    found[1:] |= bits[:-1] >> _TOP
    found[0] |= first
    return found


def _down(bits: Words, by: np.uint64) -> Words:
    """Each bit so many places before its own."""
    found = bits >> by
    found[:-1] |= bits[1:] << _TOP - by + _ONE
    return found
