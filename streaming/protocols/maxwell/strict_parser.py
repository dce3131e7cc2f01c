"""The meaning of one message of maxwell, by Python's own JSON parser.

    Maxwell's daemon  {"database":…,"table":…,"type":…,"ts":seconds,"xid":…,"data":{…},"old":{…}}
    TiCDC             the same without ``xid`` and all that stands beside it, a DELETE's row in
                      ``old``; and several of these, one behind the other, in one message

No value has its type. Each sender has its own cells: TiCDC an ENUM's number, the daemon its name.
TiCDC writes none of the members that tell of the binlog, of which the daemon has at least ``xid``
unless it was told to leave them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from coordination.model import TableName
from streaming.protocols.contract import NO_TABLE, OP_DELETE, OP_INSERT, OP_UPDATE, Cells
from streaming.protocols.json_text.strict_json import (
    Malformed,
    Number,
    Repeating,
    as_object,
    as_text,
    as_texts,
    member_integer,
    member_list,
    parse_each,
)
from streaming.protocols.maxwell.document_text import document_text, text_cell
from streaming.protocols.rows.ddl_types import statement_type
from streaming.protocols.rows.parsed_message import (
    EMPTY,
    Bad,
    Ddl,
    Error,
    Event,
    ParsedRow,
    Shape,
    name_in,
    unreadable,
)

OPS: Final = {
    "insert": OP_INSERT,
    "bootstrap-insert": OP_INSERT,
    "update": OP_UPDATE,
    "delete": OP_DELETE,
}
# Around the rows of a table that the daemon reads anew.
_OF_NONE: Final = frozenset(("bootstrap-start", "bootstrap-complete"))
_READ: Final = frozenset(("database", "table", "type", "ts", "data", "old", "sql", "def"))
_TICDCS: Final = frozenset(("database", "table", "type", "ts", "data", "old"))
FIRST_TSO: Final = 1 << 52  # TiCDC gives a DDL its commit-ts, the daemon milliseconds
_MALFORMED: Final = Error("malformed", "not a message of maxwell")
_NO_ROW: Final = Error("malformed", "a row message must name its table and hold its row")
_ENCRYPTED: Final = Error(
    "encrypted", "the message is encrypted: leave Maxwell's `encrypt` out (docs/protocols.md)"
)


def read(value: bytes | None, commit_ts: int, *, is_first_part: bool) -> list[Event | None]:
    """One for each object of the message, at least one; None: it says nothing about a table. A
    message is understood as a whole or not at all. ``is_first_part``: TiCDC sends each DDL to all
    partitions of a topic, and it counts once."""
    if value is None:
        return [Bad(NO_TABLE, EMPTY)]
    try:
        objects = parse_each(value)
    except Malformed:
        return [Bad(NO_TABLE, unreadable(value, _MALFORMED))]
    try:
        found = [event(fields, commit_ts, is_first_part=is_first_part) for fields, _ in objects]
    except Malformed:
        found = [Bad(name_in(objects[0][0]), _MALFORMED, is_row=_is_row(objects[0][0]))]
        if len(objects) > 1:
            return [Bad(NO_TABLE, _MALFORMED)]
    bad = next((each for each in found if isinstance(each, Bad)), None)
    return found if bad is None or len(found) == 1 else [Bad(NO_TABLE, bad.error)]


def event(fields: Mapping[str, Any], commit_ts: int, *, is_first_part: bool) -> Event | None:
    """The meaning of an object. Raises ``Malformed``."""
    if isinstance(fields, Repeating) and fields.twice & _READ:
        raise Malformed
    get = fields.get
    name = TableName(as_text(get("database")) or "", as_text(get("table")) or "")
    kind = as_text(get("type"))
    if kind is None:
        raise Malformed
    if kind in _OF_NONE:
        return None
    op = OPS.get(kind)
    if op is not None:
        return _row(fields, name, op, commit_ts)
    query = as_text(get("sql"))
    if query is None or kind.isupper():  # so are canal-json's and simple's types written
        return Bad(name, Error("unknown-type", f"unknown message type {kind}"))
    told_ts = member_integer(fields, "ts")
    if told_ts is not None and told_ts >= FIRST_TSO:
        return Ddl(name, commit_ts, statement_type(query), query) if is_first_part else None
    return _ddl_of_daemon(fields, name, kind, query, commit_ts)


def _row(fields: Mapping[str, Any], name: TableName, op: int, commit_ts: int) -> Event:
    told, before = _side(fields, "data"), _side(fields, "old")
    is_daemons = names_daemon(fields)
    if op == OP_DELETE:
        told, before = (before if told is None else told), None
    elif op == OP_INSERT:
        before = None
    if not told or not name.schema or not name.table:
        error = _ENCRYPTED if "encrypted" in fields else _NO_ROW
        return Bad(name, error, is_row=True)
    if not is_daemons and _has_parts(told):
        is_daemons = True
    cells = _daemons_cells if is_daemons else as_texts
    keys = member_list(fields, "primary_key_columns")
    if keys is not None and any(type(each) is not str for each in keys):
        raise Malformed
    values, old = cells(told), None if before is None else cells(before)
    only_old = () if old is None else tuple(each for each in old if each not in values)
    names = None if keys is None else tuple(keys)
    return ParsedRow(
        name=name,
        op=op,
        commit_ts=commit_ts,
        shape=shape_of(tuple(values), names, only_old, is_daemons),
        values=tuple(values.values()),
        old=old,
        error=None,
    )


def names_daemon(fields: Mapping[str, Any]) -> bool:
    """Whether the names of a row's members are the daemon's alone."""
    is_deleted = fields.get("type") == "delete" and fields.get("data") is not None
    return is_deleted or not fields.keys() <= _TICDCS


@lru_cache(maxsize=256)
def shape_of(
    columns: tuple[str, ...],
    keys: tuple[str, ...] | None,
    only_old: tuple[str, ...],
    is_daemons: bool,
) -> Shape:
    """One object for many rows."""
    return Shape(columns, (), keys, only_old, cells=Cells.MAXWELL if is_daemons else Cells.ENCODED)


def _side(fields: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    told = fields.get(name)
    if told is None:
        return None
    if isinstance(told, Repeating):
        raise Malformed
    return as_object(told)


def _has_parts(values: Mapping[str, Any]) -> bool:
    return any(isinstance(each, dict | list | bool) for each in values.values())


def _daemons_cells(values: Mapping[str, Any]) -> Mapping[str, str | None]:
    return {name: _daemons_cell(value) for name, value in values.items()}


def _daemons_cell(value: Any) -> str | None:
    if value is None or isinstance(value, Number):
        return as_text(value)
    return text_cell(value) if type(value) is str else document_text(value)


def _ddl_of_daemon(
    fields: Mapping[str, Any], name: TableName, kind: str, query: str, commit_ts: int
) -> Event:
    """A statement about several tables comes once for each of them, whole: only what it says of
    this one counts."""
    if kind == "table-drop":
        query = f"DROP TABLE {_quoted(name)}"
    elif kind == "table-alter" and statement_type(query) == "RENAME":
        was, name = (name_in(as_object(fields.get(each))) for each in ("old", "def"))
        if not was.table or not name.table:
            raise Malformed
        query = f"RENAME TABLE {_quoted(was)} TO {_quoted(name)}"
    return Ddl(name, commit_ts, statement_type(query), query)


def _quoted(name: TableName) -> str:
    return ".".join("`" + each.replace("`", "``") + "`" for each in (name.schema, name.table))


def _is_row(fields: Mapping[str, Any]) -> bool:
    return fields.get("type") in OPS and not (isinstance(fields, Repeating) and fields.twice)


def one_object_each(message: bytes, indexes: Sequence[int]) -> list[bytes]:
    """For each of these rows of a message its own bytes."""
    try:
        objects = parse_each(message)
    except Malformed:
        return [message] * len(indexes)
    if len(objects) == 1:
        return [message] * len(indexes)
    return [objects[index][1] if index < len(objects) else message for index in indexes]
