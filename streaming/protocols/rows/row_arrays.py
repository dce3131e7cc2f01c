"""Rows of one table and one shape as Arrow, and the body of their block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.contract import (
    CHECKSUM,
    DATA,
    ERROR_CLASS,
    ERROR_MESSAGE,
    OLD,
    ROW_FIELDS,
    Order,
    wire_metadata,
)
from streaming.protocols.json_text.quote_scanner import Indexes
from streaming.protocols.rows.parsed_message import Cell, Error, ParsedRow, Shape


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowArrays:
    """``positions`` are the messages' in their chunk. ``old`` has only the existing old rows;
    ``old_at`` says which rows have them (by their index here)."""

    positions: Indexes
    op: npt.NDArray[np.int8]
    commit_ts: Indexes
    data: pa.StructArray
    old: pa.StructArray
    old_at: Indexes
    errors: Mapping[int, Error]  # by position
    checksums: Indexes | None = None  # as in a block; None: the messages have none

    @staticmethod
    def of(
        found: Sequence[tuple[Shape, RowArrays]], shape: Shape, key: Sequence[str] | None
    ) -> RowArrays:
        """All rows, with the columns of ``shape`` in its order, and the wanted columns of ``old``.
        Each row has its own shape's order."""
        if len(found) == 1:
            ((_, whole),) = found
        else:
            pieces = [rows for _, rows in found]
            old_columns = _old_columns(shape, key)
            starts = np.cumsum([0, *(len(piece.positions) for piece in pieces)])
            shifted = [p.old_at + start for p, start in zip(pieces, starts, strict=False)]
            whole = RowArrays(
                positions=np.concatenate([piece.positions for piece in pieces]),
                op=np.concatenate([piece.op for piece in pieces]),
                commit_ts=np.concatenate([piece.commit_ts for piece in pieces]),
                data=pa.concat_arrays([_in_order(p.data, shape.columns) for p in pieces]),
                old=pa.concat_arrays([_in_order(p.old, old_columns) for p in pieces]),
                old_at=np.concatenate(shifted),
                errors={p: error for piece in pieces for p, error in piece.errors.items()},
                checksums=_joined_checksums(pieces),
            )
        is_rising = (whole.positions[1:] > whole.positions[:-1]).all()
        return whole if is_rising else whole.take(np.argsort(whole.positions))

    def at(self, commit_ts: Indexes) -> RowArrays:
        """The same rows at other commit-ts."""
        return replace(self, commit_ts=commit_ts)

    def take(self, indices: Indexes) -> RowArrays:
        old_of = np.full(len(self.positions), -1, np.int64)
        old_of[self.old_at] = np.arange(len(self.old_at))
        chosen = old_of[indices]
        return RowArrays(
            positions=self.positions[indices],
            op=self.op[indices],
            commit_ts=self.commit_ts[indices],
            data=self.data.take(pa.array(indices)),
            old=self.old.take(pa.array(chosen[chosen >= 0])),
            old_at=np.flatnonzero(chosen >= 0),
            errors=self.errors,
            checksums=None if self.checksums is None else self.checksums[indices],
        )


def _joined_checksums(pieces: Sequence[RowArrays]) -> Indexes | None:
    if all(piece.checksums is None for piece in pieces):
        return None
    none = (np.zeros(len(piece.positions), np.int64) for piece in pieces)
    found = zip((piece.checksums for piece in pieces), none, strict=True)
    return np.concatenate([no if each is None else each for each, no in found])


def _checksums(rows: Sequence[ParsedRow]) -> Indexes | None:
    if all(row.checksum is None for row in rows):
        return None
    return np.array([row.checksum or 0 for row in rows], np.int64)


Singles = Sequence[tuple[int, ParsedRow]]  # rows that were read one by one, with their positions


