"""A reading goes on in the log of a real replica: with the same commit-ts, or not at all."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from coordination.errors import ConfigError
from streaming.source.binlog import log_tail, reader, source
from streaming.source.binlog.failover.decision import Lags
from streaming.source.binlog.log_tail import LogTail
from streaming.source.binlog.source import PART, BinlogSource
from streaming.source.contract import RecordedPlace, SourceLost, SourceMoved
from streaming.source.resolved.commit_clock import Pin, from_token
from streaming.source.resolved.gtid_sets import parse_gtids
from tests.services.database_editions import MARIADB_10_11, MYSQL_9_7, Edition
from tests.services.database_server import DatabaseServer
from tests.services.replication import await_caught_up, executed, member, replicate
from tests.services.second_editions import MARIADB_FIRST
from tests.streaming.source.binlog.readings import BinlogReading, Clock, settings_of
from tests.streaming.source.binlog.test_numbers import Writer

pytestmark = pytest.mark.mariadb


class Servers(NamedTuple):
    primary: DatabaseServer
    replica: DatabaseServer


@pytest.fixture(scope="module", params=MARIADB_FIRST, ids=lambda each: each.name)
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    with ExitStack() as stack:
        primary, replica = (stack.enter_context(member(request.param, nth)) for nth in (1, 2))
        replicate(replica, primary)
        primary.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v TEXT)")
        await_caught_up(replica, primary)
        yield Servers(primary, replica)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    clock.install(monkeypatch)
    return clock


def moved_to(
    server: DatabaseServer, place: RecordedPlace, reached_ts: int = 0, **settings: Any
) -> RecordedPlace:
    """The place in this server's log."""
    there = BinlogSource(settings_of(server, **settings))
    try:
        there.keep_to(place.identities)
        return there.goes_on(place, there.shape(), reached_ts)
    finally:
        there.close()


def place_of(reading: BinlogReading, low_water: int | None = None) -> RecordedPlace:
    at = reading.at if low_water is None else low_water
    return RecordedPlace(
        positions={PART: at}, identities=reading.shape.identities, marks=reading.store()
    )


def begun_at(server: DatabaseServer, place: RecordedPlace) -> BinlogReading:
    return BinlogReading(
        settings_of(server),
        begin=place.positions[PART],
        recorded=place.marks,
        identities=place.identities,
    )


