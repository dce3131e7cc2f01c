"""Reads the text of a DDL into effects. A text that it does not understand is Unsupported, with the
reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coordination.model import TableName
from sinks.ddl.alter_table import NOTHING, read_alter, rename_table
from sinks.ddl.definitions import read_index, read_table
from sinks.ddl.effects import (
    AddIndex,
    Altered,
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
from sinks.ddl.text.logged import in_session, session_of
from sinks.ddl.text.other_statements import STATISTICS, VIEWS, for_one_statement, why_of_no_table
from sinks.ddl.text.plain_text import Dialect, first_words
from sinks.ddl.text.tokens import (
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
VERSIONED = "the table has system versioning, and its rows tell its columns"
_IGNORES = (
    "ALTER IGNORE removes rows that have one key, and does not say which: load the table anew"
)
_ROWS = (
    "these are rows in statement format, and what they changed is not known: let every session "
    "keep to binlog_format = ROW, and load the tables anew"
)

# Statements that their first words decide: why they have no effect, and their event types.
_NO_EFFECT: dict[tuple[str, ...], tuple[str, tuple[str, ...]]] = {
    ("DROP", "STATS"): (STATISTICS, ()),
    ("LOAD", "STATS"): (STATISTICS, ()),
    ("REFRESH", "STATS"): (STATISTICS, ()),
    ("CREATE", "STATISTICS"): (STATISTICS, ()),
    ("DROP", "STATISTICS"): (STATISTICS, ()),
    ("COMMENT", "ON"): ("comments are not replicated", ()),
    ("CREATE", "SEQUENCE"): (_SEQUENCES, ()),
    ("ALTER", "SEQUENCE"): (_SEQUENCES, ()),
    ("DROP", "SEQUENCE"): (_SEQUENCES, ()),
    ("DROP", "TEMPORARY"): (_TEMPORARY, ("drop table",)),
    ("DROP", "GLOBAL", "TEMPORARY"): (_TEMPORARY, ("drop table",)),
}
_OBJECTS = ("TABLE", "DATABASE", "SCHEMA", "INDEX")


def read_ddl(
    query: str, ddl_type: str, schema: str, table: str, dialect: Dialect | None = None
) -> Statement:
    """The effects of a DDL's text. Never raises. ``schema``, ``table`` and ``ddl_type`` come from
    its message; ``dialect`` as for ``read_words``.

    A statement about one table is about the message's table, whose name has TiDB's spelling. Names
    in a rename, and in a statement about several tables, have the statement's spelling. A statement
    of a binlog is about the tables that it names; ``schema`` and ``table`` say nothing.
    """
    session = session_of(query)
    if session is None:
        query = for_one_statement(query)
    if why := why_of_no_table(query):
        return _of(NoEffect(reason=why), *_events_of(query, why))
    names = _Names(TableName(schema, table))
    if session is not None:
        names = _Names(TableName(session.schema, ""), is_of_all=True)
    try:
        found = _statement(read_words(query, dialect), names)
        return found if session is None else in_session(found, session)
    except (ValueError, IndexError) as error:
        reason = f"it cannot be read: {error}"
        events = _EVENTS_OF_TYPE.get(ddl_type, ())
        return Statement(effects=(Unsupported(reason=reason),), event_types=events)


def _events_of(query: str, why: str) -> tuple[str, ...]:
    """The events of a statement about no table: a filter may name views."""
    verb = first_words(query, 1)[:1] if why == VIEWS else []
    return (f"{verb[0].lower()} view",) if verb and verb[0] in ("CREATE", "DROP") else ()


def _statement(all_words: tuple[Word, ...], names: _Names) -> Statement:
    for start, (reason, events) in _NO_EFFECT.items():
        if Words(all_words).accept(*start):
            return _of(NoEffect(reason=reason), *events)
    words = Words(all_words)
    verb = words.take().text.upper()
    match verb:
        case "CREATE":
            found = _create(words, names)
        case "ALTER":
            found = _alter(words, names)
        case "DROP":
            found = _drop(words, names)
        case "TRUNCATE":
            words.accept("TABLE")
            table = words.table_name()
            _wait(words)
            words.end()
            found = _of(TruncateTable(name=names.the(table)), "truncate table")
        case "RENAME":
            found = _rename(words, names)
        case "INSERT" | "UPDATE" | "DELETE" | "REPLACE" | "LOAD":
            found = _of(Unsupported(reason=_ROWS))
        case "RECOVER" | "FLASHBACK":
            found = _recover(words, names)
        case _:
            found = None
    return found or _of(Unsupported(reason=f"{verb} … is unknown here"))


@dataclass(frozen=True, slots=True)
class _Names:
    """How a statement's names are to be understood. ``message``: the table that its message names.
    ``is_of_all``: the statement is of a binlog, and its session's database is that of all names
    which have none."""

    message: TableName
    is_of_all: bool = False

    @property
    def home(self) -> str:
        return self.message.schema

    def the(self, written: tuple[str, str]) -> TableName:
        """The one table of a statement: the message's, if the message has one."""
        return self.message if self.message.table else self.full(written)

    def full(self, written: tuple[str, str]) -> TableName:
        return TableName(schema_of(written[0], self.home), written[1])

    def told(self, found: Statement, name: TableName) -> Statement:
        """A statement of a binlog about this table, also where it cannot be followed."""
        effects = (
            replace(each, name=name) if self.is_of_all and isinstance(each, Unsupported) else each
            for each in found.effects
        )
        return replace(found, effects=tuple(effects))

    def old(self, written: tuple[str, str]) -> TableName:
        """An earlier name of a table: a message has the database of the new one alone."""
        return self.full(written) if self.is_of_all else TableName(*written)