def rows_of(groups: Sequence[tuple[Shape, Sequence[str] | None, Singles]]) -> Iterator[RowArrays]:
    """The rows of each table and shape, with the key by which ``old`` is told. All texts become one
    array: for a few rows one of each column or table takes several times as long."""
    if any(shape.typed for shape, _, _ in groups):
        yield from map(_typed_rows, groups)
        return
    texts: list[Cell] = []
    sizes: list[tuple[list[int], list[str]]] = []
    for shape, key, singles in groups:
        rows = [row for _, row in singles]
        old_at = [index for index, row in enumerate(rows) if _is_told(row, shape, key)]
        olds = _olds(rows, old_at, shape, key)
        old_columns = _old_columns(shape, key)
        for column in zip(*(row.values for row in rows), strict=True):
            texts += column
        for name in old_columns if olds else ():
            texts += [old.get(name) for old in olds]
        sizes.append((old_at, old_columns))
    every = [single for _, _, singles in groups for single in singles]
    positions = np.array([position for position, _ in every], np.int64)
    op = np.array([row.op for _, row in every], np.int8)
    commit_ts = np.array([row.commit_ts for _, row in every], np.int64)
    whole = pa.array(texts, pa.string())
    at = begin = 0
    for (shape, _, singles), (old_at, old_columns) in zip(groups, sizes, strict=True):
        part = slice(at, at := at + len(singles))
        data = _columns(whole, begin, shape.columns, len(singles))
        begin += len(shape.columns) * len(singles)
        old = _columns(whole, begin, old_columns, len(old_at))
        begin += len(old_columns) * len(old_at)
        yield RowArrays(
            positions=positions[part],
            op=op[part],
            commit_ts=commit_ts[part],
            data=data,
            old=old,
            old_at=np.array(old_at, np.int64),
            errors={position: row.error for position, row in singles if row.error is not None},
            checksums=_checksums([row for _, row in singles]),
        )


def _olds(
    rows: Sequence[ParsedRow], old_at: Sequence[int], shape: Shape, key: Sequence[str] | None
) -> list[Mapping[str, Cell]]:
    olds: list[Mapping[str, Cell]] = [rows[index].old or {} for index in old_at]
    if key is None:  # what was not sent of them is as in ``data``
        now = (dict(zip(shape.columns, rows[index].values, strict=True)) for index in old_at)
        olds = [{**new, **old} for new, old in zip(now, olds, strict=True)]
    return olds


def _typed_rows(group: tuple[Shape, Sequence[str] | None, Singles]) -> RowArrays:
    """The same for one table and shape, by an array for each column."""
    shape, key, singles = group
    rows = [row for _, row in singles]
    old_at = [index for index, row in enumerate(rows) if _is_told(row, shape, key)]
    olds = _olds(rows, old_at, shape, key)
    old_columns = _old_columns(shape, key)
    data = [
        pa.array([row.values[place] for row in rows], kind)
        for place, kind in enumerate(shape.types(shape.columns))
    ]
    old = [
        pa.array([each.get(name) for each in olds], kind)
        for name, kind in zip(old_columns, shape.types(old_columns), strict=True)
    ]
    return RowArrays(
        positions=np.array([position for position, _ in singles], np.int64),
        op=np.array([row.op for row in rows], np.int8),
        commit_ts=np.array([row.commit_ts for row in rows], np.int64),
        data=struct(shape.columns, data, len(rows)),
        old=struct(old_columns, old, len(olds)),
        old_at=np.array(old_at, np.int64),
        errors={position: row.error for position, row in singles if row.error is not None},
        checksums=_checksums(rows),
    )


def _is_told(row: ParsedRow, shape: Shape, key: Sequence[str] | None) -> bool:
    """Whether the old row may answer a question that is asked."""
    if row.old is None or key is None:
        return row.old is not None
    sent = [name for name in key if row.old.get(name) is not None and name in shape.columns]
    return any(row.old[name] != row.values[shape.columns.index(name)] for name in sent)


