"""Reads the text of a DDL into effects. A text that it does not understand is Unsupported, with the
reason."""

from __future__ import annotations

from coordination.model import TableName
from sinks.ddl.alter_table import NOTHING, read_alter, rename_table
from sinks.ddl.definitions import read_index, read_table
from sinks.ddl.effects import (
    AddIndex,
    AlterTable,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropIndex,
    DropTable,
    Effect,
    NoEffect,
    RecoverTable,
    Statement,
    TruncateTable,
    Unsupported,
)
from sinks.ddl.tokens import (
    Dialect,
    Word,
    Words,
    names_binary_charset,
    read_words,
    schema_of,
    split_by_comma,
)

_EVENTS_OF_TYPE = {  # by canal-json's `type`, for a text that cannot be read
    "CREATE": ("create table",),
    "RENAME": ("rename table", "alter table"),
    "CINDEX": ("create index", "alter table"),
    "DINDEX": ("drop index", "alter table"),
    "ALTER": ("alter table",),
    "ERASE": ("drop table",),
    "TRUNCATE": ("truncate table",),
}
_STATISTICS = "statistics are not replicated"
_VIEWS = "views are not replicated"
_SEQUENCES = "sequences are not replicated"
_FLASHBACK = "it brings rows back that TiCDC does not send: load the tables anew"
_FLASHBACK_SCHEMA = (
    "it brings the tables of a database back, and TiCDC does not send their rows: pass over it, "
    "and load these tables anew"
)
_FLASHBACK_CLUSTER = (
    "it takes the cluster back to an earlier time, and TiCDC does not send the DDLs that are taken "
    "back, nor is it known here to send all rows: pass over it, and load the tables anew"
)
_TEMPORARY = "temporary tables are not replicated"

# Statements that their first words decide: why they have no effect, and their event types.
_NO_EFFECT: dict[tuple[str, ...], tuple[str, tuple[str, ...]]] = {
    ("ANALYZE",): (_STATISTICS, ()),
    ("LOCK", "STATS"): (_STATISTICS, ()),
    ("UNLOCK", "STATS"): (_STATISTICS, ()),
    ("DROP", "STATS"): (_STATISTICS, ()),
    ("LOAD", "STATS"): (_STATISTICS, ()),
    ("REFRESH", "STATS"): (_STATISTICS, ()),
    ("CREATE", "STATISTICS"): (_STATISTICS, ()),
    ("DROP", "STATISTICS"): (_STATISTICS, ()),
    ("COMMENT", "ON"): ("comments are not replicated", ()),
    ("DROP", "VIEW"): (_VIEWS, ("drop view",)),
    ("CREATE", "SEQUENCE"): (_SEQUENCES, ()),
    ("ALTER", "SEQUENCE"): (_SEQUENCES, ()),
    ("DROP", "SEQUENCE"): (_SEQUENCES, ()),
    ("DROP", "TEMPORARY"): (_TEMPORARY, ("drop table",)),
    ("DROP", "GLOBAL", "TEMPORARY"): (_TEMPORARY, ("drop table",)),
}
_OBJECTS = ("TABLE", "DATABASE", "SCHEMA", "INDEX", "VIEW")


def read_ddl(
    query: str, ddl_type: str, schema: str, table: str, dialect: Dialect | None = None
) -> Statement:
    """The effects of a DDL's text. Never raises. ``schema``, ``table`` and ``ddl_type`` come from
    its message; ``dialect`` as for ``read_words``.

    A statement about one table is about the message's table, whose name has TiDB's spelling. Names
    in a rename, and in a statement about several tables, have the statement's spelling.
    """
    try:
        return _statement(read_words(query, dialect), TableName(schema, table))
    except (ValueError, IndexError) as error:
        reason = f"it cannot be read: {error}"
        events = _EVENTS_OF_TYPE.get(ddl_type, ())
        return Statement(effects=(Unsupported(reason=reason),), event_types=events)


def _statement(all_words: tuple[Word, ...], name: TableName) -> Statement:
    for start, (reason, events) in _NO_EFFECT.items():
        if Words(all_words).accept(*start):
            return _of(NoEffect(reason=reason), *events)
    words = Words(all_words)
    verb = words.take().text.upper()
    match verb:
        case "CREATE":
            found = _create(words, name)
        case "ALTER":
            found = _alter(words, name)
        case "DROP":
            found = _drop(words, name)
        case "TRUNCATE":
            words.accept("TABLE")
            table = words.table_name()
            words.end()
            found = _of(TruncateTable(name=_the(table, name)), "truncate table")
        case "RENAME":
            found = _rename(words, name)
        case "RECOVER" | "FLASHBACK":
            found = _recover(words, name)
        case _:
            found = None
    return found or _of(Unsupported(reason=f"{verb} … is unknown here"))


def _of(effect: Effect, *event_types: str) -> Statement:
    return Statement(effects=(effect,), event_types=event_types)


def _the(schema_and_table: tuple[str, str], name: TableName) -> TableName:
    """The name of the one table of a statement: the message's, if the message has one."""
    return name if name.table else _full(schema_and_table, name)


def _full(schema_and_table: tuple[str, str], name: TableName) -> TableName:
    return TableName(schema_of(schema_and_table[0], name.schema), schema_and_table[1])


def _modifiers(words: Words) -> set[str]:
    """The words between the verb and its object: OR REPLACE, UNIQUE, DEFINER=…"""
    found = set()
    while words.peek().kind not in ("end", "group") and words.peek().upper not in _OBJECTS:
        found.add(words.take().upper)
    return found


