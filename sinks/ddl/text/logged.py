"""What is told of a statement in a comment before it, as it is kept everywhere: of one in a binlog,
how its session means it; of one that may be sent again, its place at its sender."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace

from coordination.model import TableName
from sinks.ddl.effects import (
    AddColumn,
    AlterSpec,
    AlterTable,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    Effect,
    ModifyColumn,
    SetCharset,
    Statement,
    Unsupported,
)
from sinks.types.mysql_type import BINARY_FORM, MARIADB_VECTOR, NATIONAL_SET, MySQLType
from sinks.types.server_rules.session import ServerSession
from sinks.types.table_schema import Column

_FLOAT_BYTES = 4  # of a vector's element

_TEXT_FORM = {in_bytes: of_text for of_text, in_bytes in BINARY_FORM.items()}
_OF_ORACLE = {"date": "datetime", "blob": "longblob"}

_MARK = "/* tidelake binlog {"
_END = " */ "
_SENT = re.compile(r"/\* tidelake sent (?:(?P<file>[\w.\-]+):)?(?P<at>[0-9]{1,19}) \*/ ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """``schema``: the database of names that have none. ``failed``: the number of the error with
    which the statement ended on the server; 0: it did not fail."""

    schema: str = ""
    is_mariadb: bool = False
    ansi_quotes: bool = False  # "…" is a name
    no_backslash_escapes: bool = False
    omits_generated: bool = False  # STORED columns are in no row that its server updates
    is_oracle: bool = False  # MariaDB's sql_mode = ORACLE: its types have other meanings
    lower_names: bool = False  # lower_case_table_names = 1
    failed: int = 0
    garbled: str = ""  # the character set in which it is not written, behind its comments
    sql_mode: int | None = None  # its bits, where old values depend on them
    time_zone: str = ""  # of the session; empty: not told, or the server's own
    implicit_timestamps: bool = False  # explicit_defaults_for_timestamp is off
    began_us: int | None = None  # when the statement began, in microseconds since 1970

    def logged(self, sql: str) -> str:
        """The statement with its session in a comment before it, as it is kept everywhere."""
        has = {**asdict(self), "sql_mode": self.sql_mode or None}
        told = {name: value for name, value in has.items() if value}
        text = json.dumps(told, ensure_ascii=False).replace("*/", "*\\/")
        return f"{_MARK}{text[1:]}{_END}{sql}"


def server_session(query: str) -> ServerSession | None:
    """What the rules of its server need of the session of a statement of a binlog; None for any
    other statement: TiDB's rules hold."""
    session = session_of(query)
    if session is None:
        return None
    return ServerSession(
        is_mariadb=session.is_mariadb,
        sql_mode=session.sql_mode,
        time_zone=session.time_zone,
        began_us=session.began_us,
        implicit_timestamps=session.implicit_timestamps,
    )


def session_of(query: str) -> Session | None:
    """The session of a statement of a binlog; None for any other statement."""
    if not query.startswith(_MARK):
        return None
    return Session(**json.loads(query[len(_MARK) - 1 : query.index(_END)]))


@dataclass(frozen=True, slots=True)
class SentAt:
    """Where a statement is at its sender. ``at``: in a file of a binlog, or else its time in ms
    since 1970."""

    file: str
    at: int

    @staticmethod
    def of(at: object, file: object = "") -> SentAt | None:
        """As a message tells it; None where it does not."""
        text = str(at)
        is_number = text.isascii() and text.isdigit() and len(text) < 19 and int(text) > 0
        return SentAt(file, int(text)) if is_number and isinstance(file, str) else None

    def with_place(self, sql: str) -> str:
        """The same statement where the place cannot be told."""
        place = f"{self.file}:{self.at}" if self.file else str(self.at)
        told = f"/* tidelake sent {place} */ {sql}"
        return told if _SENT.match(told) else sql

    def is_behind(self, other: SentAt) -> bool:
        """Whether it is surely later: files of two servers have no order."""
        files = [each.file.rpartition(".") for each in (self, other)]
        return files[0][0] == files[1][0] and (
            (len(self.file), self.file, self.at) > (len(other.file), other.file, other.at)
        )


def sent_at(query: str) -> SentAt | None:
    found = _SENT.match(query)
    return None if found is None else SentAt(found["file"] or "", int(found["at"]))


def as_written(query: str) -> str:
    """Without what is told of it."""
    if query.startswith(_MARK):
        return query[query.index(_END) + len(_END) :]
    return query[found.end() :] if (found := _SENT.match(query)) is not None else query


