"""Turn the due rows of one table into one typed change per key (rules 4 and 8).

    due rows ──cast keys──► last change per key ──cast their other values──► changes
                     └──(a value cannot be cast: cast all rows, choose among the good)──┘

The last change is chosen by *typed* key. An UPDATE that changes the key becomes a DELETE of the old
key and an INSERT of the new one, but only if its new row is good; else the old row stays. So such
an UPDATE is cast even if it is not the last change of its key. In a DELETE only the key counts,
unless the table's form keeps deleted rows: then its row is written like others.

If all columns are the key, every UPDATE changes it. A row must be there as a whole, and so must the
old row of an UPDATE: it finds the row in the table. If such rows are counted, no change stands for
another one: every change is one of the result, once, however often it was read.

Each row that cannot be applied becomes an error, and its key keeps its last good change. There is
one exception: as long as all rows that are written are good, the values of rows that a later row
replaces are not cast, so errors in them are not found.

Rows that come again after a rewind are cast by the shape of their commit-ts, and brought into the
table's present columns (``past_schemas``). A key may have no place there, if its whole numbers have
become narrower. No row of the table can have it, since its last change below that DDL was a DELETE:
its changes are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import Ts
from sinks.target.engine_port import DELETE, OP_COLUMN, TS_COLUMN, UPSERT
from sinks.target.write_mode import (
    DELETED,
    INSERTED,
    ROW_DELETED,
    ROW_OP,
    ROW_TS,
    UPDATED,
    VALID_FROM_TS,
    WriteMode,
)
from sinks.types.delta_types import arrow_of, arrow_type
from sinks.types.key_hash import Keys, keys_of
from sinks.types.table_schema import TableSchema
from streaming.apply.last_change import (
    LastChanges,
    last_changes,
    last_entries,
    places_of,
    versions,
)
from streaming.apply.row_block import RowBlock
from streaming.apply.rows_to_apply import (
    NO_ROWS,
    Mask,
    Piece,
    RowNumbers,
)
from streaming.apply.table_task import ChangeRules, TableTask
from streaming.apply.values.ignored_rows import pieces_taken
from streaming.apply.values.row_errors import (
    RowErrors,
    error_table,
    incomplete_errors,
    no_old_row_errors,
    told_errors,
    unknown_column_errors,
    untold_errors,
)
from streaming.apply.values.typed_rows import (
    TypedValues,
    typed_keys,
    typed_values,
    untold_columns,
)
from streaming.protocols.contract import OLD, OP_DELETE, OP_INSERT, OP_UPDATE, Order

_WRITTEN, _NOT_WRITTEN = pa.scalar(UPSERT), pa.scalar(DELETE)
_ROW_OPS: Final = pa.array([DELETED, INSERTED, UPDATED])  # by OP_DELETE, OP_INSERT, OP_UPDATE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableChanges:
    """``rows``: the delivered columns in the table's types, those of its form, and ``OP_COLUMN``,
    one row per key; where rows are counted, one row per change, and ``TS_COLUMN``. ``errors``: of
    schema ``row_errors.ERRORS``. ``dropped``: for each column that the table lacks, the number of
    rows that were written without its value. ``nulled``: by column, dates that Delta does not have,
    and that are NULL in ``rows``. ``last``: if the task asks, or there are errors."""

    rows: pa.Table
    errors: pa.Table
    dropped: Mapping[str, int]
    nulled: Mapping[str, int]
    last: LastChanges | None = None


def changes(
    task: TableTask,
    blocks: Sequence[RowBlock],
    limit: Ts,
    rules: ChangeRules,
    passed: Callable[[Piece], Mask] | None = None,
) -> TableChanges:
    """The changes in ``(checkpoint, limit]`` of a table that has a key. ``passed``: the entries of
    a piece that are of no account, since newer changes of their keys are in the table."""
    schema = task.schema
    assert schema.key, f"{task.name} has no key"
    due = pieces_taken(task, blocks, limit, rules)
    pieces = [_PieceChanges(each, schema, task.form, rules) for each in due]
    if passed is not None:
        for each in pieces:
            each.is_passed = passed(each.piece)
    if any(len(each.lacking) for each in pieces) or not _cast_last(pieces, rules):
        _cast_all(pieces, rules)
    errors = [(each.piece, errors) for each in pieces for errors in each.errors()]
    rows = _table(schema, task.form, pieces, rules)
    last = None
    if task.tells_last or errors:
        last = last_changes([(each.piece, each.row_keys(), each.last) for each in pieces])
    return TableChanges(
        rows=versions(rows, schema.key) if task.form.is_history else rows,
        errors=error_table(errors),
        dropped=_dropped(pieces) if rules.drops else {},
        nulled=dict(sum((each.count_nulled() for each in pieces), Counter())),
        last=last,
    )


class _PieceChanges:
    """A piece and what becomes of its entries: its rows, then the DELETEs of old keys."""

    def __init__(
        self, piece: Piece, schema: TableSchema, form: WriteMode, rules: ChangeRules
    ) -> None:
        """``schema``: the present one."""
        then = piece.of.schema
        delivered = then.delivered
        known = {column.name for column in then.columns}  # a binlog has virtual ones too
        told = piece.error_class
        self.piece = piece
        self.keys = typed_keys(piece, rules)
        self.is_written = (piece.op != OP_DELETE) | form.soft_delete  # by entry; else only its key
        self._incomplete = list(_incomplete(piece, self.is_written[: piece.count]))
        self._others = [column for column in delivered if column.name not in then.key]
        # Where all columns are the key, those that were added since are too.
        entries = len(piece.op) if schema.key_is_row else None
        present = piece.of.carried(self.keys.columns, rules, rows=entries)
        self._present_key = {name: present.columns[name] for name in schema.key}
        # Of a history the last change of each key and commit-ts counts: every version of a row.
        moments = [pa.array(piece.commit_ts)] if form.is_history else []
        told_by = [*self._present_key.values(), *moments]
        self._is_counted = schema.counts_rows
        if schema.counts_rows:
            assert piece.order is Order.PLACE, "changes that may come twice are not counted"
            halves = pa.array(np.arange(len(piece.op)) >= piece.count)
            told_by = [*places_of(piece), halves]
        self.key_numbers = keys_of(told_by)
        self._has_no_place = present.has_lost  # in the present key, by entry
        self.is_told = None if told is None else told.is_valid().to_numpy(zero_copy_only=False)
        self.unknown = [field.name for field in piece.shape if field.name not in known]
        # Rows that become errors because the table lacks one of their columns.
        is_error = bool(self.unknown) and not rules.drops
        lacking = self.is_written[: piece.count] | then.key_is_row
        self.lacking = np.flatnonzero(lacking) if is_error else NO_ROWS
        self.is_good = np.ones(len(piece.op), np.bool_)  # entries without an error so far
        if self.keys.is_bad is not None:
            self.is_good &= ~self.keys.is_bad
        if self.is_told is not None:
            self.is_good[: piece.count] &= ~self.is_told
        for errors in self._incomplete:
            self.is_good[errors.rows] = False
        self._has_left = self._left_rows()
        self.leave_out(NO_ROWS)
        self.is_passed: Mask | None = None
        self.last = NO_ROWS  # entries that are the last change of their key
        self.values: TypedValues | None = None  # of the rows that are written, or of more

    def leave_out(self, rows: RowNumbers) -> None:
        """Mark rows as not good, and with them the DELETEs of their old keys: if an UPDATE cannot
        be applied, its old row stays, unless it has left for a key that the table cannot have."""
        self.is_good[rows] = False
        moved = self.piece.moved
        if len(moved):
            self.is_good[self.piece.count :] &= self.is_good[moved] | self._has_left[moved]

    def _left_rows(self) -> Mask:
        """Rows whose key is only bad because of a date that Delta does not have. All their other
        values are read, so the row that an UPDATE to such a key has left is surely gone."""
        has_left = self.keys.has_left
        if has_left is None:
            return np.zeros(self.piece.count, np.bool_)
        has_left = has_left[: self.piece.count]
        return has_left if self.is_told is None else has_left & ~self.is_told

    def cast(self, entries: RowNumbers, rules: ChangeRules) -> bool:
        """Cast the values of these entries, which rise; False if there is a bad one."""
        piece, others = self.piece, self._others
        now = int(np.searchsorted(entries, piece.count))
        values = typed_values(piece, entries[:now], others, rules, verifies=rules.verifies)
        if now < len(entries):
            old_rows = piece.moved[entries[now:] - piece.count]
            values = values.and_old(typed_values(piece, old_rows, others, rules, OLD), entries)
        self.values = values
        return self.values.is_bad is None

    def leave_out_bad(self, entries: RowNumbers) -> None:
        """Leaves out bad rows among those that were cast."""
        if self.values is not None and self.values.is_bad is not None:
            bad = entries[self.values.is_bad]
            of_old = self.piece.moved[bad[bad >= self.piece.count] - self.piece.count]
            self.leave_out(np.append(bad[bad < self.piece.count], of_old))

    def candidates(self) -> RowNumbers:
        """The entries that can be the last change of their key."""
        able = self.is_good if self._has_no_place is None else self.is_good & ~self._has_no_place
        if self._is_counted:  # an UPDATE that changes nothing is not one row more
            is_same = self.piece.op == OP_UPDATE
            is_same[self.piece.moved] = False
            able = able & ~is_same
        return np.flatnonzero(able if self.is_passed is None else able & ~self.is_passed)

    def row_keys(self) -> Keys:
        """The keys of all entries, whatever the table's form."""
        return keys_of(list(self._present_key.values()))

    def columns(self, rules: ChangeRules) -> dict[str, pa.Array]:
        """The table's own columns of the last changes."""
        assert self.values is not None
        values = self.values.of(self.last, self.is_written[self.last])
        if self.piece.of.passed:  # what its row had not, has what the DDL gave it
            here = {field.name for field in self.piece.shape}
            added = self.piece.of.added(rules, rows=len(self.last))
            values |= {name: of for name, of in added.items() if name not in here}
        keys = self._present_key
        if len(self.last) < len(self.key_numbers):
            at = pa.array(self.last)
            keys = {name: column.take(at) for name, column in keys.items()}
        return self.piece.of.carried(values, rules, rows=len(self.last)).columns | keys

    def count_nulled(self) -> Counter[str]:
        """The NULL dates by column, in the rows that are written."""
        entries = self.last[self.is_written[self.last]]
        masks = self.keys.nulled.items()
        of_key = Counter({name: int(mask[entries].sum()) for name, mask in masks})
        return of_key + (self.values.count_nulled(entries) if self.values else Counter())

    def errors(self) -> Iterator[RowErrors]:
        """The first error of each row that cannot be applied."""
        is_left = np.ones(self.piece.count, np.bool_)
        if self.is_told is not None:
            yield told_errors(self.piece, np.flatnonzero(self.is_told))
            is_left &= ~self.is_told
        for errors in self._incomplete:
            yield errors.where(is_left[errors.rows])
            is_left[errors.rows] = False
        for errors in self.keys.errors:
            yield self._of_rows(errors, is_left)
        if self.values is not None:
            yield from self.values.errors
        if len(self.lacking):
            yield unknown_column_errors(self.lacking, self.unknown)

    def form_columns(self, form: WriteMode) -> dict[str, pa.Array]:
        """The columns of the form, for the last changes. The new row of an UPDATE that changed the
        key is inserted. Only the whole batch tells how long a version of a history is valid:
        ``versions``."""
        if form.is_history:
            kinds = form.columns.items()
            nothing = {name: pa.nulls(len(self.last), arrow_of(kind)) for name, kind in kinds}
            return {**nothing, VALID_FROM_TS: pa.array(self.piece.commit_ts[self.last])}
        op = self.piece.op.copy()
        op[self.piece.moved] = OP_INSERT
        return {
            ROW_TS: pa.array(self.piece.commit_ts[self.last]),
            ROW_OP: _ROW_OPS.take(pa.array(op[self.last])),
            ROW_DELETED: pa.array(op[self.last] == OP_DELETE),
        }

    def _of_rows(self, errors: RowErrors, is_left: Mask) -> RowErrors:
        """The errors of keys, by row: those of a row's own key if the row is ``is_left``, without
        another reason, and those of an old key if the row is good."""
        count, moved = self.piece.count, self.piece.moved
        is_old = errors.rows >= count
        rows = np.where(is_old, 0, errors.rows)
        rows[is_old] = moved[errors.rows[is_old] - count]
        is_wanted = is_left[rows]
        is_wanted[is_old] = self.is_good[rows[is_old]]
        return RowErrors(rows, errors.error_class, errors.message).where(is_wanted)


