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
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NoReturn

from coordination.model import TableName
from streaming.protocols.canal_json.parsed_message import (
    Bad,
    Ddl,
    Error,
    Event,
    ParsedRow,
    Shape,
    WatermarkEvent,
)
from streaming.protocols.contract import NO_TABLE, OP_DELETE, OP_INSERT, OP_UPDATE

OPS: Final = {"DELETE": OP_DELETE, "INSERT": OP_INSERT, "UPDATE": OP_UPDATE}
MAX_DEPTH: Final = 100  # Python's parser recurses
_WATERMARK: Final = "TIDB_WATERMARK"
_INT64: Final = range(-(2**63), 2**63)
_READ: Final = frozenset(
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
_TEXTS: Final = frozenset((str, type(None)))
_NOTHING: Final[Mapping[str, Any]] = {}
# A text without an end goes to the message's: else each quote in it would be looked at as another.
_NESTING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


_EMPTY = Error("empty", "the message has no value")
_MALFORMED = Error("malformed", "not a canal-json message")
_NO_WATERMARK_TS = Error("malformed", "a watermark without _tidb.watermarkTs")
_NO_COMMIT_TS = Error(
    "no-commit-ts",
    "no _tidb.commitTs above zero: set enable-tidb-extension=true in TiCDC's sink URI",
)
_NOT_ONE_ROW = Error("malformed", "a row message must name its table and hold one row")
_CLAIM_CHECK = Error("claim-check", "the row is in claim-check storage, which is not supported yet")
_HANDLE_KEY_ONLY = Error(
    "handle-key-only", "only the key of a large row was sent: not supported yet"
)


class Malformed(ValueError):
    """Not a canal-json message."""


class Number(str):
    __slots__ = ()


class Repeating(dict[str, Any]):
    """An object that has names twice: ``twice``."""

    twice: frozenset[str] = frozenset()


def read(value: bytes | None) -> Event:
    if value is None:
        return Bad(NO_TABLE, _EMPTY)
    try:
        fields = parse(value)
    except Malformed:
        return Bad(_name_in_head(value), _MALFORMED, is_row=_is_row_by_head(value))
    try:
        return event(fields)
    except Malformed:
        return Bad(_name_in(fields), _MALFORMED, is_row=_is_row(fields))


def parse(value: bytes) -> dict[str, Any]:
    """The object that the message is; numbers as ``Number``.

    Raises ``Malformed`` where it is none.
    """
    try:
        text = value.decode()
        if _depth_exceeds(text, MAX_DEPTH):
            raise Malformed
        found = _DECODER.decode(text)
        if _SURROGATE.search(value) is not None:
            json.dumps(found, ensure_ascii=False).encode()  # refuses half a pair
    except (ValueError, RecursionError) as error:
        raise Malformed from error
    if not isinstance(found, dict):
        raise Malformed
    return found


def key_names(fields: Mapping[str, Any]) -> tuple[str, ...] | None:
    names = _list(fields, "pkNames")
    if names is None:
        return None
    if not _TEXT_ONLY.issuperset(map(type, names)):
        raise Malformed
    return tuple(names)


def event(fields: Mapping[str, Any]) -> Event:
    """The meaning of an object. Raises ``Malformed``."""
    if isinstance(fields, Repeating) and fields.twice & _READ:
        raise Malformed
    get = fields.get
    name = TableName(_text(get("database")) or "", _text(get("table")) or "")
    kind, is_ddl, query = _text(get("type")), _boolean(fields, "isDdl"), _text(get("sql"))
    tidb = _object(fields, "_tidb")
    commit_ts, watermark_ts = _integer(tidb, "commitTs"), _integer(tidb, "watermarkTs")
    error = _reduced(tidb) if len(tidb) > 1 else None
    data, old = _rows(fields, "data"), _rows(fields, "old")
    types, keys = _texts(_object(fields, "mysqlType")), key_names(fields)
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
        shape=_shape_of(values, before, types, keys),
        values=tuple(values.values()),
        old=before,
        error=None if op == OP_DELETE else error,  # of a DELETE the key is all that counts
    )


def _shape_of(
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


def _rows(fields: Mapping[str, Any], name: str) -> list[Mapping[str, str | None] | None]:
    rows = _list(fields, name) or []
    return [None if row is None else _texts(_checked_object(row)) for row in rows]


def _texts(values: Mapping[str, Any]) -> Mapping[str, str | None]:
    """Cells as text; the same object where they are."""
    if _TEXTS.issuperset(map(type, values.values())):
        return values
    return {name: _text(value) for name, value in values.items()}


def _text(value: Any) -> str | None:
    if type(value) is str or value is None:
        return value
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    raise Malformed


def _boolean(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is True or value is False or value is None:
        return value is True
    raise Malformed


def _integer(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, Number) or len(value) > 20 or not value.lstrip("-").isdigit():
        raise Malformed
    number = int(value)
    if number not in _INT64:
        raise Malformed
    return number


def _list(fields: Mapping[str, Any], name: str) -> list[Any] | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, list):
        raise Malformed
    return value


def _object(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    return _NOTHING if value is None else _checked_object(value)


def _checked_object(value: Any) -> Mapping[str, Any]:
    if type(value) is not dict:
        raise Malformed
    return value


def _reduced(tidb: Mapping[str, Any]) -> Error | None:
    """Rows that were cut to their key because they were too large."""
    is_cut = _boolean(tidb, "onlyHandleKey")
    if _text(tidb.get("claimCheckLocation")) is not None:
        return _CLAIM_CHECK
    return _HANDLE_KEY_ONLY if is_cut else None


def _name_in(fields: Mapping[str, Any]) -> TableName:
    schema, table = fields.get("database"), fields.get("table")
    return TableName(schema, table) if type(schema) is str and type(table) is str else NO_TABLE


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
    if isinstance(fields, Repeating) and fields.twice & _READ:
        return False
    kind = fields.get("type")
    return type(kind) is str and kind in OPS and fields.get("isDdl") in (None, False)


def _is_row_by_head(value: bytes) -> bool:
    """False where two messages may be in one."""
    return _ROW_HEAD.match(value) is not None and value.count(b'"isDdl":') == 1


def _depth_exceeds(text: str, limit: int) -> bool:
    if text.count("[") + text.count("{") <= limit:
        return False
    depth = 0
    for found in _NESTING.finditer(text):
        mark = found[0][0]
        depth += (mark in "[{") - (mark in "]}")
        if depth > limit:
            return True
    return False


def _refuse(_constant: str) -> NoReturn:
    raise Malformed


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    counts = Counter(name for name, _ in pairs)
    repeating = Repeating(found)
    repeating.twice = frozenset(name for name, count in counts.items() if count > 1)
    return repeating


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=Number, parse_float=Number, parse_constant=_refuse
)
