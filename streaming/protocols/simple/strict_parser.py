"""One message of simple by Python's own JSON parser: the meaning of any message, however rare.

Slow and strict, as `canal_json/strict_parser.py`. ``row_template.py`` reads the plain rows of a
table many at a time and hands over the others; a row that it takes must mean the same here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfoNotFoundError

from coordination.model import TableName
from sinks.types.casts.encoded_cells import UNNAMED_ZONE
from sinks.types.time_zones import zone_of
from streaming.protocols.contract import (
    DAMAGED,
    NO_TABLE,
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
    Cells,
)
from streaming.protocols.json_text.strict_json import (
    Malformed,
    Number,
    Repeating,
    as_object,
    as_text,
    member_boolean,
    member_integer,
    parse,
)
from streaming.protocols.rows.parsed_message import (
    EMPTY,
    Bad,
    Ddl,
    Error,
    Event,
    ParsedRow,
    SchemaEvent,
    Shape,
    WatermarkEvent,
    name_in,
    reduced,
    unreadable,
)
from streaming.protocols.simple.told_schema import told_table

OPS: Final = {"DELETE": OP_DELETE, "INSERT": OP_INSERT, "UPDATE": OP_UPDATE}
_DDL_TYPES: Final = frozenset(
    ("CREATE", "RENAME", "CINDEX", "DINDEX", "ERASE", "TRUNCATE", "ALTER", "QUERY")
)
_READ: Final = frozenset(
    (
        *("database", "table", "type", "sql", "commitTs", "schemaVersion", "data", "old"),
        *("claimCheckLocation", "handleKeyOnly", "tableSchema", "preTableSchema", "checksum"),
    )
)
NO_CRC: Final = 1 << 32  # all are below it
_DATABASE: Final = re.compile(
    r"\s*(?:/\*.*?\*/\s*)*(?:CREATE|DROP|ALTER)\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?"
    r"(?:`((?:[^`]|``)+)`|([\w$]+))",
    re.IGNORECASE | re.DOTALL,
)
_LOCATED: Final = frozenset(("location", "value"))
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_MALFORMED: Final = Error("malformed", "not a message of simple")
_NO_COMMIT_TS: Final = Error("no-commit-ts", "no commitTs above zero")


def read(value: bytes | None) -> Event:
    if value is None:
        return Bad(NO_TABLE, EMPTY)
    try:
        fields = parse(value)
    except Malformed:
        return Bad(NO_TABLE, unreadable(value, _MALFORMED))
    try:
        return event(fields)
    except Malformed:
        return Bad(name_in(fields), _MALFORMED, is_row=_is_row(fields))


def event(fields: Mapping[str, Any]) -> Event:
    """The meaning of an object. Raises ``Malformed``."""
    if isinstance(fields, Repeating) and fields.twice & _READ:
        raise Malformed
    kind = fields.get("type")
    if type(kind) is not str:
        raise Malformed
    ts = member_integer(fields, "commitTs")
    if kind == "BOOTSTRAP":
        return SchemaEvent(told_table(fields.get("tableSchema")))
    op = OPS.get(kind)
    if op is None and kind != "WATERMARK" and kind not in _DDL_TYPES:
        return Bad(NO_TABLE, Error("unknown-type", f"unknown message type {kind}"))
    if ts is None or ts <= 0:  # at or below every checkpoint: it would vanish
        return Bad(name_in(fields), _NO_COMMIT_TS, is_row=op is not None)
    if kind == "WATERMARK":
        return WatermarkEvent(ts)
    if op is None:
        return _ddl(fields, kind, ts)
    return _row(fields, op, ts)


def _ddl(fields: Mapping[str, Any], kind: str, ts: int) -> Ddl:
    told = [
        told_table(fields[each])
        for each in ("tableSchema", "preTableSchema")
        if fields.get(each) is not None
    ]
    query = as_text(fields.get("sql"))
    name = told[0].name if told else _database_in(query or "")
    return Ddl(name, ts, kind, query, tuple(told))


def _database_in(query: str) -> TableName:
    """The database that a statement without a table is about: no member of the message says it."""
    found = _DATABASE.match(query)
    if found is None:
        return NO_TABLE
    quoted, bare = found.groups()
    return TableName(bare if quoted is None else quoted.replace("``", "`"), "")


def _row(fields: Mapping[str, Any], op: int, ts: int) -> ParsedRow:
    name = TableName(_text(fields, "database"), _text(fields, "table"))
    version = member_integer(fields, "schemaVersion")
    new, old = (_cells(fields.get(each)) for each in ("data", "old"))
    values = old if op == OP_DELETE else new
    if values is None or not values or version is None or not name.table:
        raise Malformed
    only_old: tuple[str, ...] = ()
    if op == OP_UPDATE and old is not None:
        only_old = tuple(each for each in old if each not in values)
    return ParsedRow(
        name=name,
        op=op,
        commit_ts=ts,
        shape=_shape(tuple(values), only_old, version),
        values=tuple(values.values()),
        old=old if op == OP_UPDATE else None,
        error=None if op == OP_DELETE else _reduced(fields),
        checksum=_checksum(fields.get("checksum"), "previous" if op == OP_DELETE else "current"),
    )


def _checksum(found: Any, of: str) -> int | None:
    """The checksum of the row that ``data`` of a block has: a DELETE has its old row there."""
    if found is None:
        return None
    told = as_object(found)
    return checksum_of(member_integer(told, of) or 0, corrupted=member_boolean(told, "corrupted"))


def checksum_of(value: int, *, corrupted: bool) -> int:
    """As a block has it. Raises Malformed."""
    if not 0 <= value < NO_CRC:
        raise Malformed
    return DAMAGED if corrupted else value


@lru_cache(maxsize=256)
def _shape(columns: tuple[str, ...], only_old: tuple[str, ...], version: int) -> Shape:
    """One object for many rows."""
    return Shape(columns, (), None, only_old, cells=Cells.ENCODED, version=version)


def _cells(found: Any) -> Mapping[str, str | None] | None:
    if found is None:
        return None
    if isinstance(found, Repeating):
        raise Malformed
    return {name: cell_of(value) for name, value in as_object(found).items()}


def cell_of(value: Any) -> str | None:
    """Raises Malformed."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, Number | bool):
        return as_text(value)
    if type(value) is not dict or value.keys() != _LOCATED:
        raise Malformed
    zone, text = value["location"], value["value"]
    if type(zone) is not str or type(text) is not str:
        raise Malformed
    if not _is_zone(zone) or _PLAIN.fullmatch(text) is None:
        raise Malformed
    return f'{{"location":"{zone}","value":"{text}"}}'


@lru_cache(maxsize=64)
def _is_zone(name: str) -> bool:
    if name in ("", UNNAMED_ZONE):
        return bool(name)
    try:
        zone_of(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return _PLAIN.fullmatch(name) is not None


def _reduced(fields: Mapping[str, Any]) -> Error | None:
    is_cut = member_boolean(fields, "handleKeyOnly")
    return reduced(as_text(fields.get("claimCheckLocation")), is_cut=is_cut)


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if type(value) is not str:
        raise Malformed
    return value


def _is_row(fields: Mapping[str, Any]) -> bool:
    if isinstance(fields, Repeating) and fields.twice & _READ:
        return False
    return fields.get("type") in OPS if type(fields.get("type")) is str else False
