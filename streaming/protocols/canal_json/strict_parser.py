"""One canal-json message by Python's own JSON parser: the meaning of any message, however rare.

Slow and strict. ``row_template.py`` reads the plain rows of a table many at a time and hands over
the others; a row that it takes must mean the same here.

Stricter than JSON as others read it, so that nothing is guessed. These make a message malformed: a
name that stands twice among those we read, ``NaN``, half a surrogate pair, an object or an array
where a value should be, and nesting below ``MAX_DEPTH``. A number or a truth value in a column is
its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from coordination.model import TableName
from streaming.protocols.contract import NO_TABLE, OP_DELETE, OP_INSERT, OP_UPDATE
from streaming.protocols.json_text.strict_json import (
    Malformed,
    Repeating,
    as_object,
    as_text,
    as_texts,
    member_boolean,
    member_integer,
    member_list,
    member_object,
    parse,
)
from streaming.protocols.rows.parsed_message import (
    EMPTY,
    Bad,
    Ddl,
    Error,
    Event,
    ParsedRow,
    Shape,
    WatermarkEvent,
    name_in,
    reduced,
    unreadable,
)

OPS: Final = {"DELETE": OP_DELETE, "INSERT": OP_INSERT, "UPDATE": OP_UPDATE}
_WATERMARK: Final = "TIDB_WATERMARK"
READ: Final = frozenset(
    ("database", "table", "pkNames", "isDdl", "type", "sql", "mysqlType", "old", "data", "_tidb")
)
_TEXT: Final = rb'"((?:[^"\\]|\\.)*+)"'
_HEAD: Final = re.compile(rb'\{"id":\d+,"database":' + _TEXT + rb',"table":' + _TEXT)
# On to where a message says that it is a row's.
_ROW_HEAD: Final = re.compile(
    _HEAD.pattern
    + rb',"pkNames":(?:null|\[[^\]]*+\]),"isDdl":false,"type":"(?:INSERT|UPDATE|DELETE)"'
)
_TEXT_ONLY: Final = frozenset((str,))

MALFORMED = Error("malformed", "not a canal-json message")
_NO_WATERMARK_TS = Error("malformed", "a watermark without _tidb.watermarkTs")
_NO_COMMIT_TS = Error(
    "no-commit-ts",
    "no _tidb.commitTs above zero: set enable-tidb-extension=true in TiCDC's sink URI",
)
_NOT_ONE_ROW = Error("malformed", "a row message must name its table and hold one row")


def read(value: bytes | None) -> Event:
    if value is None:
        return Bad(NO_TABLE, EMPTY)
    try:
        fields = parse(value)
    except Malformed:
        error = unreadable(value, MALFORMED)
        return Bad(_name_in_head(value), error, is_row=_is_row_by_head(value))
    try:
        return event(fields)
    except Malformed:
        return Bad(name_in(fields), MALFORMED, is_row=_is_row(fields))


def key_names(fields: Mapping[str, Any]) -> tuple[str, ...] | None:
    names = member_list(fields, "pkNames")
    if names is None:
        return None
    if not _TEXT_ONLY.issuperset(map(type, names)):
        raise Malformed
    return tuple(names)


def event(fields: Mapping[str, Any]) -> Event:
    """The meaning of an object. Raises ``Malformed``."""
    if isinstance(fields, Repeating) and fields.twice & READ:
        raise Malformed
    get = fields.get
    name = TableName(as_text(get("database")) or "", as_text(get("table")) or "")
    kind, is_ddl, query = as_text(get("type")), member_boolean(fields, "isDdl"), as_text(get("sql"))
    tidb = member_object(fields, "_tidb")
    commit_ts, watermark_ts = member_integer(tidb, "commitTs"), member_integer(tidb, "watermarkTs")
    is_cut, place = member_boolean(tidb, "onlyHandleKey"), as_text(tidb.get("claimCheckLocation"))
    data, old = rows_in(fields, "data"), rows_in(fields, "old")
    types, keys = as_texts(member_object(fields, "mysqlType")), key_names(fields)
    if kind is None:
        raise Malformed
    if kind == _WATERMARK:
        return Bad(name, _NO_WATERMARK_TS) if watermark_ts is None else WatermarkEvent(watermark_ts)
    op = OPS.get(kind)
    if not is_ddl and op is None:
        return Bad(name, Error("unknown-type", f"unknown message type {kind}"))
    if commit_ts is None or commit_ts <= 0:  # at or below every checkpoint: it would vanish
        return Bad(name, _NO_COMMIT_TS, is_row=not is_ddl and op is not None)
    if op is None or is_ddl:
        return Ddl(name, commit_ts, kind, query)
    values = data[0] if len(data) == 1 else None
    if values is None or not name.table:
        return Bad(name, _NOT_ONE_ROW, is_row=True)
    before = old[0] if old and op == OP_UPDATE else None
    return ParsedRow(
        name=name,
        op=op,
        commit_ts=commit_ts,
        shape=shape_of(values, before, types, keys),
        values=tuple(values.values()),
        old=before,
        error=None if op == OP_DELETE else reduced(place, is_cut=is_cut),  # its key counts alone
    )


def shape_of(
    values: Mapping[str, str | None],
    old: Mapping[str, str | None] | None,
    types: Mapping[str, str | None],
    keys: tuple[str, ...] | None,
) -> Shape:
    columns = tuple(values)
    only_old: tuple[str, ...] = ()
    if old is not None and not old.keys() <= values.keys():
        only_old = tuple(column for column in old if column not in values)
    return _shape(columns, tuple(map(types.get, columns)), keys, only_old)


@lru_cache(maxsize=256)
def _shape(
    columns: tuple[str, ...],
    types: tuple[str | None, ...],
    keys: tuple[str, ...] | None,
    only_old: tuple[str, ...],
) -> Shape:
    """One object for many rows."""
    pairs = zip(columns, types, strict=True)
    known = tuple((column, text) for column, text in pairs if text is not None)
    return Shape(columns, known, keys, only_old)


def rows_in(fields: Mapping[str, Any], name: str) -> list[Mapping[str, str | None] | None]:
    rows = member_list(fields, name) or []
    return [None if row is None else as_texts(as_object(row)) for row in rows]


def _name_in_head(value: bytes) -> TableName:
    """As TiCDC begins a message, whatever comes after."""
    head = _HEAD.match(value)
    if head is None:
        return NO_TABLE
    try:
        schema, table = (json.loads(f'"{text.decode()}"') for text in head.groups())
        (schema + table).encode()
    except ValueError:
        return NO_TABLE
    return TableName(schema, table)


def _is_row(fields: Mapping[str, Any]) -> bool:
    if isinstance(fields, Repeating) and fields.twice & READ:
        return False
    kind = fields.get("type")
    return type(kind) is str and kind in OPS and fields.get("isDdl") in (None, False)


def _is_row_by_head(value: bytes) -> bool:
    """False where two messages may be in one."""
    return _ROW_HEAD.match(value) is not None and value.count(b'"isDdl":') == 1
