"""What each session with a database is set to, whatever its server sets for all of them.

A DBA's guards (`sql_select_limit`, `max_join_size`, `max_statement_time`), another `sql_mode`, a
zone or an `init_connect` would else make tables, columns and rows vanish, change their cells, or
end a copy at its first long read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pymysql
from pymysql.constants import ER

MOST: Final = "18446744073709551615"
# Without them an answer about the others may be cut or refused.
_FIRST: Final = (
    "SET NAMES utf8mb4",
    f"SET SESSION sql_mode = '', time_zone = '+00:00', autocommit = 1, sql_select_limit = {MOST}",
    "SET SESSION sql_big_selects = 1",
)
# Those that a server has, as it shows them. Values come as they are stored, and a reader that is
# slow, since it writes files, is not thrown out.
WANTED: Final[Mapping[str, str]] = {
    # All rows, and no statement that is refused or broken off.
    "sql_safe_updates": "OFF",
    "max_statement_time": "0.000000",  # MariaDB's, in seconds
    "max_execution_time": "0",
    "sql_auto_is_null": "OFF",
    # Definitions as they are parsed.
    "sql_quote_show_create": "ON",
    "show_create_table_verbosity": "OFF",
    "show_old_temporals": "OFF",
    "information_schema_stats_expiry": "0",  # MySQL's estimates are a day old unless told
    # Transactions that read one snapshot, for as long as a table takes.
    "transaction_isolation": "REPEATABLE-READ",
    "tx_isolation": "REPEATABLE-READ",
    "completion_type": "NO_CHAIN",
    "idle_transaction_timeout": "0",
    "idle_readonly_transaction_timeout": "0",
    "net_write_timeout": "3600",
    "wait_timeout": "86400",
}


def settle(connection: Any) -> None:
    """Sets a new PyMySQL connection so. Raises pymysql's errors."""
    with connection.cursor() as cursor:
        for statement in _FIRST:
            try:
                cursor.execute(statement)
            except pymysql.err.OperationalError as error:
                if error.args[0] != ER.UNKNOWN_SYSTEM_VARIABLE:
                    raise
        names = ", ".join(f"'{name}'" for name in WANTED)
        cursor.execute(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({names})")
        shown = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
        if other := others(shown):
            cursor.execute("SET SESSION " + ", ".join(other))


def others(shown: Mapping[str, str]) -> list[str]:
    """What is to be set where these are the values of a session. Pure."""
    wanted = {name: WANTED[name] for name, value in shown.items() if value != WANTED[name]}
    return [f"{name} = {_literal(value)}" for name, value in wanted.items()]


def _literal(value: str) -> str:
    return value if value[0].isdigit() or value in ("ON", "OFF") else f"'{value}'"
