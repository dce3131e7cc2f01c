"""The log of real servers: positions, transactions, files, times that nobody believes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import pytest

from conf.sources.binlog_uri import BinlogSettings
from coordination.errors import ConfigError
from streaming.source.binlog import dump, log_tail
from streaming.source.binlog.database import Database
from streaming.source.binlog.log_tail import LogTail, event_bytes
from streaming.source.binlog.position import BinlogPosition
from streaming.source.binlog.source import cascading
from streaming.source.binlog.walk.log_walk import Walked
from streaming.source.contract import SourceAway, SourceLost
from streaming.source.resolved.commit_clock import Pin
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import BOTH_FIRST

pytestmark = pytest.mark.mariadb

LATER_S = 2_147_480_000  # in 2038: what MySQL's SET timestamp allows


@dataclass
class Log:
    server: DatabaseServer

    def __post_init__(self) -> None:
        server = self.server
        self.settings = BinlogSettings(host=server.host, port=server.port, user="root")
        self.database = Database(self.settings)

    def end(self) -> int:
        return int(self.database.end())

    def tail(self, begin: int) -> LogTail:
        facts = self.database.facts()
        return LogTail(self.settings, facts, Pin(begin, 0))

    def walked(self, begin: int, end: int, *, most_bytes: int = 1 << 20) -> list[Walked]:
        tail, found = self.tail(begin), []
        try:
            while (stretch := tail.next(end, (), most_bytes)) is not None:
                found.append(stretch.walked)
            assert tail.place.position == end
        finally:
            tail.close()
        return found


@pytest.fixture(scope="module", params=BOTH_FIRST, ids=lambda each: each.name)
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    with DatabaseServer(request.param) as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v TEXT)")
        log = Log(server)
        yield log
        log.database.close()


def stamps(walked: list[Walked]) -> list[int]:
    """The commit-ts of each transaction."""
    return list(dict.fromkeys(ts for each in walked for ts in each.commit_ts.tolist()))


def places(walked: list[Walked]) -> list[int]:
    return [at for each in walked for at in each.position.tolist()]


def test_each_transaction_has_a_later_commit_ts(log: Log) -> None:
    begin = log.end()
    for number in range(5):
        log.server.execute(f"INSERT INTO shop.t VALUES ({number}, 'a'), ({number + 100}, 'b')")
    found = log.walked(begin, log.end())
    assert len(stamps(found)) == 5
    assert stamps(found) == sorted(stamps(found))
    assert places(found) == sorted(set(places(found)))


def test_a_position_is_where_the_servers_log_has_the_event(log: Log) -> None:
    begin = log.end()
    with log.server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO shop.t VALUES (1000, 'a')")
        cursor.execute("UPDATE shop.t SET v = 'b' WHERE id = 1000")
        connection.commit()
    (walked,) = log.walked(begin, log.end())
    facts = log.database.facts()
    for at in walked.position.tolist():
        place = BinlogPosition.of(at)
        event = event_bytes(log.settings, facts, place)
        assert int.from_bytes(event[9:13], "little") == len(event)
        assert event[4] in (19, 23, 24, 30, 31)  # TABLE_MAP, rows


def test_the_log_goes_on_in_the_next_file(log: Log) -> None:
    begin = log.end()
    log.server.execute("FLUSH BINARY LOGS", "DELETE FROM shop.t", "FLUSH BINARY LOGS")
    end = log.end()
    assert BinlogPosition.of(end).number == BinlogPosition.of(begin).number + 2
    log.walked(begin, end)


def test_a_server_that_was_killed_goes_on_in_the_next_file(log: Log) -> None:
    begin = log.end()
    log.server.execute("INSERT INTO shop.t VALUES (2000, 'a')")
    log.server.kill()
    log.server.restart()
    log.server.execute("INSERT INTO shop.t VALUES (2001, 'b')")
    assert len(stamps(log.walked(begin, log.end()))) == 2


def test_a_session_that_sets_its_clock_ahead_does_not_move_ours(log: Log) -> None:
    begin = log.end()
    log.server.execute(
        "INSERT INTO shop.t VALUES (3000, 'a')",
        f"SET timestamp = {LATER_S}",
        "INSERT INTO shop.t VALUES (3001, 'b')",
    )
    log.server.execute("INSERT INTO shop.t VALUES (3002, 'c')")
    found = stamps(log.walked(begin, log.end()))
    assert found == sorted(found)
    assert found[-1] < LATER_S * 1_000 << 18


def test_small_pieces_come_to_the_same_as_one(log: Log) -> None:
    begin = log.end()
    for number in range(50):
        log.server.execute(f"INSERT INTO shop.t VALUES ({number + 4000}, REPEAT('x', 3000))")
    end = log.end()
    whole, pieces = log.walked(begin, end), log.walked(begin, end, most_bytes=1_000)
    assert len(pieces) > 1
    assert places(pieces) == places(whole)
    assert stamps(pieces) == stamps(whole)


def test_an_event_of_more_than_a_packet_is_read(log: Log) -> None:
    begin = log.end()
    log.server.execute(
        "SET GLOBAL max_allowed_packet = 67108864",
        "ALTER TABLE shop.t MODIFY v LONGTEXT",
    )
    log.server.execute("INSERT INTO shop.t VALUES (5000, REPEAT('x', 17000000))")
    log.server.execute("INSERT INTO shop.t VALUES (5001, 'small')")
    found = log.walked(begin, log.end())
    assert len(stamps(found)) == 2


def test_a_statement_has_its_own_place(log: Log) -> None:
    begin = log.end()
    log.server.execute("CREATE TABLE shop.u (id INT PRIMARY KEY)", "DROP TABLE shop.u")
    (walked,) = log.walked(begin, log.end())
    assert len(walked.statements) == 2


def test_a_file_that_is_gone_is_said_so(log: Log) -> None:
    with pytest.raises(SourceLost, match=r"999 position 4"):
        log.walked(int(BinlogPosition(999, 4)), int(BinlogPosition(999, 5)))


def test_settings_that_tell_too_little_are_refused_with_the_statement(log: Log) -> None:
    log.database.check_binlog()
    log.server.execute("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    try:
        with pytest.raises(ConfigError, match="SET GLOBAL binlog_row_metadata = 'FULL'"):
            log.database.check_binlog()
    finally:
        log.server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")


def test_a_tidb_is_told_to_have_no_binlog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its variables as its manual shows them; none was asked."""
    told = {"version": "8.0.11-TiDB-v8.5.1", "log_bin": "OFF", "binlog_format": "ROW"}
    monkeypatch.setattr(Database, "variables", lambda *_: told)
    with pytest.raises(ConfigError, match="db:4000 is a TiDB, which has no binlog: let TiCDC send"):
        Database(BinlogSettings(host="db", port=4000, user="root")).check_binlog()


