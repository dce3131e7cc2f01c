"""Rows that Arrow's own csv reader takes, which is several times as fast.

It takes more than TiCDC writes, and other things for fields where quotes or backslashes stand in
unusual places. So only chunks are read so that have none of these, and rows that all begin as
TiCDC writes their table's. All others are read by `cells`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from sinks.types.casts.base64_texts import from_base64
from streaming.protocols.contract import OP_DELETE, OP_INSERT, OP_UPDATE
from streaming.protocols.csv.fields import BACKSLASH, Mask, Rows
from streaming.protocols.csv.table_head import TableHead
from streaming.protocols.json_text.byte_places import Bytes, Indexes, places_of

_CODES: Final = np.full(256, -1, np.int8)
_CODES[ord("D")], _CODES[ord("I")], _CODES[ord("U")] = OP_DELETE, OP_INSERT, OP_UPDATE
_BLOCK_BYTES: Final = 1 << 20  # stays in the processor's cache: a chunk at once takes 1.3 times
_DIGITS: Final = 18  # of each commit-ts from 1982 to 2090
_POWERS: Final = 10 ** np.arange(_DIGITS - 1, -1, -1, dtype=np.int64)
_TRUE, _FALSE = "true", "false"
_OPEN: Final = ord("[")
_NULL: Final = "\\N"


@dataclass(frozen=True, slots=True, eq=False)
class PlainRows:
    """``cells``: of each column, if they are wanted."""

    op: npt.NDArray[np.int8]
    commit_ts: Indexes
    is_update: Mask
    cells: list[pa.Array]


def plain_rows(rows: Rows, head: TableHead, *, is_wanted: bool = True) -> PlainRows | None:
    """All rows of a chunk, all of them good rows of the table; None: read them one field after the
    other."""
    if not (len(rows) and head.columns and _is_for_arrow(head) and _is_as_written(rows, head)):
        return None
    told = _heads(rows, head)
    columns = None if told is None else _columns(rows, head, is_wanted=is_wanted)
    if told is None or columns is None:
        return None
    cells = _cells(columns, rows, head) if is_wanted else []
    return None if cells is None else PlainRows(*told, cells)


def _is_for_arrow(head: TableHead) -> bool:
    csv = head.csv
    return (
        len(csv.delimiter) == 1
        and (csv.delimiter + csv.quote).isascii()
        and "\0" not in csv.delimiter + csv.quote
        and (csv.binary == "base64" or not head.binary)
    )


def _is_as_written(rows: Rows, head: TableHead) -> bool:
    """Whether no quote, and without quotes no backslash, means something else to Arrow."""
    first, last = int(rows.begins[0]), int(rows.nexts[-1])
    if head.csv.quote:
        low, high = np.searchsorted(rows.odd, [first, last])
        line_ends = rows.nexts - rows.ends
        return bool(low == high and (line_ends == line_ends[0]).all())
    text = rows.data[first:last]
    at = places_of(text, BACKSLASH)
    if not len(at):
        return True
    if head.csv.null != _NULL or at[-1] + 2 >= len(text):
        return False
    marks = (ord(head.csv.delimiter), *b"\n\r")
    before, behind = text[np.maximum(at - 1, 0)], text[at + 2]
    are_nulls = (text[at + 1] == ord("N")) & np.isin(before, marks[:2])
    return bool((are_nulls & np.isin(behind, marks)).all())


def _heads(rows: Rows, head: TableHead) -> tuple[npt.NDArray[np.int8], Indexes, Mask] | None:
    """Operation, commit-ts and whether it is a half of an UPDATE; None where a row does not begin
    like `"I","table","schema",470620744164048896,`."""
    csv, name = head.csv, head.name
    quote, mark = csv.quote, csv.delimiter
    if not quote and not _is_bare(name.table + name.schema, mark):
        return None
    named = (f"{quote}{_doubled(each, quote)}{quote}{mark}" for each in (name.table, name.schema))
    begin = _bytes(f"{quote}I{quote}{mark}{''.join(named)}")
    size = len(begin) + _DIGITS + 1 + (len(_FALSE) + 1 if csv.has_old else 0)
    if len(rows.data) < size:
        return None
    windows: npt.NDArray[Any] = np.ndarray(
        len(rows.data) - size + 1, f"V{size}", rows.data, strides=(1,)
    )
    found = windows[np.minimum(rows.begins, len(windows) - 1)]
    texts = found.view(np.uint8).reshape(len(rows), size)
    is_right = texts[:, : len(begin)] == begin
    op = _CODES[texts[:, len(quote)]]
    is_right[:, len(quote)] = op >= 0
    digits = texts[:, len(begin) :][:, :_DIGITS] - np.uint8(ord("0"))
    if not is_right.all() or (digits > 9).any():
        return None
    commit_ts: Indexes = digits @ _POWERS
    behind = texts[:, len(begin) + _DIGITS :]
    is_update = np.zeros(len(rows), np.bool_)
    if csv.has_old:
        is_update = (behind[:, 1 : len(_TRUE) + 2] == _bytes(f"{_TRUE}{mark}")).all(axis=1)
        is_none = (behind[:, 1:] == _bytes(f"{_FALSE}{mark}")).all(axis=1)
        if not (is_update | is_none).all():
            return None
    is_right = (commit_ts > 0) & (behind[:, 0] == ord(mark))
    return (op, commit_ts, is_update) if is_right.all() else None


def _is_bare(name: str, mark: str) -> bool:
    """Whether the name has no backslashes before characters where texts have no quotes."""
    return not set("\\\r\n" + mark) & set(name)


def _doubled(name: str, quote: str) -> str:
    return name.replace(quote, quote * 2) if quote else name


def _bytes(text: str) -> Bytes:
    return np.frombuffer(text.encode(), np.uint8)


def _columns(rows: Rows, head: TableHead, *, is_wanted: bool) -> list[pa.Array] | None:
    """The texts of the columns, or of the first one alone; None where Arrow finds other rows."""
    names = [str(number) for number in range(head.before + len(head.columns))]
    chosen = names[head.before :] if is_wanted else names[head.before : head.before + 1]
    text = rows.data[int(rows.begins[0]) : int(rows.nexts[-1])]
    longest = int((rows.nexts - rows.begins).max())
    block = max(_BLOCK_BYTES, longest + 1)  # Arrow refuses a row that is in three blocks
    whole = pa.Array.from_buffers(
        pa.large_binary(), 1, [None, pa.py_buffer(np.array([0, len(text)])), pa.py_buffer(text)]
    )
    try:
        whole.cast(pa.large_string())  # looks whether it is UTF-8: sooner than cell for cell
        found = arrow_csv.read_csv(
            pa.BufferReader(pa.py_buffer(text)),
            arrow_csv.ReadOptions(use_threads=False, block_size=block, column_names=names),
            arrow_csv.ParseOptions(
                delimiter=head.csv.delimiter,
                quote_char=head.csv.quote or False,
                newlines_in_values=bool(head.csv.quote),
                ignore_empty_lines=False,
            ),
            arrow_csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=chosen,
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


def _cells(columns: Sequence[pa.Array], rows: Rows, head: TableHead) -> list[pa.Array] | None:
    """None where Go may have written the bytes of a text as ``[110 101 119]``."""
    if _may_have_go_bytes(rows, head):
        bytes_of = (pc.match_substring_regex(each, r"^\[[0-9 ]*\]$") for each in columns)
        if any(pc.any(each).as_py() for each in bytes_of):
            return None
    found, binary = [], head.binary
    for (name, _), cell in zip(head.columns, columns, strict=True):
        if name in binary:
            values, bad = from_base64(cell)
            if bad is not None:
                return None
            found.append(values)
        else:
            found.append(cell)
    return found


def _may_have_go_bytes(rows: Rows, head: TableHead) -> bool:
    """Whether a bracket begins a field, if one stands anywhere."""
    first, last = int(rows.begins[0]), int(rows.nexts[-1])
    if not head.csv.quote or rows.marks.text.find(b"[", first, last) < 0:
        return False
    at = np.flatnonzero(rows.data[first:last] == _OPEN) + first
    return bool((rows.data[at - 1] == ord(head.csv.delimiter)).any())
