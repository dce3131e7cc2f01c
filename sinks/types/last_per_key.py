"""The last row of each key by some order, with arrays of numbers only.

The rows are sorted by key; then there is one pass per column of the order over the keys that still
have several candidates. That is cheaper than to sort by all columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sinks.types.key_hash import Keys, Ordinals, Words


def joined_keys(parts: Sequence[Keys]) -> Keys:
    """The keys one after the other. Empty parts are left out: their ``first`` is of any type."""
    filled = [keys for keys in parts if len(keys)]
    if not filled:
        return Keys(np.empty(0, np.int64), None)
    if len(filled) == 1:
        return filled[0]
    first = np.concatenate([keys.first for keys in filled])
    if all(keys.second is None for keys in filled):
        return Keys(first, None)
    seconds: list[Words] = [
        np.zeros(len(keys), np.uint64) if keys.second is None else keys.second for keys in filled
    ]
    return Keys(first, np.concatenate(seconds))


def last_per_key(keys: Keys, order: Sequence[npt.NDArray[Any]]) -> Ordinals:
    """The positions of the last row of each key, rising.

    ``order``: the columns to compare, the most significant first; the last row is the greatest. If
    several rows are equal in all columns, any one of them is taken: they are the same.
    """
    if not len(keys):
        return np.empty(0, np.int64)
    by_key, begins = _groups(keys)
    if len(begins) == len(keys):
        return np.arange(len(keys), dtype=np.int64)
    sizes = np.diff(np.append(begins, len(keys)))
    is_alone = np.repeat(sizes == 1, sizes)
    found = [by_key[is_alone]]
    rows = by_key[~is_alone]
    sizes = sizes[sizes > 1]
    for column in order:
        if len(rows) == len(sizes):
            break
        values = column[rows]
        begins = np.cumsum(sizes) - sizes
        is_last = values == np.repeat(np.maximum.reduceat(values, begins), sizes)
        rows, sizes = rows[is_last], np.add.reduceat(is_last, begins, dtype=np.int64)
    found.append(rows[np.cumsum(sizes) - sizes])
    return np.sort(np.concatenate(found))


def _groups(keys: Keys) -> tuple[Ordinals, Ordinals]:
    """The rows sorted by key, and the positions in that order where each key begins."""
    first, second = keys.first, keys.second
    by_key = np.argsort(first)
    is_new = _differs(first[by_key])
    if second is not None:
        is_other = _differs(second[by_key])
        if (is_other & ~is_new).any():  # two keys share a first half, which is very rare
            by_key = np.lexsort((second, first))
            is_new, is_other = _differs(first[by_key]), _differs(second[by_key])
        is_new |= is_other
    return by_key, np.flatnonzero(is_new)


def _differs(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether each value differs from the one before it; True for the first one."""
    is_new = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=is_new[1:])
    return is_new
