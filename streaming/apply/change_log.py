"""The due rows of a change log as its rows: every event once, in commit order (rules 4 and 8).

    due rows ──cast, the good ones──► one of each event, however often it was sent ──► in order

TiCDC's streams are at least once. An event is known by its commit-ts, its key, and whether it is a
DELETE: within one commit-ts a key has no more than these two. Without a key it is known by all that
it says: rows that are equal in every column, written at one commit-ts, are one event. An event of a
binlog is known by its place, with a key or without: it is always at the same one, and a transaction
may change a key many times (``contract.Order``). COMMIT_ORDER tells that order: by the place the
number of the event, else 0 for a DELETE and 1 for what comes after it. So it depends on the events
alone.

An UPDATE is two rows, its old values first, where the message has them. Every row that cannot be
applied is an error by itself, whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import Ts
from sinks.merge_on_write.files.sorted_files import gathered
from sinks.target.write_mode import (
    AFTER_UPDATE,
    BEFORE_UPDATE,
    COMMIT_ORDER,
    COMMIT_TIME,
    COMMIT_TS,
    DELETED,
    EVENT,
    INSERTED,
    LOG_COLUMNS,
    moment_us,
)
from sinks.types.casts.typed_cells import cell_texts
from sinks.types.delta_types import arrow_of, arrow_type
from sinks.types.key_hash import Keys, keys_of
from sinks.types.table_schema import MOMENTS, TableSchema
from streaming.apply.changes import TableChanges
from streaming.apply.last_change import (
    last_changes,
    last_entries,
    order_of_pieces,
    places_of,
)
from streaming.apply.row_block import RowBlock
from streaming.apply.rows_to_apply import Mask, Piece, RowNumbers
from streaming.apply.table_task import ChangeRules, TableTask
from streaming.apply.values.ignored_rows import pieces_taken
from streaming.apply.values.row_errors import (
    NO_COLUMN_MESSAGE,
    NO_KEY,
    RowErrors,
    error_table,
    no_place_errors,
    told_errors,
    unknown_column_errors,
    untold_errors,
)
from streaming.apply.values.typed_rows import (
    TypedKeys,
    TypedValues,
    typed_keys,
    typed_values,
    untold_columns,
)
from streaming.protocols.contract import DATA, OLD, OP_DELETE, OP_UPDATE, Order

_EVENTS: Final = pa.array([DELETED, INSERTED, AFTER_UPDATE])  # by OP_DELETE, OP_INSERT, OP_UPDATE


def change_log_rows(
    task: TableTask, blocks: Sequence[RowBlock], limit: Ts, rules: ChangeRules
) -> TableChanges:
    """Events in ``(checkpoint, limit]``: the delivered columns and ``LOG_COLUMNS``."""
    schema = task.schema
    pieces = [_PieceEvents(each, rules) for each in pieces_taken(task, blocks, limit, rules)]
    among = [np.flatnonzero(each.is_good) for each in pieces]
    once = last_entries(
        [(each.piece, each.identities(), rows) for each, rows in zip(pieces, among, strict=True)]
    )
    dropped: Counter[str] = Counter()
    nulled: Counter[str] = Counter()
    sides: list[_Side] = []
    for each, rows in zip(pieces, once, strict=True):
        sides += each.sides(rows)
        nulled += each.count_nulled(rows)
        if rules.drops and len(rows):
            dropped.update(dict.fromkeys(each.unknown, len(rows)))
    errors = [(each.piece, errors) for each in pieces for errors in each.errors]
    told = [(e.piece, e.identities(), rows) for e, rows in zip(pieces, once, strict=True)]
    return TableChanges(
        rows=_table(schema, sides),
        errors=error_table(errors),
        dropped=dict(dropped),
        nulled=dict(nulled),
        last=last_changes(told) if task.tells_last else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Side:
    """Rows of the log: the old values of a piece's events, or the new ones."""

    piece: Piece
    rows: RowNumbers
    is_before: bool
    columns: dict[str, pa.Array]

    def order(self) -> list[npt.NDArray[Any]]:
        """The weightiest first."""
        piece, rows = self.piece, self.rows
        is_after = np.full(len(rows), not self.is_before)
        is_later = (piece.op[rows] != OP_DELETE) & (piece.order is Order.NET)
        position, index = piece.position[rows], piece.index[rows]
        return [piece.commit_ts[rows], is_later, piece.origin[rows], position, index, is_after]

    def log_columns(self) -> dict[str, pa.Array]:
        piece, rows = self.piece, self.rows
        commit_ts = piece.commit_ts[rows]
        before = pa.repeat(pa.scalar(BEFORE_UPDATE), len(rows))
        return {
            EVENT: before if self.is_before else _EVENTS.take(pa.array(piece.op[rows])),
            COMMIT_TS: pa.array(commit_ts),
            COMMIT_TIME: pa.array(moment_us(commit_ts)).cast(arrow_of(LOG_COLUMNS[COMMIT_TIME])),
        }


