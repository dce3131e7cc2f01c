"""The maps of rows of simple in Avro, many at once: column ─► a union of types.

The columns of a map come in another order in each message. So a step reads one entry of every
message, finds out which column it is by its name's words, and notes where its value lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from streaming.protocols.avro_binary.byte_walk import (
    MASKS,
    WORD,
    Bytes,
    Indexes,
    Mask,
    Walk,
    Words,
    between,
    numbers_behind,
)
from streaming.protocols.avro_binary.datum_reader import DatumReader
from streaming.protocols.json_text.strict_json import Malformed
from streaming.protocols.simple.avro_reader import (
    BYTES,
    DOUBLE,
    FLOAT,
    LONG,
    MOMENT,
    TEXT,
    UNSIGNED,
)
from streaming.protocols.simple.strict_parser import cell_of

NOT_READ: Final = 255  # no branch
_MOST_SLOTS: Final = 20  # bits
_TRIES: Final = 100
_SHORT: Final = 64  # a length below it is written in one byte
_MOST_LENGTH: Final = 1 << 13  # and below it in two
_SMALL, _GOES_ON = np.uint64(0x7F), np.uint64(0x80)
_ONE, _BYTE, _HIGHER = np.uint64(1), np.uint64(8), np.uint64(6)
_NOT_NULL: Final = 2  # as the index of a branch is written
_SEEN_OF_ZONE: Final = 300  # bytes


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Columns by their names' bytes: a table in which each has a slot of its own."""

    longest: int  # bytes of a name
    words: Sequence[Words]  # the first eight bytes of each name as it is written, the next eight …
    factors: Sequence[np.uint64]
    shift: np.uint64
    slots: npt.NDArray[np.int64]

    @staticmethod
    def of(columns: Sequence[str]) -> Names | None:
        """None where no such table was found: there are too many columns."""
        names = [name.encode() for name in columns]
        longest = max(map(len, names))
        if longest >= _MOST_LENGTH:
            return None
        names = [_length(len(name)) + name for name in names]
        words = [
            np.array([int.from_bytes(n[at : at + WORD], "little") for n in names], np.uint64)
            for at in range(0, max(map(len, names)), WORD)
        ]
        bits = min(_MOST_SLOTS, 2 * len(names).bit_length() + 2)
        random = np.random.default_rng(len(names))
        for _ in range(_TRIES):
            odd = random.integers(0, 2**63, len(words), np.uint64) << np.uint64(1) | np.uint64(1)
            factors = [*odd]
            shift = np.uint64(64 - bits)
            places = _mixed(words, factors) >> shift
            if len(set(places.tolist())) == len(names):
                slots = np.zeros(1 << bits, np.int64)
                slots[places.view(np.int64)] = np.arange(len(names))
                return Names(longest, words, factors, shift, slots)
        return None

    def __len__(self) -> int:
        return len(self.words[0])

    def find(self, of: Bytes, at: Indexes) -> tuple[Indexes, Mask, Indexes]:
        """The columns whose names stand at these places, where each name is one of them, and where
        it ends."""
        word, last = of.words(at), len(of.windows) - 1
        length = (word & _SMALL) >> _ONE
        sizes = length.view(np.int64) + 1
        if self.longest >= _SHORT:
            is_long = (word & _GOES_ON) != 0
            more = ((word >> _BYTE) & _SMALL) << _HIGHER
            sizes = np.where(is_long, (length | more).view(np.int64) + 2, sizes)
        found = [word & MASKS[np.minimum(sizes, WORD)]]
        for behind in range(WORD, len(self.words) * WORD, WORD):
            here = of.words(np.minimum(at + behind, last))
            found.append(here & MASKS[between(sizes - behind, 0, WORD)])
        column = self.slots[(_mixed(found, self.factors) >> self.shift).view(np.int64)]
        is_known = self.words[0][column] == found[0]
        for each, mine in zip(found[1:], self.words[1:], strict=True):
            is_known &= mine[column] == each
        return column, is_known, at + sizes


