"""Cast due rows to the table's types: first all keys, then the other values of rows that are
written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.casts.checksums import is_countable, of_names, row_checksums
from sinks.types.casts.columns import CastColumn, CastRules, key_values
from sinks.types.casts.connect_cells import canal_texts
from sinks.types.casts.dates import is_storable, is_zero_date
from sinks.types.casts.encoded_cells import without_zone
from sinks.types.casts.maxwell_cells import plain_texts
from sinks.types.casts.typed_cells import cell_texts, is_text
from sinks.types.delta_types import arrow_type
from sinks.types.masks import target_values
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import MOMENTS, Column
from sinks.types.text_arrays import as_mask
from streaming.apply.rows_to_apply import Mask, Piece, RowNumbers
from streaming.apply.values.row_errors import (
    NO_DAY_IN_KEY_MESSAGE,
    NO_DAY_MESSAGE,
    RowErrors,
    cast_errors,
    checksum_errors,
)
from streaming.protocols.contract import DAMAGED, DATA, OP_DELETE, Cells

_WITH_NAMES: Final = (Cells.TYPED, Cells.CONNECT)  # of ENUM and SET
_NAMES_ALONE: Final = (Cells.NAMED, Cells.AVRO, Cells.MAXWELL)
_PLAIN: Final = {Cells.CONNECT: canal_texts, Cells.MAXWELL: plain_texts}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TypedKeys:
    """The typed keys of all entries of a piece; ``errors`` and ``nulled`` are by entry too."""

    columns: dict[str, pa.Array]  # by key column, in the key's order
    is_bad: Mask | None  # None: all keys are good
    errors: tuple[RowErrors, ...]
    nulled: Mapping[str, Mask]  # as of TypedValues
    has_left: Mask | None  # bad only for a date that has no place in a key; None: there is none

    def of(self, entries: RowNumbers) -> dict[str, pa.Array]:
        """The key columns of some entries; ``entries`` rises."""
        if all(len(entries) == len(column) for column in self.columns.values()):
            return self.columns
        at = pa.array(entries)
        return {name: column.take(at) for name, column in self.columns.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TypedValues:
    """The typed values of some rows of a piece, without the key columns if those are apart.

    ``nulled``: by column that has some, the rows with a date that Delta does not have, which is
    NULL here (docs/types.md)."""

    rows: RowNumbers
    columns: dict[str, pa.Array]
    is_bad: Mask | None
    errors: tuple[RowErrors, ...]
    nulled: Mapping[str, Mask] = field(default_factory=dict)

    def count_nulled(self, entries: RowNumbers) -> Counter[str]:
        """How many of these entries are among ``nulled``, by column. Each is one of ``rows``."""
        if not self.nulled:
            return Counter()
        at = np.searchsorted(self.rows, entries)
        return Counter({name: int(mask[at].sum()) for name, mask in self.nulled.items()})

    def of(self, entries: RowNumbers, is_written: Mask) -> dict[str, pa.Array]:
        """The columns of some entries. An entry that is written must be among ``rows``; the others
        are NULL."""
        if len(entries) == len(self.rows) and is_written.all():
            return self.columns
        at = pa.array(np.searchsorted(self.rows, entries), mask=~is_written)
        return {name: column.take(at) for name, column in self.columns.items()}

    def and_old(self, old: TypedValues, entries: RowNumbers) -> TypedValues:
        """These and the values of ``old``, as of ``entries``. If a row is bad in both, the errors
        here count."""
        both = (self, old)
        masks = [np.zeros(len(v.rows), np.bool_) if v.is_bad is None else v.is_bad for v in both]
        is_bad = np.concatenate(masks)
        bad_rows = self.rows[masks[0]]
        late = [each.where(~np.isin(each.rows, bad_rows)) for each in old.errors]
        none = [np.zeros(len(each.rows), np.bool_) for each in both]
        nulled = {
            name: np.concatenate([v.nulled.get(name, no) for v, no in zip(both, none, strict=True)])
            for name in {**self.nulled, **old.nulled}
        }
        return TypedValues(
            rows=entries,
            columns={
                name: pa.concat_arrays([values, old.columns[name]])
                for name, values in self.columns.items()
            },
            is_bad=is_bad if is_bad.any() else None,
            errors=(*self.errors, *late),
            nulled=nulled,
        )


def typed_keys(piece: Piece, rules: CastRules, *, finds_rows: bool = True) -> TypedKeys:
    """Cast the keys of all entries of a piece. A key column without a value is an error, unless all
    columns are the key: then only a value that cannot be cast is one.

    ``finds_rows``: rows of the table are found by it. So NULL is ``0000-00-00`` in it and nothing
    else, and any other date that Delta does not have is an error."""
    failures, schema = _Failures(), piece.of.schema
    is_unread = np.zeros(len(piece.op), np.bool_)
    typed: dict[str, pa.Array] = {}
    nulled: dict[str, Mask] = {}
    are_typed, are_names = piece.cells in _WITH_NAMES, piece.cells in _NAMES_ALONE
    cells_of = dict(zip(schema.key, piece.keys, strict=True))
    for column in schema.delivered:
        if column.name in cells_of:
            cells = cells_of[column.name]
            cells, by = _plain(piece, column, cells, rules)
            cast = target_values(cells, column, by, are_typed=are_typed, are_names=are_names)
            typed[column.name] = key_values(cast.values)
            is_nulled = _nulled(cells, cast)
            if is_nulled is not None:
                nulled[column.name] = is_nulled
            failed = cast.failed
            if not schema.key_is_row and cast.values.null_count:
                failed = cast.values.is_null()
                if is_nulled is not None:
                    if finds_rows:
                        is_nulled = is_nulled & is_zero_date(cell_texts(cells))
                    failed = pc.and_(failed, pa.array(~is_nulled))
            if failed is not None:
                in_key = column.name in nulled and not schema.key_is_row
                failures.add(failed, cells, column, in_key=in_key)
                is_no_day = column.type.name in MOMENTS and not schema.key_is_row
                is_unread |= as_mask(failed) & (
                    ~is_storable(cell_texts(cells)) if is_no_day else True
                )
    return TypedKeys(
        columns={name: typed[name] for name in schema.key},
        is_bad=failures.mask,
        errors=tuple(failures.errors),
        nulled=nulled,
        has_left=None if failures.mask is None else failures.mask & ~is_unread,
    )


def _plain(
    piece: Piece, column: Column, cells: pa.Array, rules: CastRules
) -> tuple[pa.Array, CastRules]:
    """The cells as the casts want them, and the rules for them."""
    make = _PLAIN.get(piece.cells)
    if make is None and piece.cells is not Cells.ENCODED:
        return cells, rules
    rules = replace(rules, are_encoded=True)
    if make is not None:
        return (make(cells, column.type) if is_text(cells.type) else cells), rules
    is_moment = column.type.name == "timestamp" and is_text(cells.type)
    return without_zone(cells, rules) if is_moment else (cells, rules)


def typed_values(
    piece: Piece,
    rows: RowNumbers,
    columns: Sequence[Column],
    rules: CastRules,
    side: str = DATA,
    *,
    verifies: bool = False,
    in_clear: bool = False,
) -> TypedValues:
    """Cast the values of some rows, which rise, in these columns. A column that the piece lacks is
    NULL. ``side``: DATA or OLD. ``verifies``: rows of ``data`` are compared with their
    checksums. ``in_clear``: no value is masked, but in the errors."""
    kept = {each.name: replace(each, mask="") if in_clear else each for each in columns}
    verifies = verifies and piece.checksum is not None
    if not len(rows) or not (columns or verifies):
        nothing = {name: pa.nulls(0, arrow_type(each.stored)) for name, each in kept.items()}
        return TypedValues(rows=rows, columns=nothing, is_bad=None, errors=())
    data = piece.values(rows, side)
    places = {each.name: number for number, each in enumerate(piece.shape)}
    failures = _Failures(rows)
    typed = {}
    nulled = {}
    for column in columns:
        place = places.get(column.name)
        cells = pa.nulls(len(rows), pa.string()) if place is None else data.field(place)
        cells, by = _plain(piece, column, cells, rules)
        are_typed, are_names = piece.cells in _WITH_NAMES, piece.cells in _NAMES_ALONE
        to = kept[column.name]
        cast = target_values(cells, to, by, are_typed=are_typed, are_names=are_names)
        typed[column.name] = cast.values
        is_nulled = None if to.mask == "null" else _nulled(cells, cast)
        if is_nulled is not None:
            nulled[column.name] = is_nulled
        if cast.failed is not None:
            failures.add(cast.failed, cells, column)
    if verifies:
        failures.add_unlike(piece, rows, data, rules)
    return TypedValues(
        rows=rows,
        columns=typed,
        is_bad=failures.mask,
        errors=tuple(failures.errors),
        nulled=nulled,
    )


def untold(shape: pa.StructType) -> frozenset[str]:
    """The columns of TYPED cells whose values nobody tells."""
    return frozenset(field.name for field in shape if pa.types.is_null(field.type))


def untold_columns(piece: Piece) -> list[str]:
    """The columns of the target whose values nobody tells in these rows."""
    lacking = untold(piece.shape) if piece.cells is Cells.TYPED else ()
    return [c.name for c in piece.of.schema.delivered if c.name in lacking and c.mask != "null"]


def _nulled(cells: pa.Array, cast: CastColumn) -> Mask | None:
    """The cells that have become null without having failed; None: there is none."""
    failed = 0 if cast.failed is None else cast.failed.true_count
    if cast.values.null_count == cells.null_count + failed:
        return None
    found = pc.and_(cast.values.is_null(), cells.is_valid())
    if cast.failed is not None:
        found = pc.and_(found, pc.invert(cast.failed))
    return np.asarray(found.to_numpy(zero_copy_only=False))


def _by_id(piece: Piece, data: pa.StructArray) -> tuple[list[tuple[MySQLType, pa.Array]], bool]:
    """The columns of these rows in the order of their IDs, and whether they are all of the table:
    DELETEs may have the key alone. Nothing where the order is not known (``TableSchema.by_id``)."""
    schema, names = piece.of.schema, [each.name for each in piece.shape]
    types = {column.name: column.type for column in schema.columns}
    if piece.cells is Cells.AVRO:
        return _as_sent(piece, data, types), True
    is_known = set(names) <= set(schema.by_id) and set(schema.by_id) == types.keys()
    if piece.cells is not Cells.ENCODED or not is_known:
        return [], False
    if not all(is_countable(types[each.name], each.type) for each in piece.shape):
        return [], False
    sent = {column.name for column in schema.columns if column.generated != "virtual"}
    is_whole = sent <= set(names)
    order = [name for name in schema.by_id if name in names]
    return [(types[name], data.field(names.index(name))) for name in order], is_whole


def _as_sent(
    piece: Piece, data: pa.StructArray, types: Mapping[str, MySQLType]
) -> list[tuple[MySQLType, pa.Array]]:
    """The columns of rows of avro; nothing where the table does not tell a column's type."""
    added = {name for due in piece.batches for name, _ in due.block.added}
    names = [each.name for each in piece.shape if each.name not in added]
    if not all(name in types for name in names):
        return []
    found = [(types[name], data.field(name)) for name in names]
    return found if all(is_countable(kind, cells.type) for kind, cells in found) else []


