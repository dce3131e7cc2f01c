"""Rows that Arrow's own csv reader takes, which is several times as fast.

It takes more than TiCDC writes. So where anything is unusual (a row with other fields, bytes that
are no UTF-8, a text that Go may have written as bytes), all of the chunk is read by `cells`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from sinks.types.casts.base64_texts import from_base64
from streaming.protocols.contract import OP_DELETE, OP_INSERT, OP_UPDATE
from streaming.protocols.csv.fields import Indexes, Mask, Rows
from streaming.protocols.csv.table_head import TableHead

_OPS: Final = pa.array(["D", "I", "U"])
_CODES: Final = np.array([OP_DELETE, OP_INSERT, OP_UPDATE], np.int8)
_BLOCK_BYTES: Final = 1 << 20  # stays in the processor's cache: a chunk at once takes 1.3 times


@dataclass(frozen=True, slots=True, eq=False)
class PlainRows:
    """``cells``: of each column."""

    op: npt.NDArray[np.int8]
    commit_ts: Indexes
    is_update: Mask
    cells: list[pa.Array]


def plain_rows(rows: Rows, head: TableHead) -> PlainRows | None:
    """All rows of a chunk, all of them good rows of the table; None: read them one field after the
    other."""
    columns = _columns(rows, head) if len(rows) and _is_for_arrow(head) else None
    if columns is None:
        return None
    op, commit_ts = pc.index_in(columns[0], _OPS), _numbers(columns[3])
    names = zip(columns[1:3], (head.name.table, head.name.schema), strict=True)
    is_ours = all(pc.all(pc.fill_null(pc.equal(each, name), False)).as_py() for each, name in names)
    cells = _cells(columns[head.before :], head)
    if op.null_count or commit_ts is None or not is_ours or cells is None:
        return None
    is_update = np.zeros(len(rows), np.bool_)
    if head.csv.has_old:
        told = pc.fill_null(pc.equal(columns[4], "true"), False)
        is_update = np.asarray(told.to_numpy(zero_copy_only=False))
    return PlainRows(_CODES[op.to_numpy()], commit_ts, is_update, cells)


def _is_for_arrow(head: TableHead) -> bool:
    csv = head.csv
    return (
        len(csv.delimiter) == len(csv.quote) == 1
        and (csv.delimiter + csv.quote).isascii()
        and (csv.binary == "base64" or not head.binary)
    )


def _columns(rows: Rows, head: TableHead) -> list[pa.Array] | None:
    """Texts; None where Arrow finds other rows."""
    names = [str(number) for number in range(head.before + len(head.columns))]
    text = rows.data[int(rows.begins[0]) : int(rows.nexts[-1])]
    longest = int((rows.nexts - rows.begins).max())
    block = max(_BLOCK_BYTES, longest + 1)  # Arrow refuses a row that is in three blocks
    try:
        found = arrow_csv.read_csv(
            pa.BufferReader(pa.py_buffer(text)),
            arrow_csv.ReadOptions(use_threads=False, block_size=block, column_names=names),
            arrow_csv.ParseOptions(
                delimiter=head.csv.delimiter,
                quote_char=head.csv.quote,
                newlines_in_values=True,
                ignore_empty_lines=False,
            ),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[head.csv.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    if len(found) != len(rows):
        return None
    columns = [each.combine_chunks() for each in found.columns]
    return [each.chunk(0) if isinstance(each, pa.ChunkedArray) else each for each in columns]


def _cells(columns: Sequence[pa.Array], head: TableHead) -> list[pa.Array] | None:
    found = []
    for (name, _), cell in zip(head.columns, columns, strict=True):
        if pc.any(pc.starts_with(cell, "[")).as_py() and _may_be_bytes(cell):
            return None
        if name in head.binary:
            values, bad = from_base64(cell)
            if bad is not None:
                return None
            found.append(values)
        else:
            found.append(cell)
    return found


def _may_be_bytes(cell: pa.Array) -> bool:
    found = pc.match_substring_regex(cell, r"^\[[0-9 ]*\]$")
    return bool(pc.any(found).as_py())


def _numbers(texts: pa.Array) -> Indexes | None:
    """None where one is no number above 0 that is written as TiCDC writes it."""
    are_numbers = pc.match_substring_regex(texts, "^[1-9][0-9]{0,17}$")
    if not pc.all(pc.fill_null(are_numbers, False)).as_py():
        return None
    found: Indexes = texts.cast(pa.int64()).to_numpy()
    return found
