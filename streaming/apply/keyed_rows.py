"""Due rows with their typed keys, and which of them is the last change of its key.

Order is ``(commit_ts, delete before insert, offset, index)``: TiCDC's streams are at least once and
may swap keys within one commit-ts (rule 4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sinks.merge_on_write.key_hash import Keys
from sinks.schema import TableSchema
from streaming.apply.due_rows import Piece, Rows
from streaming.apply.last_change import joined_keys, last_per_key
from streaming.apply.table_task import ChangeRules
from streaming.apply.typed_rows import Mask, TypedKeys, typed_keys
from streaming.protocols.contract import OP_DELETE

NO_ROWS: Final[Rows] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class MovedRows:
    """UPDATEs that changed the key: which rows, and their old keys."""

    rows: Rows
    keys: TypedKeys

    def good(self, is_good: Mask) -> Rows:
        return self.rows[is_good[self.rows]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyedPiece:
    """A piece and what can be said of its rows before their other cells are cast."""

    piece: Piece
    keys: TypedKeys
    moved: MovedRows | None
    is_told: Mask | None  # which rows came with an error
    unknown: tuple[str, ...]  # columns that the table lacks
    lacking: Rows  # rows for which that is an error

    @classmethod
    def of(cls, piece: Piece, schema: TableSchema, rules: ChangeRules) -> KeyedPiece:
        known = {column.name for column in schema.delivered}
        unknown = tuple(name for name in piece.columns() if name not in known)
        told, moved, casts = piece.error_class, piece.moved, rules.casts
        is_error = bool(unknown) and not rules.drops
        return cls(
            piece=piece,
            keys=typed_keys(piece.keys, schema, casts),
            moved=None
            if moved is None
            else MovedRows(moved.rows, typed_keys(moved.keys, schema, casts)),
            is_told=None if told is None else told.is_valid().to_numpy(zero_copy_only=False),
            unknown=unknown,
            lacking=np.flatnonzero(piece.op != OP_DELETE) if is_error else NO_ROWS,
        )

    def castable(self) -> Mask:
        """Rows without an error so far."""
        is_good = np.ones(len(self.piece), np.bool_)
        for mask in (self.keys.is_bad, self.is_told):
            if mask is not None:
                is_good &= ~mask
        return is_good


@dataclass(frozen=True, slots=True, eq=False)
class LastRows:
    """What of a piece is the last change of its key."""

    rows: Rows
    left: Rows  # entries of ``moved`` whose old key is deleted


def last_rows(pieces: Sequence[KeyedPiece], good: Sequence[Mask]) -> list[LastRows]:
    """Of each piece, among its good rows and the old keys that they leave; rising."""
    candidates = list(map(_candidates, pieces, good))
    numbers: list[Keys] = []
    places: list[tuple[Piece, Rows, bool]] = []
    for each, among in zip(pieces, candidates, strict=True):
        numbers.append(_picked(each.keys.numbers, among.rows))
        places.append((each.piece, among.rows, False))
        if each.moved is not None:
            numbers.append(_picked(each.moved.keys.numbers, among.left))
            places.append((each.piece, each.moved.rows[among.left], True))
    last = last_per_key(joined_keys(numbers), _order(places))
    found = []
    begin = 0
    for among in candidates:
        middle = begin + len(among.rows)
        end = middle + len(among.left)
        first, second, third = np.searchsorted(last, (begin, middle, end))
        rows, left = last[first:second] - begin, last[second:third] - middle
        found.append(LastRows(_of(among.rows, rows), _of(among.left, left)))
        begin = end
    return found


def _candidates(each: KeyedPiece, is_good: Mask) -> LastRows:
    rows = np.flatnonzero(is_good)
    if each.moved is None:
        return LastRows(rows, NO_ROWS)
    is_left = is_good[each.moved.rows]
    if each.moved.keys.is_bad is not None:
        is_left &= ~each.moved.keys.is_bad
    return LastRows(rows, np.flatnonzero(is_left))


def _picked(keys: Keys, rows: Rows) -> Keys:
    second = None if keys.second is None else _of(keys.second, rows)
    return Keys(_of(keys.first, rows), second, None)


def _order(places: Sequence[tuple[Piece, Rows, bool]]) -> list[npt.NDArray[Any]]:
    """See ``last_per_key``; the partition is there so that there is but one answer."""

    def joined(column: Callable[[Piece], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        parts = [_of(column(piece), rows) for piece, rows, _ in places]
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [NO_ROWS])

    is_left = np.repeat([left for _, _, left in places], [len(rows) for _, rows, _ in places])
    is_written = (joined(lambda piece: piece.op) != OP_DELETE) & ~is_left.astype(np.bool_)
    return [
        joined(lambda piece: piece.commit_ts),
        is_written.view(np.int8),
        joined(lambda piece: piece.offset),
        joined(lambda piece: piece.index),
        joined(lambda piece: piece.origin),
    ]


def _of(column: npt.NDArray[Any], rows: Rows) -> npt.NDArray[Any]:
    """``rows`` rise and are no more than the column has."""
    return column if len(rows) == len(column) else column[rows]
