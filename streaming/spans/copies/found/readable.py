"""The tables that a copy finds at its source, and whether account and program can read them
whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from coordination.model import TableName
from streaming.changefeed.schema_file import UnreadableDefinition, read_definitions
from streaming.source.binlog.database import NO_SUCH_TABLE, NOT_READ, Database, ServerSays
from streaming.source.dump.cells import quoted
from streaming.source.dump.source_table import Query, SourceTable, Vectors, read_tables


def found_tables(
    database: Database, schemas: Sequence[str], is_wanted: Callable[[TableName], bool]
) -> list[SourceTable]:
    """The wanted tables of these schemas, ``hindered`` where the account may not read them whole
    (a table is shown to whoever has any right to it, with the columns of that right alone), where
    the server cannot open them, or where their definition cannot be read here."""
    vectors = Vectors.BYTES if database.facts().is_mariadb else Vectors.FLOATS
    tables = read_tables(database.ask, schemas, is_wanted, vectors=vectors)
    if not tables:
        return []
    account = None if _reads_all(database) else _account(database)
    looked = (_looked_at(database, each, account) for each in tables)
    return [each for each in looked if each is not None]


def create_statement(query: Query, name: TableName) -> str:
    """The definition of a table, with the USE that it needs. Raises as ``query`` does."""
    ((_, statement, *_),) = query(f"SHOW CREATE TABLE {_of(name)}")
    return f"USE {quoted(name.schema)};\n{statement};\n"


def definitions_now(database: Database, names: Sequence[TableName]) -> str | None:
    """Those of all these tables, one after the other; None where one of them was dropped
    meanwhile."""
    try:
        return "".join(create_statement(database.ask, name) for name in names)
    except ServerSays as error:
        if error.errno != NO_SUCH_TABLE:
            raise
        return None


def _looked_at(database: Database, table: SourceTable, account: str | None) -> SourceTable | None:
    """``account``: one that may not read all tables. None: it was dropped meanwhile."""
    try:
        if account is not None:
            database.ask(f"SELECT * FROM {_of(table.name)} LIMIT 0")
        statement = create_statement(database.ask, table.name)
    except ServerSays as error:
        if error.errno == NO_SUCH_TABLE:
            return None
        why = str(error)
        if error.errno in NOT_READ:
            granted = f"GRANT SELECT ON {_of(table.name)} TO {account}"
            why = f"the account may not read all of its columns: {granted}"
        return replace(table, hindered=why)
    if table.hindered:
        return table
    try:
        read_definitions(statement, lambda _: True)
    except UnreadableDefinition as error:
        return replace(table, hindered=f"its definition is not known here: {error.reason}")
    return table


def _account(database: Database) -> str:
    ((account,),) = database.ask("SELECT CURRENT_USER()")
    user, _, host = (str(part) for part in account.rpartition("@"))
    return f"'{user}'@'{host}'"


def _reads_all(database: Database) -> bool:
    grants = [str(row[0]).partition(" ON *.*") for row in database.ask("SHOW GRANTS")]
    rights = {
        right for told, of_all, _ in grants if of_all for right in told[len("GRANT ") :].split(", ")
    }
    return bool(rights & {"SELECT", "ALL PRIVILEGES"})


def _of(name: TableName) -> str:
    return f"{quoted(name.schema)}.{quoted(name.table)}"
