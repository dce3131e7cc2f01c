"""What a DDL of the stream means for the target tables.

``classify`` tells four cases apart: a table to create, one to create like another, nothing to do,
and everything else, which stops the changefeed until schema evolution is built. It never raises:
what cannot be read is Unsupported, with a reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordination.model import TableName
from sinks.ddl.alter import RENAMES, Outcome, alter_database, alter_table, create_index, drop_index
from sinks.ddl.definitions import read_added, read_index, read_table
from sinks.ddl.words import Word, Words, read_words
from sinks.schema import Column, TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    name: TableName
    schema: TableSchema
    event_types: tuple[str, ...] = ("create table",)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTableLike:
    name: TableName
    source: TableName
    event_types: tuple[str, ...] = ("create table",)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoEffect:
    """Neither columns, rows nor key of a target table change."""

    reason: str
    event_types: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """``reason`` completes "this DDL is not supported, because …"."""

    reason: str
    event_types: tuple[str, ...]


Ddl = CreateTable | CreateTableLike | NoEffect | Unsupported
"""``event_types`` are TiCDC's names for event filters, the most exact first."""

_EVENTS_OF_TYPE = {  # by canal-json's `type`, for what cannot be read
    "CREATE": ("create table",),
    "RENAME": ("rename table", "alter table"),
    "CINDEX": ("create index", "alter table"),
    "DINDEX": ("drop index", "alter table"),
    "ALTER": ("alter table",),
    "ERASE": ("drop table",),
    "TRUNCATE": ("truncate table",),
}


def classify(
    query: str, ddl_type: str, schema: str, table: str, known: TableSchema | None = None
) -> Ddl:
    """What to do about a DDL; ``schema`` and ``table`` are the message's, ``ddl_type`` canal's.

    ``known`` is the target's schema as it stands. It decides about indexes: dropping the one that
    is the handle key is Unsupported, any other is not. Without it no index but PRIMARY matters.
    """
    try:
        return _statement(read_words(query), TableName(schema, table), known)
    except ValueError as error:
        reason = f"it cannot be read: {error}"
        return Unsupported(reason=reason, event_types=_EVENTS_OF_TYPE.get(ddl_type, ()))


def added_columns(query: str) -> tuple[Column, ...]:
    """What an ALTER TABLE adds that does nothing else; empty for any other statement."""
    try:
        words = Words(read_words(query))
        if not words.accept("ALTER", "TABLE"):
            return ()
        words.accept("IF", "EXISTS")
        words.table_name()
        return read_added(words.rest())
    except (ValueError, IndexError):
        return ()


REMOVES_TABLE, REMOVES_TABLES = "it removes a table", "it removes tables"
_STATISTICS = NoEffect(reason="statistics are not replicated", event_types=())
_VIEWS = "views are not replicated"
_DROP_DATABASE = Unsupported(reason=REMOVES_TABLES, event_types=("drop database", "drop schema"))
_RECOVER = Unsupported(reason="it brings a table back", event_types=("recover table",))

# Statements that their first words decide.
_FIXED: dict[tuple[str, ...], NoEffect | Unsupported] = {
    ("ANALYZE",): _STATISTICS,
    ("LOCK", "STATS"): _STATISTICS,
    ("UNLOCK", "STATS"): _STATISTICS,
    ("DROP", "STATS"): _STATISTICS,
    ("LOAD", "STATS"): _STATISTICS,
    ("REFRESH", "STATS"): _STATISTICS,
    ("CREATE", "STATISTICS"): _STATISTICS,
    ("DROP", "STATISTICS"): _STATISTICS,
    ("COMMENT", "ON"): NoEffect(reason="comments are not replicated", event_types=()),
    ("DROP", "VIEW"): NoEffect(reason=_VIEWS, event_types=("drop view",)),
    ("DROP", "TABLE"): Unsupported(reason=REMOVES_TABLE, event_types=("drop table",)),
    ("TRUNCATE",): Unsupported(reason="it removes rows", event_types=("truncate table",)),
    ("RENAME", "TABLE"): Unsupported(reason=RENAMES, event_types=("rename table", "alter table")),
    ("DROP", "DATABASE"): _DROP_DATABASE,
    ("DROP", "SCHEMA"): _DROP_DATABASE,
    ("RECOVER", "TABLE"): _RECOVER,
    ("FLASHBACK", "TABLE"): _RECOVER,
}
_MADE_OR_ALTERED = ("TABLE", "DATABASE", "SCHEMA", "INDEX", "VIEW")


