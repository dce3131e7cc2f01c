"""The Delta type of each MySQL type (docs/types.md), in the words of Spark SQL and of Arrow."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from sinks.schema import BINARY_TYPES, MySQLType

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
DELTA_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
UNSIGNED_LONG = "decimal(20,0)"
_MAX_PRECISION = 38
_ARROW: Mapping[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "array<float>": pa.list_(pa.field("element", pa.float32())),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def delta_type(mysql_type: MySQLType) -> str:
    """The Spark SQL type that holds every value of a MySQL type, e.g. ``decimal(10,2)``."""
    name = mysql_type.name
    if name in INTEGER_BITS:
        return _integer_type(mysql_type)
    if name == "decimal":
        return decimal_type(mysql_type)
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


def arrow_type(mysql_type: MySQLType) -> pa.DataType:
    """The Arrow type of ``delta_type``, which the table's files hold."""
    name = delta_type(mysql_type)
    if (decimal := _DECIMAL.fullmatch(name)) is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _ARROW[name]


def _integer_type(mysql_type: MySQLType) -> str:
    bits = INTEGER_BITS[mysql_type.name] + mysql_type.unsigned
    for name, room in DELTA_BITS.items():
        if bits <= room:
            return name
    return UNSIGNED_LONG


def decimal_type(mysql_type: MySQLType) -> str:
    """A decimal whose precision nobody knows is a string: it cannot be guessed from one value."""
    precision, scale = mysql_type.length, mysql_type.scale or 0
    if precision is None or precision > _MAX_PRECISION:
        return "string"
    return f"decimal({precision},{scale})"
