"""A connection by which the server sends its binlog, as a replica has one. PyMySQL shakes hands;
then raw bytes are read off its socket."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from secrets import randbelow
from typing import Any, Final

import numpy as np
import pymysql

from conf.sources.binlog_uri import BinlogSettings
from coordination.errors import TidelakeError
from streaming.source.binlog.database import (
    ServerFacts,
    connected,
    moved,
    refusal,
    server_of,
)
from streaming.source.binlog.format.events import Offsets
from streaming.source.binlog.format.packets import Stop, long_event, packet_starts, server_error
from streaming.source.binlog.position import BinlogPosition
from streaming.source.contract import SourceAway, SourceLost, SourceMoved

FIRST_SERVER_ID: Final = 1 << 31  # those below are for servers
HEARTBEAT_S: Final = 2.0  # between two of an idle server
SILENT_S: Final = 20.0  # without a byte: the connection is dead
_COM_BINLOG_DUMP: Final = 0x12
_MARIADB_CAPABILITY: Final = 4  # this client knows all of MariaDB's events
# MariaDB 11's events tell no position within a transaction: it is counted, so none may be left out.
_SEND_ANNOTATIONS: Final = 2
_UNREADABLE: Final = 1236  # the server cannot read its log from the position
_TORN: Final = "truncated in the middle of event"
PACKET_HEAD_BYTES: Final = 5  # length, number, status
_RECEIVE_BYTES: Final = 1 << 20


class TornFile(SourceLost):
    """The server was killed while it wrote the last event of the file."""


class BinlogDump:
    """Sends events from a position on, and waits at the log's end. For one thread, except for
    ``cancel``. Raises SourceAway where the server does not answer, SourceLost where it no longer
    has the position."""

    def __init__(
        self,
        settings: BinlogSettings,
        facts: ServerFacts,
        begin: BinlogPosition,
    ) -> None:
        """Connects."""
        self._settings = settings
        self._room = bytearray(_RECEIVE_BYTES)
        file = facts.files.name(begin.number)
        self.begin = facts.files.place(int(begin))
        heartbeat_ns = int(HEARTBEAT_S * 1e9)
        try:
            self._connection = connected(settings, read_timeout_s=SILENT_S)
            with self._connection.cursor() as cursor:
                if (now := server_of(cursor)) != facts.server:  # a name may have come to another
                    raise moved(settings, facts.server, now)
                cursor.execute(
                    "SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32', "
                    f"@master_heartbeat_period = {heartbeat_ns}, "
                    f"@source_heartbeat_period = {heartbeat_ns}, "
                    f"@mariadb_slave_capability = {_MARIADB_CAPABILITY}"
                )
            flags = _SEND_ANNOTATIONS if facts.is_mariadb and facts.major >= 11 else 0
            server_id = FIRST_SERVER_ID + randbelow(FIRST_SERVER_ID)  # nobody else may have it
            request = struct.pack("<IHI", begin.offset, flags, server_id) + file.encode()
            # PyMySQL has no call of its own for it.
            connection: Any = self._connection
            connection._execute_command(_COM_BINLOG_DUMP, request)
            self._socket: socket.socket = connection._sock
            self._socket.settimeout(SILENT_S)
        except (pymysql.err.MySQLError, OSError) as error:
            raise refusal(error, settings) from error
        except SourceMoved:
            self.close()
            raise

    def close(self) -> None:
        with suppress(Exception):
            self._connection._force_close()  # type: ignore[attr-defined]

    def cancel(self) -> None:
        """Called from another thread: ends a `receive` that waits."""
        with suppress(Exception):
            self._socket.shutdown(socket.SHUT_RDWR)

    def receive(self, buffer: bytearray) -> None:
        """Append what has come. Blocks until something has."""
        try:
            count = self._socket.recv_into(self._room)
        except OSError as error:
            raise self.away(str(error)) from error
        if not count:
            raise self.away("it has closed the connection")
        with memoryview(self._room) as room:
            buffer += room[:count]

    def starts(self, buffer: bytearray, begin: int) -> tuple[Offsets, int]:
        """Where the events begin that stand whole in ``buffer``, from the packet at ``begin`` on,
        and where their packets end. The packets of a long event are joined in place."""
        packets = packet_starts(buffer, begin, len(buffer))
        if len(packets.at) or packets.stop is None:
            return packets.at, packets.end
        if packets.stop is Stop.LONG_EVENT:
            return _joined_long(buffer, packets.end)
        if packets.stop is Stop.ERROR:
            raise self._said(*server_error(buffer, packets.end))
        raise self.away("it sends no more (it shuts down)")

    def away(self, why: str) -> SourceAway:
        return SourceAway(f"the database at {self._settings.address} sends no binlog: {why}")

    def _said(self, code: int, text: str) -> TidelakeError:
        if code == _UNREADABLE:
            error = TornFile if _TORN in text else SourceLost
            return error(
                f"the database at {self._settings.address} cannot send its binlog from "
                f"{self.begin}: {text}"
            )
        return refusal(pymysql.err.OperationalError(code, text), self._settings)


def _joined_long(buffer: bytearray, at: int) -> tuple[Offsets, int]:
    found = long_event(buffer, at, len(buffer))
    if found is None:
        return np.empty(0, np.int64), at
    event, end = found
    buffer[at:end] = bytes(PACKET_HEAD_BYTES) + event
    begin = at + PACKET_HEAD_BYTES
    return np.array([begin], np.int64), begin + len(event)
