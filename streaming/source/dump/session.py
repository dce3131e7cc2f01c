"""One connection to the source, that reads rows as they are stored.

PyMySQL shakes hands and sends the statement. Rows are then read off its socket in large pieces,
since PyMySQL itself takes 7 CPU-µs a row.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow as pa
import pymysql
from pymysql.constants import COMMAND, ER
from pymysql.protocol import FieldDescriptorPacket

from conf.sources.database_server import place
from coordination.errors import TidelakeError
from coordination.model import TableName
from streaming.source.binlog.connection import way_in
from streaming.source.contract import SourceAway
from streaming.source.dump.packets import GarbledRows, PacketBuffer
from streaming.source.dump.silent_reads import WATCH, Awaited, SilentReads
from streaming.source.dump.text_rows import texts_of

# A PyMySQL connection, whose parts that read rows are not public: it has the version's stubs not.
Connection = Any
Connect = Callable[[], Connection]
BLOCK_BYTES: Final = 8 << 20

# PyMySQL turns it on, with the system's two hours.
_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
_NO_RIGHT: Final = frozenset(
    (
        *(ER.DBACCESS_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR),
        *(ER.ACCESS_DENIED_ERROR, ER.SPECIFIC_ACCESS_DENIED_ERROR),
    )
)
_OTHER_TABLE: Final = frozenset(
    (
        *(ER.NO_SUCH_TABLE, ER.BAD_TABLE_ERROR, ER.BAD_FIELD_ERROR, ER.TABLE_DEF_CHANGED),
        *(ER.KEY_DOES_NOT_EXITS, ER.BAD_DB_ERROR),
    )
)


# What a TiDB says at the statement that chooses the moment, and at a read.
_GONE: Final = frozenset((8055, 9006))


class SnapshotGone(TidelakeError):
    """A TiDB's GC has passed the TSO that is read: versions of rows may be deleted."""


class SourceRefuses(TidelakeError):
    """The server does not let this account read."""


class TableChanged(TidelakeError):
    """A table is no longer what it was when its copy began: the copy begins anew."""


class UnreadableValue(TableChanged):
    """A value is none of its column's type, as one sentence; unless the table was altered."""

    def __init__(self, table: TableName, sentence: str) -> None:
        super().__init__(sentence)
        self.table = table


class Session:
    """Open it on the thread that uses it."""

    def __init__(
        self,
        connect: Connect,
        tidb_ts: int | None = None,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        watch: SilentReads = WATCH,
    ) -> None:
        """``connect`` gives a new PyMySQL connection, settled. ``tidb_ts``: the server is a
        TiDB, and all that is read is as of this TSO. ``is_stopped``: the work that reads is to
        end, so a server that sends nothing is waited for no more. Raises as ``query`` does."""
        self._connect = connect
        self.awaited: Awaited | None = None
        self.is_to_stop = is_stopped
        self._connection = self._connected()
        self._watch = watch
        watch.watch(self)
        told = self._connection.get_server_info()
        self.is_mariadb = "mariadb" in told.lower()
        self.version = tuple(map(int, re.findall(r"\d+", told)[:2]))
        if tidb_ts is not None:
            self.query(f"SET SESSION tidb_snapshot = '{tidb_ts}'")

    def _connected(self) -> Connection:
        try:
            connection = self._connect()
        except (pymysql.MySQLError, OSError) as error:
            raise _sorted(error, "no connection to the source") from error
        _keep_alive(connection._sock)
        return connection

    def close(self) -> None:
        self._watch.forget(self)
        with suppress(pymysql.MySQLError, OSError):
            self._connection.close()

    @property
    def address(self) -> str:
        return place(self._connection.host, self._connection.port)

    def state(self) -> str:
        """What the server does with this session's statement, by another connection."""
        number, connection = self._connection.thread_id(), self._connected()
        try:
            with connection.cursor() as cursor:
                cursor.execute("SHOW PROCESSLIST")
                rows = cursor.fetchall()
        except (pymysql.MySQLError, OSError) as error:
            raise _sorted(error, "the source did not answer") from error
        finally:
            with suppress(pymysql.MySQLError, OSError):
                connection.close()
        return next((str(row[6] or "") for row in rows if row[0] == number), "")

    def break_off(self) -> None:
        """A thread that waits for the server gets SourceAway."""
        with suppress(Exception):  # not SSLSocket's own, which takes the reader its TLS away
            socket.socket.shutdown(self._connection._sock, socket.SHUT_RDWR)

    @contextmanager
    def _awaiting(self, statement: str) -> Iterator[None]:
        self.awaited = Awaited(statement, time.monotonic())
        try:
            yield
        finally:
            self.awaited = None

    @property
    def is_open(self) -> bool:
        return bool(self._connection.open)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a small answer. Raises SourceRefuses, TableChanged, SnapshotGone or
        SourceAway."""
        try:
            with self._awaiting(statement), self._connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        except (pymysql.MySQLError, OSError) as error:
            raise _sorted(error, "the source did not answer") from error

    def blocks(self, statement: str, columns: int) -> Iterator[list[pa.LargeBinaryArray]]:
        """The columns of some 8 MiB of rows at a time, as texts. Raises as ``query`` does.

        A caller that stops before the end closes the connection by that.
        """
        is_whole = False
        try:
            with self._awaiting(statement):
                buffer = self._ask(statement)
            receive = self._connection._sock.recv_into
            while True:
                while not buffer.is_full and not buffer.is_over:
                    with self._awaiting(statement):
                        count = receive(buffer.space())
                    if not count:
                        raise ConnectionError("the server has closed the connection")
                    buffer.received(count)
                if (rows := buffer.take()) is None:
                    break
                yield texts_of(rows, columns)
            if buffer.error is not None:
                pymysql.err.raise_mysql_exception(buffer.error)
            self._connection._next_seq_id = 0
            is_whole = True
        except (pymysql.MySQLError, OSError, GarbledRows) as error:
            raise _sorted(error, "the source broke off an answer") from error
        finally:
            if not is_whole:
                self.close()

    def _ask(self, statement: str) -> PacketBuffer:
        """Send the statement and read the result up to its first row."""
        connection = self._connection
        connection._execute_command(COMMAND.COM_QUERY, statement)
        count = connection._read_packet().read_length_encoded_integer()
        for _ in range(count):
            connection._read_packet(FieldDescriptorPacket)
        connection._read_packet()  # the end of the columns
        buffer = PacketBuffer(BLOCK_BYTES)
        read_ahead = connection._rfile.read1(BLOCK_BYTES)  # what the descriptions came with
        buffer.space()[: len(read_ahead)] = read_ahead
        buffer.received(len(read_ahead))
        return buffer


def _keep_alive(connected: socket.socket) -> None:
    """A server may think for long before it answers, but one that the network has lost is noticed
    after a minute."""
    for option, value in _KEEP_ALIVE.items():
        if (number := getattr(socket, option, None)) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, number, value)


def _sorted(error: Exception, what: str) -> TidelakeError:
    """The error by what is to be done about it."""
    number, text = error.args[:2] if len(error.args) > 1 else (0, str(error))
    if number in _NO_RIGHT:
        return SourceRefuses(f"{what}: {text} ({number}); grant the account what it lacks")
    if number in _GONE:
        return SnapshotGone(f"{what}: {text} ({number})")
    if number in _OTHER_TABLE:
        return TableChanged(f"{what}: {text} ({number})")
    way = way_in(number, str(text))
    return SourceAway(
        ". ".join(filter(None, [f"{what}: {text} ({number or type(error).__name__})", way]))
    )
