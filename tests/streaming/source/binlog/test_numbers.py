"""Whoever reads a change again, from wherever and whenever, finds it under the same commit-ts."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.source.binlog import log_tail, reader, source
from streaming.source.binlog.source import BinlogSource
from streaming.stream.reading import Place, Reading
from tests.services.database_editions import MYSQL_9_7
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import MARIADB_FIRST
from tests.streaming.source.binlog.readings import BinlogReading, Clock, settings_of

pytestmark = pytest.mark.mariadb


@pytest.fixture(scope="module", params=MARIADB_FIRST, ids=lambda each: each.name)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with DatabaseServer(request.param) as running:
        running.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v TEXT)")
        yield running


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    clock.install(monkeypatch)
    return clock


def begun(server: DatabaseServer) -> BinlogReading:
    """A reading that has read all that is there."""
    reading = BinlogReading(settings_of(server))
    reading.to_end()
    return reading


class Writer:
    """Random transactions, some in sessions whose clock is wrong."""

    def __init__(self, server: DatabaseServer, dice: random.Random) -> None:
        self._server = server
        self._dice = dice
        self.first_id = self.next_id = time.time_ns() % 1_000_000_000

    def write(self, count: int) -> None:
        dice = self._dice
        for _ in range(count):
            with (
                self._server.connect(autocommit=False, database="shop") as link,
                link.cursor() as cursor,
            ):
                if self._server.edition is MYSQL_9_7 and dice.random() < 0.3:
                    cursor.execute("SET gtid_next = 'AUTOMATIC:tag'")
                if off_s := dice.choice((0, 0, -3_600, -2, 30, 55, 65, 90, 300, 10**7)):
                    cursor.execute(f"SET timestamp = {int(time.time()) + off_s}")
                for _ in range(dice.choice((1, 1, 1, 3, 12))):
                    self.next_id = self.next_id % 2_000_000_000 + 1
                    text = "x" * dice.choice((1, 10, 500))
                    cursor.execute("INSERT INTO t VALUES (%s, %s)", (self.next_id, text))
                if dice.random() < 0.1:
                    link.rollback()
                link.commit()
            if dice.random() < 0.1:
                self._server.execute("FLUSH BINARY LOGS")
            if dice.random() < 0.05:
                self._server.execute("ALTER TABLE shop.t COMMENT = 'x'")


@pytest.mark.seeds(2)
def test_every_reading_numbers_alike(
    server: DatabaseServer, clock: Clock, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Lives end anywhere; each begins at some earlier place with what was stored last. An idle log
    is passed at once, and transactions are large from a few KB on."""
    dice = random.Random(seed)
    monkeypatch.setattr(source, "IDLE_MS", 0)
    monkeypatch.setattr(source, "OWN_TIME_MS", -500)  # an idle log's pin is late, and counts
    monkeypatch.setattr(log_tail, "LARGE_BYTES", dice.choice((2_000, 1 << 20)))
    monkeypatch.setattr(reader, "STRETCH_BYTES", dice.choice((300, 3_000, 1 << 20)))
    monkeypatch.setattr(reader, "FEW_BYTES", dice.choice((100, 1 << 20)))
    first = begun(server)
    begin, stored = first.at, first.store()
    first.__exit__()
    writer, numbers, places = Writer(server, dice), {}, [begin]
    low_water = begin
    for _ in range(8):
        low_water = dice.choice([each for each in places if each >= low_water])
        with BinlogReading(settings_of(server), begin=low_water, recorded=stored) as reading:
            for _ in range(dice.randint(0, 6)):
                writer.write(dice.choice((0, 1, 3, 8)))
                if dice.random() < 0.8:
                    reading.turn(messages=dice.choice((10, 100, 10_000)))
                if dice.random() < 0.3:
                    clock.ahead_s += dice.choice((0, 5, 60))
                if dice.random() < 0.5:
                    stored = reading.store()
            resolved = reading.limits.global_ts
        for at, change in reading.changes.items():
            if change.commit_ts < resolved:  # those above are written by nobody
                before = numbers.setdefault(at, change)
                assert change == before, (before.commit_ts, change.commit_ts)
        places = sorted({*places, *(at for at, _ in numbers)})


def test_a_capture_that_is_not_the_owner_numbers_by_what_the_owner_has_stored(
    server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle log's pin is ahead of the transactions behind it, as those of long statements are."""
    monkeypatch.setattr(source, "IDLE_MS", 0)
    monkeypatch.setattr(source, "OWN_TIME_MS", -20_000)
    with begun(server) as owner:
        stored = [owner.store()]
        mine = BinlogSource(settings_of(server))
        context: Any = SimpleNamespace(
            reader=lambda it, jobs: it.reader(jobs, start_ts=0, name="other"),
            recorded=lambda: stored[-1],
            batch=SimpleNamespace(max_messages=1_000, first_messages=1_000),
        )
        place = Place(shape=owner.shape, position=owner.position, limits=owner.limits)
        other = Reading(context, mine, place)
        other.connect(owner.jobs)
        found = BinlogReading(settings_of(server), begin=owner.at, recorded=stored[-1])
        for number in range(3):
            owner.turn()  # nothing: the log is idle
            stored.append(owner.store())
            server.execute(f"REPLACE INTO shop.t VALUES ({number + 1}, 'behind an idle log')")
            owner.turn()
            stored.append(owner.store())
            other._looks_at_s = 0.0
            read = other.next(owner.wanted, owner=None)
            assert read is not None
            for block in read.blocks:
                found._take(block, 0)
        found.__exit__()
        other.close()
    assert len(found.changes) == 3
    assert found.changes == {at: owner.changes[at] for at in found.changes}
