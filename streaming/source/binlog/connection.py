"""How a connection to a database is opened: with TLS as the source URI's parameters say, and a
session that is settled, whatever the server sets for all of them.

A DBA's guards (`sql_select_limit`, `max_join_size`, `max_statement_time`), another `sql_mode`, a
zone or an `init_connect` would else make tables, columns and rows vanish, change their cells, or
end a copy at its first long read. We make the TLS context ourselves: PyMySQL's own ignores the
server's name where no CA is given.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any, Final

import pymysql
from pymysql.constants import ER

from conf.sources.database_server import DatabaseServer
from coordination.errors import ConfigError

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
    "show_gipk_in_create_table_and_information_schema": "ON",  # MySQL's generated keys
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

# Limits of an account as the servers name them in their error, and as ALTER USER does.
_LIMITS: Final[Mapping[str, str]] = {
    "max_questions": "MAX_QUERIES_PER_HOUR",
    "max_updates": "MAX_UPDATES_PER_HOUR",
}
_EXCEEDED: Final = re.compile(r"'(?P<user>.*)' has exceeded the '(?P<limit>\w+)' resource")
_TAKEN: Final = (
    "a copy takes up to `connections` of the source URI and three beside, a stream up to three"
)


def way_in(code: int, said: str) -> str:
    """What to do where the server has no connection left, by its error; empty for another one. It
    may pass. Pure."""
    if code == ER.CON_COUNT_ERROR:
        return f"End some of anybody's, or SET GLOBAL max_connections = n; {_TAKEN}"
    if code == ER.TOO_MANY_USER_CONNECTIONS:
        return f"SET GLOBAL max_user_connections = n, the limit of every account; {_TAKEN}"
    if code != ER.USER_LIMIT_REACHED or (found := _EXCEEDED.search(said)) is None:
        return ""
    limit = _LIMITS.get(found["limit"], found["limit"].upper())
    return f"ALTER USER '{found['user']}'@'its host' WITH {limit} n; {_TAKEN}"


def why_away(code: int, said: str) -> str:
    """The verb and the rest of a sentence whose subject is the server."""
    way = way_in(code, said)
    return (
        f"takes no more connections: {said} (error {code}). {way}"
        if way
        else (f"does not answer: {said}")
    )


def tls_arguments(settings: DatabaseServer) -> dict[str, Any]:
    """PyMySQL's arguments. Raises ConfigError for a file that cannot be used."""
    if settings.tls == "off":
        return {"ssl_disabled": True}
    if settings.tls == "preferred" and settings.cert is None:
        return {}  # PyMySQL does so by itself, and checks nothing
    return {"ssl": _context(settings)}


def _context(settings: DatabaseServer) -> ssl.SSLContext:
    """With a context PyMySQL refuses a server that has no TLS."""
    with_ca = _named("ca", settings.ca)
    try:
        context = ssl.create_default_context(cafile=settings.ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{with_ca}: {_why(error)}") from error
    context.check_hostname = settings.tls == "verify-identity"
    if not settings.tls.startswith("verify"):
        context.verify_mode = ssl.CERT_NONE
    # Python 3.13 would refuse the certificates that MySQL makes itself.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if settings.cert is not None:
        try:
            context.load_cert_chain(settings.cert, settings.key)
        except (OSError, ssl.SSLError) as error:
            files = f"{_named('cert', settings.cert)} with key={settings.key}"
            raise ConfigError(f"{files}: {_why(error)}") from error
    return context


def _named(parameter: str, path: str | None) -> str:
    return f"source-uri: {parameter}={path}"


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"it is no such PEM file ({error.reason or error})"
    return f"it cannot be read ({getattr(error, 'strerror', None) or error})"


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
