"""The meaning of one message of Debezium, by Python's own JSON parser.

TiCDC's have a commit-ts in ``source``, and watermarks with ``op`` m. Messages of Debezium's own
connectors have neither: their reader gives the commit-ts (`source/resolved/`). The order of the
latter is that of their topic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from coordination.model import TableName
from sinks.ddl.text.logged import SentAt
from streaming.protocols.contract import (
    NO_TABLE,
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
    OTHER_SOURCE,
    SNAPSHOT,
    Cells,
)
from streaming.protocols.debezium.columns import Cell, NotRead, cell_of, mysql_type, reader_of
from streaming.protocols.debezium.envelope import (
    Fields,
    Schema,
    key_names,
    keyed,
    opened,
)
from streaming.protocols.json_text.strict_json import (
    Malformed,
    Repeating,
    as_object,
    as_text,
    member_integer,
    member_list,
    member_object,
)
from streaming.protocols.rows.ddl_types import statement_type
from streaming.protocols.rows.parsed_message import (
    Bad,
    Ddl,
    Error,
    Event,
    ParsedRow,
    Shape,
    WatermarkEvent,
    unreadable,
)

OPS: Final = {"c": OP_INSERT, "r": OP_INSERT, "u": OP_UPDATE, "d": OP_DELETE}
_MALFORMED: Final = Error("malformed", "not a message of Debezium")
_NO_COMMIT_TS: Final = Error(
    "no-commit-ts",
    "no source.commit_ts above zero: it is not TiCDC's. Messages of Debezium's own connectors are "
    "read with at-least-once=true, and without enable-tidb-extension",
)
_NO_ROW: Final = Error("malformed", "a row message must name its table and hold its row")
_WATERMARK: Final = Error(
    "with-extension",
    "a watermark of TiCDC's TiDB extension, which a changefeed with at-least-once=true does not "
    "read. Another changefeed, with another changefeed-id and sink-uri, has TiCDC's own order: set "
    "enable-tidb-extension=true there, leave at-least-once out, and let TiCDC begin a new topic",
)
_CONNECTORS: Final = frozenset(("mysql", "mariadb", "TiCDC"))
_OF_ANOTHER: Final = (
    "it is of Debezium's {} connector, and those for MySQL and MariaDB alone are read: leave its "
    "topics out of `topics`"
)
_TRUNCATE: Final = "TRUNCATE TABLE "
_ID: Final = re.compile(r'"((?:[^"]|"")*)"\."((?:[^"]|"")*)"')
# Of topics that have no rows: heartbeats, and the beginnings and ends of transactions.
_HEARTBEAT: Final = frozenset(("ts_ms",))
_TRANSACTION: Final = frozenset(("status", "id", "event_count"))


def read(message: bytes, commit_ts: int | None) -> Event | None:
    """None: it says nothing about a table. ``commit_ts``: its reader's, None where TiCDC has given
    one."""
    try:
        key, value = keyed(message)
    except Malformed:
        return Bad(NO_TABLE, _MALFORMED)
    if not value:  # a tombstone, for the compaction of its topic
        return None
    try:
        envelope = opened(value)
    except Malformed:
        return Bad(NO_TABLE, unreadable(value, _MALFORMED))
    payload = envelope.payload
    try:
        return _event(key, payload, envelope.schema, commit_ts)
    except Malformed:
        op = payload.get("op")
        is_row = type(op) is str and op in OPS and "ddl" not in payload
        return Bad(_name_in(payload), _MALFORMED, is_row=is_row)


def _event(
    key: bytes | None, payload: Fields, schema: Schema | None, numbered_ts: int | None
) -> Event | None:
    if _is_of_none(payload):
        return None
    source = member_object(payload, "source")
    if isinstance(source, Repeating):
        raise Malformed
    told_ts = member_integer(source, "commit_ts")
    name = TableName(as_text(source.get("db")) or "", as_text(source.get("table")) or "")
    if (error := _not_ours(source, told_ts, numbered_ts)) is not None:
        return Bad(name, error)
    commit_ts = told_ts if numbered_ts is None else numbered_ts
    assert commit_ts is not None
    op = as_text(payload.get("op"))
    if op == "m":
        return WatermarkEvent(commit_ts) if numbered_ts is None else Bad(name, _WATERMARK)
    if "ddl" in payload:
        return _ddl(payload, source, name, commit_ts)
    if op == "t" and numbered_ts is not None and name.table:
        return Ddl(name, commit_ts, "TRUNCATE", _at_its_place(_TRUNCATE + _quoted(name), source))
    return _row(_Told(key, payload, schema), name, op, commit_ts)


def _not_ours(source: Fields, told_ts: int | None, numbered_ts: int | None) -> Error | None:
    if numbered_ts is None:
        return _NO_COMMIT_TS if told_ts is None or told_ts <= 0 else None
    connector = source.get("connector")
    if connector is None or connector in _CONNECTORS:
        return None
    return Error(OTHER_SOURCE, _OF_ANOTHER.format(connector))


def _is_of_none(payload: Fields) -> bool:
    names = payload.keys()
    return names == _HEARTBEAT or (names >= _TRANSACTION and "op" not in names)


@dataclass(frozen=True, slots=True)
class _Told:
    key: bytes | None
    payload: Fields
    schema: Schema | None


def _row(message: _Told, name: TableName, told_op: str | None, commit_ts: int) -> Event:
    payload, schema = message.payload, message.schema
    op = OPS.get(told_op or "")
    if op is None:
        return Bad(name, Error("unknown-type", f"unknown op {told_op}"))
    told = payload.get("before" if op == OP_DELETE else "after")
    if not isinstance(told, dict) or not told or not name.table:
        return Bad(name, _NO_ROW, is_row=True)
    told_old = payload.get("before") if op == OP_UPDATE else None
    before = None if told_old is None else as_object(told_old)
    columns = tuple(told)
    only_old = () if before is None else tuple(each for each in before if each not in told)
    rows = () if schema is None else schema.rows
    shape, readers = _shape(columns, only_old, key_names(message.key), _Rows(rows))
    not_read: dict[str, str] = {}
    values = tuple(_cells(as_object(told), readers, not_read).values())
    old = None if before is None else _cells(before, readers, not_read)
    return ParsedRow(
        name=name,
        op=op,
        commit_ts=commit_ts,
        shape=shape,
        values=values,
        old=old,
        error=_not_read(not_read) if not_read else None,
    )


class _Rows:
    """A schema's fields, by identity: the same object for the rows of one schema."""

    __slots__ = ("fields",)

    def __init__(self, fields: tuple[tuple[str, Fields], ...]) -> None:
        self.fields = fields

    def __hash__(self) -> int:
        return id(self.fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rows) and self.fields is other.fields


