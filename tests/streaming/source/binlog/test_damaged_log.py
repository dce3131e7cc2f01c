"""A log that was torn, changed, begun anew or thrown away: what is read, and what is said."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordination.errors import TidelakeError
from streaming.source.binlog import reader
from streaming.source.binlog.format.events import HEADER_BYTES
from streaming.source.binlog.format.type_codes import ROW_EVENTS, EventType
from streaming.source.block_job import ReadFailed
from streaming.source.contract import SourceAway, SourceLost, SourceMoved
from tests.acceptance.processes import await_
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import MARIADB_FIRST
from tests.streaming.source.binlog.binlogs import event_starts
from tests.streaming.source.binlog.readings import BinlogReading, settings_of

pytestmark = pytest.mark.mariadb


@pytest.fixture(params=MARIADB_FIRST, ids=lambda each: each.name)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with DatabaseServer(request.param) as running:
        running.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, v LONGTEXT)",
            "INSERT INTO shop.t VALUES (1, 'whole')",
        )
        yield running


def last_file(server: DatabaseServer, nth: int = 1) -> Path:
    return server.folder / "data" / str(server.query("SHOW BINARY LOGS")[-nth][0])


def starts_of(file: Path, *kinds: int) -> list[int]:
    """Where the events of these kinds begin in a binlog file."""
    raw = file.read_bytes()
    return [at for at in event_starts(raw).tolist() if raw[at + 4] in kinds]


def ids(reading: BinlogReading) -> list[int]:
    return sorted(change.row[0] for change in reading.changes.values())


@pytest.mark.parametrize("within", ["between events", "amid an event"])
def test_a_transaction_that_a_crash_has_torn_is_not_read(
    server: DatabaseServer, within: str
) -> None:
    """The server had written a part of it; its tables have nothing of it."""
    server.execute("INSERT INTO shop.t VALUES (2, 'before')")
    rows = ", ".join(f"({id_}, REPEAT('x', 4000))" for id_ in range(100, 120))
    server.execute(f"INSERT INTO shop.t VALUES {rows}")
    file = last_file(server)
    server.kill()
    event = starts_of(file, *ROW_EVENTS)[-1]
    with file.open("r+b") as log:
        log.truncate(event + (0 if within == "between events" else 500))
    server.restart()
    server.execute("REPLACE INTO shop.t VALUES (3, 'behind')")
    with BinlogReading(settings_of(server)) as reading:
        reading.to_end()
        assert ids(reading) == [1, 2, 3]


def test_changed_bytes_of_rows_are_dead_letters_and_the_log_goes_on(
    server: DatabaseServer,
) -> None:
    server.execute("INSERT INTO shop.t VALUES (2, 'changed')", "FLUSH BINARY LOGS")
    server.execute("INSERT INTO shop.t VALUES (3, 'behind')")
    file = last_file(server, 2)
    at = starts_of(file, *ROW_EVENTS)[-1] + HEADER_BYTES + 12
    change(file, at)
    with BinlogReading(settings_of(server)) as reading:
        reading.to_end()
        assert ids(reading) == [1, 3]
        (letter,) = reading.bad
        assert letter["error_class"] == "checksum"
        assert b"changed" in letter["value"]


def change(file: Path, at: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[at] ^= 0x41
    file.write_bytes(raw)


def test_changed_bytes_of_a_transactions_name_or_end_stop_the_reading_there(
    server: DatabaseServer,
) -> None:
    server.execute("INSERT INTO shop.t VALUES (2, 'changed')", "FLUSH BINARY LOGS")
    file = last_file(server, 2)
    at = starts_of(file, EventType.XID)[-1]
    change(file, at + HEADER_BYTES + 1)
    with (
        BinlogReading(settings_of(server)) as reading,
        pytest.raises(ReadFailed, match=rf"{file.name} position {at}.*CRC32"),
    ):
        reading.to_end()


def test_a_purged_file_is_named(server: DatabaseServer) -> None:
    with BinlogReading(settings_of(server)) as reading:
        reading.to_end()
        begin, stored = reading.at, reading.store()
    name = last_file(server).name
    server.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS", "INSERT INTO shop.t VALUES (2, 'b')")

    def is_gone() -> bool:  # once nobody reads it any more
        server.execute(f"PURGE BINARY LOGS TO '{last_file(server).name}'")
        return len(server.query("SHOW BINARY LOGS")) == 1

    await_("the purge", is_gone, within_s=30)
    with pytest.raises(SourceLost, match=rf"{name} position \d+ is needed.*has deleted it"):
        BinlogReading(settings_of(server), begin=begin, recorded=stored)


def reset(server: DatabaseServer) -> None:
    is_mysql = not server.edition.is_mariadb
    server.execute("RESET BINARY LOGS AND GTIDS" if is_mysql else "RESET MASTER")


def test_a_log_that_was_begun_anew_is_said_so(server: DatabaseServer) -> None:
    server.execute("FLUSH BINARY LOGS", "INSERT INTO shop.t VALUES (2, 'b')")
    with BinlogReading(settings_of(server)) as reading:
        reading.to_end()
        begin, stored = reading.at, reading.store()
        reset(server)
        with pytest.raises(SourceLost, match="begun anew"):
            reading.to_end()
    with pytest.raises(SourceLost, match="begun anew"):
        BinlogReading(settings_of(server), begin=begin, recorded=stored)


def test_a_log_that_was_begun_anew_and_has_grown_is_not_taken_for_the_one_before(
    server: DatabaseServer,
) -> None:
    reset(server)
    server.execute("INSERT INTO shop.t VALUES (2, 'b')")
    with BinlogReading(settings_of(server)) as reading:
        reading.to_end()
        begin, stored = reading.at, reading.store()
        time.sleep(1.1)  # the time of a file is in whole seconds
        reset(server)
        server.execute("INSERT INTO shop.t VALUES (3, 'b')", "INSERT INTO shop.t VALUES (4, 'b')")
        with pytest.raises(SourceLost, match=r"begun anew|cannot send its binlog"):
            reading.to_end()
    with (
        BinlogReading(settings_of(server), begin=begin, recorded=stored) as reading,
        pytest.raises(SourceLost, match="begun anew"),
    ):
        reading.to_end()


def test_a_position_within_an_event_is_refused(server: DatabaseServer) -> None:
    end = int(server.query("SHOW BINARY LOGS")[-1][1])
    settings = settings_of(
        server,
        task_mode="incremental",
        binlog_name=last_file(server).name,
        binlog_pos=end - 7,
    )
    server.execute("INSERT INTO shop.t VALUES (2, 'b')")
    with BinlogReading(settings) as reading, pytest.raises(TidelakeError) as found:
        reading.to_end()
    assert f"position {end - 7}" in str(found.value)


def test_another_server_at_the_same_address(server: DatabaseServer) -> None:
    reading = BinlogReading(settings_of(server))
    with reading, DatabaseServer(server.edition) as other:
        reading.to_end()
        facts = reading.source.shape()
        there = BinlogReading(settings_of(other))
        with there, pytest.raises(SourceMoved, match="is another server now"):
            there.source.check_unchanged(facts)


def test_a_large_read_by_executors_is_the_drivers(
    server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ", ".join(f"({id_}, REPEAT('x', 900))" for id_ in range(100, 1_000))
    server.execute(f"INSERT INTO shop.t VALUES {rows}", "UPDATE shop.t SET v = 'u'")
    with BinlogReading(settings_of(server)) as small:
        small.to_end()
    monkeypatch.setattr(reader, "FEW_BYTES", 1)
    monkeypatch.setattr(reader, "STRETCH_BYTES", 50_000)
    with BinlogReading(settings_of(server)) as large:
        large.to_end()
        assert large.jobs.count
    assert large.changes == small.changes


def test_too_many_connections_pass(server: DatabaseServer) -> None:
    server.execute("CREATE USER few", "GRANT SELECT, REPLICATION SLAVE ON *.* TO few")
    server.execute("GRANT REPLICATION CLIENT ON *.* TO few")
    server.execute("ALTER USER few WITH MAX_USER_CONNECTIONS 1")
    with (
        server.connect(user="few"),
        pytest.raises(SourceAway, match=r"ALTER USER 'few'@.* WITH MAX_USER_CONNECTIONS n"),
    ):
        BinlogReading(settings_of(server, user="few"))


def test_lost_rights_are_named(server: DatabaseServer) -> None:
    server.execute("CREATE USER poor", "GRANT SELECT ON *.* TO poor")
    with pytest.raises(TidelakeError, match="GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT"):
        BinlogReading(settings_of(server, user="poor")).to_end()
    server.execute("GRANT REPLICATION CLIENT ON *.* TO poor")
    with pytest.raises(TidelakeError, match="GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT"):
        BinlogReading(settings_of(server, user="poor")).to_end()