def in_session(found: Statement, session: Session) -> Statement:
    """The statement as its session meant it."""
    if session.failed:
        return _refused(
            found,
            f"it failed with error {session.failed}, and what it did until then is not known: "
            "compare the table with the database",
        )
    if session.garbled:
        return _refused(
            found, f"it is not written in {session.garbled}, the character set of its session"
        )
    if session.is_mariadb:
        stored = _stored_of_oracle if session.is_oracle else as_stored
        found = replace(found, effects=tuple(_of_mariadb(each, stored) for each in found.effects))
        if session.omits_generated:
            made = (_of_mariadb(each, as_omitted) for each in found.effects)
            found = replace(found, effects=tuple(made))
    found = replace(found, effects=tuple(map(_of_server, found.effects)))
    return in_lower_case(found) if session.lower_names else found


def _of_server(effect: Effect) -> Effect:
    """With what these servers mean and TiDB does not: a national column has its own character set
    in a table of bytes too."""
    match effect:
        case CreateTable(schema=schema):
            columns = tuple(map(_national, schema.columns))
            return replace(effect, schema=replace(schema, columns=columns))
        case AlterTable(changes=changes):
            return replace(effect, changes=tuple(map(_change_of_server, changes)))
    return effect


def _change_of_server(change: AlterSpec) -> AlterSpec:
    match change:
        case SetCharset():
            return replace(change, by_server=True)
        case AddColumn(column=column) | ModifyColumn(column=column) if column.charset:
            return replace(change, has_charset=True)
    return change


def _national(column: Column) -> Column:
    if column.charset != NATIONAL_SET:
        return column
    name = _TEXT_FORM.get(column.type.name, column.type.name)
    return replace(column, type=replace(column.type, name=name))


def in_lower_case(found: Statement) -> Statement:
    """With the names of its tables and databases in lower case."""
    return replace(found, effects=tuple(map(_in_lower_case, found.effects)))


def _refused(found: Statement, reason: str) -> Statement:
    names = [getattr(each, "name", None) for each in found.effects]
    (name,) = names if len(names) == 1 and isinstance(names[0], TableName) else (None,)
    return replace(found, effects=(Unsupported(reason=reason, name=name),))


def _of_mariadb(effect: Effect, stored_as: Callable[[Column], Column]) -> Effect:
    """With the types as which MariaDB stores some: rows have those. It logs no CREATE TABLE IF NOT
    EXISTS that has made nothing."""
    match effect:
        case CreateTable(schema=schema):
            columns = tuple(map(stored_as, schema.columns))
            schema = replace(schema, columns=columns)
            return replace(effect, schema=schema, if_not_exists=False)
        case CreateTableLike():
            return replace(effect, if_not_exists=False)
        case AlterTable(changes=changes):
            stored = (
                replace(each, column=stored_as(each.column))
                if isinstance(each, AddColumn | ModifyColumn)
                else each
                for each in changes
            )
            return replace(effect, changes=tuple(stored))
    return effect


def as_omitted(column: Column) -> Column:
    """A generated column of which a server does not tell all values is as a virtual one: the target
    does not have it."""
    return replace(column, generated="virtual") if column.generated else column


def as_stored(column: Column) -> Column:
    """With the type as which MariaDB stores it."""
    of = column.type
    if of.name == "json":
        return replace(column, type=MySQLType(name="longtext"), charset="utf8mb4")
    if of.name == "vector" and of.length is not None:
        stored = MySQLType(name="varbinary", length=_FLOAT_BYTES * of.length)
        return replace(column, type=stored, charset=MARIADB_VECTOR)
    return column


def _stored_of_oracle(column: Column) -> Column:
    """With the meaning that sql_mode = ORACLE gives to types. (VARCHAR2, NUMBER, RAW and CLOB are
    refused as they are read.)"""
    name = _OF_ORACLE.get(column.type.name)
    return as_stored(column) if name is None else replace(column, type=MySQLType(name=name))


def _in_lower_case(effect: Effect) -> Effect:
    told = {each.name: getattr(effect, each.name) for each in fields(effect)}  # type: ignore[arg-type]
    names = {
        key: TableName(name.schema.lower(), name.table.lower())
        for key, name in told.items()
        if isinstance(name, TableName)
    }
    if isinstance(effect, DropDatabase):
        return DropDatabase(schema=effect.schema.lower())
    return replace(effect, **names)  # type: ignore[type-var]