def _create(words: Words, name: TableName) -> Statement | None:
    modifiers = _modifiers(words)
    match words.take().upper:
        case "TABLE":
            return _of(_create_table(words, modifiers, name), "create table")
        case "DATABASE" | "SCHEMA":
            made = NoEffect(reason="a database is a folder, made with its first table")
            return _of(_database(words, made), "create database", "create schema")
        case "VIEW":
            return _of(NoEffect(reason=_VIEWS), "create view")
        case "INDEX":
            return _create_index(words, "UNIQUE" in modifiers, name)
    return None


def _create_table(words: Words, modifiers: set[str], name: TableName) -> Effect:
    if "TEMPORARY" in modifiers:
        return NoEffect(reason=_TEMPORARY)
    if "REPLACE" in modifiers:
        return Unsupported(reason="it may remove a table")
    words.accept("IF", "NOT", "EXISTS")
    target = _the(words.table_name(), name)
    inside = Words(words.peek().inner)
    source = next((part for part in (words, inside) if part.accept("LIKE")), None)
    if source is not None:
        return CreateTableLike(name=target, source=_full(source.table_name(), name))
    body, options = words.take(), words.rest()
    if body.kind != "group" or any(word.upper in ("AS", "SELECT") for word in options):
        return Unsupported(reason="it takes columns or rows from a query")
    return CreateTable(name=target, schema=read_table(body.inner, options))


def _create_index(words: Words, unique: bool, name: TableName) -> Statement:
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    index_name = words.name()
    while not words.accept("ON"):
        if words.take().kind == "end":
            raise ValueError("the index names no table")
    table = _the(words.table_name(), name)
    kind = Word("word", "UNIQUE" if unique else "INDEX")
    index = read_index((kind, Word("name", index_name), *words.rest()))
    assert index is not None
    add = AddIndex(index=index, if_not_exists=if_not_exists)
    return _of(AlterTable(name=table, changes=(add,)), "create index", "alter table")


def _database(words: Words, effect: NoEffect) -> Effect:
    if names_binary_charset(words.rest()):
        return Unsupported(reason="the text columns of its new tables may hold bytes")
    return effect


def _alter(words: Words, name: TableName) -> Statement | None:
    match words.take().upper:
        case "DATABASE" | "SCHEMA":
            effect = _database(words, NoEffect(reason=NOTHING))
            return _of(effect, "modify schema charset and collate", "alter database")
        case "TABLE":
            words.accept("IF", "EXISTS")
            written = words.table_name()
            return read_alter(words.rest(), _the(written, name), TableName(*written))
        case "VIEW" | "ALGORITHM" | "DEFINER" | "SQL":
            return _of(NoEffect(reason=_VIEWS))
    return None


def _drop(words: Words, name: TableName) -> Statement | None:
    match words.take().upper:
        case "TABLE" | "TABLES":
            words.accept("IF", "EXISTS")
            listed = _listed(words)
            tables = [each.table_name() for each in listed]
            listed[-1].accept_any("RESTRICT", "CASCADE")
            for each in listed:
                each.end()
            names = (
                [_the(tables[0], name)] if len(tables) == 1 else [_full(t, name) for t in tables]
            )
            return Statement(
                effects=tuple(DropTable(name=each) for each in names),
                event_types=("drop table",),
            )
        case "DATABASE" | "SCHEMA":
            words.accept("IF", "EXISTS")
            effect = DropDatabase(schema=schema_of(words.name(), name.schema))
            return _of(effect, "drop database", "drop schema")
        case "INDEX":
            words.accept("IF", "EXISTS")
            index = DropIndex(name=words.name())
            words.accept("ON")
            table = _the(words.table_name(), name)
            alter = AlterTable(name=table, changes=(index,))
            return _of(alter, "drop index", "alter table")
    return None


def _listed(words: Words) -> list[Words]:
    parts = [Words(part) for part in split_by_comma(words.rest())]
    if not parts:
        raise ValueError("it names no table")
    return parts


def _rename(words: Words, name: TableName) -> Statement | None:
    if not words.accept_any("TABLE", "TABLES"):
        return None
    effects = tuple(_renamed(each, name) for each in _listed(words))
    return Statement(effects=effects, event_types=("rename table", "alter table"))


def _renamed(words: Words, name: TableName) -> Effect:
    before = TableName(*words.table_name())
    words.accept("TO")
    after = words.table_name()
    words.end()
    return rename_table(before, after, name.schema)


def _recover(words: Words, name: TableName) -> Statement | None:
    if not words.accept("TABLE"):
        is_schema = words.accept_any("DATABASE", "SCHEMA")
        return _of(Unsupported(reason=_FLASHBACK_SCHEMA if is_schema else _FLASHBACK_CLUSTER))
    if words.accept("BY", "JOB"):
        why = "it does not say which DROP TABLE: if the last one, apply RECOVER TABLE with its name"
        return _of(Unsupported(reason=why), "recover table")
    dropped = words.table_name()
    if words.peek().kind == "end":
        return _of(RecoverTable(name=_the(dropped, name)), "recover table")
    if not words.accept("TO"):
        return None
    new_name = TableName(name.schema, words.name())
    if words.peek().kind != "end":  # TO TIMESTAMP '…'
        return _of(Unsupported(reason=_FLASHBACK))
    return _of(RecoverTable(name=_full(dropped, name), new_name=new_name), "recover table")
