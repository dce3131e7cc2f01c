"""The index of a data file: its keys, sorted, with the ordinal (row number) of each.

Files never change, so an index is right as long as its file is in the table. It has deleted rows
too, which the file's deletion vector filters out. All rows of a key are found: a file of another
writer may have several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sinks.types.key_hash import Keys, Ordinals, Part, Words

_NONE: Final[Ordinals] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedKeys:
    """Keys in rising order, with the ordinals of their rows.

    ``rows`` has the ordinal of each key. It is None where the rows are in key order already and
    none is left out: then a key's place is its ordinal.
    """

    first: Part
    second: Words | None
    rows: npt.NDArray[np.int32] | None

    @property
    def size_bytes(self) -> int:
        parts = (self.first, self.second, self.rows)
        return sum(part.nbytes for part in parts if part is not None)

    def __len__(self) -> int:
        return len(self.first)

    def ordinals(self, at: npt.NDArray[np.intp]) -> Ordinals:
        return at.astype(np.int64) if self.rows is None else self.rows[at].astype(np.int64)


def sort_keys(keys: Keys) -> SortedKeys:
    """The index of rows by their keys."""
    first, second = keys.first, keys.second
    if len(first) < 2 or bool((first[1:] >= first[:-1]).all()):
        return SortedKeys(first=first, second=second, rows=None)
    order = np.argsort(first)
    second = None if second is None else second[order]
    return SortedKeys(first=first[order], second=second, rows=order.astype(np.int32))


def rows_with(index: SortedKeys, wanted: SortedKeys) -> Ordinals:
    """The ordinals of all indexed rows whose key is among ``wanted``, in no order, each once.

    ``wanted`` must have no key twice. As both are sorted, the search goes through memory in one
    direction.
    """
    first = index.first
    if not len(first) or not len(wanted.first):
        return _NONE
    low = first.searchsorted(wanted.first)
    (hit,) = (first.take(low, mode="clip") == wanted.first).nonzero()
    if not len(hit):
        return _NONE
    low = low[hit]
    counts = first.searchsorted(wanted.first[hit], "right") - low
    if counts.max() == 1:
        at, asked = low, hit
    else:
        starts = np.repeat(low - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        at, asked = starts + np.arange(int(counts.sum())), np.repeat(hit, counts)
    if index.second is not None or wanted.second is not None:
        at = at[_second(index, at) == _second(wanted, asked)]
    return index.ordinals(at)


def _second(keys: SortedKeys, at: npt.NDArray[np.intp]) -> Words:
    return np.zeros(len(at), np.uint64) if keys.second is None else keys.second[at]


def first_double(keys: SortedKeys) -> int | None:
    if len(keys) < 2:
        return None
    same = keys.first[1:] == keys.first[:-1]
    if keys.second is not None and same.any():
        order = np.lexsort((keys.second, keys.first))
        first, second = keys.first[order], keys.second[order]
        same = (first[1:] == first[:-1]) & (second[1:] == second[:-1])
        at = np.flatnonzero(same)
        return int(keys.ordinals(order[at[:1] + 1])[0]) if len(at) else None
    at = np.flatnonzero(same)
    return int(keys.ordinals(at[:1] + 1)[0]) if len(at) else None