@pytest.mark.seeds(1)
def test_there_and_back_every_change_keeps_its_commit_ts(
    servers: Servers, clock: Clock, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Lives end anywhere, also amid a large transaction, and go on in the other server's log with
    what was stored last. Some sessions have wrong clocks, and an idle log is passed at once."""
    dice = random.Random(seed)
    monkeypatch.setattr(source, "IDLE_MS", 0)
    monkeypatch.setattr(source, "OWN_TIME_MS", -500)
    monkeypatch.setattr(log_tail, "LARGE_BYTES", dice.choice((2_000, 1 << 20)))
    monkeypatch.setattr(reader, "STRETCH_BYTES", dice.choice((300, 3_000, 1 << 20)))
    writer = Writer(servers.primary, dice)
    with BinlogReading(settings_of(servers.primary)) as reading:
        reading.to_end()
        place, position = place_of(reading), reading.at
    numbers: dict[Any, int] = {}
    stored_ts = 0
    for life in range(5):
        server = servers[life % 2]
        place = moved_to(server, place)
        if life:
            assert place.positions[PART] > position, "positions rise"
        with begun_at(server, place) as reading:
            low_water = reading.at
            for _ in range(dice.randint(1, 5)):
                writer.write(dice.choice((0, 2, 6)))
                await_caught_up(servers.replica, servers.primary)
                reading.turn(messages=dice.choice((10, 100, 10_000)))
                clock.ahead_s += dice.choice((0, 0, 5))
                if dice.random() < 0.4:
                    servers.replica.execute("FLUSH BINARY LOGS")
            resolved_ts = reading.limits.global_ts
            waiting = [at for (at, _), c in reading.changes.items() if c.commit_ts >= resolved_ts]
            most = min([reading.at, *waiting])
            places = [low_water, most, *(at for at, _ in reading.changes if at <= most)]
            place, position = place_of(reading, dice.choice(places)), reading.at
        for change in reading.changes.values():
            if change.commit_ts < resolved_ts:  # those above are written by nobody
                before = numbers.setdefault(change.row, change.commit_ts)
                assert change.commit_ts == before
        assert from_token(place.marks[PART].token)[-1].floor_ts >= stored_ts, "a ts has fallen"
        stored_ts = from_token(place.marks[PART].token)[-1].floor_ts
    with begun_at(servers[4 % 2], place) as reading:
        reading.to_end()
        numbers |= {change.row: change.commit_ts for change in reading.changes.values()}
    ids = {id_ for (id_,) in servers.primary.query("SELECT id FROM shop.t")}
    written = ids & set(range(writer.first_id, writer.next_id + 1))
    assert written
    assert {int(row[0]) for row in numbers} >= written


def test_a_replica_that_lags_is_refused_until_it_has_caught_up(servers: Servers) -> None:
    word = "SLAVE" if servers.replica.edition.is_mariadb else "REPLICA"
    servers.replica.execute(f"STOP {word} SQL_THREAD")
    servers.primary.execute("REPLACE INTO shop.t VALUES (1, 'not there yet')")
    with BinlogReading(settings_of(servers.primary)) as reading:
        reading.to_end()
        place = place_of(reading)
    with pytest.raises(Lags, match=r"lacks transactions that were read .*\d\. Wait until"):
        moved_to(servers.replica, place)
    servers.replica.execute(f"START {word} SQL_THREAD")
    await_caught_up(servers.replica, servers.primary)
    found = moved_to(servers.replica, place)
    assert found.identities != place.identities
    mine = moved_to(servers.primary, place)
    assert mine is place


def test_of_several_servers_one_that_is_fit_is_taken(servers: Servers) -> None:
    """The first one is no replica, and the second one's port is nobody's."""
    primary, replica = servers
    with BinlogReading(settings_of(primary)) as reading:
        reading.to_end()
        place = place_of(reading)
    await_caught_up(replica, primary)
    with DatabaseServer(primary.edition) as stranger:
        others = (("127.0.0.1", 1), (replica.host, replica.port))
        found = moved_to(stranger, place, others=others)
        with begun_at(replica, found) as there:
            there.to_end()
        with pytest.raises(Lags, match=r"(lacks|start it with).*does not answer"):
            moved_to(stranger, place, others=others[:1])
        several = BinlogSource(settings_of(stranger, others=others))
        several.keep_to(found.identities)
        assert several.shape().identities == found.identities
        several.close()


def test_what_tables_have_beyond_the_stored_place_must_be_there(servers: Servers) -> None:
    """A killed process had written a row before it stored how far it was."""
    with BinlogReading(settings_of(servers.primary)) as reading:
        reading.to_end()
        place = place_of(reading)
        servers.primary.execute(
            "REPLACE INTO shop.t VALUES (2, 'a')", "REPLACE INTO shop.t VALUES (3, 'b')"
        )
        before = set(reading.changes)
        reading.to_end()
        stamps = [reading.changes[each].commit_ts for each in reading.changes if each not in before]
    await_caught_up(servers.replica, servers.primary)
    for reached_ts in stamps:
        moved_to(servers.replica, place, reached_ts)
    with pytest.raises(Lags, match="tables have changes up to ts"):
        moved_to(servers.replica, place, max(stamps) + 7)


def test_a_place_is_given_by_gtid(servers: Servers) -> None:
    primary = servers.primary
    primary.execute("REPLACE INTO shop.t VALUES (4, 'before')")
    gtids = executed(primary)
    primary.execute("FLUSH BINARY LOGS", "REPLACE INTO shop.t VALUES (5, 'behind')")
    begin = settings_of(primary, task_mode="incremental", binlog_gtid=gtids)
    with BinlogReading(begin) as reading:
        rows = {change.row[0] for change in reading.to_end().values()}
        assert {int(each) for each in rows} == {5}
        (pin, *_) = from_token(reading.store()[PART].token)
        assert pin.gtids == parse_gtids(gtids)
    is_mariadb = primary.edition.is_mariadb
    ahead = "0-1-900000" if is_mariadb else f"{gtids},{gtids[:36]}:900000"
    other = "0-1-5" if not is_mariadb else f"{'a' * 8}-1111-1111-1111-{'a' * 12}:1"
    for text, says in ((ahead, "has no transactions"), (other, "is no place of this server")):
        with pytest.raises(ConfigError, match=says):
            BinlogReading(settings_of(primary, task_mode="incremental", binlog_gtid=text))


def test_a_connection_to_another_server_sends_nothing(servers: Servers) -> None:
    """A name may come to lead to another server between two connections."""
    here = BinlogSource(settings_of(servers.primary))
    here.shape()
    with pytest.raises(SourceMoved, match="is another server now"):
        LogTail(settings_of(servers.replica), here.database.facts(), Pin(1 << 40 | 4, 0))
    there = BinlogSource(settings_of(servers.replica))
    there.keep_to(here.shape().identities)
    with pytest.raises(SourceMoved, match="is another server now"):
        there.ends([PART])
    for each in (here, there):
        each.close()


@pytest.mark.parametrize("edition", [MARIADB_10_11, MYSQL_9_7], ids=lambda each: each.name)
def test_servers_with_which_it_cannot_go_on(edition: Edition) -> None:
    with ExitStack() as stack:
        primary, replica = (stack.enter_context(member(edition, nth)) for nth in (1, 2))
        replicate(replica, primary)
        primary.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)")
        reading = stack.enter_context(BinlogReading(settings_of(primary)))
        reading.to_end()
        early = place_of(reading)
        primary.execute("INSERT INTO shop.t VALUES (1, 1)")
        await_caught_up(replica, primary)
        name = replica.query("SHOW BINARY LOGS")[-1][0]
        replica.execute("FLUSH BINARY LOGS")
        primary.execute("INSERT INTO shop.t VALUES (2, 2)")
        await_caught_up(replica, primary)
        reading.to_end()
        late = place_of(reading)
        next_name = replica.query("SHOW BINARY LOGS")[-1][0]
        assert next_name != name
        replica.execute("FLUSH BINARY LOGS")
        purge_to(replica, next_name)
        with pytest.raises(SourceLost, match="has deleted what is needed"):
            moved_to(replica, early)
        moved_to(replica, late)
        refuse_errant(primary, replica, reading)
        refuse_settings(edition, late)


def purge_to(server: DatabaseServer, name: str) -> None:
    """MariaDB keeps a file for some time, for its own recovery."""
    until_s = time.monotonic() + 30
    while server.query("SHOW BINARY LOGS")[0][0] != name:
        assert time.monotonic() < until_s, "the server keeps its files"
        server.execute(f"PURGE BINARY LOGS TO '{name}'")


def refuse_errant(primary: DatabaseServer, replica: DatabaseServer, reading: BinlogReading) -> None:
    """The replica has a transaction of its own amid those that were read."""
    if primary.edition.is_mariadb:
        replica.execute("SET GLOBAL gtid_strict_mode = OFF")
        replica.execute("SET gtid_domain_id = 9", "INSERT INTO shop.t VALUES (50, 5)")
    else:
        replica.execute("INSERT INTO shop.t VALUES (50, 5)")
    primary.execute("INSERT INTO shop.t VALUES (3, 3)")
    reading.to_end()
    place = place_of(reading)
    errant = ""
    while not errant:  # until the replica has it
        rows = replica.query("SELECT id FROM shop.t WHERE id = 3")
        errant = executed(replica) if rows else ""
    with pytest.raises(SourceLost, match="transactions that the server before never had"):
        moved_to(replica, place)


def refuse_settings(edition: Edition, place: RecordedPlace) -> None:
    off = {"log_slave_updates": "OFF", "log_replica_updates": "OFF"}
    told = pytest.raises(SourceLost, match="start it with --log-slave-updates")
    with member(edition, 3, **off) as other, told:
        moved_to(other, place)
    if not edition.is_mariadb:
        with member(edition, 3, gtid_mode="OFF", enforce_gtid_consistency="OFF") as other:
            with pytest.raises(SourceLost, match="has gtid_mode = OFF"):
                moved_to(other, place)
            other.execute("CREATE DATABASE nameless")
            with BinlogReading(settings_of(other)) as reading:
                reading.to_end()
                nameless = place_of(reading)
        told = pytest.raises(SourceLost, match="is not known: it had gtid_mode = OFF")
        with member(edition, 4) as fit, told:
            moved_to(fit, nameless)