class _PieceEvents:
    """The events of a piece, cast, and which of them are good."""

    def __init__(self, piece: Piece, rules: ChangeRules) -> None:
        schema, delivered = piece.of.schema, piece.of.schema.delivered
        known = {column.name for column in schema.columns}  # a binlog has virtual ones too
        self.piece = piece
        self.errors: list[RowErrors] = []
        self.is_good = np.ones(piece.count, np.bool_)
        self.unknown = [field.name for field in piece.shape if field.name not in known]
        if piece.error_class is not None:
            is_told = piece.error_class.is_valid().to_numpy(zero_copy_only=False)
            self._leave_out(is_told, told_errors(piece, np.flatnonzero(is_told)))
        if lacking := untold_columns(piece):
            self._leave_out(self.is_good.copy(), untold_errors(self._good(), lacking))
        self._key: TypedKeys | None = None
        if schema.key:
            self._key = typed_keys(piece, rules, finds_rows=False)
            self._leave_out(self._key.is_bad, *self._key.errors)
        elif not piece.shape.num_fields:  # delete-only-output-handle-key-columns, and no handle key
            nothing = told_errors(piece, self._good(), (NO_KEY, NO_COLUMN_MESSAGE))
            self._leave_out(self.is_good.copy(), nothing)
        self._after = self._cast(self._good(), rules)
        updates = self._good(piece.op == OP_UPDATE)
        has_old = piece.values(updates, OLD).is_valid().to_numpy(zero_copy_only=False)
        before = typed_values(piece, updates[has_old], delivered, rules, OLD)
        self._before = self._taken(before, rules)
        if self.unknown and not rules.drops:
            rows = self._good()
            self._leave_out(self.is_good.copy(), unknown_column_errors(rows, self.unknown))

    def _good(self, among: Mask | None = None) -> RowNumbers:
        return np.flatnonzero(self.is_good if among is None else self.is_good & among)

    def _cast(self, rows: RowNumbers, rules: ChangeRules) -> TypedValues:
        schema = self.piece.of.schema
        others = [column for column in schema.delivered if column.name not in schema.key]
        values = typed_values(self.piece, rows, others, rules, verifies=rules.verifies)
        if self._key is not None:
            columns = values.columns | self._key.of(rows)
            nulled = {name: mask[rows] for name, mask in self._key.nulled.items()}
            values = replace(values, columns=columns, nulled={**values.nulled, **nulled})
        return self._taken(values, rules)

    def _taken(self, values: TypedValues, rules: ChangeRules) -> TypedValues:
        """In the log's present columns, without the bad ones."""
        rows = values.rows
        self._leave_out(self._mask(rows, values.is_bad), *values.errors)
        present = self.piece.of.carried(values.columns, rules, rows=len(rows))
        if present.has_lost is not None:
            self._leave_out(
                self._mask(rows, present.has_lost), no_place_errors(rows[present.has_lost])
            )
        return replace(values, columns=present.columns)

    def _mask(self, rows: RowNumbers, is_it: Mask | None) -> Mask | None:
        """By row of the piece."""
        if is_it is None:
            return None
        mask = np.zeros(self.piece.count, np.bool_)
        mask[rows[is_it]] = True
        return mask

    def _leave_out(self, is_bad: Mask | None, *errors: RowErrors) -> None:
        """The first reason of a row counts."""
        if is_bad is not None:
            self.errors += [each.where(self.is_good[each.rows]) for each in errors]
            self.is_good &= ~is_bad

    def identities(self) -> Keys:
        """For every row the values that make it one event."""
        return event_identities(self.piece, self._key)

    def count_nulled(self, rows: RowNumbers) -> Counter[str]:
        """For these events, by column: the dates that are NULL in the log."""
        changed = self._before.rows[np.isin(self._before.rows, rows)]
        return self._after.count_nulled(rows) + self._before.count_nulled(changed)

    def sides(self, rows: RowNumbers) -> list[_Side]:
        """The sides of these events, which are good and rise."""
        columns = self._after.of(rows, np.ones(len(rows), np.bool_))
        after = _Side(piece=self.piece, rows=rows, is_before=False, columns=columns)
        changed = self._before.rows[np.isin(self._before.rows, rows)]
        columns = self._before.of(changed, np.ones(len(changed), np.bool_))
        before = _Side(piece=self.piece, rows=changed, is_before=True, columns=columns)
        return [each for each in (after, before) if len(each.rows)]


