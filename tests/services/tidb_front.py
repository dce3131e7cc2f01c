"""A stand-in for a TiDB: a MariaDB behind a proxy that answers TiDB's own statements.

    program ──► TidbFront ─┬─ tidb_snapshot, TSOs, GC, versions: answered here, as TiDB does
                           └─ SELECTs of rows, information_schema, the rest: the MariaDB's answer

It keeps no history: rows are the MariaDB's of now. What it checks is that each row is asked for on
a connection that has chosen the moment, and that GC has not passed it; a statement that breaks this
is refused and noted. It is no TiDB, and proves nothing about one's planner or its text protocol.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any, Final

from coordination.model import TSO_LOGICAL_BITS
from tests.services.database_server import DatabaseServer

VERSION: Final = "8.0.11-TiDB-v8.5.1"
CLUSTER: Final = "7423847583219874213"
QUERY, TLS = 3, 0x0800
TOO_OLD, GC_TOO_EARLY, NO_RIGHT, UNKNOWN_VARIABLE = 8055, 9006, 1142, 1193

Rows = Sequence[Sequence[str | None]]


class Refused(Exception):
    """An error packet: code and text."""


class TidbFront:
    """A context manager; ``port`` is where the TiDB answers.

    ``types``: what TiDB has for a column that MariaDB shows as another type, by the column's name
    (MariaDB's JSON is a longtext). ``before``: called with each statement that reads rows."""

    def __init__(
        self,
        server: DatabaseServer,
        *,
        types: dict[str, str] | None = None,
        before: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.port = 0
        self.life_time = "10m0s"
        self.safe_ts = 0  # GC has come so far
        self.held_ts = 0  # the clock stands still there
        self.hides_gc = False  # the account may not read TiDB's own tables
        self.cluster = CLUSTER
        self.reads: list[tuple[int, str]] = []  # TSO and statement
        self.wrong: list[str] = []  # read without a moment, or not known here
        self._server = server
        self._types = types or {}
        self._before = before
        self._last_ts = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> TidbFront:
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="tidb-front", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def now(self) -> int:
        """A new TSO, unless the clock is held."""
        if self.held_ts:
            return self.held_ts
        with self._lock:
            self._last_ts = max(int(time.time() * 1e3) << TSO_LOGICAL_BITS, self._last_ts + 1)
            return self._last_ts

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                there = socket.create_connection((self._server.host, self._server.port))
                connection = _Connection(self, client, there)
                threading.Thread(target=connection.run, daemon=True).start()

    # What it answers, by the statement; the groups of the expression are the arguments.

    def answer(self, connection: _Connection, statement: str) -> Rows | str | None:
        """Rows, OK (""), or None: the MariaDB answers. Raises Refused."""
        for pattern, make in self._own.items():
            if found := re.fullmatch(pattern, statement, re.IGNORECASE | re.DOTALL):
                return make(self, connection, *found.groups())
        if re.match(r"SET |SELECT .* FROM information_schema\.|SHOW ", statement):
            return None
        if re.search(r" FROM `", statement):
            return self._read(connection, statement)
        self.wrong.append(f"not known here: {statement}")
        raise Refused(1064, "You have an error in your SQL syntax")

    def _read(self, connection: _Connection, statement: str) -> None:
        if not connection.snapshot_ts:
            self.wrong.append(f"read without a moment: {statement}")
            raise Refused(1105, "the test wants tidb_snapshot")
        self._before(statement)
        self.reads.append((connection.snapshot_ts, statement))
        if connection.snapshot_ts < self.safe_ts:
            raise Refused(
                GC_TOO_EARLY,
                "GC life time is shorter than transaction duration, transaction starts at "
                f"{_shown(connection.snapshot_ts)}, GC safe point is {_shown(self.safe_ts)}",
            )

    def _snapshot(self, connection: _Connection, ts: str) -> str:
        if int(ts) < self.safe_ts:
            raise Refused(TOO_OLD, f"snapshot is older than GC safe point {_shown(self.safe_ts)}")
        connection.snapshot_ts = int(ts)
        return ""

    def _begin(self, connection: _Connection) -> str:
        connection.start_ts = self.now()
        return ""

    def _rollback(self, connection: _Connection) -> str:
        connection.start_ts = 0
        return ""

    def _of_tidbs_table(self, _: _Connection, name: str) -> Rows:
        if self.hides_gc:
            raise Refused(NO_RIGHT, "SELECT command denied to user 'u'@'%' for table 'tidb'")
        known = {"cluster_id": self.cluster, "tikv_gc_safe_point": _shown(self.safe_ts)}
        return [(known[name],)] if known.get(name) else []

    def _columns(self, _: _Connection, statement: str) -> Rows:
        """With TiDB's types."""
        rows = self._server.query(statement)
        return [
            tuple(self._types.get(row[2], text) if at == 3 else text for at, text in enumerate(row))
            for row in rows
        ]

    def _defined(self, _: _Connection, table: str) -> Rows:
        ((name, text),) = self._server.query(f"SHOW CREATE TABLE {table}")
        for column, kind in self._types.items():
            text = re.sub(rf"(?m)^  `{column}` .*?(,?)$", rf"  `{column}` {kind}\1", text)
        text = re.sub(r"PRIMARY KEY \(([^)]*)\)", r"\g<0> /*T![clustered_index] CLUSTERED */", text)
        text = text.replace("AUTO_INCREMENT,", "/*T![auto_rand] AUTO_RANDOM(5) */,")
        return [(name, text)]

    _own: Final[dict[str, Callable[..., Any]]] = {
        r"SELECT VERSION\(\)": lambda *_: [(VERSION,)],
        r"SELECT tidb_version\(\)": lambda *_: [("Release Version: v8.5.1\nEdition: Community",)],
        r"BEGIN": lambda self, connection: self._begin(connection),
        r"ROLLBACK": lambda self, connection: self._rollback(connection),
        r"SELECT @@tidb_current_ts": lambda _, connection: [(str(connection.start_ts),)],
        r"SELECT @@GLOBAL\.tidb_gc_life_time": lambda self, _: [(self.life_time,)],
        r"SELECT VARIABLE_VALUE FROM mysql\.tidb WHERE VARIABLE_NAME = '(\w+)'": _of_tidbs_table,
        r"SET SESSION tidb_snapshot = '(\d+)'": _snapshot,
        r"(SELECT .* FROM information_schema\.COLUMNS .*)": _columns,
        r"SHOW CREATE TABLE (.*)": _defined,
    }


class _Connection:
    """One of the program's, and the one behind it."""

    def __init__(self, front: TidbFront, client: socket.socket, there: socket.socket) -> None:
        self.snapshot_ts = 0
        self.start_ts = 0
        self._front = front
        self._client = client
        self._there = there
        self._in = client.makefile("rb")

    def run(self) -> None:
        behind = self._there.makefile("rb")
        with closing(behind), self._client, self._there, self._in, suppress(OSError, EOFError):
            self._client.sendall(_as_tidb(_packet(behind)))
            # Answers are passed on as they come; ours are written while none is under way.
            threading.Thread(target=self._pass_on, args=(behind,), daemon=True).start()
            is_in = False  # its login has no command
            while True:
                packet = _packet(self._in)
                body = packet[4:]
                if is_in and body[:1] == bytes([QUERY]):
                    self._take(packet, body[1:].decode())
                else:
                    self._there.sendall(packet)
                is_in = True

    def _take(self, packet: bytes, statement: str) -> None:
        try:
            answer = self._front.answer(self, statement)
        except Refused as error:
            code, text = error.args
            self._client.sendall(
                _numbered([struct.pack("<BH", 0xFF, code) + b"#HY000" + text.encode()])
            )
            return
        if answer is None:
            self._there.sendall(packet)
        elif isinstance(answer, str):
            self._client.sendall(_numbered([b"\0\0\0\2\0\0\0"]))
        else:
            self._client.sendall(_result(answer))

    def _pass_on(self, behind: Any) -> None:
        with suppress(OSError, ValueError):
            while data := behind.read1(1 << 16):
                self._client.sendall(data)
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)


def _packet(stream: Any) -> bytes:
    head = stream.read(4)
    if len(head) < 4:
        raise EOFError
    return bytes(head + stream.read(int.from_bytes(head[:3], "little")))


def _as_tidb(greeting: bytes) -> bytes:
    """The server's first packet: TiDB's version, and no TLS, into which nobody could look."""
    version, rest = greeting[5:].split(b"\0", 1)
    assert version
    before, flags, after = rest[:13], rest[13:15], rest[15:]
    kept = int.from_bytes(flags, "little") & ~TLS
    body = b"\x0a" + VERSION.encode() + b"\0" + before + kept.to_bytes(2, "little") + after
    return len(body).to_bytes(3, "little") + b"\0" + body


def _result(rows: Rows) -> bytes:
    end = b"\xfe\0\0\2\0"
    width = len(rows[0]) if rows else 1
    names = b"".join(map(_text, ("def", "", "", "", "c", "")))
    column = names + b"\x0c" + struct.pack("<HIBHB2x", 45, 1 << 16, 0xFD, 0, 0)
    cells = [b"".join(map(_text, row)) for row in rows]
    return _numbered([bytes([width]), *[column] * width, end, *cells, end])


def _text(value: object) -> bytes:
    if value is None:
        return b"\xfb"
    data = str(value).encode()
    size = bytes([len(data)]) if len(data) < 251 else b"\xfc" + struct.pack("<H", len(data))
    return size + data


def _numbered(bodies: Sequence[bytes]) -> bytes:
    return b"".join(
        len(body).to_bytes(3, "little") + bytes([number & 0xFF]) + body
        for number, body in enumerate(bodies, 1)
    )


def _shown(ts: int) -> str:
    """A TSO as TiDB shows its safe point."""
    at = datetime.fromtimestamp((ts >> TSO_LOGICAL_BITS) / 1e3, UTC)
    return at.strftime("%Y%m%d-%H:%M:%S %z")