def _statement(all_words: tuple[Word, ...], name: TableName, known: TableSchema | None) -> Ddl:
    fixed = next((d for start, d in _FIXED.items() if Words(all_words).accept(*start)), None)
    if fixed is not None:
        return fixed
    words = Words(all_words)
    if words.accept("DROP", "INDEX"):
        words.accept("IF", "EXISTS")
        return _of((("drop index", "alter table"), drop_index(words.name(), known)))
    verb = words.take().text.upper()
    modifiers = _modifiers(words)
    what = words.accept_any(*_MADE_OR_ALTERED)
    if verb == "ALTER" and what:
        return _alter(what, words, known)
    if verb == "CREATE" and what:
        if what == "TABLE":
            return _create_table(words, modifiers, name)
        return _create_other(what, "UNIQUE" in modifiers, words, known)
    return Unsupported(reason=f"{verb} … is unknown here", event_types=())


def _modifiers(words: Words) -> frozenset[str]:
    """What stands between the verb and its object: OR REPLACE, UNIQUE, DEFINER=…"""
    found = set()
    while words.peek().kind not in ("end", "group") and words.peek().upper not in _MADE_OR_ALTERED:
        found.add(words.take().upper)
    return frozenset(found)


def _alter(what: str, words: Words, known: TableSchema | None) -> Ddl:
    if what in ("DATABASE", "SCHEMA"):
        return _of(alter_database(words.rest()))
    if what == "VIEW":
        return NoEffect(reason=_VIEWS, event_types=())
    if what == "INDEX":
        return Unsupported(reason="ALTER INDEX is unknown here", event_types=())
    words.accept("IF", "EXISTS")
    words.table_name()
    return _of(alter_table(words.rest(), known))


def _create_other(what: str, unique: bool, words: Words, known: TableSchema | None) -> Ddl:
    if what == "VIEW":
        return NoEffect(reason=_VIEWS, event_types=("create view",))
    if what != "INDEX":
        reason = "a database is a folder, made with its first table"
        return NoEffect(reason=reason, event_types=("create database", "create schema"))
    columns = next((word for word in words.rest() if word.kind == "group"), None)
    if columns is None:
        raise ValueError("the index names no columns")
    start = (Word("word", "UNIQUE"),) if unique else (Word("word", "INDEX"),)
    return _of(create_index(read_index((*start, columns)), known))


def _create_table(words: Words, modifiers: frozenset[str], name: TableName) -> Ddl:
    events = ("create table",)
    if "TEMPORARY" in modifiers:
        return NoEffect(reason="temporary tables are not replicated", event_types=events)
    if "REPLACE" in modifiers:
        return Unsupported(reason="it may remove a table", event_types=events)
    words.accept("IF", "NOT", "EXISTS")
    in_query = _full(words.table_name(), name.schema)
    target = name if name.table else in_query
    inside = Words(words.peek().inner)
    source = next((part for part in (words, inside) if part.accept("LIKE")), None)
    if source is not None:
        like = _full(source.table_name(), name.schema)
        return CreateTableLike(name=target, source=like)
    body, options = words.take(), words.rest()
    if body.kind != "group" or any(word.upper in ("AS", "SELECT") for word in options):
        return Unsupported(reason="it takes columns or rows from a query", event_types=events)
    schema = read_table(body.inner, options)
    return CreateTable(name=target, schema=schema)


def _full(schema_and_table: tuple[str, str], schema: str) -> TableName:
    return TableName(schema_and_table[0] or schema, schema_and_table[1])


def _of(outcome: Outcome) -> NoEffect | Unsupported:
    events, reason = outcome
    if reason:
        return Unsupported(reason=reason, event_types=events)
    return NoEffect(reason="it changes neither columns nor rows", event_types=events)
