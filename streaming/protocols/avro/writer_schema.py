"""A schema that TiCDC has registered: the table, and its columns by the types of their cells.

    {"type":"record","name":"orders","namespace":"default.shop","fields":[
        {"name":"id","type":{"type":"long","connect.parameters":{"tidb_type":"BIGINT"}}}, …
        {"name":"_tidb_op","type":"string"},{"name":"_tidb_commit_ts","type":"long"}, …]}

The namespace is the changefeed's and the database. In all names a character that is no letter,
digit or ``_`` has become ``_``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from coordination.model import TableName
from streaming.protocols.rows.element_names import definition

OP: Final = "_tidb_op"
COMMIT_TS: Final = "_tidb_commit_ts"
CHECKSUM: Final = "_tidb_row_level_checksum"
CORRUPTED: Final = "_tidb_corrupted"
BEFORE: Final = "_ticdc_before"  # the old row, where avro-include-before-value is on
_EXTENSION: Final = {
    OP: "string",
    COMMIT_TS: "long",
    "_tidb_commit_physical_time": "long",
    CHECKSUM: "string",
    CORRUPTED: "boolean",
    "_tidb_checksum_version": "int",
}
_MOST_DIGITS: Final = 76  # of Arrow's decimals
_MOST_FIELDS: Final = 10_000
_NARROW: Final = 38  # digits of a decimal of 16 bytes


class Unusable(ValueError):
    """No schema of a table that TiCDC has registered. The message says why."""


class Form(StrEnum):
    """How a field is written, and the cells that it becomes."""

    INT = "int"
    LONG = "long"
    UNSIGNED = "unsigned"  # a long whose highest bit is no sign
    FLOAT = "float"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TEXT = "string"
    BYTES = "bytes"
    BITS = "bits"  # bytes, the highest first
    DECIMAL = "decimal"  # bytes of a signed number, the highest first
    BEFORE = "before"  # a record of the same columns


_CELLS: Final = {
    Form.INT: pa.int64(),
    Form.LONG: pa.int64(),
    Form.UNSIGNED: pa.uint64(),
    Form.FLOAT: pa.float32(),
    Form.DOUBLE: pa.float64(),
    Form.BOOLEAN: pa.bool_(),
    Form.TEXT: pa.string(),
    Form.BYTES: pa.binary(),
    Form.BITS: pa.uint64(),
}
# TiDB's type and Avro's -> the form, and the type as rows of other protocols tell it.
_COLUMNS: Final[Mapping[tuple[str, str], tuple[Form, str]]] = {
    ("INT", "int"): (Form.INT, "int"),
    ("INT UNSIGNED", "int"): (Form.INT, "int unsigned"),
    ("INT UNSIGNED", "long"): (Form.LONG, "int unsigned"),
    ("BIGINT", "long"): (Form.LONG, "bigint"),
    ("BIGINT UNSIGNED", "long"): (Form.UNSIGNED, "bigint unsigned"),
    ("BIGINT UNSIGNED", "string"): (Form.TEXT, "bigint unsigned"),
    ("FLOAT", "float"): (Form.FLOAT, "float"),
    ("DOUBLE", "double"): (Form.DOUBLE, "double"),
    ("BIT", "bytes"): (Form.BITS, "bit"),
    ("DECIMAL", "bytes"): (Form.DECIMAL, "decimal"),
    ("DECIMAL", "string"): (Form.TEXT, "decimal"),
    ("TEXT", "string"): (Form.TEXT, "text"),
    ("BLOB", "bytes"): (Form.BYTES, "blob"),
    ("ENUM", "string"): (Form.TEXT, "enum"),
    ("SET", "string"): (Form.TEXT, "set"),
    ("JSON", "string"): (Form.TEXT, "json"),
    ("DATE", "string"): (Form.TEXT, "date"),
    ("DATETIME", "string"): (Form.TEXT, "datetime"),
    ("TIMESTAMP", "string"): (Form.TEXT, "timestamp"),
    ("TIME", "string"): (Form.TEXT, "time"),
    ("YEAR", "int"): (Form.INT, "year"),
    ("TiDBVECTORFloat32", "string"): (Form.TEXT, "vector"),
}


@dataclass(frozen=True, slots=True)
class Field:
    """``null``: which branch of its union NULL is; None: it has no NULL. ``column_type``: None: it
    is no column. ``before``: the fields of the old row."""

    name: str
    form: Form
    null: int | None
    column_type: str | None = None
    precision: int = 0
    scale: int = 0
    before: tuple[Field, ...] = ()

    @property
    def cells(self) -> pa.DataType:
        if self.form is not Form.DECIMAL:
            return _CELLS[self.form]
        of = pa.decimal128 if self.precision <= _NARROW else pa.decimal256
        return of(self.precision, self.scale)


@dataclass(frozen=True, slots=True)
class WriterSchema:
    name: TableName
    fields: tuple[Field, ...]

    @property
    def columns(self) -> tuple[Field, ...]:
        return tuple(each for each in self.fields if each.column_type is not None)

    @property
    def is_by_id(self) -> bool:
        """Whether its columns are in the order of their IDs. TiCDC sorts them where rows have
        checksums, which are computed in that order; else they are as in the table."""
        return self.place(CHECKSUM) is not None

    def place(self, name: str) -> int | None:
        """The number of the field of that name that is no column."""
        names = [None if each.column_type is not None else each.name for each in self.fields]
        return names.index(name) if name in names else None


@lru_cache(maxsize=4096)
def writer_schema(text: str) -> WriterSchema:
    """Raises Unusable."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unusable("it is no JSON") from error
    if not isinstance(found, dict) or found.get("type") != "record":
        raise Unusable("it is no record")
    name, namespace = found.get("name"), found.get("namespace")
    if type(name) is not str or type(namespace) is not str or not name:
        raise Unusable("it has no name or namespace")
    _, _, database = namespace.partition(".")
    if not database:
        raise Unusable(f"its namespace {namespace!r} does not name a database")
    fields = _fields(found)
    columns = {each.name: each.cells for each in fields if each.column_type is not None}
    for before in (each.before for each in fields if each.form is Form.BEFORE):
        if {each.name: each.cells for each in before} != columns:
            raise Unusable("its old row has other columns")
    return WriterSchema(TableName(database, name), fields)


