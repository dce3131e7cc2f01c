"""One event of open-protocol by Python's own JSON parser: the meaning of any event.

Slow and strict, as `canal_json/strict_parser.py`. ``row_template.py`` reads the plain rows of a
table many at a time and hands over the others; a row that it takes must mean the same here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from coordination.model import TableName
from streaming.protocols.contract import NO_TABLE, OP_DELETE, OP_INSERT, OP_UPDATE
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
from streaming.protocols.open.columns import HANDLE_KEY, PRIMARY_KEY, Form, Told, told
from streaming.protocols.open.encoded_cells import base64_bytes, quoted_bytes
from streaming.protocols.rows.ddl_types import ddl_type
from streaming.protocols.rows.parsed_message import (
    Bad,
    Cell,
    Ddl,
    Error,
    Event,
    ParsedRow,
    Shape,
    WatermarkEvent,
    reduced,
    unreadable,
)

ROW: Final = 1
DDL: Final = 2
RESOLVED: Final = 3
_HEAD: Final = frozenset(("ts", "scm", "tbl", "t", "ohk", "ccl"))
_SIDES: Final = frozenset(("u", "p", "d"))
_COLUMN: Final = frozenset(("t", "h", "f", "v"))

MALFORMED: Final = Error("malformed", "not an open-protocol message")


@dataclass(frozen=True, slots=True)
class Head:
    """What an event's key says. ``claim``: where the whole row is, if it is elsewhere."""

    ts: int
    kind: int
    name: TableName
    is_cut: bool = False
    claim: str | None = None


def head_of(key: bytes) -> Head:
    """Raises Malformed."""
    fields = parse(key)
    if isinstance(fields, Repeating) and fields.twice & _HEAD:
        raise Malformed
    ts, kind = member_integer(fields, "ts"), member_integer(fields, "t")
    if ts is None or ts <= 0 or kind not in (ROW, DDL, RESOLVED):  # at or below every checkpoint
        raise Malformed
    schema, table = (as_text(fields.get(each)) or "" for each in ("scm", "tbl"))
    if kind == ROW and not table:
        raise Malformed
    claim = as_text(fields.get("ccl"))
    is_cut = member_boolean(fields, "ohk") or claim is not None
    return Head(ts, kind, TableName(schema, table), is_cut, claim)


def event(key: bytes, value: bytes) -> Event:
    """Bad: the name of the table as far as the key tells."""
    try:
        head = head_of(key)
    except Malformed:
        return Bad(NO_TABLE, MALFORMED)
    try:
        return _event(head, value)
    except Malformed:
        return Bad(head.name, unreadable(value, MALFORMED), is_row=head.kind == ROW)


def _event(head: Head, value: bytes) -> Event:
    if head.kind == RESOLVED:
        if value:
            raise Malformed
        return WatermarkEvent(head.ts)
    fields = parse(value)
    if head.kind == DDL:
        if isinstance(fields, Repeating):
            raise Malformed
        kind = member_integer(fields, "t") or 0
        return Ddl(head.name, head.ts, ddl_type(kind), as_text(fields.get("q")))
    return _row(head, fields)


def _row(head: Head, fields: Mapping[str, Any]) -> ParsedRow:
    if isinstance(fields, Repeating) and fields.twice & _SIDES:
        raise Malformed
    sides = {side: _Side.of(fields.get(side)) for side in _SIDES}
    new, before, gone = (sides[side] for side in ("u", "p", "d"))
    now = new or gone
    if now is None or (new is None) == (gone is None) or not now.values:
        raise Malformed
    if before is not None and new is None:
        raise Malformed
    op = OP_DELETE if new is None else OP_INSERT if before is None else OP_UPDATE
    only_old: tuple[str, ...] = ()
    if before is not None:
        only_old = tuple(name for name in before.values if name not in now.values)
        both = before.values.keys() & now.values.keys()
        if before.has_bytes & both != now.has_bytes & both:
            raise Malformed  # a column of texts that was one of bytes, or will be
    return ParsedRow(
        name=head.name,
        op=op,
        commit_ts=head.ts,
        shape=_shape(
            tuple(now.values),
            tuple(now.types.items()),
            now.key,
            only_old,
            now.has_bytes | (before.has_bytes if before is not None else frozenset()),
        ),
        values=tuple(now.values.values()),
        old=None if before is None else before.values,
        error=None if op == OP_DELETE else reduced(head.claim, is_cut=head.is_cut),
    )


@dataclass(frozen=True, slots=True)
class _Side:
    values: Mapping[str, Cell]
    types: Mapping[str, str]  # of columns whose type is known
    key: tuple[str, ...]
    has_bytes: frozenset[str]

    @staticmethod
    def of(found: Any) -> _Side | None:
        if found is None:
            return None
        if isinstance(found, Repeating):
            raise Malformed
        values, types, has_bytes = dict[str, Cell](), dict[str, str](), set()
        primary, handle = list[str](), list[str]()
        for name, each in as_object(found).items():
            column, cell, flags = column_of(each)
            values[name] = cell
            if column.mysql_type is not None:
                types[name] = column.mysql_type
            if flags & PRIMARY_KEY:
                primary.append(name)
            if flags & HANDLE_KEY:
                handle.append(name)
            if column.has_bytes:
                has_bytes.add(name)
        # A table without a primary key has a NOT NULL unique key as its handle key, or none.
        return _Side(values, types, tuple(primary or handle), frozenset(has_bytes))


def column_of(found: Any) -> tuple[Told, Cell, int]:
    """What a column tells, its value and its flags. Raises Malformed."""
    if isinstance(found, Repeating) and found.twice & _COLUMN:
        raise Malformed
    fields = {name: found[name] for name in found} if isinstance(found, Repeating) else found
    number, flags = (member_integer(as_object(fields), each) for each in ("t", "f"))
    if number is None or "v" not in fields:
        raise Malformed
    flags = (flags or 0) | (HANDLE_KEY if fields.get("h") is True else 0)
    column = told(number, flags)
    return column, cell_of(column.form, fields["v"]), flags


def cell_of(form: Form, value: Any) -> Cell:
    """Raises Malformed."""
    if value is None:
        return None
    is_number = isinstance(value, Number)
    if is_number != (form is Form.NUMBER) or (not is_number and type(value) is not str):
        raise Malformed
    text = str(value)
    if form is Form.QUOTED:
        return quoted_bytes(text)
    if form is Form.BASE64:
        return base64_bytes(text)
    if form is Form.BASE64_TEXT:
        try:
            return base64_bytes(text).decode()
        except UnicodeDecodeError as error:
            raise Malformed from error
    return text


@lru_cache(maxsize=256)
def _shape(
    columns: tuple[str, ...],
    types: tuple[tuple[str, str], ...],
    key: tuple[str, ...],
    only_old: tuple[str, ...],
    has_bytes: frozenset[str],
) -> Shape:
    """One object for many rows."""
    typed = frozenset((name, pa.binary()) for name in has_bytes)
    return Shape(columns, types, key, only_old, typed)
