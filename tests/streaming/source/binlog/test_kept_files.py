"""What the server has deleted of its log, and how long it keeps the rest."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from coordination.model import TSO_LOGICAL_BITS
from streaming.source.binlog.kept_files import Expiry
from streaming.source.binlog.source import PART, BinlogSource
from streaming.source.contract import SourceLost
from tests.acceptance.processes import await_
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import BOTH_FIRST
from tests.streaming.source.binlog.readings import settings_of


@pytest.mark.parametrize(
    ("variables", "after_s"),
    [
        ({}, None),
        ({"binlog_expire_logs_seconds": "0", "expire_logs_days": "0.000000"}, None),
        ({"binlog_expire_logs_seconds": "3600"}, 3_600),
        ({"expire_logs_days": "0.500000"}, 43_200),
        ({"binlog_expire_logs_seconds": "3600", "binlog_expire_logs_auto_purge": "OFF"}, None),
    ],
)
def test_the_time_is_the_servers(variables: dict[str, str], after_s: float | None) -> None:
    found = Expiry.of(variables)
    assert (found and found.after_s) == after_s


def test_a_warning_comes_when_half_of_the_time_has_passed() -> None:
    expiry = Expiry(variable="binlog_expire_logs_seconds", after_s=7_200)
    young, old = expiry.kept("binlog.000007", 3_000), expiry.kept("binlog.000007", 4_000)
    assert (young.left_s, young.concern) == (4_200, None)
    assert old.left_s == 3_200
    assert old.concern is not None
    assert "binlog.000007" in old.concern
    assert "binlog_expire_logs_seconds (2 h)" in old.concern
    assert expiry.kept("binlog.000007", 9_000).left_s == 0


@pytest.fixture(scope="module", params=BOTH_FIRST, ids=lambda each: each.name)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with DatabaseServer(request.param) as running:
        running.execute("CREATE DATABASE shop", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
        yield running


@pytest.mark.mariadb
def test_the_file_that_is_written_stays_and_an_older_one_has_its_time(
    server: DatabaseServer,
) -> None:
    source = BinlogSource(settings_of(server))
    server.execute("SET GLOBAL binlog_expire_logs_seconds = 7200")
    ends, begins = source.ends([PART]), source.beginnings([PART])
    assert source.kept(ends) is None
    found = source.kept(begins)
    assert found is not None
    assert found.left_s is not None
    assert 7_100 < found.left_s <= 7_200
    server.execute("SET GLOBAL binlog_expire_logs_seconds = 0")
    assert source.kept(begins) is None
    source.close()


@pytest.mark.mariadb
def test_a_start_ts_from_before_the_first_file_is_refused(server: DatabaseServer) -> None:
    source = BinlogSource(settings_of(server))
    newest = server.query("SHOW BINARY LOGS")[-1][0]
    now_ts = int(time.time() * 1e3) << TSO_LOGICAL_BITS
    first = source.beginnings([PART])
    source.refuse_a_hole(first, checkpoint_ts=now_ts, reached_ts=None)  # nothing was deleted

    def is_gone() -> bool:  # once nobody reads it any more
        server.execute(f"PURGE BINARY LOGS TO '{newest}'")
        return len(server.query("SHOW BINARY LOGS")) == 1

    await_("the purge", is_gone, within_s=30)
    first = source.beginnings([PART])
    source.refuse_a_hole(first, checkpoint_ts=0, reached_ts=None)
    later_ts = now_ts + (120_000 << TSO_LOGICAL_BITS)
    source.refuse_a_hole(first, checkpoint_ts=later_ts, reached_ts=None)
    with pytest.raises(SourceLost, match=rf"{newest} position 4.*Give a start-ts of \d+"):
        source.refuse_a_hole(first, checkpoint_ts=now_ts, reached_ts=None)
    source.close()