def _incomplete(piece: Piece, is_written: Mask) -> Iterator[RowErrors]:
    """The rows of which not all is told that is written, or by which they are found; each once."""
    if not piece.of.schema.key_is_row:
        names = untold_columns(piece)
        if names and (rows := np.flatnonzero(is_written)).size:
            yield untold_errors(rows, names)
        return
    here = {field.name for field in piece.shape} - set(untold_columns(piece))
    missing = [name for name in piece.of.schema.key if name not in here]
    if missing:
        yield incomplete_errors(np.arange(piece.count), missing)
        return
    updates = np.flatnonzero(piece.op[: piece.count] == OP_UPDATE)
    has_old = piece.values(updates, OLD).is_valid().to_numpy(zero_copy_only=False)
    if not has_old.all():
        yield no_old_row_errors(updates[~has_old])


def incomplete_rows(piece: Piece) -> Mask:
    """For each row, whether its key, which is the whole row, is not known by this shape."""
    is_it = np.zeros(piece.count, np.bool_)
    for errors in _incomplete(piece, np.zeros(piece.count, np.bool_)):
        is_it[errors.rows] = True
    known = {column.name for column in piece.of.schema.columns}
    return is_it | any(field.name not in known for field in piece.shape)


def _cast_last(pieces: Sequence[_PieceChanges], rules: ChangeRules) -> bool:
    """Cast the rows that are written, and the UPDATEs whose old key is deleted. Returns False if
    one of them cannot be cast."""
    _choose_last(pieces)
    for each in pieces:
        entries = each.last[each.is_written[each.last]]
        moved = each.piece.moved
        if len(moved):
            entries = np.union1d(entries, moved[each.is_good[moved]])
        if not each.cast(entries, rules):
            return False
    return True


