"""The server whose binlog is read, asked by SQL. One connection, opened when it is needed.

Where the URI names several servers, one of them is asked: the one that is kept to (`keep_to`), or
else the first that answers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CR, ER
from pymysql.cursors import Cursor

from conf.sources.binlog_uri import BinlogSettings
from conf.sources.database_server import DatabaseServer
from coordination.errors import ConfigError, TidelakeError
from coordination.secrets import revealed
from sinks.types.mysql_type import IDENTIFIER_TYPES
from streaming.source.binlog.connection import settle, tls_arguments, why_away
from streaming.source.binlog.format.charsets import CODECS, Charset, Charsets
from streaming.source.binlog.position import FIRST_OFFSET, BinlogPosition, LogFiles, LogIdentity
from streaming.source.contract import SourceAway, SourceLost, SourceMoved

logger = logging.getLogger(__name__)

_OMITS_SINCE: Final = 11
ANSWER_S: Final = 30.0  # for an answer to a question here: none of them reads a table
# Codes with which the server, or the way to it, is away; the same question may be answered later.
_AWAY: Final = frozenset(
    {
        *(CR.CR_CONNECTION_ERROR, CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR),
        *(CR.CR_SERVER_LOST, ER.SERVER_SHUTDOWN, ER.NORMAL_SHUTDOWN, ER.QUERY_INTERRUPTED),
        *(ER.NEW_ABORTING_CONNECTION, ER.ABORTING_CONNECTION, 1927, 4031, 4052),
        *(ER.CON_COUNT_ERROR, ER.TOO_MANY_USER_CONNECTIONS, ER.USER_LIMIT_REACHED),
    }
)
_REFUSED: Final = frozenset(
    {
        *(ER.ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, ER.HOST_IS_BLOCKED),
        *(ER.HOST_NOT_PRIVILEGED, ER.NOT_SUPPORTED_AUTH_MODE, CR.CR_SSL_CONNECTION_ERROR),
    }
)
NOT_READ: Final = (ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR)
NO_SUCH_TABLE: Final = ER.NO_SUCH_TABLE
_DENIED: Final = ER.SPECIFIC_ACCESS_DENIED_ERROR
_NAMES: Final = ("server_uuid", "server_uid", "hostname", "port", "server_id")
RIGHTS: Final = "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO the user"
_ASKED: Final = ("version", "lower_case_table_names")
_AS_MADE: Final = "2"  # lower_case_table_names: names are shown so, and compared in lower case
# What a server must write into its binlog: (variable, values, the statement that sets it).
_WANTED: Final = (
    ("log_bin", ("ON",), "start the server with --log-bin"),
    ("binlog_format", ("ROW",), "SET GLOBAL binlog_format = 'ROW'"),
    ("binlog_row_image", ("FULL", "FULL_NODUP"), "SET GLOBAL binlog_row_image = 'FULL'"),
    ("binlog_row_metadata", ("FULL",), "SET GLOBAL binlog_row_metadata = 'FULL'"),
)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """``charsets``: by collation ID; one that Python lacks is not there. ``server``: which one it
    is, as far as that can be told."""

    is_mariadb: bool
    version: str
    server: str
    files: LogFiles
    charsets: Charsets
    lower_names: bool  # of databases and tables: lower_case_table_names = 1 or 2

    @property
    def identity(self) -> str:
        """The identity of its log (`position.py`)."""
        return str(LogIdentity(self.server, self.files.lift))

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])

    @property
    def omits_generated(self) -> bool:
        """MariaDB from 11 on tells no generated column of a row that it updates or replaces."""
        return self.is_mariadb and self.major >= _OMITS_SINCE


class Database:
    """Thread-safe. Every call may block; raises SourceAway where the server does not answer, and
    ConfigError where it refuses the login or lacks a right."""

    def __init__(self, settings: BinlogSettings) -> None:
        self._servers = settings.servers
        self._server = self._servers[0]
        self._kept: LogIdentity | None = None
        self._connection: Connection[Any] | None = None
        self._facts: ServerFacts | None = None
        self._files = LogFiles()  # the last that were told
        self._lock = threading.RLock()

    @property
    def settings(self) -> BinlogSettings:
        """Those of the server that is asked: it alone."""
        return self._server

    @property
    def address(self) -> str:
        return self._server.address

    @property
    def others(self) -> tuple[BinlogSettings, ...]:
        return tuple(each for each in self._servers if each != self._server)

    def keep_to(self, identity: str | None) -> None:
        """From now on only the server with this log is asked. None: whichever. Does not ask."""
        kept = None if identity is None else LogIdentity.parse(identity)
        with self._lock:
            if kept != self._kept:
                self.close()
            self._kept = kept
            self._files = LogFiles(self._files.base, kept.lift if kept else 0)

    def use(self, server: BinlogSettings, identity: str) -> None:
        """From now on this one of the servers is asked, which has this log."""
        with self._lock:
            self.close()
            self._server = server
            self.keep_to(identity)

    def choose(self) -> None:
        """Connect: to the server that was kept to if it answers, else to another one, which is kept
        to then."""
        with self._lock:
            if self._connection is not None:
                return
            try:
                self._connection, self._kept = self._opened(is_strict=False)
            except (pymysql.err.MySQLError, OSError) as error:
                raise refusal(error, self._server) from error

    def _opened(self, *, is_strict: bool) -> tuple[Connection[Any], LogIdentity]:
        """A connection to the server that is kept to. Raises pymysql's errors, and SourceMoved."""
        kept = self._kept
        found: list[tuple[BinlogSettings, Connection[Any], str]] = []
        problems: list[TidelakeError] = []
        for settings in (self._server, *self.others):
            try:
                connection = connected(settings)
                with connection.cursor() as cursor:
                    found.append((settings, connection, server_of(cursor)))
            except (pymysql.err.MySQLError, OSError) as error:
                if len(self._servers) == 1:
                    raise
                problems.append(refusal(error, settings))
                continue
            if kept is None or kept.server == found[-1][2]:
                break
        if not found:
            raise of_all(problems)
        is_kept = kept is None or kept.server == found[-1][2]
        settings, chosen, server = found[-1 if is_kept else 0]
        for _, other, _ in found:
            if other is not chosen:
                other.close()
        if not is_kept and is_strict:
            assert kept is not None
            chosen.close()
            raise problems[0] if problems else moved(settings, kept.server, server)
        self._server = settings
        return chosen, kept if kept and is_kept else LogIdentity(server)

    def close(self) -> None:
        connection, self._connection, self._facts = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def ask(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of an answer. A connection that has ended is made anew, once."""
        with self._lock:
            return self._asked(sql, values)

    def _asked(self, sql: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        for is_again in (False, True):
            is_fresh = self._connection is None
            try:
                if self._connection is None:
                    self._connection, self._kept = self._opened(is_strict=self._kept is not None)
                with self._connection.cursor() as cursor:
                    cursor.execute(sql, values or None)
                    return list(cursor.fetchall())
            except (pymysql.err.MySQLError, OSError) as error:
                self.close()
                if is_again or is_fresh or not is_away(error):
                    raise refusal(error, self._server) from error
        raise AssertionError("an answer or an error")

    def variables(self, *names: str) -> dict[str, str]:
        """Global variables by their names, in lower case; one that the server lacks is missing."""
        marks = ", ".join(["%s"] * len(names))
        rows = self.ask(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})", *names)
        return {str(name).lower(): str(value) for name, value in rows}

    def facts(self) -> ServerFacts:
        """Asked once."""
        if self._facts is None:
            told = self.variables(
                *("version", "server_uuid", "server_uid", "hostname", "port", "server_id"),
                *("log_bin_basename", "lower_case_table_names"),
            )
            is_mariadb = "mariadb" in told["version"].lower()
            server, kept = _server_named(told), self._kept
            base = told.get("log_bin_basename", "").rpartition("/")[2]
            self._files = LogFiles(base, kept.lift if kept and kept.server == server else 0)
            self._facts = ServerFacts(
                is_mariadb=is_mariadb,
                version=told["version"],
                server=server,
                files=self._files,
                charsets=self._charsets(is_mariadb=is_mariadb),
                lower_names=told.get("lower_case_table_names") in ("1", _AS_MADE),
            )
        return self._facts

    def check_binlog(self) -> None:
        """Raise one ConfigError for all settings with which the binlog does not tell whole rows."""
        told = self.variables(*_ASKED, *(name for name, _, _ in _WANTED))
        if "-tidb-" in told.get("version", "").lower():
            raise ConfigError(
                f"{self.address} is a TiDB, which has no binlog: let TiCDC send its changes to "
                "Kafka, and give that topic as the source. The rows of before are copied with "
                f"--source-uri tidb://user@{self.address}/ (docs/from-ticdc.md)"
            )
        wrong = [
            f"{name} is {told.get(name, 'not there')}: {statement}"
            for name, wanted, statement in _WANTED
            if told.get(name, "").upper() not in wanted
        ]
        if wrong:
            raise ConfigError(
                f"the binlog of {self.address} does not tell whole rows. {'; '.join(wrong)}. What "
                "was written before stays as it is: begin behind it"
            )

        if told.get(_ASKED[1]) == _AS_MADE:
            self._refuse_capitals()

    def _refuse_capitals(self) -> None:
        shown = self.ask(
            "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) FROM information_schema.TABLES "
            "WHERE TABLE_SCHEMA NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')"
        )
        if found := sorted(name for (name,) in shown if name != name.lower()):
            raise ConfigError(
                f"lower_case_table_names of {self.address} is 2: its binlog names {found[0]} in "
                f"lower case, and SHOW TABLES does not ({len(found)} tables). Rename them so that "
                "no name has capitals (RENAME TABLE A TO b, then b TO a)"
            )

    def end(self) -> BinlogPosition:
        """Where the next event will be written."""
        for sql in ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"):
            try:
                rows = self.ask(sql)
            except ServerSays as error:
                if error.errno != ER.PARSE_ERROR:
                    raise
                continue
            if rows:
                return self.position(str(rows[0][0]), int(rows[0][1]))
        raise ConfigError(f"{self.address} writes no binlog: start it with --log-bin")

    def position(self, file: str, offset: int) -> BinlogPosition:
        return BinlogPosition(self.facts().files.number(file), offset)

    def files(self) -> list[tuple[str, int]]:
        """Names and sizes of the binlog files, oldest first."""
        return [(str(row[0]), int(row[1])) for row in self.ask("SHOW BINARY LOGS")]

    def beginning(self) -> BinlogPosition:
        """The first position that the server still has."""
        files = self.files()
        if not files:
            raise SourceLost(f"{self.address} has no binlog file")
        return self.position(files[0][0], FIRST_OFFSET)

    def identifiers(self) -> list[str]:
        """The columns of types that no binlog tells from BINARY, as ``schema.table.column``."""
        names = ", ".join(f"'{name}'" for name in IDENTIFIER_TYPES)
        rows = self.ask(
            "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS "
            f"WHERE DATA_TYPE IN ({names}) AND TABLE_SCHEMA NOT IN ('mysql', 'sys')"
        )
        return sorted(".".join(map(str, row)) for row in rows)

    def name_of(self, position: int) -> str:
        return self._files.place(position)

    def _charsets(self, *, is_mariadb: bool) -> Charsets:
        table = "COLLATION_CHARACTER_SET_APPLICABILITY" if is_mariadb else "COLLATIONS"
        rows = self.ask(
            f"SELECT c.ID, s.CHARACTER_SET_NAME, s.MAXLEN FROM information_schema.{table} c "
            "JOIN information_schema.CHARACTER_SETS s USING (CHARACTER_SET_NAME) "
            "WHERE c.ID IS NOT NULL"
        )
        return {
            int(number): Charset(CODECS[str(name)], int(width))
            for number, name, width in rows
            if str(name) in CODECS
        }


class ServerSays(TidelakeError):
    """The server's own error, with its number."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.errno = code


def server_of(cursor: Cursor) -> str:
    """Which server it is that answers."""
    marks = ", ".join(["%s"] * len(_NAMES))
    cursor.execute(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})", _NAMES)
    return _server_named({str(name).lower(): str(value) for name, value in cursor.fetchall()})


