"""Cast due rows to the table's types: first all keys, then the other values of rows that are
written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinks.casts import CastRules, cast_column, key_values
from sinks.delta_types import arrow_type
from sinks.schema import Column
from streaming.apply.due_rows import Mask, Piece, Rows
from streaming.apply.row_errors import RowErrors, cast_errors
from streaming.protocols.contract import DATA


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TypedKeys:
    """The typed keys of all entries of a piece; ``errors`` are by entry too."""

    columns: dict[str, pa.Array]  # by key column, in the key's order
    is_bad: Mask | None  # None: all keys are good
    errors: tuple[RowErrors, ...]

    def of(self, entries: Rows) -> dict[str, pa.Array]:
        """The key columns of some entries; ``entries`` rises."""
        if all(len(entries) == len(column) for column in self.columns.values()):
            return self.columns
        at = pa.array(entries)
        return {name: column.take(at) for name, column in self.columns.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TypedValues:
    """The typed values of some rows of a piece, without the key columns if those are apart."""

    rows: Rows
    columns: dict[str, pa.Array]
    is_bad: Mask | None
    errors: tuple[RowErrors, ...]

    def of(self, entries: Rows, is_written: Mask) -> dict[str, pa.Array]:
        """The columns of some entries. An entry that is written must be among ``rows``; the others
        are NULL."""
        if len(entries) == len(self.rows) and is_written.all():
            return self.columns
        at = pa.array(np.searchsorted(self.rows, entries), mask=~is_written)
        return {name: column.take(at) for name, column in self.columns.items()}

    def and_old(self, old: TypedValues, entries: Rows) -> TypedValues:
        """These and the values of ``old``, as of ``entries``. Of a row that is bad in both the
        errors here count."""
        both = (self, old)
        masks = [np.zeros(len(v.rows), np.bool_) if v.is_bad is None else v.is_bad for v in both]
        is_bad = np.concatenate(masks)
        bad_rows = self.rows[masks[0]]
        late = [each.where(~np.isin(each.rows, bad_rows)) for each in old.errors]
        return TypedValues(
            rows=entries,
            columns={
                name: pa.concat_arrays([values, old.columns[name]])
                for name, values in self.columns.items()
            },
            is_bad=is_bad if is_bad.any() else None,
            errors=(*self.errors, *late),
        )


def typed_keys(piece: Piece, rules: CastRules) -> TypedKeys:
    """Cast the keys of all entries of a piece. A key column without a value is an error, unless all
    columns are the key: then only a value that cannot be cast is one."""
    failures, schema = _Failures(), piece.of.schema
    typed: dict[str, pa.Array] = {}
    text_of = dict(zip(schema.key, piece.keys, strict=True))
    for column in schema.delivered:
        if column.name in text_of:
            text = text_of[column.name]
            cast = cast_column(text, column, rules)
            typed[column.name] = values = key_values(cast.values)
            failed = values.is_null() if values.null_count else None
            if schema.key_is_row:
                failed = cast.failed
            if failed is not None:
                failures.add(failed, text, column)
    return TypedKeys(
        columns={name: typed[name] for name in schema.key},
        is_bad=failures.mask,
        errors=tuple(failures.errors),
    )


def typed_values(
    piece: Piece, rows: Rows, columns: Sequence[Column], rules: CastRules, side: str = DATA
) -> TypedValues:
    """Cast the values of some rows, which rise, in these columns. A column that the piece lacks is
    NULL. ``side``: DATA or OLD."""
    if not len(rows) or not columns:
        nothing = {column.name: pa.nulls(0, arrow_type(column.type)) for column in columns}
        return TypedValues(rows=rows, columns=nothing, is_bad=None, errors=())
    data = piece.values(rows, side)
    places = {each.name: number for number, each in enumerate(piece.shape)}
    failures = _Failures(rows)
    typed = {}
    for column in columns:
        place = places.get(column.name)
        text = pa.nulls(len(rows), pa.string()) if place is None else data.field(place)
        cast = cast_column(text, column, rules)
        typed[column.name] = cast.values
        if cast.failed is not None:
            failures.add(cast.failed, text, column)
    return TypedValues(
        rows=rows, columns=typed, is_bad=failures.mask, errors=tuple(failures.errors)
    )


@dataclass(slots=True)
class _Failures:
    """Collects the rows with a value that cannot be cast, and the first such error of each row."""

    rows: Rows | None = None  # the row of each entry; None: entry numbers are row numbers
    mask: Mask | None = None
    errors: list[RowErrors] = field(default_factory=list)

    def add(self, is_bad: pa.BooleanArray, text: pa.Array, column: Column) -> None:
        mask = np.asarray(pc.fill_null(is_bad, False).to_numpy(zero_copy_only=False))
        fresh = mask if self.mask is None else mask & ~self.mask
        self.mask = mask if self.mask is None else mask | self.mask
        at = np.flatnonzero(fresh)
        if len(at):
            rows = at if self.rows is None else self.rows[at]
            self.errors.append(cast_errors(rows, text.take(pa.array(at)), column))