def _cast_all(pieces: Sequence[_PieceChanges], rules: ChangeRules) -> None:
    """Cast every row that would be written, and choose the last change among the good rows."""
    for each in pieces:
        entries = np.flatnonzero(each.is_good & each.is_written)
        each.cast(entries, rules)
        each.leave_out_bad(entries)
        each.lacking = each.lacking[each.is_good[each.lacking]]
        each.leave_out(each.lacking)
    _choose_last(pieces)


def _choose_last(pieces: Sequence[_PieceChanges]) -> None:
    found = last_entries([(each.piece, each.key_numbers, each.candidates()) for each in pieces])
    for each, last in zip(pieces, found, strict=True):
        each.last = last


def _table(
    schema: TableSchema, form: WriteMode, pieces: Sequence[_PieceChanges], rules: ChangeRules
) -> pa.Table:
    """The table of changes. In a row that is not written only the key means something."""
    types = {column.name: arrow_type(column.stored) for column in schema.delivered}
    types |= {name: arrow_of(kind) for name, kind in form.columns.items()}
    chunks: dict[str, list[pa.Array]] = {name: [] for name in types}
    ops = []
    for each in (piece for piece in pieces if len(piece.last)):
        is_written = each.is_written[each.last]
        columns = each.columns(rules)
        if form.columns:
            columns |= each.form_columns(form)
        for name, here in chunks.items():
            here.append(columns[name])
        ops.append(pc.if_else(pa.array(is_written), _WRITTEN, _NOT_WRITTEN))
    found = [pa.chunked_array(here, types[name]) for name, here in chunks.items()]
    found.append(pa.chunked_array(ops, pa.string()))
    table = pa.Table.from_arrays(found, names=[*types, OP_COLUMN])
    if not schema.counts_rows:
        return table
    moments = [pa.array(each.piece.commit_ts[each.last]) for each in pieces if len(each.last)]
    return table.append_column(TS_COLUMN, pa.chunked_array(moments, pa.int64()))


def _dropped(pieces: Sequence[_PieceChanges]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for each in pieces:
        rows = int(each.is_written[each.last].sum())
        if rows:
            found.update(dict.fromkeys(each.unknown, rows))
    return dict(found)
