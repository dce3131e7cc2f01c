"""Which statements of the binlog are DDLs, and about which table. Pure."""

from __future__ import annotations

from typing import Final

from coordination.model import TableName
from sinks.ddl.statements import read_ddl
from sinks.ddl.tokens import LOGGED, read_words
from streaming.source.binlog.format.control.statements import Query
from streaming.source.binlog.format.faults import Refused

_DDL: Final = ("CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE")
_OBJECTS: Final = ("TABLE", "TABLES", "INDEX", "DATABASE", "SCHEMA")
_ROWS: Final = ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD")
# Between the verb and its object; behind other words there is no table.
_MODIFIERS: Final = (
    *("OR", "REPLACE", "TEMPORARY", "UNIQUE", "FULLTEXT", "SPATIAL", "ONLINE", "OFFLINE"),
    *("IGNORE", "ALGORITHM", "UNDEFINED"),
)
SYSTEM: Final = ("mysql", "sys", "performance_schema", "information_schema")


def ddl_name(query: Query) -> TableName | None:
    """The table that a DDL is about, with an empty table where it is about several or about a
    database; None for a statement that changes no table (GRANT, CREATE TRIGGER, FLUSH …). Raises
    Refused for rows in statement format."""
    try:
        words = [word.text.upper() for word in read_words(LOGGED + query.sql)[:8]]
    except (ValueError, IndexError):  # as an operator will read it
        is_remark = query.sql.lstrip().startswith("#")  # MySQL's, for an event that it left out
        return None if is_remark else TableName(query.schema, "")
    verb = words[0] if words else ""
    if verb in _ROWS and query.schema not in SYSTEM:
        raise Refused(
            f"the binlog has rows in statement format: {query.sql[:120]!r}. Let every session keep "
            "to binlog_format = ROW (SET GLOBAL binlog_format = 'ROW'; and see who sets it), then "
            "copy the tables anew"
        )
    behind = next((word for word in words[1:] if word not in _MODIFIERS), "")
    if verb not in _DDL or not (behind in _OBJECTS or verb == "TRUNCATE"):
        return None
    effects = read_ddl(LOGGED + query.sql, "", query.schema, "").effects
    names = {name for each in effects if isinstance(name := getattr(each, "name", None), TableName)}
    return names.pop() if len(names) == len(effects) == 1 else TableName(query.schema, "")