@dataclass(slots=True)
class _Failures:
    """Collects the rows with a value that cannot be cast, and the first such error of each row."""

    rows: RowNumbers | None = None  # the row of each entry; None: entry numbers are row numbers
    mask: Mask | None = None
    errors: list[RowErrors] = field(default_factory=list)

    def add_unlike(
        self, piece: Piece, rows: RowNumbers, data: pa.StructArray, rules: CastRules
    ) -> None:
        """Rows whose checksum is not what the message told."""
        assert piece.checksum is not None
        told = piece.checksum[rows]
        found = told.copy()
        columns, is_whole = _by_id(piece, data)
        at = np.flatnonzero((told > 0) & (is_whole | (piece.op[rows] != OP_DELETE)))
        if columns and len(at):
            here = pa.array(at)
            some = [(kind, cells.take(here)) for kind, cells in columns]
            is_told = np.ones(len(at), np.bool_)
            if piece.cells is Cells.AVRO:
                some, is_told = of_names(some)
            found[at] = np.where(is_told, row_checksums(some, rules), told[at])
        is_unlike = (found != told) | (told == DAMAGED)
        fresh = is_unlike if self.mask is None else is_unlike & ~self.mask
        if fresh.any():
            self.mask = is_unlike if self.mask is None else is_unlike | self.mask
            self.errors.append(checksum_errors(rows[fresh], told[fresh], found[fresh]))

    def add(
        self, is_bad: pa.BooleanArray, cells: pa.Array, column: Column, *, in_key: bool = False
    ) -> None:
        """``in_key``: by another rule a date that Delta does not have would be NULL."""
        mask = np.asarray(pc.fill_null(is_bad, False).to_numpy(zero_copy_only=False))
        fresh = mask if self.mask is None else mask & ~self.mask
        self.mask = mask if self.mask is None else mask | self.mask
        at = np.flatnonzero(fresh)
        if len(at):
            rows = at if self.rows is None else self.rows[at]
            rule = NO_DAY_IN_KEY_MESSAGE if in_key else NO_DAY_MESSAGE
            text = cell_texts(cells.take(pa.array(at))).cast(pa.string())
            self.errors.append(cast_errors(rows, text, column, rule))
