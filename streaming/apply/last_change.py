"""The last change of each key, by numbers alone.

Order is ``(commit_ts, delete before insert, offset, index)``: TiCDC's streams are at least once and
may swap keys within one commit-ts (rule 4). The key is a number or a hash (``key_hash``).
Sorting by key, then one pass per column over what is still undecided: cheaper than to sort by all
of them.
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
    """Which entries of each piece are the last change of their key, rising. Given are the keys of
    all of its entries, without a NULL where they count, and which of them count."""
    if not pieces:
        return []

    def joined(column: str) -> npt.NDArray[Any]:
        parts = [_of(getattr(piece, column), rows) for piece, _, rows in pieces]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    keys = joined_keys([_picked(keys, rows) for _, keys, rows in pieces])
    order = [joined("commit_ts"), (joined("op") != OP_DELETE).view(np.int8)]
    order += map(joined, ("offset", "index"))
    order.append(joined("origin"))  # so that there is but one answer
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
    """``rows`` rise and are no more than the column has."""
    return column if len(rows) == len(column) else column[rows]


def joined_keys(parts: Sequence[Keys]) -> Keys:
    """One after the other; an empty one says nothing of their kind."""
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
    """The positions of the greatest row of each key, rising.

    ``keys`` are valid, without a NULL. ``order``: columns that rise towards the last change, the
    weightiest first. Of rows that are equal in all of them any one is taken: they are the same.
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
    """The rows by key, and where in them each key begins."""
    first, second = keys.first, keys.second
    by_key = np.argsort(first)
    is_new = _differs(first[by_key])
    if second is not None:
        is_other = _differs(second[by_key])
        if (is_other & ~is_new).any():  # two keys with one first half: hardly ever
            by_key = np.lexsort((second, first))
            is_new, is_other = _differs(first[by_key]), _differs(second[by_key])
        is_new |= is_other
    return by_key, np.flatnonzero(is_new)


def _differs(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """From the value before; the first one does."""
    is_new = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=is_new[1:])
    return is_new