def event_identities(piece: Piece, key: TypedKeys | None) -> Keys:
    """For every row the values that make it one event. ``key``: None if the table has none."""
    if piece.order is Order.PLACE:
        return keys_of(places_of(piece))
    stamps = [pa.array(piece.commit_ts), pa.array(piece.op == OP_DELETE)]
    if key is not None:
        return keys_of([*key.columns.values(), *_lost_keys(piece, key), *stamps])
    said = [pa.array(piece.op)]
    places = sorted(range(piece.shape.num_fields), key=lambda at: str(piece.shape[at].name))
    for side in (DATA, OLD):
        values = piece.values(np.arange(piece.count), side)
        for place in places:  # the order of columns is the message's
            text = cell_texts(pc.struct_field(values, [place]))
            said += [pc.fill_null(text, ""), text.is_valid()]
    return keys_of([*said, *stamps])


def _lost_keys(piece: Piece, key: TypedKeys) -> Iterator[pa.Array]:
    """The texts of dates in the key that are NULL now: they tell events apart, as other values
    do."""
    for name, cells in zip(piece.of.schema.key, piece.keys, strict=True):
        if piece.of.schema.column(name).type.name in MOMENTS:
            yield pc.if_else(key.columns[name].is_null(), cell_texts(cells), None)


def _table(schema: TableSchema, sides: Sequence[_Side]) -> pa.Table:
    types = {column.name: arrow_type(column.stored) for column in schema.delivered}
    types |= {name: arrow_of(kind) for name, kind in LOG_COLUMNS.items() if name != COMMIT_ORDER}
    chunks: dict[str, list[pa.Array]] = {name: [] for name in types}
    for side in sides:
        for name, values in {**side.columns, **side.log_columns()}.items():
            chunks[name].append(values)
    table = pa.table({name: pa.chunked_array(chunks[name], of) for name, of in types.items()})
    numbers = np.empty(0, np.int32)
    if sides:
        order = [
            np.concatenate(parts) for parts in zip(*(side.order() for side in sides), strict=True)
        ]
        rows = np.lexsort(order[::-1])
        table = gathered(table, rows, table.nbytes)
        net = order_of_pieces([side.piece for side in sides]) is Order.NET
        numbers = order[1][rows].astype(np.int32) if net else _event_numbers(order[:-1], rows)
    return table.append_column(COMMIT_ORDER, pa.array(numbers, arrow_of(LOG_COLUMNS[COMMIT_ORDER])))


def _event_numbers(place: Sequence[npt.NDArray[Any]], rows: RowNumbers) -> npt.NDArray[np.int32]:
    """For each of ``rows``, which are in order, the number of its event among those of its
    commit-ts, from 0. ``place``: the commit-ts, and what else the event is known by."""
    is_next = [np.diff(column[rows].astype(np.int64), prepend=-1) != 0 for column in place]
    begins = np.flatnonzero(is_next[0])
    numbers = np.cumsum(np.logical_or.reduce(is_next))
    numbers -= np.repeat(numbers[begins], np.diff(np.append(begins, len(rows))))
    found: npt.NDArray[np.int32] = numbers.astype(np.int32)
    return found
