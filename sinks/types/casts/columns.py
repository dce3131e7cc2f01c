"""From a source's cells to Delta's types (docs/types.md), in Arrow, a column at a time.

Every value of canal-json is a JSON string; a binlog's are typed (``typed_cells``). A cast gives the
exact value or null: nothing is rounded, cut or guessed. A null where the source sent a value is a
failure, and its row becomes a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.casts.dates import cast_dates, cast_datetimes, cast_times, cast_timestamps
from sinks.types.casts.identifiers import cast_identifiers
from sinks.types.casts.numbers import cast_decimals, cast_floats, cast_integers, cast_years
from sinks.types.casts.texts import cast_base64, cast_bytes, cast_enums, cast_sets, cast_vectors
from sinks.types.casts.typed_cells import as_values, cell_texts, is_text
from sinks.types.delta_types import INTEGER_BITS, arrow_type
from sinks.types.mysql_type import BINARY_TYPES, IDENTIFIER_TYPES, MySQLType
from sinks.types.table_schema import Column
from sinks.types.text_arrays import CastColumn, CastRules

__all__ = ["CastColumn", "CastRules", "arrow_type", "cast_column", "key_values"]


def cast_column(
    cells: pa.Array,
    column: Column,
    rules: CastRules,
    *,
    are_typed: bool = False,
    are_names: bool = False,
) -> CastColumn:
    """The values of a column from its cells, in ``arrow_type(column.type)``.

    ``cells`` are texts (string or large_string), or of a type that ``contract.Cells.TYPED`` lists;
    null stays null and is no failure. ``are_typed``: where they are texts, they are so beside typed
    ones: names of an ENUM or SET, and TIMESTAMPs in UTC. ``are_names``: texts of an ENUM or SET are
    names.

    With ``zero_date="null"`` a date that Delta does not have becomes null and is no failure either
    (docs/types.md). Where clocks are set back, a TIMESTAMP's text fits two instants: the earlier
    one is taken.

    Raises ArrowInvalid where the text is too much for one array (2 GiB).
    """
    mysql_type = column.type
    if cells.null_count == len(cells):
        return CastColumn(values=pa.nulls(len(cells), arrow_type(mysql_type)), failed=None)
    if mysql_type.name in IDENTIFIER_TYPES:
        return cast_identifiers(cells, mysql_type)
    if is_text(cells.type):
        rules = replace(rules, time_zone="UTC") if are_typed else rules
        return _cast_text(cells, mysql_type, rules, are_names=are_typed or are_names)
    if rules.are_encoded and mysql_type.name in _BIT_FIELDS and cells.type == pa.int64():
        cells = cells.view(pa.uint64())  # the highest of 64 bits is no sign
    values = as_values(cells, mysql_type)
    if values is not None:
        return CastColumn(values=values, failed=None)
    digits = mysql_type.digits if mysql_type.name == "time" else None
    in_utc = replace(rules, time_zone="UTC")
    return _cast_text(cell_texts(cells, digits), mysql_type, in_utc, are_names=False)


def _cast_text(
    text: pa.Array, mysql_type: MySQLType, rules: CastRules, *, are_names: bool
) -> CastColumn:
    if (cast_date := _DATES.get(mysql_type.name)) is not None:
        return cast_date(text, rules)
    if mysql_type.name == "time":
        return cast_times(text, mysql_type)
    if rules.are_encoded and mysql_type.name in BINARY_TYPES:
        return cast_base64(text)
    cast = _CASTS.get(mysql_type.name)
    has_names = bool(mysql_type.elements) and not are_names
    if cast is None or (arrow_type(mysql_type) == pa.string() and not has_names):
        values = text if text.type == pa.string() else text.cast(pa.string())
        return CastColumn(values=values, failed=None)
    return cast(text, mysql_type)


def key_values(values: pa.Array) -> pa.Array:
    """Key values with -0.0 written as 0.0: they are one key in MySQL, but differ in their bits."""
    if pa.types.is_floating(values.type):
        return pc.add(values, pa.scalar(0.0, values.type))
    return values


_BIT_FIELDS = ("bit", "set")
_DATES: dict[str, Callable[[pa.Array, CastRules], CastColumn]] = {
    "date": cast_dates,
    "datetime": cast_datetimes,
    "timestamp": cast_timestamps,
}
_CASTS: dict[str, Callable[[pa.Array, MySQLType], CastColumn]] = {
    **dict.fromkeys((*INTEGER_BITS, "bit"), cast_integers),
    **dict.fromkeys(BINARY_TYPES, cast_bytes),
    "year": cast_years,
    "decimal": cast_decimals,
    "float": cast_floats,
    "double": cast_floats,
    "enum": cast_enums,
    "set": cast_sets,
    "vector": cast_vectors,
}
