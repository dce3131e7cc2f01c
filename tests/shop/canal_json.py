"""Encodes changes as TiCDC's canal-json with the TiDB extension, byte for byte.

``test_canal_json`` proves it on the recorded bytes. Rows come from easyjson, so control characters
are ``\\u00xx`` and ``< > & U+2028 U+2029`` are escaped; the order of ``mysqlType`` is random there
(a Go map), here it rotates with the commit-ts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

import numpy as np

Value = Any  # None, int, str, Decimal, bytes, float, date, datetime: docs/types.md
Row = Mapping[str, Value]
Op = Literal["DELETE", "UPDATE", "INSERT"]

_ESCAPES = {chr(n): f"\\u{n:04x}" for n in (*range(0x20), *map(ord, "<>&"), 0x2028, 0x2029)}
_ESCAPES |= {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TO_ESCAPE = re.compile("[" + re.escape("".join(_ESCAPES)) + "]")

_JAVA_TYPES = {
    "tinyint": -6,
    "smallint": 5,
    "mediumint": 4,
    "int": 4,
    "bigint": -5,
    "float": 7,
    "double": 8,
    "decimal": 3,
    "char": 1,
    "date": 91,
    "time": 92,
    "datetime": 93,
    "timestamp": 93,
    "enum": 4,
    "set": -7,
    "bit": -7,
    **dict.fromkeys(("varchar", "json", "year", "vector"), 12),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), 2005),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), 2004),
}
# An unsigned value above the signed maximum takes the next type: sqlType depends on the value.
_PROMOTIONS = {
    "tinyint": (2**7 - 1, 5),
    "smallint": (2**15 - 1, 4),
    "int": (2**31 - 1, -5),
    "bigint": (2**63 - 1, 3),
}


@dataclass(frozen=True)
class Column:
    """A column by its MySQL type, in full (``enum('a','b')``) or as ``mysqlType`` has it."""

    name: str
    type: str

    @cached_property
    def base_type(self) -> str:
        return re.split(r"[ (]", self.type, maxsplit=1)[0]

    @cached_property
    def mysql_type(self) -> str:
        """Without length and elements: what a message says."""
        return re.sub(r"\(.*\)", "", self.type)

    @cached_property
    def elements(self) -> tuple[str, ...]:
        found = re.findall(r"'((?:[^']|'')*)'", self.type)
        return tuple(element.replace("''", "'") for element in found)

    @cached_property
    def fraction_digits(self) -> int:
        found = re.search(r"\((\d)\)", self.type)
        return int(found[1]) if found else 0


@dataclass(frozen=True, eq=False)
class Table:
    """A table, its columns in order, and the keys that TiCDC knows of it."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]  # `pkNames`
    handle_key: tuple[str, ...]  # what index-value hashes: the primary key, else a unique key

    @cached_property
    def head(self) -> str:
        names = ",".join(map(quoted, self.primary_key))
        return (
            f'{{"id":0,"database":{quoted(self.schema)},"table":{quoted(self.name)},'
            f'"pkNames":[{names}],"isDdl":false,"type":'
        )

    @cached_property
    def mysql_types(self) -> tuple[str, ...]:
        """The ``mysqlType`` object in several orders."""
        pairs = [f"{quoted(c.name)}:{quoted(c.mysql_type)}" for c in self.columns]
        return tuple(
            "{" + ",".join(pairs[start:] + pairs[:start]) + "}" for start in range(len(pairs))
        )

    @cached_property
    def java_types(self) -> str | None:
        """The ``sqlType`` object, if it does not depend on values."""
        if any("unsigned" in column.type for column in self.columns):
            return None
        return _java_types(self.columns, {})

    @cached_property
    def cell_prefixes(self) -> dict[str, tuple[str, Column]]:
        """What stands before a value, and how to write it, by column name."""
        return {column.name: (f"{quoted(column.name)}:", column) for column in self.columns}

    @cached_property
    def by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row event; ``row`` is the new row, of a DELETE the old one."""

    table: Table
    op: Op
    row: Row
    old: Row | None = None  # of an UPDATE

    @property
    def key(self) -> tuple[Value, ...]:
        return tuple(self.row[column] for column in self.table.handle_key)


@dataclass(frozen=True, slots=True)
class Ddl:
    """A DDL event as TiCDC names it."""

    schema: str
    table: str  # empty where the DDL is about a schema
    kind: str  # CREATE, ALTER, CINDEX …; QUERY for what has no table
    query: str


def encode_change(change: Change, commit_ts: int, build_ms: int) -> bytes:
    """A row message. ``build_ms`` is when TiCDC built it: the one thing a replay has different."""
    table = change.table
    old = "null" if change.old is None else f"[{_row(table, change.old)}]"
    java_types = table.java_types or _java_types(table.columns, change.row)
    mysql_types = table.mysql_types[(commit_ts >> 3) % len(table.columns)]
    return (
        f'{table.head}"{change.op}","es":{commit_ts >> 18},"ts":{build_ms},"sql":"",'
        f'"sqlType":{java_types},"mysqlType":{mysql_types},"old":{old},'
        f'"data":[{_row(table, change.row)}],"_tidb":{{"commitTs":{commit_ts}}}}}'
    ).encode()


def encode_ddl(ddl: Ddl, commit_ts: int, build_ms: int) -> bytes:
    return (
        f'{{"id":0,"database":{quoted(ddl.schema)},"table":{quoted(ddl.table)},"pkNames":null,'
        f'"isDdl":true,"type":{quoted(ddl.kind)},"es":{commit_ts >> 18},"ts":{build_ms},'
        f'"sql":{quoted(ddl.query)},"sqlType":null,"mysqlType":null,"data":null,"old":null,"_tidb":{{"commitTs":{commit_ts}}}}}'
    ).encode()


def encode_watermark(watermark_ts: int, build_ms: int) -> bytes:
    """Everything at or below ``watermark_ts`` has been sent (DDLs: below it)."""
    return (
        '{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK",'
        f'"es":{watermark_ts >> 18},"ts":{build_ms},"sql":"","sqlType":null,"mysqlType":null,'
        f'"data":null,"old":null,"_tidb":{{"watermarkTs":{watermark_ts}}}}}'
    ).encode()


def quoted(text: str) -> str:
    """A JSON string as Go writes it."""
    if _TO_ESCAPE.search(text) is None:
        return f'"{text}"'
    return '"' + _TO_ESCAPE.sub(lambda found: _ESCAPES[found[0]], text) + '"'


def value_text(value: Value, column: Column) -> str | None:
    """The text of a value before JSON; a ``str`` is its own text, but for the name of an enum."""
    if value is None:
        return None
    if isinstance(value, str):
        return str(column.elements.index(value) + 1) if column.elements else value
    convert = _TEXTS.get(type(value))
    return str(value) if convert is None else convert(value, column)


def _float_text(value: float, column: Column) -> str:
    kind = np.float32 if column.base_type == "float" else np.float64
    return np.format_float_positional(kind(value), trim="-")


def _datetime_text(value: datetime, column: Column) -> str:
    precision = {0: "seconds", 3: "milliseconds", 6: "microseconds"}[column.fraction_digits]
    return value.replace(tzinfo=None).isoformat(sep=" ", timespec=precision)


_TEXTS: dict[type, Callable[[Any, Column], str]] = {
    bytes: lambda value, _column: value.decode("latin-1"),
    Decimal: lambda value, _column: format(value, "f"),
    float: _float_text,
    datetime: _datetime_text,
    date: lambda value, _column: value.isoformat(),
}


def _row(table: Table, row: Row) -> str:
    prefixes = table.cell_prefixes
    return "{" + ",".join([prefixes[n][0] + _cell(v, prefixes[n][1]) for n, v in row.items()]) + "}"


def _cell(value: Value, column: Column) -> str:
    if type(value) is int:
        return f'"{value}"'
    text = value_text(value, column)
    return "null" if text is None else quoted(text)


def _java_types(columns: tuple[Column, ...], row: Row) -> str:
    pairs = (f"{quoted(c.name)}:{_java_type(c, row.get(c.name))}" for c in columns)
    return "{" + ",".join(pairs) + "}"


def _java_type(column: Column, value: Value) -> int:
    base = column.base_type
    if value is not None and "unsigned" in column.type and base in _PROMOTIONS:
        above, promoted = _PROMOTIONS[base]
        return promoted if int(value) > above else _JAVA_TYPES[base]
    return _JAVA_TYPES[base]
