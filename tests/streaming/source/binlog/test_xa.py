"""XA transactions: their rows count at the COMMIT, wherever and whenever their PREPARE was."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from streaming.source.binlog import kept_files, log_scan, log_tail, reader
from streaming.source.binlog.database import Database
from streaming.source.binlog.format.control.xa import Xid
from streaming.source.binlog.kept_files import PreparedWatch
from streaming.source.binlog.walk import prepared
from streaming.source.contract import SourceLost
from tests.acceptance.processes import await_
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import BOTH_FIRST
from tests.streaming.source.binlog.readings import BinlogReading, Clock, settings_of

pytestmark = pytest.mark.mariadb


@pytest.fixture(scope="module", params=BOTH_FIRST, ids=lambda each: each.name)
def running(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with DatabaseServer(request.param) as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v TEXT)")
        yield server


@pytest.fixture
def server(running: DatabaseServer) -> DatabaseServer:
    """Its log begins anew, and its table is empty."""
    for xid in prepared_ones(running):
        running.execute(f"XA ROLLBACK {xid}")
    is_mysql = not running.edition.is_mariadb
    running.execute("TRUNCATE shop.t")
    running.execute("RESET BINARY LOGS AND GTIDS" if is_mysql else "RESET MASTER")
    return running


def prepared_ones(server: DatabaseServer) -> list[Xid]:
    database = Database(settings_of(server))
    found = PreparedWatch()
    found.concern(database, 0.0)
    database.close()
    return list(found.since_s)


def prepare(server: DatabaseServer, xid: str, *statements: str) -> None:
    server.execute(
        f"XA START '{xid}'", *statements, f"XA END '{xid}'", f"XA PREPARE '{xid}'", database="shop"
    )


def insert(*ids: int) -> str:
    return "INSERT INTO shop.t VALUES " + ", ".join(f"({each}, 'x{each}')" for each in ids)


def ids(reading: BinlogReading) -> list[int]:
    """In the order of their commits."""
    changes = sorted(reading.changes.values(), key=lambda each: (each.commit_ts, each.position))
    return [each.row[0] for each in changes]


def read_all(server: DatabaseServer) -> list[int]:
    with BinlogReading(settings_of(server)) as reading:
        reading.to_end()
        return ids(reading)


def test_rows_count_at_the_commit(server: DatabaseServer) -> None:
    prepare(server, "a", insert(1, 2))
    server.execute(insert(3))
    prepare(server, "b", insert(4), insert(5))
    with BinlogReading(settings_of(server)) as reading:
        reading.to_end()
        assert ids(reading) == [3]
        before_ts = reading.limits.global_ts
        server.execute("XA COMMIT 'b'", insert(6), "XA COMMIT 'a'", insert(7))
        reading.to_end()
        assert ids(reading) == [3, 4, 5, 6, 1, 2, 7]
        assert min(c.commit_ts for c in reading.changes.values() if c.row[0] != 3) >= before_ts
        times = {c.row[0]: c.commit_ts for c in reading.changes.values()}
        assert times[4] == times[5] < times[6] < times[1] == times[2] < times[7]


def test_a_rollback_leaves_no_row_and_one_phase_is_a_commit(server: DatabaseServer) -> None:
    prepare(server, "a", insert(1))
    server.execute("XA ROLLBACK 'a'", insert(2))
    server.execute("XA START 'a'", insert(3), "XA END 'a'", "XA COMMIT 'a' ONE PHASE")
    prepare(server, "a", insert(4))
    server.execute("XA COMMIT 'a'")
    server.execute("XA START 'a'", insert(5), "XA END 'a'", "XA ROLLBACK 'a'")
    assert read_all(server) == [2, 3, 4]


def test_every_kind_of_change_and_compressed_ones(server: DatabaseServer) -> None:
    server.execute(insert(1, 2, 3))
    compressed = "log_bin_compress" if server.edition.is_mariadb else None
    if compressed:
        server.execute(f"SET GLOBAL {compressed} = ON")
    else:
        server.execute("SET GLOBAL binlog_transaction_compression = ON")
    longest = "n" * 64 + "','" + "q" * 64  # its XA COMMIT is long enough to be compressed
    prepare(
        server, longest,
        "UPDATE t SET v = REPEAT('y', 900) WHERE id = 1", "DELETE FROM t WHERE id = 2",
        "INSERT INTO t VALUES (9, REPEAT('z', 900))", "UPDATE t SET id = 10 WHERE id = 9",
    )  # fmt: skip
    server.execute(f"XA COMMIT '{longest}'")
    if compressed:
        server.execute(f"SET GLOBAL {compressed} = OFF")
    else:
        server.execute("SET GLOBAL binlog_transaction_compression = OFF")
    with BinlogReading(settings_of(server)) as reading:
        reading.to_end()
        changes = sorted(reading.changes.values(), key=lambda c: (c.commit_ts, c.position, c.index))
        table: dict[int, str] = {}
        for change in changes[3:]:
            assert change.commit_ts == changes[-1].commit_ts
        assert [(c.op, c.row[0], len(c.row[1])) for c in changes[3:]] == [
            *((2, 1, 900), (0, 2, 2), (1, 9, 900), (2, 10, 900)),
        ]
        assert not table


@pytest.mark.parametrize("kept", ["its bytes are kept", "its place is kept"])
def test_a_restart_between_prepare_and_commit(
    server: DatabaseServer, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    """The PREPARE lies in an earlier file, before the place from which a later life reads. Names of
    XA transactions come again."""
    if kept == "its place is kept":
        monkeypatch.setattr(prepared, "MOST_BYTES", 10)
    prepare(server, "a", insert(1))
    server.execute("XA ROLLBACK 'a'")
    prepare(server, "a", insert(2))
    prepare(server, "other", insert(3))
    server.execute("FLUSH BINARY LOGS", insert(4), "FLUSH BINARY LOGS", insert(5))
    with BinlogReading(settings_of(server)) as first:
        first.to_end()
        assert ids(first) == [4, 5]
        stored, begin = first.store(), first.at
        server.execute(insert(6), "XA COMMIT 'a'")
        prepare(server, "a", insert(7))
        server.execute("XA COMMIT 'a'", "XA COMMIT 'other'", insert(8))
        first.to_end()
    with BinlogReading(settings_of(server), begin=begin, recorded=stored) as second:
        second.to_end()
        assert ids(second) == [6, 2, 7, 3, 8]
        assert second.changes == {at: first.changes[at] for at in second.changes}
    prepared_at = min(at for at, change in first.changes.items() if change.row[0] == 2)[0]
    with BinlogReading(settings_of(server), begin=prepared_at, recorded=stored) as third:
        third.to_end()
        assert third.changes == first.changes


def test_an_xa_transaction_from_before_the_beginning(server: DatabaseServer) -> None:
    """A first reading begins between PREPARE and COMMIT: its rows count, and nothing else from
    there."""
    server.execute(insert(1))
    prepare(server, "a", insert(2))
    name, end = server.query("SHOW BINARY LOGS")[-1][:2]
    server.execute("XA COMMIT 'a'", insert(3))
    settings = settings_of(server, task_mode="incremental", binlog_name=name, binlog_pos=int(end))
    with BinlogReading(settings) as first:
        stored = first.store()
        first.to_end()
        assert ids(first) == [2, 3]
    earlier = min(at for at, _ in first.changes)
    with BinlogReading(settings, begin=earlier, recorded=stored) as second:
        second.to_end()
        assert second.changes == first.changes


def test_a_crash_of_the_server_between(server: DatabaseServer) -> None:
    prepare(server, "a", insert(1))
    prepare(server, "b", insert(2))
    with BinlogReading(settings_of(server)) as reading:
        reading.to_end()
        server.kill()
        server.restart()
        server.execute("XA COMMIT 'a'", "XA ROLLBACK 'b'", insert(3))
        reading.to_end()
        assert ids(reading) == [1, 3]
    assert read_all(server) == [1, 3]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_large_one_is_read_again_from_its_place(
    server: DatabaseServer, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(prepared, "MOST_BYTES", 1_000)
    monkeypatch.setattr(log_tail, "LARGE_BYTES", 20_000)
    monkeypatch.setattr(reader, "STRETCH_BYTES", 4_000)
    monkeypatch.setattr(reader, "READ_BYTES", 30_000)
    monkeypatch.setattr(log_scan, "STRETCH_BYTES", 4_000)
    prepare(server, "a", *(insert(*range(n, n + 50)) for n in range(0, 5_000, 50)))
    server.execute(f"XA {end} 'a'", insert(9_999))
    server.execute(
        "XA START 'b'", "UPDATE shop.t SET v = 'one'", "XA END 'b'", "XA COMMIT 'b' ONE PHASE"
    )
    with BinlogReading(settings_of(server)) as reading:
        reading.to_end()
        rows = [9_999] if end == "ROLLBACK" else [*range(5_000), 9_999]
        assert ids(reading) == [*rows, *rows]
        times = [change.commit_ts for change in reading.changes.values()]
        assert len(set(times)) == (2 if end == "ROLLBACK" else 3)


def test_tables_that_are_left_out(server: DatabaseServer) -> None:
    server.execute("CREATE TABLE shop.other (id INT PRIMARY KEY)")
    prepare(server, "a", "INSERT INTO other VALUES (1)")
    server.execute("XA COMMIT 'a'", insert(1), "DROP TABLE shop.other")
    assert read_all(server) == [1]


def test_a_prepare_that_was_purged_is_named(server: DatabaseServer) -> None:
    prepare(server, "a", insert(1))
    server.execute("FLUSH BINARY LOGS", insert(2))
    last = server.query("SHOW BINARY LOGS")[-1][0]

    def is_gone() -> bool:  # once nobody reads it any more
        server.execute(f"PURGE BINARY LOGS TO '{last}'")
        return len(server.query("SHOW BINARY LOGS")) == 1

    await_("the purge", is_gone, within_s=30)
    server.execute("XA COMMIT 'a'")
    with (
        BinlogReading(settings_of(server)) as reading,
        pytest.raises(SourceLost, match=r"XA COMMIT X'61',X'',1.*deleted"),
    ):
        reading.to_end()


class Coordinators:
    """Random XA transactions beside plain ones, several prepared at once, some with a name that was
    used before."""

    def __init__(self, server: DatabaseServer, dice: random.Random) -> None:
        self._server, self._dice = server, dice
        self._open: list[str] = []
        self._next_id = time.time_ns() % 1_000_000_000

    def write(self, count: int) -> None:
        for _ in range(count):
            self._one(self._dice.random())

    def _one(self, chance: float) -> None:
        dice, server = self._dice, self._server
        if chance < 0.4 and len(self._open) < 4:
            name = dice.choice([f"n{each}" for each in range(6) if f"n{each}" not in self._open])
            prepare(server, name, *(self._insert() for _ in range(dice.choice((1, 2, 30)))))
            self._open.append(name)
        elif chance < 0.7 and self._open:
            name = self._open.pop(dice.randrange(len(self._open)))
            server.execute(f"XA {dice.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))} '{name}'")
        elif chance < 0.8:
            server.execute("FLUSH BINARY LOGS")
        else:
            server.execute(self._insert())

    def _insert(self) -> str:
        self._next_id += 1
        return f"INSERT INTO shop.t VALUES ({self._next_id}, '{'x' * self._dice.choice((1, 99))}')"


@pytest.mark.seeds(1)
def test_every_reading_finds_the_same_rows(
    server: DatabaseServer, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Lives end anywhere, and each begins at some earlier place with what was stored last."""
    dice = random.Random(seed)
    Clock().install(monkeypatch)
    monkeypatch.setattr(log_tail, "LARGE_BYTES", dice.choice((1_500, 1 << 20)))
    monkeypatch.setattr(reader, "STRETCH_BYTES", dice.choice((300, 3_000, 1 << 20)))
    monkeypatch.setattr(log_scan, "STRETCH_BYTES", dice.choice((300, 1 << 20)))
    monkeypatch.setattr(prepared, "MOST_BYTES", dice.choice((100, 1 << 20)))
    writer = Coordinators(server, dice)
    numbers: dict[tuple[int, int], object] = {}
    begin = int(server.query("SHOW BINARY LOGS")[-1][1])
    places: list[int] = []
    stored = {}
    for _ in range(10):
        low_water = dice.choice(places) if places else None
        with BinlogReading(settings_of(server), begin=low_water, recorded=stored) as reading:
            for _ in range(dice.randint(1, 4)):
                writer.write(dice.choice((1, 4, 10)))
                reading.turn(messages=dice.choice((10, 100, 10_000)))
                stored = reading.store()
                places.append(reading.at)
            resolved = reading.limits.global_ts
        for at, change in reading.changes.items():
            if change.commit_ts < resolved:
                assert numbers.setdefault(at, change) == change
    with BinlogReading(settings_of(server), recorded=stored) as whole:
        whole.to_end()
        assert whole.changes.items() >= numbers.items()
        there = server.query("SELECT id FROM shop.t ORDER BY id")
        assert sorted(change.row[0] for change in whole.changes.values()) == [n for (n,) in there]
    assert begin


def test_one_that_nobody_ends_is_a_concern(
    server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BinlogReading(settings_of(server)) as reading:
        reading.to_end()
        prepare(server, "stuck", insert(1))
        assert concern(reading) is None, "it may be ended in a moment"
        monkeypatch.setattr(kept_files, "PREPARED_LONG_S", 0.0)
        assert "X'737475636b',X'',1. Until then" in (concern(reading) or "")
        server.execute("XA ROLLBACK 'stuck'")
        assert concern(reading) is None


def concern(reading: BinlogReading) -> str | None:
    kept = reading.source.kept(reading.position)
    return kept.concern if kept else None
