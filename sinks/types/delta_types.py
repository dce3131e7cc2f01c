"""The Delta type of each MySQL type (docs/types.md), under its names in Spark SQL, in Delta's log
and in Arrow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow as pa

from sinks.types.mysql_type import BINARY_TYPES, MySQLType

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
UNSIGNED_LONG = "decimal(20,0)"
LOG_NAMES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
SQL_NAMES = {log: sql for sql, log in LOG_NAMES.items()}  # other types have one name in both
_MAX_PRECISION = 38
_ARROW: Mapping[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_ARRAY = re.compile(r"array<(.+)>")


def quoted(name: str, mark: str = "`") -> str:
    """A name in SQL: Spark's and MySQL's, or, in double quotes, the standard's."""
    return mark + name.replace(mark, 2 * mark) + mark


def delta_type(mysql_type: MySQLType) -> str:
    """The Spark SQL type that holds every value of a MySQL type, e.g. ``decimal(10,2)``."""
    name = mysql_type.name
    if name in INTEGER_BITS:
        bits = INTEGER_BITS[name] + mysql_type.unsigned
        return next((of for of in LOG_NAMES if bits <= INTEGER_BITS[of]), UNSIGNED_LONG)
    if name == "decimal":
        return _decimal_type(mysql_type)
    if name == "bit":
        return "bigint" if (mysql_type.length or 64) < 64 else UNSIGNED_LONG
    if name in BINARY_TYPES:
        return "binary"
    others = {
        "year": "smallint",
        "float": "float",
        "double": "double",
        "date": "date",
        "datetime": "timestamp_ntz",
        "timestamp": "timestamp",
        "vector": "array<float>",
    }
    return others.get(name, "string")


def whole_range(of: MySQLType) -> tuple[int, int]:
    """The least and the greatest value of a bit or an integer."""
    if of.name == "bit":
        return 0, 2 ** (of.length or 64) - 1
    bits = INTEGER_BITS[of.name]
    return (0, 2**bits - 1) if of.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _decimal_type(mysql_type: MySQLType) -> str:
    """A decimal of unknown precision becomes a string: one value does not tell the precision."""
    precision, scale = mysql_type.length, mysql_type.scale or 0
    if precision is None or precision > _MAX_PRECISION:
        return "string"
    return f"decimal({precision},{scale})"


@cache
def arrow_type(mysql_type: MySQLType) -> pa.DataType:
    """The Arrow type of ``delta_type(mysql_type)``, as in the table's files."""
    found = arrow_of(delta_type(mysql_type))
    assert found is not None
    return found


def arrow_of(sql_type: str) -> pa.DataType | None:
    """The Arrow type of a Spark SQL type, as in the table's files; None for a type that our files
    never have."""
    if (decimal := _DECIMAL.fullmatch(sql_type)) is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if (array := _ARRAY.fullmatch(sql_type)) is not None:
        element = arrow_of(array[1])
        return element and pa.list_(pa.field("element", element))
    return _ARROW.get(sql_type)


def log_type(sql_type: str) -> Any:
    """How Delta's log writes a Spark SQL type."""
    if array := _ARRAY.fullmatch(sql_type):
        return {"type": "array", "elementType": log_type(array[1]), "containsNull": True}
    return LOG_NAMES.get(sql_type, sql_type)


def sql_type(log_type: Any) -> str:
    """The Spark SQL type of a type in Delta's log; "other" for structs, maps and nested arrays."""
    if isinstance(log_type, str):
        return SQL_NAMES.get(log_type, log_type)
    element = log_type.get("elementType") if log_type.get("type") == "array" else None
    return f"array<{sql_type(element)}>" if isinstance(element, str) else "other"
