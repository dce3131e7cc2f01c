"""One message of canal-json without the TiDB extension, from TiCDC or from Alibaba Canal.

It has neither a commit-ts nor watermarks: its reader gives the commit-ts (`source/resolved/`).
Canal puts several rows of a statement into one message, TiCDC one. Python's own parser reads each
message whole, as strictly as in `strict_parser`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from coordination.model import TableName
from sinks.ddl.text.logged import SentAt
from sinks.ddl.text.other_statements import for_one_statement
from sinks.ddl.text.plain_text import first_words
from streaming.protocols.canal_json.strict_parser import (
    MALFORMED,
    OPS,
    READ,
    key_names,
    rows_in,
    shape_of,
)
from streaming.protocols.contract import NO_TABLE, OP_UPDATE
from streaming.protocols.json_text.strict_json import (
    Malformed,
    Repeating,
    as_text,
    as_texts,
    member_boolean,
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
    name_in,
)

_NO_ROWS: Final = Error("malformed", "a row message must name its table and hold its rows")
_OLDS: Final = Error("malformed", "an UPDATE has another number of rows before than after it")
_MOST_WORDS: Final = 8
_WATERMARK: Final = "TIDB_WATERMARK"
# Of Canal, beside rows and DDLs. It sends the rows of an XA transaction where they were prepared.
_OF_NONE: Final = frozenset(("XACOMMIT", "GTID", "MHEARTBEAT"))
_QUERY: Final = "QUERY"
_ROLLED_BACK: Final = (
    "XA ROLLBACK: Canal has sent the rows of that transaction before, and they stay: compare the "
    "tables with the database (tidelake diff)"
)
# The text of a statement whose rows come besides (binlog_rows_query_log_events,
# binlog_annotate_row_events).
_ROWS: Final = frozenset(
    ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "SELECT", "CALL", "EXECUTE", "IMPORT")
)
WITH_EXTENSION: Final = Error(
    "with-extension",
    "a watermark of TiCDC's TiDB extension, which a changefeed with at-least-once=true does not "
    "read. Another changefeed, with another changefeed-id and sink-uri, is exact with it: set "
    "enable-tidb-extension=true there, leave at-least-once out, and let TiCDC begin a new topic",
)


def read(value: bytes | None, commit_ts: int) -> Sequence[Event | None]:
    """What the message says, at least one event; None: nothing about a table."""
    if value is None:
        return [Bad(NO_TABLE, EMPTY)]
    try:
        fields = parse(value)
    except Malformed:
        return [Bad(NO_TABLE, MALFORMED)]
    try:
        return _events(fields, commit_ts)
    except Malformed:
        return [Bad(name_in(fields), MALFORMED)]


def _events(fields: Mapping[str, Any], commit_ts: int) -> Sequence[Event | None]:
    if isinstance(fields, Repeating) and fields.twice & READ:
        raise Malformed
    get = fields.get
    name = TableName(as_text(get("database")) or "", as_text(get("table")) or "")
    kind, is_ddl, query = as_text(get("type")), member_boolean(fields, "isDdl"), as_text(get("sql"))
    if kind == _WATERMARK:
        return [Bad(name, WITH_EXTENSION)]
    if kind is None or "database" not in fields:
        raise Malformed
    op = OPS.get(kind)
    if op is None or is_ddl or (query and get("data") is None):
        place = SentAt.of(get("es"))
        return [_statement(Ddl(name, commit_ts, kind, query), place, is_ddl=is_ddl)]
    types, keys = as_texts(member_object(fields, "mysqlType")), key_names(fields)
    data, old = rows_in(fields, "data"), rows_in(fields, "old")
    if not data or not name.table or None in data:
        return [Bad(name, _NO_ROWS, is_row=True)]
    if op != OP_UPDATE or not old:
        old = [None] * len(data)
    if len(old) != len(data):
        return [Bad(name, _OLDS, is_row=True)]
    return [
        ParsedRow(
            name=name,
            op=op,
            commit_ts=commit_ts,
            shape=shape_of(values, before, types, keys),
            values=tuple(values.values()),
            old=before,
            error=None,
        )
        for values, before in zip(data, old, strict=True)
        if values is not None
    ]


def _statement(ddl: Ddl, place: SentAt | None, *, is_ddl: bool) -> Event | None:
    """What is no row. INSERT, UPDATE and DELETE here are statements without their rows."""
    kind = ddl.ddl_type
    if not is_ddl and kind not in OPS:
        if kind in _OF_NONE or (kind == _QUERY and _is_of_rows(ddl)):
            return None
        if kind != _QUERY:
            known = _ROLLED_BACK if kind == "XAROLLBACK" else f"unknown message type {kind}"
            return Bad(ddl.name, Error("unknown-type", known))
    return replace(ddl, query=place.with_place(ddl.query)) if ddl.query and place else ddl


def _is_of_rows(ddl: Ddl) -> bool:
    """Whether a QUERY says nothing of its own. Canal sends statements so that it cannot sort, as
    GRANT and DROP DATABASE, with their database; those of rows have none."""
    query, name = ddl.query or "", ddl.name
    words = first_words(for_one_statement(query), _MOST_WORDS)
    if not words or words[0] in _ROWS:
        return True
    return not name.schema and words[0] == "CREATE" and "TABLE" in words


def one_row_each(message: bytes, indexes: Sequence[int]) -> list[bytes]:
    """For each of these rows of a message the message with this row alone. A message that has one
    stays as it is; in another a cell that is a number becomes a text, which means the same."""
    try:
        fields, told = parse(message), json.loads(message)
    except Malformed:
        return [message] * len(indexes)
    lists = {name: found for name in ("data", "old") if isinstance(found := fields.get(name), list)}
    if len(lists.get("data", ())) < 2:
        return [message] * len(indexes)
    made = []
    for index in indexes:
        one = {name: [rows[index]] for name, rows in lists.items() if index < len(rows)}
        made.append(json.dumps({**told, **one}, separators=(",", ":")).encode())
    return made
