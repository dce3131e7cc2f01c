"""Find the last change of each key, with arrays of numbers only.

The order is ``(commit_ts, delete before insert, offset, index)``: TiCDC's streams are at least once
and may swap keys within one commit-ts (rule 4). The key is a number or a hash (``key_hash``). The
rows are sorted by key; then there is one pass per column of the order over the keys that still have
several candidates. That is cheaper than to sort by all columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sinks.merge_on_write.key_hash import Keys, Words
from streaming.apply.due_rows import Piece, Rows
from streaming.protocols.contract import OP_DELETE


def last_entries(pieces: Sequence[tuple[Piece, Keys, Rows]]) -> list[Rows]:
    """The entries of each piece that are the last change of their key, rising. Each piece comes
    with the keys of all its entries and with the entries that count, whose keys have no NULL."""
    if not pieces:
        return []

    def joined(column: str) -> npt.NDArray[Any]:
        parts = [_of(getattr(piece, column), rows) for piece, _, rows in pieces]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    keys = joined_keys([_picked(keys, rows) for _, keys, rows in pieces])
    order = [joined("commit_ts"), (joined("op") != OP_DELETE).view(np.int8)]
    order += map(joined, ("offset", "index"))
    order.append(joined("origin"))  # the partition, so that the result is unique
    last = last_per_key(keys, order)
    found, begin = [], 0
    for _, _, rows in pieces:
        low, high = np.searchsorted(last, (begin, begin + len(rows)))
        found.append(_of(rows, last[low:high] - begin))
        begin += len(rows)
    return found


def _picked(keys: Keys, rows: Rows) -> Keys:
    second = None if keys.second is None else _of(keys.second, rows)
    return Keys(_of(keys.first, rows), second, None)


def _of(column: npt.NDArray[Any], rows: Rows) -> npt.NDArray[Any]:
    """The entries ``rows`` of a column. They rise, so if there are as many as the column has, they
    are all of it."""
    return column if len(rows) == len(column) else column[rows]


def joined_keys(parts: Sequence[Keys]) -> Keys:
    """The keys one after the other. Empty parts are left out: they do not say whether the keys have
    a second half."""
    filled = [keys for keys in parts if len(keys)]
    if len(filled) == 1:
        return filled[0]
    if not filled:
        return Keys(np.empty(0, np.int64), None, None)
    seconds: list[Words] = [keys.second for keys in filled if keys.second is not None]
    return Keys(
        np.concatenate([keys.first for keys in filled]),
        np.concatenate(seconds) if seconds else None,
        None,
    )


def last_per_key(keys: Keys, order: Sequence[npt.NDArray[Any]]) -> Rows:
    """The positions of the last row of each key, rising.

    ``keys`` have no NULL. ``order``: the columns to compare, the most significant first; the last
    row is the greatest. Of rows that are equal in all columns any one is taken: they are the same.
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


def _groups(keys: Keys) -> tuple[Rows, Rows]:
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