def _of(effect: Effect, *event_types: str) -> Statement:
    return Statement(effects=(effect,), event_types=event_types)


def _modifiers(words: Words) -> set[str]:
    """The words between the verb and its object: OR REPLACE, UNIQUE, DEFINER=…"""
    found = set()
    while words.peek().kind not in ("end", "group") and words.peek().upper not in _OBJECTS:
        found.add(words.take().upper)
    return found


def _create(words: Words, names: _Names) -> Statement | None:
    modifiers = _modifiers(words)
    match words.take().upper:
        case "TABLE":
            name, effect = _create_table(words, modifiers, names)
            return names.told(_of(effect, "create table"), name)
        case "DATABASE" | "SCHEMA":
            made = NoEffect(reason="a database is a folder, made with its first table")
            return _of(_database(words, made), "create database", "create schema")
        case "INDEX":
            return _create_index(words, "UNIQUE" in modifiers, names)
    return None


def _create_table(words: Words, modifiers: set[str], names: _Names) -> tuple[TableName, Effect]:
    is_careful = words.accept("IF", "NOT", "EXISTS")
    name = names.the(words.table_name())
    if "TEMPORARY" in modifiers:
        return name, NoEffect(reason=_TEMPORARY)
    replaces = "REPLACE" in modifiers
    if replaces and not names.is_of_all:
        return name, Unsupported(reason="it may remove a table")
    effect = _made(words, name, names)
    if isinstance(effect, CreateTable | CreateTableLike):
        is_careful = is_careful and names.is_of_all
        effect = replace(effect, replaces=replaces, if_not_exists=is_careful)
    return name, effect


def _made(words: Words, name: TableName, names: _Names) -> Effect:
    inside = Words(words.peek().inner)
    source = next((part for part in (words, inside) if part.accept("LIKE")), None)
    if source is not None:
        return CreateTableLike(name=name, source=names.full(source.table_name()))
    body, options = words.take(), words.rest()
    if body.kind != "group" or any(word.upper in ("AS", "SELECT") for word in options):
        return Unsupported(reason="it takes columns or rows from a query")
    if _is_versioned(body.inner, options):
        return NoEffect(reason=VERSIONED)
    try:
        schema = read_table(body.inner, options)
    except ValueError as error:
        return Unsupported(reason=f"it cannot be read: {error}")
    return CreateTable(name=name, schema=schema)


def _is_versioned(body: Sequence[Word], options: Sequence[Word]) -> bool:
    """Whether the table keeps its earlier rows (MariaDB), in columns that the statement may not
    name, and with the end of a row's time in its key. Its rows tell both."""
    parts = [options, *split_by_comma(body)]
    started = (Words(part[at:]) for part in parts for at in range(len(part)))
    return any(each.accept("WITH", "SYSTEM", "VERSIONING") for each in started)


