"""The body of a row block: the rows of one table and shape, as the contract has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.contract import (
    DATA,
    ERROR_CLASS,
    ERROR_MESSAGE,
    OLD,
    ROW_FIELDS,
    Cells,
    Order,
    wire_metadata,
)
from streaming.source.binlog.format.cells.column import Column, mysql_type
from streaming.source.binlog.format.cells.layout import Mask
from streaming.source.binlog.format.cells.moment_cells import as_texts
from streaming.source.binlog.format.cells.reading import Reading
from streaming.source.binlog.format.cells.row_cells import row_cells
from streaming.source.binlog.format.charsets import Charset, Charsets
from streaming.source.binlog.format.events import Bytes, Offsets
from streaming.source.binlog.format.faults import BAD_CELL, NOT_WHOLE
from streaming.source.binlog.format.rows.letter_head import LetterHead
from streaming.source.binlog.format.rows.maps_in_force import Shape
from streaming.source.binlog.format.rows.row_events import TableRows
from streaming.source.binlog.format.table_map import TableMap, table_map


def row_body(
    data: Bytes,
    rows: TableRows,
    shape: Shape,
    *,
    is_mariadb: bool,
    commit_ts: Offsets,
    position: Offsets,
    charsets: Charsets,
    checksum: bool,
    key: Sequence[str] | None,
) -> tuple[pa.Table, int]:
    """The body, and how many of its rows have an ``old``: with ``key`` those UPDATEs that change
    it, with its old values; else every UPDATE, with its whole old row. ``commit_ts`` and
    ``position`` are the rows'. ``checksum``: their events end in a CRC32.

    A column that new images lack has the value of the old ones. One that both lack has the type
    null."""
    table = table_map(shape, is_mariadb=is_mariadb)
    shown = [column.name for column in _shown(table.columns, is_mariadb=is_mariadb)]
    reading = Reading(data, charsets)
    cells = row_cells(reading, rows.at, rows.after)
    if unchanged := [each.name for each in rows.before if each.name not in cells]:
        cells |= row_cells(reading, rows.old_at, rows.before, unchanged)
    columns = [
        pa.array(rows.op),
        pa.array(commit_ts),
        pa.array(position),
        pa.array(rows.index),
        _struct(cells, shown),
    ]
    fields = [*ROW_FIELDS, pa.field(DATA, columns[-1].type)]
    errors = reading.faults
    updates = np.flatnonzero(rows.old_at >= 0)
    key_changes = 0
    lacks = _lacks(rows, [*cells] if key is None else key, table)
    if len(updates) and lacks:
        errors = [*errors, (rows.old_at >= 0, lacks)]
    elif len(updates):
        reading = Reading(data, charsets)
        old = row_cells(reading, rows.old_at[updates], rows.before, key)
        if key is not None:
            is_changed = _differ(old, cells, updates, len(rows.op), table.columns)
            updates = updates[is_changed]
            old = {name: cell.filter(pa.array(is_changed)) for name, cell in old.items()}
            reading = Reading(data, charsets, [(m[is_changed], t) for m, t in reading.faults])
        key_changes = len(updates)
        errors = [*errors, *_spread(reading, updates, len(rows.op))]
    if key_changes:
        index = np.zeros(len(rows.op), np.int64)
        is_null = np.ones(len(rows.op), np.bool_)
        index[updates], is_null[updates] = np.arange(len(updates)), False
        told = shown if key is None else [name for name in shown if name in key]
        columns.append(_struct(old, told).take(pa.array(index, mask=is_null)))
        fields.append(pa.field(OLD, columns[-1].type))
    if errors:
        classes = [NOT_WHOLE if message == lacks else BAD_CELL for _, message in errors]
        columns += _error_columns(errors, classes, len(rows.op))
        fields += [pa.field(ERROR_CLASS, pa.string()), pa.field(ERROR_MESSAGE, pa.string())]
    sets = tuple(charsets.get(collation) for collation in table.collations)
    metadata = _metadata(shape, sets, is_mariadb=is_mariadb, checksum=checksum)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata)), key_changes


@lru_cache(maxsize=4096)
def _metadata(
    shape: Shape, sets: tuple[Charset | None, ...], *, is_mariadb: bool, checksum: bool
) -> dict[bytes, bytes]:
    """The metadata of a body's schema. ``sets``: the character sets of the table's collations."""
    table = table_map(shape, is_mariadb=is_mariadb)
    known = {
        collation: charset
        for collation, charset in zip(table.collations, sets, strict=True)
        if charset is not None
    }
    shown = _shown(table.columns, is_mariadb=is_mariadb)
    types = [(column.name, str(mysql_type(column, known))) for column in shown]
    head = LetterHead(shape, known, is_mariadb, checksum)
    return wire_metadata(
        types, table.key, order=Order.PLACE, cells=Cells.TYPED, letter_head=head.to_json()
    )


def _shown(columns: Sequence[Column], *, is_mariadb: bool) -> Sequence[Column]:
    """Without MariaDB's hidden ones, which are the last."""
    count = len(columns)
    while is_mariadb and count and columns[count - 1].is_hidden:
        count -= 1
    return columns[:count]


def _lacks(rows: TableRows, needed: Iterable[str], table: TableMap) -> str:
    """Why an UPDATE's old row does not tell what has to be known of it; empty where it does."""
    there = {column.name for column in rows.before}
    lacking = ", ".join(name for name in needed if name not in there)
    return lacking and (
        f"the binlog does not tell column {lacking} of the row before its UPDATE: SET GLOBAL "
        "binlog_row_image = 'FULL' on the server, let its sessions connect again, and bring this "
        f"row again (UPDATE it there), or copy {table.name} again"
    )


def _struct(cells: Mapping[str, pa.Array], names: Sequence[str]) -> pa.StructArray:
    rows = len(next(iter(cells.values())))
    columns = [cells[name] if name in cells else pa.nulls(rows) for name in names]
    return pa.StructArray.from_arrays(columns, names)


def _differ(
    old: Mapping[str, pa.Array],
    new: Mapping[str, pa.Array],
    updates: Offsets,
    count: int,
    columns: Sequence[Column],
) -> Mask:
    """Which UPDATEs have another value in one of the ``old`` columns."""
    differ = np.zeros(len(updates), np.bool_)
    by_name = {column.name: column for column in columns}
    every = len(updates) == count
    for name, before in old.items():
        after = new[name] if every else new[name].take(pa.array(updates))
        if before.type != after.type:  # one of them has a date that no calendar has
            before, after = (as_texts(each, by_name[name]) for each in (before, after))
        found = pc.fill_null(pc.not_equal(before, after), True)
        differ |= found.to_numpy(zero_copy_only=False)
    return differ


def _spread(reading: Reading, updates: Offsets, count: int) -> list[tuple[Mask, str]]:
    """The faults of old rows by row."""
    found = []
    for is_bad, message in reading.faults:
        rows = np.zeros(count, np.bool_)
        rows[updates[is_bad]] = True
        if rows.any():
            found.append((rows, message))
    return found


def _error_columns(
    errors: Sequence[tuple[Mask, str]], classes: Sequence[str], count: int
) -> list[pa.Array]:
    """The first error of each row, column by column."""
    number = np.zeros(count, np.int64)
    is_good = np.ones(count, np.bool_)
    for place, (is_bad, _) in enumerate(errors):
        number[is_bad & is_good] = place
        is_good &= ~is_bad
    messages = pa.array([message for _, message in errors], pa.string())
    chosen = pa.array(number, mask=is_good)
    return [pa.array(classes, pa.string()).take(chosen), messages.take(chosen)]