def row_body(
    rows: RowArrays,
    shape: Shape,
    key: Sequence[str] | None,
    places: tuple[Indexes, npt.NDArray[np.int32]],
    order: Order,
) -> tuple[pa.Table, int]:
    """The body of a row block, and how many of its rows have an ``old``. ``places``: the positions
    and the indexes of all events of the chunk."""
    positions, index = places
    old, key_changes = _old(rows, key)
    columns = [
        pa.array(rows.op),
        pa.array(rows.commit_ts),
        pa.array(positions[rows.positions]),
        pa.array(index[rows.positions]),
        rows.data,
    ]
    if old is not None:
        columns.append(old)
    errors = (
        [rows.errors.get(position) for position in rows.positions.tolist()] if rows.errors else []
    )
    has_errors = any(errors)
    if has_errors:
        columns.append(pa.array([e and e.error_class for e in errors], pa.string()))
        columns.append(pa.array([e and e.message for e in errors], pa.string()))
    has_checksums = rows.checksums is not None
    if has_checksums:
        columns.append(pa.array(rows.checksums))
    names = None if old is None else tuple(old.type.names)
    schema = _schema(shape, names, order, has_errors=has_errors, has_checksums=has_checksums)
    return pa.Table.from_arrays(columns, schema=schema), key_changes


@lru_cache(maxsize=256)
def _schema(
    shape: Shape,
    old: tuple[str, ...] | None,
    order: Order,
    *,
    has_errors: bool,
    has_checksums: bool,
) -> pa.Schema:
    """The schema of a block's body."""
    fields = [
        *ROW_FIELDS,
        pa.field(DATA, _struct_type(shape.columns, shape.types(shape.columns))),
    ]
    if old is not None:
        fields.append(pa.field(OLD, _struct_type(old, shape.types(old))))
    if has_errors:
        fields += [pa.field(ERROR_CLASS, pa.string()), pa.field(ERROR_MESSAGE, pa.string())]
    if has_checksums:
        fields.append(pa.field(CHECKSUM, pa.int64()))
    metadata = wire_metadata(
        shape.wire_types,
        shape.key_names,
        order=order,
        cells=shape.cells,
        version=shape.version,
        letter_head=shape.letter_head,
    )
    return pa.schema(fields, metadata)


def _old(rows: RowArrays, key: Sequence[str] | None) -> tuple[pa.StructArray | None, int]:
    """By row, null where the key is known and stayed."""
    at, old = rows.old_at, rows.old
    if key is not None and len(at):
        changed = _changed(rows, old.type.names)
        at, old = at[changed], old.filter(pa.array(changed))
    if not len(at):
        return None, 0
    index = np.full(len(rows.op), -1, np.int64)
    index[at] = np.arange(len(at))
    return old.take(pa.array(index, mask=index < 0)), len(at)


def _changed(rows: RowArrays, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """The old rows whose message has a key value other than the new one's."""
    changed = np.zeros(len(rows.old_at), np.bool_)
    at = None if len(rows.old_at) == len(rows.op) else pa.array(rows.old_at)
    for name in names:
        old = rows.old.field(name)
        if rows.data.type.get_field_index(name) < 0:
            continue
        new = rows.data.field(name)
        differs = pc.not_equal(old, new if at is None else new.take(at))
        differs = pc.and_(old.is_valid(), pc.fill_null(differs, True))
        changed |= differs.to_numpy(zero_copy_only=False)
    return changed


def _old_columns(shape: Shape, key: Sequence[str] | None) -> list[str]:
    """Whether the key changed is all that the old row of a known table tells."""
    columns = [*shape.columns, *shape.only_old]
    return columns if key is None else [name for name in key if name in columns]


def _in_order(rows: pa.StructArray, names: Sequence[str]) -> pa.StructArray:
    if rows.type.names == list(names):
        return rows
    return struct(names, [rows.field(name) for name in names], len(rows))


def struct(names: Sequence[str], columns: Sequence[pa.Array], length: int) -> pa.StructArray:
    """No row is null."""
    kind = _struct_type(tuple(names), tuple(each.type for each in columns))
    return pa.Array.from_buffers(kind, length, [None], null_count=0, children=columns)


@lru_cache(maxsize=256)
def _struct_type(names: tuple[str, ...], types: tuple[pa.DataType, ...]) -> pa.StructType:
    return pa.struct(list(zip(names, types, strict=True)))


def _columns(
    whole: pa.StringArray, begin: int, names: Sequence[str], length: int
) -> pa.StructArray:
    """Columns that stand one behind the other."""
    ends = range(begin, begin + len(names) * length, length) if length else [begin] * len(names)
    return struct(names, [whole.slice(at, length) for at in ends], length)
