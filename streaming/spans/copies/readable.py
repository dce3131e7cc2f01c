"""The tables that a copy finds at its source, and what the account may read of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from coordination.model import TableName
from streaming.source.binlog.database import NOT_READ, Database, ServerSays
from streaming.source.dump.cells import quoted
from streaming.source.dump.source_table import Query, SourceTable, Vectors, read_tables


def found_tables(
    database: Database, schemas: Sequence[str], is_wanted: Callable[[TableName], bool]
) -> list[SourceTable]:
    """The wanted tables of these schemas, ``hindered`` where the account may not read them whole:
    a table is shown to whoever has any right to it, with the columns of that right alone."""
    vectors = Vectors.BYTES if database.facts().is_mariadb else Vectors.FLOATS
    tables = read_tables(database.ask, schemas, is_wanted, vectors=vectors)
    if not tables or _reads_all(database):
        return tables
    ((account,),) = database.ask("SELECT CURRENT_USER()")
    user, _, host = (str(part) for part in account.rpartition("@"))
    return [
        each
        if _is_read(database, each.name)
        else replace(
            each,
            hindered="the account may not read all of its columns: "
            f"GRANT SELECT ON {_of(each.name)} TO '{user}'@'{host}'",
        )
        for each in tables
    ]


def create_statement(query: Query, name: TableName) -> str:
    """The definition of a table, with the USE that it needs."""
    ((_, statement, *_),) = query(f"SHOW CREATE TABLE {_of(name)}")
    return f"USE {quoted(name.schema)};\n{statement};\n"


def _reads_all(database: Database) -> bool:
    grants = [str(row[0]).partition(" ON *.*") for row in database.ask("SHOW GRANTS")]
    rights = {
        right for told, of_all, _ in grants if of_all for right in told[len("GRANT ") :].split(", ")
    }
    return bool(rights & {"SELECT", "ALL PRIVILEGES"})


def _is_read(database: Database, name: TableName) -> bool:
    try:
        database.ask(f"SELECT * FROM {_of(name)} LIMIT 0")
        database.ask(f"SHOW CREATE TABLE {_of(name)}")
    except ServerSays as error:
        if error.errno in NOT_READ:
            return False
        raise
    return True


def _of(name: TableName) -> str:
    return f"{quoted(name.schema)}.{quoted(name.table)}"
