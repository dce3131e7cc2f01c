"""A read to which the server sends nothing says so, and why; it does not keep a stop waiting."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordination.errors import TidelakeError
from streaming.source.contract import SourceAway
from streaming.source.dump import silent_reads
from streaming.source.dump.copy_tables import CopiedTable, copy_tables
from streaming.source.dump.session import Session
from streaming.source.dump.silent_reads import WATCH, Awaited, SilentReads, of
from streaming.source.dump.source_table import SourceTable
from tests.own_lines import own_text
from tests.services.database_editions import MARIADB_10_11
from tests.services.database_server import DatabaseServer
from tests.streaming.source.dump.copied import table_of, to

pytestmark = pytest.mark.mariadb


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(WATCH, "_says_after_s", 0.3)
    monkeypatch.setattr(silent_reads, "STOPS_AFTER_S", 0.3)


class Copying:
    """A copy of one table on a thread of its own."""

    def __init__(self, server: DatabaseServer, table: SourceTable, folder: Path) -> None:
        self.is_to_stop = False
        self.copied: list[CopiedTable] = []
        self.error: TidelakeError | None = None
        self._arguments = to(server), [table], folder
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.copied += copy_tables(*self._arguments, is_stopped=lambda: self.is_to_stop)
        except TidelakeError as error:
            self.error = error

    def ends(self) -> None:
        self._thread.join(20.0)
        assert not self._thread.is_alive()


@contextmanager
def locked(server: DatabaseServer, schema: str) -> Iterator[None]:
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLES t WRITE")
        yield
        cursor.execute("UNLOCK TABLES")


def told(server: DatabaseServer) -> str:
    until_s = time.monotonic() + 20.0
    while not (found := WATCH.told(f"{server.host}:{server.port}")):
        assert time.monotonic() < until_s
        time.sleep(0.02)
    return found


def made(server: DatabaseServer, schema: str) -> SourceTable:
    server.execute(
        "CREATE TABLE t (a INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=schema
    )
    return table_of(server, schema, "t")


def test_a_lock_of_another_session_is_told_while_it_holds_the_copy(
    server: DatabaseServer, schema: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    table = made(server, schema)
    with locked(server, schema):
        copying = Copying(server, table, tmp_path)
        said = told(server)
        assert f"of {schema}.t: Waiting for table metadata lock. Another session holds" in said
        assert "SHOW FULL PROCESSLIST" in said
    copying.ends()
    assert [each.rows for each in copying.copied] == [1]
    until_s = time.monotonic() + 10.0
    while f"it is over: {said}" not in own_text(caplog):
        assert time.monotonic() < until_s
        time.sleep(0.02)
    assert own_text(caplog).count("has sent nothing") == 2
    assert WATCH.told(f"{server.host}:{server.port}") is None


def test_a_stop_does_not_wait_for_a_lock(server: DatabaseServer, schema: str, tmp_path: Path):
    table = made(server, schema)
    with locked(server, schema):
        copying = Copying(server, table, tmp_path)
        told(server)
        copying.is_to_stop = True
        copying.ends()
    assert isinstance(copying.error, SourceAway)


def test_a_server_that_stands_still_is_told_and_its_copy_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(WATCH, "_unanswered_s", 0.5)
    monkeypatch.setattr(WATCH, "_gives_up_s", 1.5)
    with DatabaseServer(MARIADB_10_11) as server, server.database("d") as schema:
        table = made(server, schema)
        with locked(server, schema):
            copying = Copying(server, table, tmp_path)
            told(server)
            server.pause()
            try:
                until_s = time.monotonic() + 20.0
                while "does not answer another connection either" not in told(server):
                    assert time.monotonic() < until_s
                    time.sleep(0.02)
                copying.ends()
            finally:
                server.resume()
        assert isinstance(copying.error, SourceAway)
        copying = Copying(server, table, tmp_path)
        copying.ends()
        assert [each.rows for each in copying.copied] == [1]


def test_a_read_that_the_server_works_on_is_told_too(server: DatabaseServer):
    session = Session(to(server))
    asking = threading.Thread(target=lambda: session.query("SELECT SLEEP(2)"))
    asking.start()
    assert "is at it: User sleep" in told(server)
    asking.join()
    session.close()


def test_connections_that_nobody_has_end_the_watch():
    class Idle:
        address = "h:1"
        awaited = None

        def is_to_stop(self) -> bool:
            return False

        def state(self) -> str:
            return ""

        def break_off(self) -> None: ...

    watch, reading = SilentReads(), Idle()
    watch.watch(reading)
    assert watch._is_looking
    del reading
    until_s = time.monotonic() + 10.0
    while watch._is_looking:
        assert time.monotonic() < until_s
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("SELECT `a` FROM `s h`.`o``d` WHERE `a` > 'FROM `x`'", "s h.o`d"),
        ("LOCK TABLES `d`.`t` READ", "d.t"),
        ("SHOW CREATE TABLE `d`.`t`", "d.t"),
        ("SHOW  STATUS LIKE 'x'", "its answer to SHOW STATUS"),
    ],
)
def test_a_sentence_names_the_table_and_no_value(statement: str, named: str):
    assert of(Awaited(statement, 0.0)) == named
