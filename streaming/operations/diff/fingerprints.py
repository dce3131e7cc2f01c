"""Rows as hashes: 32 bytes for a row of any width, in as many parts as memory asks for.

Both sides are read once, in whatever order they come, so that neither the server's collation nor
the order of a table's files matters. A row goes into the part that its key's hash names, on either
side; so the parts can be compared one after the other.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.key_hash import Mask, Words, keys_of
from sinks.types.text_arrays import as_mask

ROW: Final = np.dtype([("key", "<u8", 2), ("cells", "<u8", 2), ("place", "<i8")])
LONG_BYTES: Final = 512
MEMORY_BYTES: Final = 64 << 20  # of one side's rows; beyond it they go to files
PART_ROWS: Final = 2_000_000  # of both sides, of a part that is compared: some 200 MB
MOST_PARTS: Final = 256  # as many files are open at a time
_STRANGE: Final = np.uint64(0xA5A5A5A5A5A5A5A5)
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)

Hashes = npt.NDArray[np.void]  # of dtype ROW
KeyHash = tuple[int, int]
CellsHash = tuple[int, int]
SEVERAL: Final = (-1, -1)  # in the place of one row's hash: it equals none


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows of one side in columns of the table's types: those of the key, and all others.
    ``place``: where the batch stands, for who reads it again. ``strange``: which rows have a value
    that the table's type cannot hold (None: none has); they equal no row."""

    key: tuple[pa.Array, ...]
    cells: tuple[pa.Array, ...]
    place: int = -1
    strange: Mask | None = None

    def filtered(self, keep: Mask) -> Batch:
        mask = pa.array(keep)
        return Batch(
            tuple(each.filter(mask) for each in self.key),
            tuple(each.filter(mask) for each in self.cells),
            self.place,
            None if self.strange is None else self.strange[keep],
        )


@dataclass(frozen=True, slots=True)
class Differing:
    """A key whose rows are not equal on both sides. The hash of the cells is None where that side
    has no such row, and SEVERAL where it has more than one. ``place`` is that of the database's
    batch, -1 where it has no row."""

    key: KeyHash
    lake: CellsHash | None
    database: CellsHash | None
    place: int


def hashed(batch: Batch) -> Hashes:
    rows = np.zeros(len(batch.key[0]), ROW)
    rows["place"] = batch.place
    for name, arrays in (("key", batch.key), ("cells", batch.cells)):
        if not arrays:  # a table of key columns alone
            continue
        found = keys_of([_digested(each) for each in arrays])
        rows[name][:, 0] = found.first.view(np.uint64)
        rows[name][:, 1] = 0 if found.second is None else found.second
    if batch.strange is not None:
        rows["cells"][batch.strange] ^= _STRANGE
    return rows


def _digested(values: pa.Array) -> pa.Array:
    """The values, a long one as its digest: ``keys_of`` takes each eight bytes for a step."""
    kind = values.type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return values
    is_long = as_mask(pc.greater(pc.binary_length(values), LONG_BYTES))
    if not is_long.any():
        return values
    mask, found = pa.array(is_long), values.cast(pa.large_binary())
    digests = (blake2b(each.as_buffer(), digest_size=16) for each in found.filter(mask))
    return pc.replace_with_mask(
        found, mask, pa.array([each.digest() for each in digests], pa.large_binary())
    )


def parts_for(rows: int) -> int:
    """How many parts a comparison of about so many rows needs: a power of two."""
    wanted = max(1, -(-2 * rows // PART_ROWS))
    return min(MOST_PARTS, 1 << (wanted - 1).bit_length())


class Fingerprints:
    """The rows of one side. A context manager: it may hold files."""

    def __init__(self, parts: int, *, memory_bytes: int = MEMORY_BYTES) -> None:
        """``parts``: a power of two, the same for both sides."""
        self.parts = parts
        self.rows = 0
        self._memory_bytes = memory_bytes
        self._held: list[list[Hashes]] = [[] for _ in range(parts)]
        self._held_bytes = 0
        self._files: list[IO[bytes]] = []
        self._stack = ExitStack()

    def __enter__(self) -> Fingerprints:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def add(self, rows: Hashes) -> None:
        """Raises OSError where the disk is full."""
        self.rows += len(rows)
        if self.parts == 1:
            self._held[0].append(rows)
        else:
            part = _part(rows, self.parts)
            order = np.argsort(part, kind="stable")
            bounds = np.searchsorted(part[order], np.arange(self.parts + 1))
            for number in range(self.parts):
                if bounds[number] < bounds[number + 1]:
                    self._held[number].append(rows[order[bounds[number] : bounds[number + 1]]])
        self._held_bytes += rows.nbytes
        if self._held_bytes > self._memory_bytes and self.parts > 1:
            self._to_files()

    def part(self, number: int) -> Hashes:
        """Its rows in no order."""
        held = self._held[number]
        if self._files:
            file = self._files[number]
            file.seek(0)
            held = [np.frombuffer(file.read(), ROW), *held]
        return np.concatenate(held) if held else np.empty(0, ROW)

    def _to_files(self) -> None:
        if not self._files:
            folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="tidelake-diff-")))
            self._files = [
                self._stack.enter_context((folder / str(number)).open("w+b"))
                for number in range(self.parts)
            ]
        for number, held in enumerate(self._held):
            self._files[number].seek(0, 2)
            for rows in held:
                self._files[number].write(rows.tobytes())
        self._held = [[] for _ in range(self.parts)]
        self._held_bytes = 0


