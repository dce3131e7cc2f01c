"""Whether two rows of files that were just written have the same key.

The question is about all files at once, not about a part of them. So the keys, as numbers, are
dealt out by their values into *shares*, as many as make one share small enough to be sorted in
memory: equal keys are in one share. Each share reads the key columns of all files. A table that is
twice as large has twice as many shares, and each reads twice as much.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from coordination.errors import TidelakeError
from sinks.merge_on_write.alter.rewrite import PartMapper, PartRewrite
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.statistics import rows_in
from sinks.merge_on_write.log.actions import DataFile
from sinks.merge_on_write.log.file_locations import FileLocations
from sinks.merge_on_write.log.physical_schema import PhysicalColumn
from sinks.storage.table_storage import TableStorage
from sinks.types.key_hash import Keys, Mask, Words, keys_of

SHARE_KEYS = 16_000_000  # of eight bytes, which are there twice for a moment: 256 MB
PIECE_ROWS = 1_000_000
_AT_ONCE = 1_000  # numbers that come twice and are looked at; among hashes one may be by chance
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOfKeys:
    """Looks at the keys in share ``number`` of ``shares``. Can be pickled."""

    uri: str
    open_place: Callable[[str], TableStorage]
    paths: tuple[str, ...]  # of files without deleted rows
    columns: tuple[PhysicalColumn, ...]
    shares: int
    seeds: Words = field(default_factory=lambda: np.frombuffer(os.urandom(16), dtype=np.uint64))

    def twice(self, number: int) -> Words:
        """The first halves of keys that come more than once, rising."""
        found = [keys.first[self._among(keys, number)] for _, keys in self._pieces()]
        firsts = np.concatenate([np.empty(0, np.uint64), *(each.view(np.uint64) for each in found)])
        del found
        firsts.sort()
        return np.unique(firsts[1:][firsts[1:] == firsts[:-1]])

    def __call__(self, number: int) -> str | None:
        """The values of a key that two rows have; None: no two have the same."""
        twice = self.twice(number)
        looks = range(0, len(twice), _AT_ONCE)
        doubles = (self.double(twice[begin : begin + _AT_ONCE]) for begin in looks)
        return next((each for each in doubles if each is not None), None)

    def double(self, among: Words) -> str | None:
        """As when called, for keys whose first half is one of these."""
        seen: set[tuple[int, int]] = set()
        for arrays, keys in self._pieces():
            for row in np.flatnonzero(np.isin(keys.first.view(np.uint64), among)).tolist():
                key = int(keys.first[row]), 0 if keys.second is None else int(keys.second[row])
                if key in seen:
                    return ", ".join(repr(array[row].as_py()) for array in arrays)
                seen.add(key)
        return None

    def _among(self, keys: Keys, number: int) -> Mask:
        """By the upper bits: numbers that follow each other are in different shares."""
        mixed = (keys.first.view(np.uint64) * _SPREAD) >> np.uint64(32)
        return np.asarray(mixed % np.uint64(self.shares) == number)

    def _pieces(self) -> Iterator[tuple[list[pa.Array], Keys]]:
        for _, arrays, keys in self.pieces():
            yield arrays, keys

    def pieces(
        self, more: Sequence[PhysicalColumn] = ()
    ) -> Iterator[tuple[tuple[int, int], list[pa.Array], Keys]]:
        """For each piece the number of its file and of its first row there, the values of the key's
        columns and ``more``, and the keys."""
        located = FileLocations(self.open_place(self.uri), self.open_place)
        for number, path in enumerate(self.paths):
            file, begin = DataFile({"path": path}), 0
            columns = (*self.columns, *more)
            for piece in data_files.read_pieces(located, file, columns, PIECE_ROWS):
                arrays = [data_files.one_array(each, each.type) for each in piece.columns]
                keys = keys_of(arrays[: len(self.columns)], self.seeds)
                yield (number, begin), arrays, keys
                begin += piece.num_rows


def share_of(
    files: Sequence[DataFile], columns: Sequence[PhysicalColumn], work: PartRewrite
) -> ShareOfKeys:
    """The shares of these files, which ``work`` has written. ``columns``: the key's."""
    rows = [rows_in(each.stats) for each in files]
    return ShareOfKeys(
        uri=work.uri,
        open_place=work.open_place,
        paths=tuple(each.path for each in files),
        columns=tuple(columns),
        shares=max(1, -(-sum(filter(None, rows)) // SHARE_KEYS)),
    )


def refuse_doubles(
    files: Sequence[DataFile],
    columns: Sequence[PhysicalColumn],
    work: PartRewrite,
    map_parts: PartMapper,
) -> None:
    """TidelakeError with the values of a key that two rows of these files have. The arguments are
    those of ``share_of``."""
    share = share_of(files, columns, work)
    size_bytes = sum(each.size for each in files)
    with closing(map_parts(share, range(share.shares), size_bytes)) as looks:
        found = next((each for each in looks if each is not None), None)
    if found is not None:
        raise doubled(columns, found)


def doubled(columns: Sequence[PhysicalColumn], values: str | None) -> TidelakeError:
    """The error of two rows with these values of a new key."""
    return TidelakeError(
        f"its key becomes ({', '.join(each.name for each in columns)}), and two rows have "
        f"({values}): replicate the table anew, or keep it as it is with [filter] rules"
    )
