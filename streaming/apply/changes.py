"""The due rows of one table as one typed change per key (rules 4 and 8).

    due rows ──keys cast──► last change per key ──the other cells of those cast──► changes
                     └──(one of those cannot be: cast all, choose among the good ones)──┘

The last change is chosen by *typed* key. An UPDATE whose key changed is made a DELETE of the old
key and an INSERT of the new one, but only when its new row is good: else the old row stays. So such
an UPDATE is cast whether it is the last or not. Of a DELETE only the key counts.

Every row that cannot be applied is an error by itself, and its key keeps its last good change. The
one exception: cells of a row that a later good one replaces are not looked at while all that is
written is good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from coordination.model import Ts
from sinks.apply import DELETE, OP_COLUMN, UPSERT
from sinks.delta_types import arrow_type
from sinks.schema import Column, TableSchema
from streaming.apply.due_rows import Rows, due_pieces, origins_of
from streaming.apply.keyed_rows import NO_ROWS, KeyedPiece, LastRows, last_rows
from streaming.apply.row_block import RowBlock
from streaming.apply.row_errors import RowErrors, error_table, told_errors, unknown_column_errors
from streaming.apply.table_task import ChangeRules, TableTask
from streaming.apply.typed_rows import Mask, TypedCells, typed_cells
from streaming.protocols.contract import OP_DELETE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableChanges:
    """``rows``: the delivered columns in the table's types and ``OP_COLUMN``, unique per key.
    ``errors``: ``row_errors.ERRORS``. ``dropped``: column that the table lacks -> rows that were
    written without their value of it."""

    rows: pa.Table
    errors: pa.Table
    dropped: Mapping[str, int]


def changes(
    task: TableTask, blocks: Sequence[RowBlock], limit: Ts, rules: ChangeRules
) -> TableChanges:
    """Changes in ``(checkpoint, limit]`` of a table that has a key."""
    schema = task.schema
    assert schema.key, f"{task.name} has no key"
    pieces = [KeyedPiece.of(piece, schema, rules) for piece in due_pieces(task, blocks, limit)]
    others = [column for column in schema.delivered if column.name not in schema.key]
    outcomes = _last_first(pieces, others, rules)
    if outcomes is None:
        outcomes = _cast_first(pieces, others, rules)
    errors = [(each.keyed.piece, errors) for each in outcomes for errors in each.errors()]
    return TableChanges(
        rows=_table(schema, outcomes),
        errors=error_table(errors, origins_of(blocks)),
        dropped=_dropped(outcomes) if rules.drops else {},
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TableOutcome:
    """What becomes of the rows of a piece."""

    keyed: KeyedPiece
    is_good: Mask
    lacking: Rows  # left out, since the table lacks a column of theirs
    cells: TypedCells  # of at least the rows that are written
    last: LastRows

    def errors(self) -> Iterator[RowErrors]:
        """Of every row that cannot be applied the first reason."""
        keyed, is_told = self.keyed, self.keyed.is_told
        if is_told is not None:
            yield told_errors(keyed.piece, np.flatnonzero(is_told))
        for errors in keyed.keys.errors:
            yield errors if is_told is None else errors.where(~is_told[errors.rows])
        yield from self.cells.errors
        if len(self.lacking):
            yield unknown_column_errors(self.lacking, keyed.unknown)
        if keyed.moved is not None:
            for errors in keyed.moved.keys.errors:
                of_rows = replace(errors, rows=keyed.moved.rows[errors.rows])
                yield of_rows.where(self.is_good[of_rows.rows])

    def parts(self) -> Iterator[tuple[str, Sequence[pa.Array], Mapping[str, pa.Array] | None]]:
        """What to do, with which keys, and the other cells."""
        keyed, rows = self.keyed, self.last.rows
        is_written = keyed.piece.op[rows] != OP_DELETE
        written, deleted = rows[is_written], rows[~is_written]
        if len(written):
            yield UPSERT, keyed.keys.of(written), self.cells.of(written)
        if len(deleted):
            yield DELETE, keyed.keys.of(deleted), None
        if keyed.moved is not None and len(self.last.left):
            yield DELETE, keyed.moved.keys.of(self.last.left), None


def _last_first(
    pieces: Sequence[KeyedPiece], others: Sequence[Column], rules: ChangeRules
) -> list[_TableOutcome] | None:
    """Cast what is written, and the rows whose old key goes. None: not all of that is good."""
    if any(len(each.lacking) for each in pieces):
        return None
    good = [each.castable() for each in pieces]
    found = []
    for each, is_good, last in zip(pieces, good, last_rows(pieces, good), strict=True):
        wanted = last.rows[each.piece.op[last.rows] != OP_DELETE]
        if each.moved is not None:
            wanted = np.union1d(wanted, each.moved.good(is_good))
        cells = typed_cells(each.piece, wanted, others, rules.casts)
        if cells.is_bad is not None:
            return None
        found.append(
            _TableOutcome(keyed=each, is_good=is_good, lacking=NO_ROWS, cells=cells, last=last)
        )
    return found


def _cast_first(
    pieces: Sequence[KeyedPiece], others: Sequence[Column], rules: ChangeRules
) -> list[_TableOutcome]:
    """Cast every row that is no DELETE."""
    cast = []
    for each in pieces:
        is_good = each.castable()
        rows = np.flatnonzero(is_good & (each.piece.op != OP_DELETE))
        cells = typed_cells(each.piece, rows, others, rules.casts)
        if cells.is_bad is not None:
            is_good[rows[cells.is_bad]] = False
        lacking = each.lacking[is_good[each.lacking]]
        is_good[lacking] = False
        cast.append((is_good, lacking, cells))
    last = last_rows(pieces, [is_good for is_good, _, _ in cast])
    return [
        _TableOutcome(keyed=each, is_good=is_good, lacking=lacking, cells=cells, last=of_piece)
        for each, (is_good, lacking, cells), of_piece in zip(pieces, cast, last, strict=True)
    ]


def _table(schema: TableSchema, outcomes: Sequence[_TableOutcome]) -> pa.Table:
    """Of a DELETE the cells beside the key are NULL."""
    types = {column.name: arrow_type(column.type) for column in schema.delivered}
    chunks: dict[str, list[pa.Array]] = {name: [] for name in types}
    ops = []
    for op, keys, cells in (part for each in outcomes for part in each.parts()):
        key = dict(zip(schema.key, keys, strict=True))
        count = len(keys[0])
        for name, here in chunks.items():
            if name in key:
                here.append(key[name])
            else:
                here.append(pa.nulls(count, types[name]) if cells is None else cells[name])
        ops.append(pa.repeat(pa.scalar(op, pa.string()), count))
    columns = [pa.chunked_array(here, types[name]) for name, here in chunks.items()]
    columns.append(pa.chunked_array(ops, pa.string()))
    return pa.Table.from_arrays(columns, names=[*types, OP_COLUMN])


def _dropped(outcomes: Sequence[_TableOutcome]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for each in outcomes:
        rows = int((each.keyed.piece.op[each.last.rows] != OP_DELETE).sum())
        if rows:
            found.update(dict.fromkeys(each.keyed.unknown, rows))
    return dict(found)
