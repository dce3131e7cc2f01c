"""Rows of one schema and key, many at once, as Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.avro.row_columns import Column, read_fields
from streaming.protocols.avro.writer_schema import (
    BEFORE,
    CHECKSUM,
    COMMIT_TS,
    CORRUPTED,
    OP,
    WriterSchema,
    column_types,
)
from streaming.protocols.avro_binary.byte_walk import Bytes, Indexes, Mask, Walk
from streaming.protocols.contract import DAMAGED, OP_DELETE, OP_INSERT, OP_UPDATE, Cells
from streaming.protocols.rows.parsed_message import Error, Shape
from streaming.protocols.rows.row_arrays import RowArrays, struct

_OPS: Final = np.full(256, -1, np.int8)
_OPS[ord("c")], _OPS[ord("u")], _OPS[ord("d")] = OP_INSERT, OP_UPDATE, OP_DELETE
_MOST_DIGITS: Final = 10  # of a checksum
NO_ROW: Final = Error("malformed", "not a row of its schema")
_NO_COMMIT_TS: Final = Error(
    "no-commit-ts", "no _tidb_commit_ts above zero: set enable-tidb-extension=true in TiCDC"
)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """By message; only of ``is_right`` ones it means something. ``has_old``: those with an old
    row."""

    of: Bytes
    shape: Shape
    op: npt.NDArray[np.int8]
    commit_ts: Indexes
    columns: Sequence[Column]
    old: Sequence[Column]
    has_old: Mask
    checksums: Indexes | None  # as in a block
    is_whole: Mask
    is_right: Mask

    def errors(self) -> Iterator[tuple[Error, Indexes]]:
        for error, at in (
            (NO_ROW, np.flatnonzero(~self.is_whole)),
            (_NO_COMMIT_TS, np.flatnonzero(self.is_whole & ~self.is_right)),
        ):
            if len(at):
                yield error, at

    def arrays(
        self, rows: Indexes, positions: Indexes, key: Sequence[str] | None
    ) -> tuple[RowArrays, Indexes]:
        """Some of the rows, and those among them that have a value which its type does not have.
        ``positions``: of all in the chunk."""
        asked = rows
        while True:
            old_at = np.flatnonzero(self.has_old[rows])
            is_fine = np.ones(len(rows), np.bool_)
            data, old = list[pa.Array](), list[pa.Array]()
            for each in self.columns:
                cells, fine = each.cells(self.of, rows)
                data.append(cells)
                is_fine &= True if fine is None else fine
            for each in self.old:
                cells, fine = each.cells(self.of, rows[old_at])
                old.append(cells)
                if fine is not None:
                    is_fine[old_at[~fine]] = False
            if is_fine.all():
                break
            rows = rows[is_fine]
        told = {each.field.name: cells for each, cells in zip(self.old, old, strict=True)}
        names = [name for name in self.shape.columns if key is None or name in key]
        kinds = self.shape.types(names)
        kept = [told.get(n, pa.nulls(0, kind)) for n, kind in zip(names, kinds, strict=True)]
        found = RowArrays(
            positions=positions[rows],
            op=self.op[rows],
            commit_ts=self.commit_ts[rows],
            data=struct(self.shape.columns, data, len(rows)),
            old=struct(names, kept, len(old_at)),
            old_at=old_at,
            errors={},
            checksums=None if self.checksums is None else self.checksums[rows],
        )
        return found, np.setdiff1d(asked, rows)


def read_rows(
    of: Bytes,
    begins: Indexes,
    ends: Indexes,
    schema: WriterSchema,
    key: tuple[str, ...] | None,
    *,
    head: bytes,
    deleted_ts: Indexes | None = None,
    given_ts: Indexes | None = None,
) -> Rows:
    """``head``: of their dead letters. ``deleted_ts``: they are keys of DELETEs at these commit-ts.
    ``given_ts``: the commit-ts of rows, if their own do not count."""
    walk = Walk(of, begins, ends)
    fields = read_fields(walk, schema.fields)
    walk.is_right &= walk.at == ends
    columns = [f for f in fields if isinstance(f, Column) and f.field.column_type is not None]
    place = schema.place(BEFORE)
    before = fields[place] if place is not None else []
    assert isinstance(before, list), "an old row is a record"
    op = np.full(len(begins), OP_DELETE if deleted_ts is not None else OP_INSERT, np.int8)
    times = np.zeros(len(begins), np.int64)
    if deleted_ts is not None:
        times = deleted_ts
    else:
        if (at := schema.place(OP)) is not None:
            told = fields[at]
            assert isinstance(told, Column), "an op is a text"
            op = _OPS[of.data[np.minimum(told.begins, ends)]]
            walk.is_right &= (op >= 0) & (told.ends - told.begins == 1)
        if given_ts is not None:
            times = given_ts
        elif (at := schema.place(COMMIT_TS)) is not None:
            told = fields[at]
            assert isinstance(told, Column), "a commit-ts is a number"
            times = told.numbers
    checksums = None
    if deleted_ts is None and schema.is_by_id:
        checksums = _checksums(walk, schema, fields)
    is_update = op == OP_UPDATE
    has_old = np.zeros(len(begins), np.bool_)
    if before:
        has_old = is_update & ~_all_null(before, len(begins))
    return Rows(
        of,
        _shape(schema, key if deleted_ts is None else tuple(n.field.name for n in columns), head),
        op,
        times,
        columns,
        before,
        has_old,
        checksums,
        walk.is_right,
        walk.is_right & (times > 0),
    )


def _checksums(
    walk: Walk, schema: WriterSchema, fields: Sequence[Column | list[Column]]
) -> Indexes:
    """TiCDC's, as texts; none is an empty text. What is no number of 32 bits is not right."""
    place, mark = schema.place(CHECKSUM), schema.place(CORRUPTED)
    told = fields[place or 0]
    assert isinstance(told, Column), "a checksum is a text"
    rows = np.flatnonzero(walk.is_right)
    pieces = walk.of.pieces(told.begins[rows], told.ends[rows], None)
    found = np.zeros(len(walk.at), np.int64)
    try:
        given = pc.replace_substring_regex(pieces.cast(pa.string()), "^$", "0").cast(pa.uint32())
        found[rows] = given.to_numpy()
    except pa.ArrowInvalid:
        found[rows] = [_number(each) for each in pieces.to_pylist()]
    walk.is_right &= found >= 0
    if mark is not None:
        is_damaged = fields[mark]
        assert isinstance(is_damaged, Column), "a mark is a truth value"
        found[is_damaged.numbers != 0] = DAMAGED
    return found


def _number(text: bytes) -> int:
    if not text:
        return 0
    is_number = text.isdigit() and len(text) <= _MOST_DIGITS and int(text) < 1 << 32
    return int(text) if is_number else -1


def _all_null(before: Sequence[Column], count: int) -> Mask:
    """Rows without an old row."""
    found = np.ones(count, np.bool_)
    for each in before:
        found &= np.zeros(count, np.bool_) if each.is_null is None else each.is_null
    return found


def _shape(schema: WriterSchema, key: tuple[str, ...] | None, head: bytes) -> Shape:
    types = column_types(schema.fields)
    text = pa.string()
    typed = ((each.name, each.cells) for each in schema.columns)
    return Shape(
        tuple(name for name, _ in types),
        types,
        key,
        (),
        frozenset((name, kind) for name, kind in typed if kind != text),
        cells=Cells.AVRO,
        letter_head=head,
        is_by_id=schema.is_by_id,
    )
