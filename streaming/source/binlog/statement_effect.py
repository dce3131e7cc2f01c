"""Which statements of the binlog are DDLs, and about which table. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from coordination.model import TableName
from sinks.ddl.effects import DropDatabase, Effect, RenameTable, Statement
from sinks.ddl.statements import read_ddl
from sinks.ddl.text.logged import Session, as_written
from sinks.ddl.text.other_statements import for_one_statement
from sinks.ddl.text.plain_text import first_words, plain_text
from sinks.ddl.text.tokens import Words, read_words
from streaming.source.binlog.format.control.statements import AlterPhase, Query

_DDL: Final = ("CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE")
_OBJECTS: Final = ("TABLE", "TABLES", "INDEX", "DATABASE", "SCHEMA")
_ROWS: Final = ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD")
# Between the verb and its object; behind other words there is no table.
_MODIFIERS: Final = (
    *("OR", "REPLACE", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "ONLINE", "OFFLINE", "IGNORE"),
)
_BEFORE_A_NAME: Final = (
    *("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "CONCURRENT", "QUICK", "IGNORE", "INTO", "FROM"),
)
_TYPES: Final = {  # canal-json's types of DDLs that are about one table
    ("ALTER", "TABLE"): "ALTER",
    ("CREATE", "INDEX"): "CINDEX",
    ("DROP", "INDEX"): "DINDEX",
}
UNREADABLE: Final = "\ufffd"  # instead of bytes that are not of a statement's character set
_MOST_WORDS: Final = 8  # up to a statement's object
_ANSI_QUOTES: Final = 1 << 2
_ORACLE: Final = 1 << 9
_NO_BACKSLASH_ESCAPES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class LoggedDdl:
    """``name``: the table that it is about, a renamed one by its new name; with an empty table
    where it is about several or about a database. ``kind``: canal-json's; empty: no matter."""

    name: TableName
    kind: str
    text: str  # with its session before it


def ddl_of(
    query: Query, *, is_mariadb: bool, lower_names: bool, omits_generated: bool = False
) -> LoggedDdl | None:
    """None for a statement that changes no table: GRANT, CREATE TRIGGER, FLUSH … Rows in statement
    format are a DDL that cannot be run. ``lower_names``: the server keeps names of tables in lower
    case. ``omits_generated``: see `ServerFacts`."""
    if query.alter_phase in (AlterPhase.START, AlterPhase.ROLLBACK):
        return None
    mode = query.sql_mode or 0
    session = Session(
        schema=query.schema,
        is_mariadb=is_mariadb,
        ansi_quotes=bool(mode & _ANSI_QUOTES),
        no_backslash_escapes=bool(mode & _NO_BACKSLASH_ESCAPES),
        omits_generated=omits_generated,
        is_oracle=is_mariadb and bool(mode & _ORACLE),
        lower_names=lower_names,
        failed=query.error_code,
        sql_mode=mode or None,
        implicit_timestamps=not query.has_explicit_defaults(is_mariadb=is_mariadb),
        time_zone="" if query.time_zone in (None, "SYSTEM") else str(query.time_zone),
        began_us=query.time_s * 1_000_000 + query.micros,
    )
    text = session.logged(query.sql)
    if is_mariadb and (behind_settings := for_one_statement(text)) != text:
        text = session.logged(behind_settings)
    if query.garbled and UNREADABLE in plain_text(text):
        text = replace(session, garbled=query.garbled).logged(as_written(text))
    words = first_words(text, _MOST_WORDS)
    verb = words[0] if words else ""
    if verb in _ROWS or (verb == "WITH" and not query.sql.lstrip().startswith("#")):
        return LoggedDdl(_written(text, session), "", text)
    behind = next((word for word in words[1:] if word not in _MODIFIERS), "")
    if verb not in _DDL or not (behind in _OBJECTS or verb == "TRUNCATE"):
        return None
    statement = read_ddl(text, "", "", "")
    kind = "TRUNCATE" if verb == "TRUNCATE" else _TYPES.get((verb, behind), "")
    return LoggedDdl(_name(statement, session), kind, text)


def _name(statement: Statement, session: Session) -> TableName:
    names = {name for effect in statement.effects if (name := _about(effect)) is not None}
    if len(names) == 1 and len(statement.effects) == 1:
        return names.pop()
    schemas = sorted({name.schema for name in names})
    return TableName(schemas[0] if schemas else session.schema, "")


def _about(effect: Effect) -> TableName | None:
    match effect:
        case RenameTable(new_name=name):
            return name
        case DropDatabase(schema=schema):
            return TableName(schema, "")
    told = getattr(effect, "name", None)
    return told if isinstance(told, TableName) else None


def _written(text: str, session: Session) -> TableName:
    """The table whose rows a statement changes; an empty one where it may be several."""
    several = TableName(session.schema, "")
    try:
        words = Words(read_words(text)[1:])
        while words.peek().upper in _BEFORE_A_NAME:
            words.take()
        schema, table = words.table_name()
    except (ValueError, IndexError):
        return several
    is_one = words.peek().upper in ("", "SET", "VALUES", "VALUE", "SELECT", "WHERE", "LIMIT")
    if not is_one or table.upper() in ("DATA", "XML"):
        return several
    name = TableName(schema or session.schema, table)
    return TableName(name.schema.lower(), name.table.lower()) if session.lower_names else name
