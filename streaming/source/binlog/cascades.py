"""Foreign keys that delete or change rows of their tables by themselves, where the server writes no
such change to its binlog.

MariaDB shows them in REFERENTIAL_CONSTRAINTS only to an account that may write the table, and in
INNODB_SYS_FOREIGN to one with PROCESS. One that may read it sees the names of foreign keys, and the
table's definition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pymysql.constants import ER

from coordination.model import TableName
from streaming.source.binlog.database import Database, ServerSays

_OF_INNODB: Final = "innodb_native_foreign_keys"  # MySQL from 9.6 on; OFF: its log has the rows
_NAMED: Final = re.compile(r"`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\"")
_CHANGES: Final = re.compile(
    r"\s*CONSTRAINT  FOREIGN KEY .*\bON (?:DELETE|UPDATE) (?:CASCADE|SET NULL)\b"
)


def cascading(database: Database) -> list[TableName]:
    """The tables whose rows may be changed unseen by a foreign key. Raises as ``ask`` does."""
    if database.variables(_OF_INNODB).get(_OF_INNODB, "ON").upper() == "OFF":
        return []
    return sorted(_defined_so(database) if database.facts().is_mariadb else _told(database))


def _told(database: Database) -> Iterator[TableName]:
    for schema, table in database.ask(
        "SELECT DISTINCT CONSTRAINT_SCHEMA, TABLE_NAME "
        "FROM information_schema.REFERENTIAL_CONSTRAINTS "
        "WHERE DELETE_RULE IN ('CASCADE', 'SET NULL') OR UPDATE_RULE IN ('CASCADE', 'SET NULL')"
    ):
        yield TableName(str(schema), str(table))


def _defined_so(database: Database) -> Iterator[TableName]:
    for schema, table in database.ask(
        "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.KEY_COLUMN_USAGE "
        "WHERE REFERENCED_TABLE_NAME IS NOT NULL"
    ):
        name = TableName(str(schema), str(table))
        try:
            rows = database.ask(f"SHOW CREATE TABLE {_quoted(name.schema)}.{_quoted(name.table)}")
        except ServerSays as error:
            if error.errno != ER.NO_SUCH_TABLE:  # it was dropped meanwhile
                raise
            continue
        if any(_CHANGES.match(_NAMED.sub("", line)) for line in str(rows[0][1]).splitlines()):
            yield name


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
