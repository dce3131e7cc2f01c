"""Rows that a DDL removes from a table whose form keeps such rows: they are taken out of their
files, and written anew with the marks of a row that has ended.

``ended``: the columns of these marks, with their values. A row that has the first column's value
already has ended before, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinks.merge_on_write.alter.rewrite import in_slices
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.sorted_files import NewFile, write_sorted
from sinks.merge_on_write.table_handle import TableHandle, rows_at
from sinks.types.key_hash import Ordinals


def rows_to_end(table: TableHandle, ended: Mapping[str, Any]) -> dict[str, Ordinals]:
    """The live rows that have not ended: file path to ordinals."""
    name, value = next(iter(ended.items()))
    found = {}
    for path, each in table.files.items():
        (values,), _ = data_files.read_columns(table.located, each.file, [table.shape.column(name)])
        has_ended = pc.fill_null(pc.equal(values, value), False).to_numpy(zero_copy_only=False)
        is_hit = ~has_ended & ~table.deleted_rows(each).mask
        if is_hit.any():
            found[path] = np.flatnonzero(is_hit)
    return found


def write_ended(
    table: TableHandle, hits: Mapping[str, Ordinals], ended: Mapping[str, Any], key: Sequence[str]
) -> Iterator[NewFile]:
    """Writes these rows as new files, sorted by ``key``, and gives each file as soon as it is
    written."""
    for rows in in_slices(rows_at(table, hits)):
        yield from write_sorted(table.storage, _with(table, rows, ended), key, table.shape)


def _with(table: TableHandle, rows: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    shape = table.shape
    told = {shape.column(name): value for name, value in values.items()}
    columns = [
        pa.repeat(pa.scalar(told[column], column.arrow), rows.num_rows)
        if column in told
        else data_files.one_array(rows[column.physical], column.arrow)
        for column in shape.columns
    ]
    return pa.Table.from_arrays(columns, schema=shape.schema)
