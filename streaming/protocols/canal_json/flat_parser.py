"""One message of canal-json without the TiDB extension, from TiCDC or from Alibaba Canal.

It has neither a commit-ts nor watermarks: its reader gives the commit-ts (`source/resolved/`).
Canal puts several rows of a statement into one message, TiCDC one. Python's own parser reads each
message whole, as strictly as in `strict_parser`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from coordination.model import TableName
from sinks.ddl.logged import SentAt
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
_WATERMARK: Final = "TIDB_WATERMARK"
WITH_EXTENSION: Final = Error(
    "with-extension",
    "a watermark of TiCDC's TiDB extension, which a changefeed with at-least-once=true does not "
    "read. Another changefeed, with another changefeed-id and sink-uri, is exact with it: set "
    "enable-tidb-extension=true there, leave at-least-once out, and let TiCDC begin a new topic",
)


def read(value: bytes | None, commit_ts: int) -> list[Event]:
    """What the message says: at least one event."""
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


def _events(fields: Mapping[str, Any], commit_ts: int) -> list[Event]:
    if isinstance(fields, Repeating) and fields.twice & READ:
        raise Malformed
    get = fields.get
    name = TableName(as_text(get("database")) or "", as_text(get("table")) or "")
    kind, is_ddl, query = as_text(get("type")), member_boolean(fields, "isDdl"), as_text(get("sql"))
    if kind is None:
        raise Malformed
    if kind == _WATERMARK:
        return [Bad(name, WITH_EXTENSION)]
    op = OPS.get(kind)
    if is_ddl:
        place = SentAt.of(get("es"))
        if query and place is not None:
            query = place.with_place(query)
        return [Ddl(name, commit_ts, kind, query)]
    if op is None:
        return [Bad(name, Error("unknown-type", f"unknown message type {kind}"))]
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