def _server_named(told: Mapping[str, str]) -> str:
    own = told.get("server_uuid") or told.get("server_uid")
    return own or f"{told.get('hostname')}:{told.get('port')}/{told.get('server_id')}"


def moved(settings: BinlogSettings, before: str, now: str) -> SourceMoved:
    return SourceMoved(
        f"{settings.address} is another server now: its ID is {now}, and was {before}"
    )


def connected(settings: DatabaseServer, *, read_timeout_s: float = ANSWER_S) -> Connection[Any]:
    """A new connection, settled. Raises pymysql's errors, and ConfigError for a secret or a file
    that is not there."""
    connection: Connection[Any] = pymysql.connect(
        host=settings.host,
        port=settings.port,
        user=revealed("user", settings.user),
        password=revealed("password", settings.password).encode(),  # as text it would be latin1
        autocommit=True,
        charset="utf8mb4",
        connect_timeout=settings.connect_timeout_s,
        read_timeout=min(read_timeout_s, ANSWER_S),
        write_timeout=ANSWER_S,
        program_name="tidelake",
        **tls_arguments(settings),
    )
    try:
        settle(connection)
    except (pymysql.err.MySQLError, OSError):
        connection.close()
        raise
    # Of what is asked from now on: a login takes no hour.
    connection._read_timeout = read_timeout_s  # type: ignore[attr-defined]
    return connection


def is_away(error: BaseException) -> bool:
    return isinstance(error, OSError) or (
        isinstance(error, pymysql.err.MySQLError) and _code(error) in _AWAY
    )


def of_all(problems: Sequence[TidelakeError]) -> TidelakeError:
    """What is wrong with each of several servers; it may pass where one of them is away."""
    said = "; ".join(map(str, problems))
    is_away = any(isinstance(each, SourceAway) for each in problems)
    return SourceAway(said) if is_away else ConfigError(said)


def refusal(error: BaseException, settings: DatabaseServer) -> TidelakeError:
    """The error in one sentence: SourceAway, ConfigError, or what the server said."""
    said = str(error.args[-1]) if error.args else str(error)
    code = _code(error)
    if is_away(error) or code == 0:
        return SourceAway(f"the database at {settings.address} {why_away(code, said)}")
    if code in _REFUSED:
        return ConfigError(
            f"source-uri: the database at {settings.address} refuses the login: {said}. Check "
            "user, password and tls"
        )
    if code == _DENIED:
        return ConfigError(f"source-uri: {said}. The user needs: {RIGHTS}")
    return ServerSays(code, f"the database at {settings.address} says: {said} (error {code})")


def _code(error: BaseException) -> int:
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0
