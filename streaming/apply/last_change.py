"""Find the last change of each key, with arrays of numbers only.

The order is that of the source (``contract.Order``, rule 4):

- NET ``(commit_ts, delete before insert, position, index)``: TiCDC's streams are at least once and
  may swap keys within one commit-ts.
- PLACE ``(commit_ts, position, index, delete before insert)``: a transaction of a binlog may change
  a key many times. Only the halves of an UPDATE that changes its key are at one place.

The key is a number or a hash (``key_hash``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sinks.merge_on_write.files.data_files import one_array
from sinks.target.write_mode import (
    HISTORY_COLUMNS,
    IS_CURRENT,
    VALID_FROM,
    VALID_FROM_TS,
    VALID_TO,
    VALID_TO_TS,
    moment_us,
)
from sinks.types.delta_types import arrow_of
from sinks.types.key_hash import Keys, keys_of
from sinks.types.last_per_key import joined_keys, last_per_key
from streaming.apply.rows_to_apply import Piece, RowNumbers
from streaming.protocols.contract import OP_DELETE, Order


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LastChanges:
    """Changes with their keys."""

    keys: Keys
    order: Order
    commit_ts: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]
    index: npt.NDArray[np.int32]
    is_put: npt.NDArray[np.bool_]

    def at(self, positions: npt.NDArray[np.int64], indexes: npt.NDArray[np.int32]) -> LastChanges:
        """The same at the places of which their positions are the numbers."""
        at = self.position
        return replace(self, position=positions[at], index=indexes[at])


def last_changes(pieces: Sequence[tuple[Piece, Keys, RowNumbers]]) -> LastChanges:
    """The last changes among these entries of the pieces, whose keys come with them."""

    def joined(column: str, kind: type) -> npt.NDArray[Any]:
        parts = [_of(getattr(piece, column), rows) for piece, _, rows in pieces]
        return np.concatenate([np.empty(0, kind), *parts])

    return LastChanges(
        keys=joined_keys([_picked(keys, rows) for _, keys, rows in pieces]),
        order=order_of_pieces([piece for piece, _, _ in pieces]),
        commit_ts=joined("commit_ts", np.int64),
        position=joined("position", np.int64),
        index=joined("index", np.int32),
        is_put=joined("op", np.int8) != OP_DELETE,
    )


def places_of(piece: Piece) -> list[pa.Array]:
    """The place of each of its entries, where the order is PLACE."""
    parts = pa.array([hash(part) for part in piece.parts], pa.int64())
    at = map(pa.array, (piece.commit_ts, piece.position, piece.index))
    return [*at, parts.take(pa.array(piece.origin))]


def order_of_pieces(pieces: Sequence[Piece]) -> Order:
    """The order of all of them: they come from one source."""
    orders = {piece.order for piece in pieces} or {Order.NET}
    assert len(orders) == 1, "changes that are ordered in two ways"
    return orders.pop()


def last_entries(pieces: Sequence[tuple[Piece, Keys, RowNumbers]]) -> list[RowNumbers]:
    """The entries of each piece that are the last change of their key, rising. Each piece comes
    with the keys of all its entries and with the entries that count."""
    if not pieces:
        return []

    def joined(column: str) -> npt.NDArray[Any]:
        parts = [_of(getattr(piece, column), rows) for piece, _, rows in pieces]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    keys = joined_keys([_picked(keys, rows) for _, keys, rows in pieces])
    is_put, place = (joined("op") != OP_DELETE).view(np.int8), map(joined, ("position", "index"))
    is_net = order_of_pieces([piece for piece, _, _ in pieces]) is Order.NET
    order = [joined("commit_ts"), *((is_put, *place) if is_net else (*place, is_put))]
    order.append(joined("origin"))  # the part, so that the result is unique
    last = last_per_key(keys, order)
    found, begin = [], 0
    for _, _, rows in pieces:
        low, high = np.searchsorted(last, (begin, begin + len(rows)))
        found.append(_of(rows, last[low:high] - begin))
        begin += len(rows)
    return found


def _picked(keys: Keys, rows: RowNumbers) -> Keys:
    second = None if keys.second is None else _of(keys.second, rows)
    return Keys(_of(keys.first, rows), second)


def _of(column: npt.NDArray[Any], rows: RowNumbers) -> npt.NDArray[Any]:
    """The entries ``rows`` of a column. They rise, so if there are as many as the column has, they
    are the whole column."""
    return column if len(rows) == len(column) else column[rows]


def versions(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The same rows, one for each key and VALID_FROM_TS, with the other columns of a history. A
    version ends where the next change of its key comes; a DELETE is only such an end."""
    if not rows.num_rows:
        return rows
    begins = rows[VALID_FROM_TS].to_numpy()
    keys = keys_of([one_array(rows[name], rows[name].type) for name in key])
    words = [keys.first] if keys.second is None else [keys.first, keys.second]
    order = np.lexsort((begins, *words))
    is_next = np.ones(len(order) - 1, np.bool_)  # the same key as the row before
    for word in words:
        is_next &= word[order[1:]] == word[order[:-1]]
    ends = np.zeros(len(order), np.int64)
    ends[order[:-1][is_next]] = begins[order[1:][is_next]]
    is_open = ends == 0
    found = {
        VALID_FROM: pa.array(moment_us(begins)),
        VALID_TO: pa.array(moment_us(ends), mask=is_open),
        IS_CURRENT: pa.array(is_open),
        VALID_TO_TS: pa.array(ends, mask=is_open),
    }
    for name, values in found.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, values.cast(arrow_of(HISTORY_COLUMNS[name])))
    return rows
