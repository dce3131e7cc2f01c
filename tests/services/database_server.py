"""A real MariaDB or MySQL for tests: loopback, own folder, free port, rows in the binlog.

An account ``root`` may log in from anywhere without a password; tests make the accounts that they
are about. Collation and SQL mode are the server's own defaults, which differ between editions.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.cursors import Cursor

from coordination.etcd.embedded import free_ports
from tests.services.child_process import end_child, start_child
from tests.services.database_editions import MARIADB_10_11, Edition

START_PATIENCE_S = 60.0  # half a second on a quiet machine
# Small, and as safe as a kill -9 of the server (not of the machine) asks for.
SETTINGS: Mapping[str, str] = {
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "innodb-buffer-pool-size": "64M",
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-flush-method": "nosync",
    "sync-binlog": "0",
    "skip-name-resolve": "ON",
}
MARIADB_SETTINGS: Mapping[str, str] = {"innodb-log-file-size": "32M", "sync-frm": "OFF"}
MYSQL_SETTINGS: Mapping[str, str] = {
    "innodb-redo-log-capacity": "32M",
    "gtid-mode": "ON",
    "enforce-gtid-consistency": "ON",
}


class DatabaseError(Exception):
    """The server did not do what a test wants; the message has the end of its log."""


class DatabaseServer:
    """Start it, use ``port``, stop it; data and port survive ``end``, ``kill`` and ``restart``.

    Start it on a thread that outlives it (see ``child_process``). A test that starts one without
    the edition's packages is skipped, with the reason.
    """

    def __init__(
        self, edition: Edition = MARIADB_10_11, settings: Mapping[str, str | None] | None = None
    ) -> None:
        """``settings``: the server's options without their dashes; None takes one of ours out."""
        self.edition = edition
        own = MARIADB_SETTINGS if edition.is_mariadb else MYSQL_SETTINGS
        self._settings = {**SETTINGS, **own, **(settings or {})}
        self.host = "127.0.0.1"
        self.port = 0
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> DatabaseServer:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def folder(self) -> Path:
        """``data`` (with the binlogs) and ``server.log``."""
        assert self._folder is not None
        return self._folder

    def start(self) -> DatabaseServer:
        """Blocks until SQL is answered."""
        needs(self.edition)
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="tidelake-database-"))
            shutil.copytree(self.edition.template, self._folder / "data")
            (self.port,) = free_ports(1)
        try:
            self._launch()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Ends the process and removes its folder; stopping twice is fine."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def end(self, patience_s: float = 20.0) -> None:
        """SIGTERM, and SIGKILL after ``patience_s``; the data stay for ``restart``."""
        if self._process is not None:
            end_child(self._process, patience_s=patience_s)
            self._process = None

    def kill(self) -> None:
        """SIGKILL; the data stay for ``restart``."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self, settings: Mapping[str, str | None] | None = None) -> None:
        """End it (if it runs) and start it again, with other ``settings`` on top where given."""
        self.end()
        self._settings.update(settings or {})
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def connect(self, **settings: Any) -> Iterator[pymysql.Connection[Cursor]]:
        """A connection as ``root``, each statement a transaction unless ``settings`` differ.
        (Without TLS: the certificates of the machine take 26 ms of CPU to load.)"""
        account = {"host": self.host, "port": self.port, "user": "root", "autocommit": True}
        account |= {} if "ssl" in settings else {"ssl_disabled": True}
        connection = pymysql.connect(**{**account, **settings})
        try:
            yield connection
        finally:
            connection.close()

    def execute(self, *statements: str, database: str | None = None) -> None:
        """Run statements on a connection of their own, one after the other."""
        with self.connect(database=database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            own = connection.thread_id()  # type: ignore[no-untyped-call]
        if any(statement.startswith("XA PREPARE") for statement in statements):
            self._await_end_of(own)

    def _await_end_of(self, connection_id: int) -> None:
        """Until then nobody else can end what it has prepared."""
        ask = f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {connection_id}"
        while self.query(ask):
            time.sleep(0.01)

    def query(self, statement: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """The rows of one statement."""
        with self.connect(database=database) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def insert(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        """``table`` as ``database.table``; all rows in one transaction."""
        with self.connect(autocommit=False) as connection, connection.cursor() as cursor:
            marks = ", ".join(["%s"] * len(rows[0]))
            cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
            connection.commit()

    @contextmanager
    def database(self, name: str, options: str = "") -> Iterator[str]:
        """A database that is gone afterwards. ``options``: such as ``CHARACTER SET gbk``."""
        self.execute(f"DROP DATABASE IF EXISTS `{name}`", f"CREATE DATABASE `{name}` {options}")
        try:
            yield name
        finally:
            self.execute(f"DROP DATABASE IF EXISTS `{name}`")

    def log_tail(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")[-2000:]

    def _launch(self) -> None:
        options = {
            "datadir": str(self.folder / "data"),
            "socket": str(self.folder / "socket"),
            "pid-file": str(self.folder / "pid"),
            "tmpdir": str(self.folder),
            "bind-address": self.host,
            "port": str(self.port),
            **self._settings,
        }
        arguments = [f"--{name}={value}" for name, value in options.items() if value is not None]
        with (self.folder / "server.log").open("ab") as log:
            self._process = start_child(self.edition.command(*arguments), output=log)
        deadline = time.monotonic() + START_PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise DatabaseError(f"{self.edition.name} did not start:\n{self.log_tail()}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with self.connect(connect_timeout=5):
                return True
        except pymysql.err.OperationalError:
            return False


def needs(edition: Edition) -> None:
    """Skip the test where the edition is not there; fail it in a CI that must have it."""
    reason = edition.absence
    if reason is None:
        return
    if edition.is_required and os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