def _create_index(words: Words, unique: bool, names: _Names) -> Statement:
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    index_name = words.name()
    while not words.accept("ON"):
        if words.take().kind == "end":
            raise ValueError("the index names no table")
    table = names.the(words.table_name())
    kind = Word("word", "UNIQUE" if unique else "INDEX")
    index = read_index((kind, Word("name", index_name), *words.rest()))
    assert index is not None
    add = AddIndex(index=index, if_not_exists=if_not_exists)
    return _of(AlterTable(name=table, changes=(add,)), "create index", "alter table")


def _database(words: Words, effect: NoEffect) -> Effect:
    if names_binary_charset(words.rest()):
        return Unsupported(reason="the text columns of its new tables may hold bytes")
    return effect


def _alter(words: Words, names: _Names) -> Statement | None:
    words.accept("ONLINE")
    if words.accept("IGNORE"):
        return _of(Unsupported(reason=_IGNORES), "alter table")
    match words.take().upper:
        case "DATABASE" | "SCHEMA":
            effect = _database(words, NoEffect(reason=NOTHING))
            return _of(effect, "modify schema charset and collate", "alter database")
        case "TABLE":
            words.accept("IF", "EXISTS")
            written = words.table_name()
            _wait(words)
            name = names.the(written)
            home = names.home if names.is_of_all else name.schema
            altered = Altered(name=name, written=names.old(written), home=home)
            return names.told(read_alter(words.rest(), altered), name)
    return None


def _drop(words: Words, names: _Names) -> Statement | None:
    match words.take().upper:
        case "TABLE" | "TABLES":
            words.accept("IF", "EXISTS")
            listed = _listed(words)
            tables = [each.table_name() for each in listed]
            listed[-1].accept_any("RESTRICT", "CASCADE")
            for each in listed:
                each.end()
            find = names.the if len(tables) == 1 else names.full
            return Statement(
                effects=tuple(DropTable(name=find(each)) for each in tables),
                event_types=("drop table",),
            )
        case "DATABASE" | "SCHEMA":
            words.accept("IF", "EXISTS")
            effect = DropDatabase(schema=schema_of(words.name(), names.home))
            return _of(effect, "drop database", "drop schema")
        case "INDEX":
            words.accept("IF", "EXISTS")
            index = DropIndex(name=words.name())
            words.accept("ON")
            table = names.the(words.table_name())
            alter = AlterTable(name=table, changes=(index,))
            return _of(alter, "drop index", "alter table")
    return None


def _wait(words: Words) -> None:
    """Steps over how long a statement of MariaDB waits for the table."""
    if words.accept("WAIT"):
        words.take()
    else:
        words.accept("NOWAIT")


def _listed(words: Words) -> list[Words]:
    parts = [Words(part) for part in split_by_comma(words.rest())]
    if not parts:
        raise ValueError("it names no table")
    return parts


def _rename(words: Words, names: _Names) -> Statement | None:
    if not words.accept_any("TABLE", "TABLES"):
        return None
    effects = tuple(_renamed(each, names) for each in _listed(words))
    return Statement(effects=effects, event_types=("rename table", "alter table"))


def _renamed(words: Words, names: _Names) -> Effect:
    words.accept("IF", "EXISTS")
    before = names.old(words.table_name())
    _wait(words)
    words.accept("TO")
    after = words.table_name()
    words.end()
    return rename_table(before, after, names.home)


def _recover(words: Words, names: _Names) -> Statement | None:
    if not words.accept("TABLE"):
        is_schema = words.accept_any("DATABASE", "SCHEMA")
        return _of(Unsupported(reason=_FLASHBACK_SCHEMA if is_schema else _FLASHBACK_CLUSTER))
    if words.accept("BY", "JOB"):
        why = "it does not say which DROP TABLE: if the last one, apply RECOVER TABLE with its name"
        return _of(Unsupported(reason=why), "recover table")
    dropped = words.table_name()
    if words.peek().kind == "end":
        return _of(RecoverTable(name=names.the(dropped)), "recover table")
    if not words.accept("TO"):
        return None
    new_name = TableName(names.home, words.name())
    if words.peek().kind != "end":  # TO TIMESTAMP '…'
        return _of(Unsupported(reason=_FLASHBACK))
    return _of(RecoverTable(name=names.full(dropped), new_name=new_name), "recover table")