def _fields(record: Mapping[str, Any], *, is_before: bool = False) -> tuple[Field, ...]:
    told = record.get("fields")
    if not isinstance(told, list) or not 0 < len(told) <= _MOST_FIELDS:
        raise Unusable("it has no fields")
    fields = tuple(_field(each, is_before=is_before) for each in told)
    if len({each.name for each in fields}) < len(fields):
        raise Unusable("it has two fields of one name")
    if not any(each.column_type is not None for each in fields):
        raise Unusable("it has no column")
    return fields


def _field(told: Any, *, is_before: bool) -> Field:
    if not isinstance(told, dict) or type(told.get("name")) is not str:
        raise Unusable("a field has no name")
    name, of = told["name"], told.get("type")
    null = None
    if isinstance(of, list):
        if len(of) != 2 or of.count("null") != 1:
            raise Unusable(f"field {name} is another union than of null and one type")
        null = of.index("null")
        of = of[1 - null]
    if type(of) is str and name in _EXTENSION and null is None and not is_before:
        if of != _EXTENSION[name]:
            raise Unusable(f"field {name} is {of}")
        return Field(name, Form(of), None)
    if name == BEFORE and null is not None and not is_before and isinstance(of, dict):
        return Field(name, Form.BEFORE, null, before=_fields(of, is_before=True))
    if not isinstance(of, dict) or not isinstance(of.get("connect.parameters"), dict):
        raise Unusable(f"field {name} does not tell a type of TiDB: TiCDC has not registered it")
    return _column(name, null, of)


def _column(name: str, null: int | None, of: Mapping[str, Any]) -> Field:
    parameters = of["connect.parameters"]
    kind = str(parameters.get("tidb_type")), str(of.get("type"))
    if kind not in _COLUMNS:
        raise Unusable(f"field {name} is of an unknown type: {kind[0]} as {kind[1]}")
    form, text = _COLUMNS[kind]
    if form is Form.DECIMAL:
        precision, scale = (_whole(of.get(each, 0)) for each in ("precision", "scale"))
        is_decimal = of.get("logicalType") == "decimal"
        if not is_decimal or not (0 < precision <= _MOST_DIGITS and 0 <= scale <= precision):
            raise Unusable(f"field {name} is no decimal: precision {precision}, scale {scale}")
        return Field(name, form, null, f"{text}({precision},{scale})", precision, scale)
    if form is Form.BITS:
        text = f"{text}({_length(name, parameters.get('length'))})"
    if text in ("enum", "set"):
        text = definition(text, parameters.get("allowed"))
    return Field(name, form, null, text)


def _whole(told: Any) -> int:
    return told if type(told) is int else -1


def _length(name: str, told: Any) -> int:
    if type(told) is not str or not told.isdecimal() or not 0 < int(told[:3]) <= 64:
        raise Unusable(f"field {name} is a BIT of {told} bits")
    return int(told)


def column_types(fields: Sequence[Field]) -> tuple[tuple[str, str], ...]:
    return tuple((each.name, each.column_type) for each in fields if each.column_type is not None)
