"""All live rows of a table as new files of a new shape, a slice at a time.

No commit names the files yet. What a slice holds in memory is bounded, whatever the table has; of
its keys only the index is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from coordination.errors import TidelakeError
from sinks.merge_on_write import data_files
from sinks.merge_on_write.key_hash import Keys
from sinks.merge_on_write.key_index import first_double, sort_keys
from sinks.merge_on_write.new_shape import NewShape, RewrittenColumn
from sinks.merge_on_write.open_table import OpenTable
from sinks.merge_on_write.sorted_files import NewFile, write_sorted
from sinks.merge_on_write.table_shape import NotForThisEngine, ShapeColumn, TableShape
from sinks.text_arrays import CastRules

SLICE_BYTES = 128 << 20  # of rows in memory, before they are converted
SLICE_ROWS = 1_000_000


def rewrite(
    table: OpenTable, new: NewShape, key: Sequence[str], rules: CastRules, ddl_ms: int
) -> Iterator[NewFile]:
    """The new files, each as soon as it is written, sorted by ``key`` within its slice.

    CannotConvert names the column and the first value that has no place in its new type.
    ``ddl_ms``: when the DDL was, for a column that old rows get its time in.
    """
    order_by = key or (_any_column(new.shape),)
    for rows in _slices(table, [each.source for each in new.columns if each.source is not None]):
        columns = [_column(each, rows, rules, ddl_ms) for each in new.columns]
        made = pa.Table.from_arrays(columns, schema=new.shape.schema())
        yield from write_sorted(table.storage, made, order_by, new.shape)


def check_key(
    table: OpenTable, shape: TableShape, key: Sequence[str], written: Sequence[NewFile]
) -> None:
    """TidelakeError where a row of the new files has NULL in its key, or two have the same."""
    columns = [shape.column(name) for name in key]
    names = ", ".join(key)
    for each in written:
        if len(each.index) < each.rows:
            raise TidelakeError(
                f"its key becomes ({names}), and there are rows that have NULL in it: replicate "
                "the table anew, or keep it as it is with [filter] rules"
            )
    indexes = [each.index for each in written]
    if not indexes:
        return
    second = None if indexes[0].second is None else np.concatenate([i.second for i in indexes])
    all_keys = Keys(np.concatenate([index.first for index in indexes]), second, None)
    at = first_double(sort_keys(all_keys))
    if at is None:
        return
    for each in written:
        if at < len(each.index):
            arrays, _ = data_files.read_columns(table.located, each.file, columns)
            row = int(each.index.ordinals(np.array([at]))[0])
            values = ", ".join(repr(array[row].as_py()) for array in arrays)
            raise TidelakeError(
                f"its key becomes ({names}), and two rows have ({values}): replicate the table "
                "anew, or keep it as it is with [filter] rules"
            )
        at -= len(each.index)


def _any_column(shape: TableShape) -> str:
    """What rows without a key are sorted by."""
    for column in shape.columns:
        if not pa.types.is_list(column.arrow):
            return column.name
    raise NotForThisEngine("it has no column that rows can be sorted by")


def _slices(table: OpenTable, columns: Sequence[ShapeColumn]) -> Iterator[pa.Table]:
    """The live rows, by physical names: small files together, large ones in pieces."""
    wanted = list(dict.fromkeys(columns))
    files = list(table.files.values())
    return in_slices(
        part
        for each in files
        for part in data_files.read_live_pieces(
            table.located, each.file, table.deleted_rows(each).mask, wanted, SLICE_ROWS
        )
    )


def in_slices(parts_of_rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows, small parts together."""
    parts: list[pa.Table] = []
    rows = size = 0
    for part in parts_of_rows:
        parts.append(part)
        rows, size = rows + part.num_rows, size + part.nbytes
        if rows >= SLICE_ROWS or size >= SLICE_BYTES:
            yield pa.concat_tables(parts)
            parts, rows, size = [], 0, 0
    if rows:
        yield pa.concat_tables(parts)


def _column(of: RewrittenColumn, rows: pa.Table, rules: CastRules, ddl_ms: int) -> pa.Array:
    source = None
    if of.source is not None:
        source = data_files.one_array(rows[of.source.physical], of.source.arrow)
    return of.origin.values(source, rows.num_rows, of.column.arrow, rules, ddl_ms)