def _length(length: int) -> bytes:
    """As Avro writes it."""
    number = 2 * length
    return bytes([number]) if length < _SHORT else bytes([number & 0x7F | 0x80, number >> 7])


def _mixed(words: Sequence[Words], factors: Sequence[np.uint64]) -> Words:
    found = words[0] * factors[0]
    for word, factor in zip(words[1:], factors[1:], strict=True):
        found += word * factor
    return found


class Zone:
    """The zone of all TIMESTAMPs of a table, as its first one has it."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._written = b""

    def learn(self, seen: bytes) -> None:
        """``seen``: what begins with a value. A zone that does not exist is not learned."""
        data = DatumReader(seen)
        try:
            name = data.text()
            cell_of({"location": name, "value": ""})
        except Malformed:
            return
        self.name, self._written = name, seen[: data.at]

    def values(self, walk: Walk) -> tuple[Indexes, Indexes]:
        """Where the TIMESTAMPs behind their zones begin and end."""
        if self.name is None:
            self.learn(walk.of.data[walk.at[0] :][:_SEEN_OF_ZONE].tobytes())
        behind = walk.at + len(self._written)
        walk.is_right &= self.name is not None
        walk.is_right &= walk.of.are(walk.at, np.minimum(behind, walk.ends), self._written)
        walk.go(behind)
        return walk.span()


def _by_branch(of: Mapping[int, int]) -> Indexes:
    found = np.zeros(256, np.int64)
    for branch, size in of.items():
        found[branch] = size
    return found


_FIXED: Final = _by_branch({FLOAT: 4, DOUBLE: 8})
_HAS_NUMBER: Final = _by_branch(dict.fromkeys((LONG, TEXT, BYTES, UNSIGNED), 1))
_HAS_LENGTH: Final = _by_branch(dict.fromkeys((TEXT, BYTES), 1))


class MapCells:
    """By column and row: the branch of the value, where it begins, and where it ends or, of a whole
    number, what it is."""

    def __init__(self, columns: int, rows: int) -> None:
        self.branches = np.full((columns, rows), NOT_READ, np.uint8)
        self.begins = np.zeros((columns, rows), np.int64)
        self.ends = np.zeros((columns, rows), np.int64)

    def fill(self, walk: Walk, rows: Indexes, names: Names, zone: Zone) -> None:
        """From a map of each message of the walk: one block that has all columns once, and no
        others. ``rows``: those that they become."""
        walk.expect(_NOT_NULL)
        walk.is_right &= walk.number() == len(names)
        for _ in range(len(names)):
            self._entry(walk, rows, names, zone)
        walk.expect(0)
        walk.is_right &= (self.branches[:, rows] != NOT_READ).all(axis=0)

    def _entry(self, walk: Walk, rows: Indexes, names: Names, zone: Zone) -> None:
        column, is_known, ends = names.find(walk.of, walk.at)
        walk.is_right &= is_known
        walk.go(ends)
        index, value, size, is_number = numbers_behind(walk.of, walk.at)
        walk.go(walk.at + 1)
        walk.is_right &= (index <= 2 * UNSIGNED) & (index & 1 == 0)
        branch, at = index >> 1, walk.at
        has_number, has_length = _HAS_NUMBER[branch], _HAS_LENGTH[branch]
        walk.is_right &= is_number | (has_number == 0)
        begins = at + size * has_length
        ends = begins + between(value, -1, len(walk.of.data)) * has_length
        walk.is_right &= ends >= begins
        walk.go(np.maximum(ends, begins) + size * (has_number - has_length) + _FIXED[branch])
        ends = np.where(has_length > 0, ends, value)
        if len(located := np.flatnonzero(branch == MOMENT)):
            part = Walk(walk.of, at[located], walk.ends[located])
            begins[located], ends[located] = zone.values(part)
            walk.join(part, located)
        flat = column * self.branches.shape[1] + rows
        self.branches.ravel()[flat] = branch
        self.begins.ravel()[flat] = begins
        self.ends.ravel()[flat] = ends