@lru_cache(maxsize=256)
def _shape(
    columns: tuple[str, ...],
    only_old: tuple[str, ...],
    keys: tuple[str, ...] | None,
    rows: _Rows,
) -> tuple[Shape, Mapping[str, Cell]]:
    """One object for many rows, and how some columns' cells are read."""
    told = dict(rows.fields)
    types = {name: mysql_type(told[name]) for name in columns if name in told}
    known = tuple((name, text) for name, text in types.items() if text is not None)
    found = {name: reader_of(told[name]) for name in (*columns, *only_old) if name in told}
    readers = {name: each for name, each in found.items() if each is not None}
    return Shape(columns, known, keys, only_old, cells=Cells.CONNECT), readers


def _cells(
    values: Fields, readers: Mapping[str, Cell], not_read: dict[str, str]
) -> Mapping[str, str | None]:
    """``not_read`` gets why a column has no cell."""
    found: dict[str, str | None] = {}
    for name, value in values.items():
        try:
            found[name] = None if value is None else readers.get(name, cell_of)(value)
        except NotRead as error:
            found[name], not_read[name] = None, str(error)
    return found


def _not_read(columns: Mapping[str, str]) -> Error:
    why = "; ".join(f"column {name}: {text}" for name, text in columns.items())
    return Error(
        "malformed",
        f"{why}: that is not read. docs/protocols.md says which settings of the connector are",
    )


def _ddl(payload: Fields, source: Fields, name: TableName, commit_ts: int) -> Event | None:
    query = as_text(payload.get("ddl"))
    changes = member_list(payload, "tableChanges") or []
    schema = as_text(payload.get("databaseName")) or name.schema
    tables = [_id_of(as_object(each)) for each in changes]
    table = name.table if name.table and "," not in name.table else ""
    if not table and len(tables) == 1 and tables[0] is not None:
        schema, table = tables[0]
    named = TableName(schema, table)
    if not query:
        return None  # a connector tells tables that it has recovered
    kind = statement_type(query)
    if as_text(source.get("snapshot")) not in (None, "false"):
        if kind != "CREATE":
            return None  # before it copies tables, a connector writes how they would be made anew
        kind = SNAPSHOT
    return Ddl(named, commit_ts, kind, _at_its_place(query, source))


def _at_its_place(query: str, source: Fields) -> str:
    place = SentAt.of(source.get("pos"), source.get("file"))
    return query if place is None or not place.file else place.with_place(query)


def _quoted(name: TableName) -> str:
    return ".".join("`" + each.replace("`", "``") + "`" for each in (name.schema, name.table))


def _id_of(change: Fields) -> tuple[str, str] | None:
    found = _ID.fullmatch(as_text(change.get("id")) or "")
    return None if found is None else (found[1].replace('""', '"'), found[2].replace('""', '"'))


def _name_in(payload: Fields) -> TableName:
    source = payload.get("source")
    if not isinstance(source, dict):
        return NO_TABLE
    schema, table = source.get("db"), source.get("table")
    return TableName(schema, table) if type(schema) is str and type(table) is str else NO_TABLE
