"""A copy begins where all that lies before is shown; the binlog's end is no such place."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from coordination.model import TableName
from streaming.source.contract import SourceAway
from streaming.source.dump.moment import SnapshotPosition, _await_commits, settled_position
from streaming.source.dump.session import Session
from tests.services.database_editions import EDITIONS, MYSQL_9_7
from tests.services.database_server import DatabaseServer
from tests.services.held_commits import held_commit, log_end
from tests.streaming.source.dump.copied import to

pytestmark = pytest.mark.mariadb

TABLE = TableName("d", "t")
NO_GTIDS = {"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"}
SERVERS = [*((edition, {}) for edition in EDITIONS), (MYSQL_9_7, NO_GTIDS)]
NAMES = [*(edition.name for edition in EDITIONS), "mysql without GTIDs"]


@pytest.fixture(params=SERVERS, ids=NAMES)
def own(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    edition, settings = request.param
    with DatabaseServer(edition, settings) as running:
        running.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)")
        yield running


def test_what_lies_before_a_settled_position_is_shown(own: DatabaseServer):
    found: list[SnapshotPosition] = []

    def ask() -> None:
        session = Session(to(own))
        found.append(settled_position(session, [TABLE]))
        session.close()

    before = log_end(own)
    with held_commit(own, "INSERT INTO d.t VALUES (1)") as go_on:
        assert log_end(own) > before
        assert own.query("SELECT * FROM d.t") == []
        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(0.5)
        if found:  # it lies before what is not shown
            assert (found[0].file, found[0].offset) == before
        go_on.set()
        asking.join()
        assert bool(own.query("SELECT * FROM d.t")) or (found[0].file, found[0].offset) == before


def test_a_settled_position_of_an_idle_server_is_its_end(own: DatabaseServer):
    own.execute("INSERT INTO d.t VALUES (1)")
    session = Session(to(own))
    found = settled_position(session, [TABLE])
    assert (found.file, found.offset) == log_end(own)
    assert session.query("SELECT COUNT(*) FROM d.t") == [(1,)]
    session.close()


def test_commits_that_never_end_are_a_sentence():
    with DatabaseServer(MYSQL_9_7) as own:
        own.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)")
        session = Session(to(own))
        with (
            held_commit(own, "INSERT INTO d.t VALUES (1)"),
            pytest.raises(SourceAway, match=r"committed for more than 0 s: [0-9a-f-]+:3"),
        ):
            _await_commits(session, patience_s=0)
        session.close()
