"""Which live rows of a table are in some of its MySQL partitions, by the definition alone.

MySQL's own rules: NULL is below every bound of RANGE and in partition 0 of HASH; the number of a
HASH partition has no sign. If a row is in no partition, the definition is not the table's: then
nothing is taken out.

NULL may be a date that Delta does not have (docs/types.md). In the key of a table it is
``0000-00-00``, below every other date. In another column that has such dates, the partition of a
row with NULL is not known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordination.errors import TidelakeError
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.table_handle import TableHandle
from sinks.types.casts.dates import is_zero_date
from sinks.types.key_hash import Ordinals
from sinks.types.mysql_type import INTEGER_TYPES, TEXT_TYPES
from sinks.types.partitioning import Partitioning
from sinks.types.table_schema import MOMENTS, Column, TableSchema
from sinks.types.text_arrays import CastRules, as_mask
from sinks.types.type_changes import CannotConvert, fill_values

PIECE_ROWS = 1_000_000
_EPOCH_DAY = 719_528  # MySQL's TO_DAYS of 1970-01-01
_WIDE = pa.decimal128(38, 0)
_DATES = ("date", "datetime")
_IN_NONE, _NOT_KNOWN = -1, -2  # in the place of a row's partition
_ZERO_OF = {"YEAR": 0, "UNIX_TIMESTAMP": 0}  # of 0000-00-00; TO_DAYS has NULL of it
# What a function of a column is told of: with any other type MySQL's answer depends on a session.
_FUNCTION_TYPES = {"YEAR": _DATES, "TO_DAYS": _DATES, "UNIX_TIMESTAMP": ("timestamp",)}


def find_partitions(
    table: TableHandle,
    schema: TableSchema,
    names: Sequence[str],
    rules: CastRules,
    *,
    among: Mapping[str, Ordinals] | None = None,
    are_all_known: bool = True,
    null_dates: Collection[str] = (),
) -> dict[str, Ordinals]:
    """Where the live rows of these partitions are: file path to ordinals, hit files alone.

    ``among``: looks at these rows alone. ``are_all_known`` False: the definition is an older one,
    and later rows may be in none of its partitions. ``null_dates``: columns that have NULL for
    dates that Delta does not have. Raises TidelakeError if the definition does not place a row, or
    does not fit the rows.
    """
    partitioning = schema.partitioning
    if partitioning is None:
        raise TidelakeError("which rows its partitions have is not known")
    try:
        wanted = partitioning.named(names)
    except ValueError as error:
        raise TidelakeError(str(error)) from error
    columns = [schema.column(name) for name in partitioning.columns]
    refuse_unknown(partitioning, columns)
    physical = [table.shape.column(column.name) for column in columns]
    zeros = [_is_zero(column, schema) for column in columns]
    are_lost = [
        column.name in null_dates and not is_zero
        for column, is_zero in zip(columns, zeros, strict=True)
    ]
    found: dict[str, Ordinals] = {}
    for each in list(table.files.values()):
        if among is not None and each.file.path not in among:
            continue
        pieces = data_files.read_pieces(table.located, each.file, physical, PIECE_ROWS)
        places = []
        for piece in pieces:
            values = [data_files.one_array(piece[at.physical], at.arrow) for at in physical]
            place = places_of(partitioning, columns, values, zeros, rules)
            places.append(_where_known(place, values, are_lost))
        live = ~table.deleted_rows(each).mask
        if among is not None:
            is_among = np.zeros(len(live), np.bool_)
            is_among[among[each.file.path]] = True
            live &= is_among
        place = np.concatenate(places) if places else np.empty(0, np.int64)
        if (place[live] == _NOT_KNOWN).any():
            raise TidelakeError(
                "there are rows with NULL in a column that its partitions are made by, which may "
                "be a date that Delta does not have (zero-date): their partition is not known"
            )
        if are_all_known and (place[live] == _IN_NONE).any():
            raise TidelakeError("the table has rows that are in none of its known partitions")
        hits = np.flatnonzero(live & np.isin(place, wanted))
        if len(hits):
            found[each.file.path] = hits
    return found


def refuse_unknown(partitioning: Partitioning, columns: Sequence[Column]) -> None:
    """TidelakeError where the same definition may mean other rows: by collation, or by a session's
    time zone."""
    types = {column.type.name for column in columns}
    allowed: set[str] = {*INTEGER_TYPES, *_DATES, "year"}
    if partitioning.function:
        allowed = set(_FUNCTION_TYPES[partitioning.function])
    elif partitioning.method == "hash":
        allowed = {*INTEGER_TYPES}
    elif partitioning.method == "list":
        allowed |= set(TEXT_TYPES)
    is_rest_by_text = types & set(TEXT_TYPES) and any(p.is_default for p in partitioning.partitions)
    unknown = sorted(types - allowed) or (["text and DEFAULT"] if is_rest_by_text else [])
    if any(column.generated == "virtual" for column in columns):
        unknown = ["virtual generated columns"]
    if unknown:
        how = f"{partitioning.method.upper()} by {partitioning.function or 'the value'}"
        raise TidelakeError(f"which rows a partition has is not known of {how} of {unknown[0]}")


def _is_zero(column: Column, schema: TableSchema) -> bool:
    """Whether NULL in the column is ``0000-00-00``: no other row has NULL in its key."""
    is_key = column.name in schema.key and not schema.key_is_row
    return is_key and column.type.name in MOMENTS


def _where_known(
    place: npt.NDArray[np.int64], values: Sequence[pa.Array], are_lost: Sequence[bool]
) -> npt.NDArray[np.int64]:
    """``are_lost``: for each column, whether NULL may be a date of which nothing is known."""
    for array, is_lost in zip(values, are_lost, strict=True):
        if is_lost and array.null_count:
            place = np.where(as_mask(array.is_null()), _NOT_KNOWN, place)
    return place


def places_of(
    partitioning: Partitioning,
    columns: Sequence[Column],
    values: Sequence[pa.Array],
    zeros: Sequence[bool],
    rules: CastRules,
) -> npt.NDArray[np.int64]:
    """The partition of each row, by its place in the definition, or ``_IN_NONE``. ``zeros``: for
    each column, whether its NULLs are zero dates."""
    partitions = partitioning.partitions
    length = len(values[0])
    typed = [
        _Values.of(partitioning.function, column, array, is_zero, rules)
        for column, array, is_zero in zip(columns, values, zeros, strict=True)
    ]
    if partitioning.method == "hash":
        return typed[0].modulo(len(partitions))
    place = np.full(length, _IN_NONE, np.int64)
    if partitioning.method == "range":
        place = np.zeros(length, np.int64)
        for each in partitions:
            place += _at_or_above(typed, each.less_than)
        return np.where(place < len(partitions), place, _IN_NONE)
    for at, each in enumerate(partitions):
        if each.is_default:
            place[:] = at
    for at, each in enumerate(partitions):
        for tuple_ in each.values:
            same = [of.equal(text) for of, text in zip(typed, tuple_, strict=True)]
            place[reduce(np.logical_and, same)] = at
    return place


def _at_or_above(typed: Sequence[_Values], bound: Sequence[str | None]) -> npt.NDArray[np.bool_]:
    """Compared column by column; None is MAXVALUE, which nothing reaches."""
    first, text = typed[0], bound[0]
    if text is None:
        return np.zeros(len(first.values), np.bool_)
    if len(typed) == 1:
        return first.compare("greater_equal", text)
    rest = _at_or_above(typed[1:], bound[1:])
    return first.compare("greater", text) | (first.equal(text) & rest)


class _Values:
    """A column's values, or its function's, in a type that can be compared with bounds.
    ``is_zero``: NULL is a zero date."""

    def __init__(self, values: pa.Array, column: Column, is_zero: bool, rules: CastRules) -> None:
        self.values = values
        self._is_zero = is_zero
        self._column = column
        self._rules = rules
        self._scalars: dict[str, pa.Scalar] = {}

    @classmethod
    def of(
        cls, function: str, column: Column, values: pa.Array, is_zero: bool, rules: CastRules
    ) -> _Values:
        match function:
            case "YEAR":
                values = pc.year(values).cast(pa.int64())
            case "TO_DAYS":
                days = values
                if not pa.types.is_date32(values.type):
                    days = pc.floor_temporal(values, unit="day").cast(pa.date32())
                values = pc.add(days.cast(pa.int32()).cast(pa.int64()), _EPOCH_DAY)
            case "UNIX_TIMESTAMP":
                seconds = pc.floor_temporal(values, unit="second").cast(pa.int64())
                values = pc.divide(seconds, 1_000_000)
        if is_zero and function in _ZERO_OF:
            values = pc.fill_null(values, _ZERO_OF[function])
        if pa.types.is_integer(values.type):
            values = values.cast(pa.int64())
        elif pa.types.is_decimal(values.type):  # BIGINT UNSIGNED
            values = values.cast(_WIDE)
        elif pa.types.is_string(values.type):
            values = pc.utf8_rtrim(values, " ")
        return cls(values, column, is_zero and not function, rules)

    def equal(self, text: str | None) -> npt.NDArray[np.bool_]:
        if text is None:
            is_null = as_mask(self.values.is_null())
            return is_null & (not self._is_zero)
        return self.compare("equal", text)

    def compare(self, how: str, text: str) -> npt.NDArray[np.bool_]:
        """False for NULL; a zero date is below all others."""
        if self._column.type.name in MOMENTS and is_zero_date(pa.array([text]))[0]:
            is_null = as_mask(self.values.is_null())
            is_same = is_null & self._is_zero
            found = {"equal": is_same, "greater": ~is_null, "greater_equal": ~is_null | is_same}
            return found[how]
        if text not in self._scalars:
            self._scalars[text] = self._scalar(text)
        same = pc.call_function(how, [self.values, self._scalars[text]])
        return pc.fill_null(same, False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    def modulo(self, count: int) -> npt.NDArray[np.int64]:
        """As TiDB does: a BIGINT UNSIGNED from 2^63 on is below zero there."""
        coded = self.values.dictionary_encode(null_encoding="encode")
        values = (int(value or 0) for value in coded.dictionary.to_pylist())
        numbers = [abs(v if v < 2**63 else v - 2**64) % count for v in values]
        return np.asarray(np.array(numbers, np.int64)[coded.indices.to_numpy()])

    def _scalar(self, text: str) -> pa.Scalar:
        kind = self.values.type
        if pa.types.is_string(kind):
            return pa.scalar(text.rstrip(" "))
        try:
            if pa.types.is_int64(kind):
                return pa.scalar(int(text), kind)
            if pa.types.is_decimal(kind):
                return pa.scalar(Decimal(text), kind)
            if self._column.type.name == "datetime" and len(text) == len("2026-01-01"):
                text += " 00:00:00"
            rules = replace(self._rules, zero_date="fail")
            return fill_values(text, self._column.type, rules, 0)[0]
        except (ValueError, pa.ArrowInvalid, OverflowError, CannotConvert) as error:
            raise TidelakeError(f"a bound of its partitions cannot be read: {text!r}") from error