def counted(rows: Hashes) -> Hashes:
    """Equal rows as one, whose cells tell how many they are: where rows are counted, the key is the
    whole row."""
    _, at, counts = np.unique(rows[["key", "cells"]], return_index=True, return_counts=True)
    found = rows[at]
    found["cells"][:, 1] = counts
    return found


def repeats(rows: Fingerprints) -> int:
    """How many rows equal another one: of a table without a key."""
    parts = (rows.part(number)[["key", "cells"]] for number in range(rows.parts))
    return rows.rows - sum(len(np.unique(part)) for part in parts)


def differing(
    lake: Fingerprints, database: Fingerprints, most: int, *, counts_rows: bool = False
) -> tuple[list[Differing], int]:
    """Keys whose rows differ, up to ``most`` of them, and how many there are in all.
    ``counts_rows``: also by how often they are there."""
    assert lake.parts == database.parts
    found, total = list[Differing](), 0
    for number in range(lake.parts):
        sides = lake.part(number), database.part(number)
        ours, theirs = map(counted, sides) if counts_rows else sides
        some, count = _differing(ours, theirs, most - len(found))
        found += some
        total += count
    return found, total


def _differing(lake: Hashes, database: Hashes, most: int) -> tuple[list[Differing], int]:
    rows, is_database = _in_order(lake, database)
    if not len(rows):
        return [], 0
    key, cells = rows["key"], rows["cells"]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (key[1:] != key[:-1]).any(axis=1)
    begin = np.flatnonzero(is_first)
    end = np.append(begin[1:], len(rows))
    is_pair = (end - begin == 2) & ~is_database[begin] & is_database[end - 1]
    is_equal = is_pair & (cells[begin] == cells[end - 1]).all(axis=1)
    found = []
    for first, after in zip(begin[~is_equal][:most], end[~is_equal][:most], strict=True):
        ours = first + int(np.count_nonzero(~is_database[first:after]))
        found.append(
            Differing(
                key=_words(key[first]),
                lake=_one(cells[first:ours]),
                database=_one(cells[ours:after]),
                place=int(rows["place"][ours]) if ours < after else -1,
            )
        )
    return found, int(np.count_nonzero(~is_equal))


def _in_order(lake: Hashes, database: Hashes) -> tuple[Hashes, Mask]:
    """The rows of both by key, the lake's first. Equal rows of the database are one: a table
    without a key may have them, and its target has all columns as the key."""
    rows = np.concatenate([lake, database])
    is_database = np.zeros(len(rows), np.bool_)
    is_database[len(lake) :] = True
    key, cells = rows["key"], rows["cells"]
    order = np.lexsort((cells[:, 1], cells[:, 0], is_database, key[:, 1], key[:, 0]))
    rows, is_database = rows[order], is_database[order]
    is_again = np.zeros(len(rows), np.bool_)
    is_again[1:] = (
        is_database[1:]
        & is_database[:-1]
        & (rows["key"][1:] == rows["key"][:-1]).all(axis=1)
        & (rows["cells"][1:] == rows["cells"][:-1]).all(axis=1)
    )
    return rows[~is_again], is_database[~is_again]


def by_key(rows: Hashes) -> dict[KeyHash, CellsHash]:
    """The hash of each key's cells, as in ``Differing``: for the few rows that are asked again."""
    found: dict[KeyHash, CellsHash] = {}
    for row in np.unique(rows[["key", "cells"]]) if len(rows) else ():
        key = _words(row["key"])
        found[key] = SEVERAL if key in found else _words(row["cells"])
    return found


def _one(cells: npt.NDArray[np.uint64]) -> CellsHash | None:
    return None if not len(cells) else SEVERAL if len(cells) > 1 else _words(cells[0])


def key_set(keys: Collection[KeyHash]) -> Words:
    """Keys, for ``is_among``."""
    return np.array(sorted(keys), np.uint64).reshape(-1, 2)


def is_among(rows: Hashes, keys: Words) -> Mask:
    """Which of the rows have one of these keys."""
    ours = np.ascontiguousarray(rows["key"]).view(_PAIR).ravel()
    found: Mask = np.isin(ours, keys.view(_PAIR).ravel())
    return found


_PAIR: Final = np.dtype([("first", "<u8"), ("second", "<u8")])


def key_hashes(rows: Hashes) -> list[KeyHash]:
    return [_words(each) for each in rows["key"]]


def _words(pair: Words) -> tuple[int, int]:
    return int(pair[0]), int(pair[1])


def _part(rows: Hashes, parts: int) -> npt.NDArray[np.uint64]:
    mixed: npt.NDArray[np.uint64] = (rows["key"][:, 0] * _SPREAD) >> np.uint64(
        64 - (parts.bit_length() - 1)
    )
    return mixed