@pytest.mark.parametrize(("made", "is_refused"), [("orders", False), ("Orders", True)])
def test_a_server_that_shows_other_names_than_it_logs_is_refused_where_it_matters(
    monkeypatch: pytest.MonkeyPatch, made: str, is_refused: bool
) -> None:
    """lower_case_table_names = 2, which no server on Linux takes: its variables are told."""
    settings = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL"}
    told = {"version": "9.7.0", **settings, "binlog_row_metadata": "FULL"}
    told["lower_case_table_names"] = "2"
    monkeypatch.setattr(Database, "variables", lambda *_: told)
    monkeypatch.setattr(Database, "ask", lambda *_: [("shop.items",), (f"shop.{made}",)])
    database = Database(BinlogSettings(host="db", port=3306, user="root"))
    refused = pytest.raises(ConfigError, match=r"is 2: its binlog names shop.Orders in lower case")
    with refused if is_refused else nullcontext():
        database.check_binlog()


def test_a_login_that_is_refused_is_said_so(log: Log) -> None:
    log.server.execute("CREATE USER stranger IDENTIFIED BY 'secret-47'")
    settings = BinlogSettings(
        host=log.server.host, port=log.server.port, user="stranger", password="wrong"
    )
    with pytest.raises(ConfigError, match="refuses the login"):
        Database(settings).facts()


def test_a_server_that_is_away_is_tried_again(log: Log) -> None:
    log.server.end()
    try:
        with pytest.raises(SourceAway, match="does not answer"):
            Database(log.settings).facts()
    finally:
        log.server.restart()


def test_foreign_keys_that_change_rows_are_named(log: Log) -> None:
    log.server.execute(
        "CREATE TABLE shop.parent (id INT PRIMARY KEY)",
        "CREATE TABLE shop.child (id INT PRIMARY KEY, p INT, "
        "FOREIGN KEY (p) REFERENCES shop.parent (id) ON DELETE CASCADE)",
    )
    is_told = log.server.edition.is_mariadb  # MySQL writes those changes to its log
    assert list(map(str, cascading(log.database))) == (["shop.child"] if is_told else [])
    log.server.execute("DROP TABLE shop.child", "DROP TABLE shop.parent")
    assert cascading(log.database) == []


def test_columns_that_no_binlog_tells_from_bytes_are_named(log: Log) -> None:
    assert log.database.identifiers() == []
    if log.server.edition.is_mariadb:
        log.server.execute("CREATE TABLE shop.u (a UUID, b BINARY(16), c INET6)")
        assert log.database.identifiers() == ["shop.u.a", "shop.u.c"]
        log.server.execute("DROP TABLE shop.u")


def test_a_large_transaction_keeps_its_commit_ts_while_its_rows_come(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first rows are handed out. Then too few are there to be handed out, once and again; or a
    row that is larger than what is read at once."""
    monkeypatch.setattr(log_tail, "LARGE_BYTES", 20_000)
    monkeypatch.setattr(dump, "_RECEIVE_BYTES", 2_000)
    begin = log.end()
    with log.server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for number in range(100):
            size = 30_000 if number % 9 == 8 else 900
            cursor.execute(f"INSERT INTO shop.t VALUES ({9_000 + number}, REPEAT('x', {size}))")
        connection.commit()
    found = log.walked(begin, log.end(), most_bytes=4_000)
    assert len(found) > 3
    assert sum(len(each.at) for each in found) == 200
    (commit_ts,) = stamps(found)
    assert commit_ts > 1 << 40
