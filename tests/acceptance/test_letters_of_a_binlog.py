"""Dead letters of a database's binlog: one row, one letter, applied after a mend and never over a
newer change of its row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conf.route_rules import Extract, RouteRule
from tests.acceptance.followed_database import FollowedDatabase
from tests.acceptance.letter_commands import LetterCommands
from tests.services.database_editions import MARIADB_10_11, MYSQL_9_7
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import second

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]

CREATED = "CREATE TABLE d.{} (id INT PRIMARY KEY, at DATE, v TEXT) CHARACTER SET latin1"
COLUMNS = "id, IF(DAYOFMONTH(at) = 0, NULL, at) AS at, v"  # as zero-date = null has them
NONE = "'0000-00-00'"


@pytest.fixture(params=[MARIADB_10_11, *second(MYSQL_9_7)], ids=lambda edition: edition.name)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with DatabaseServer(request.param) as server:
        yield server


def refusals(letters: LetterCommands) -> list[str]:
    """What a replay says before anything is mended; a table may not have reached its row yet."""
    code, refused = letters("replay", "--all")
    assert code == 1
    return [each["refusal"] for each in refused]


def test_what_is_replayed_is_there_once_and_never_over_a_newer_change(
    server: DatabaseServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server.execute("CREATE DATABASE d")
    told = Extract(regexp="s(.*)", target_column="t")
    route = RouteRule(matcher=("d.s1",), target_schema="d", target_table="s", extract_table=told)
    database = FollowedDatabase(server, tmp_path, routes=[route], zero_date="fail")
    letters = LetterCommands(capfd, database.warehouse)
    mode, packed = "SET NAMES utf8mb4, sql_mode = ''", "SET binlog_transaction_compression = 1"
    if server.edition.is_mariadb:
        packed = "SET GLOBAL log_bin_compress = 1"
    with database.followed() as life:
        server.execute(
            *(mode, CREATED.format("t"), CREATED.format("s1")),
            # One event, of whose rows some are bad; and a later change of one, unseen by it.
            f"INSERT INTO d.t VALUES (1, '2020-01-01', 'é'), (2, {NONE}, 'ß'), "
            f"(3, '2020-01-03', 'c'), (4, {NONE}, 'd'), (5, {NONE}, 'e'), (6, '2020-01-06', 'f')",
            f"INSERT INTO d.s1 VALUES (1, {NONE}, 'routed')",
            f"UPDATE d.t SET id = id + 60, at = {NONE}, v = 'moved' WHERE id = 6",
            packed,
            f"INSERT INTO d.t VALUES (7, {NONE}, REPEAT('é', 900)), (8, '2020-01-08', 'h')",
            *("BEGIN", f"UPDATE d.t SET at = {NONE} WHERE id = 3"),
            *("UPDATE d.t SET at = '2021-03-03' WHERE id = 3", "COMMIT"),
            *("XA START 'x'", f"INSERT INTO d.t VALUES (9, {NONE}, 'xa')", "XA END 'x'"),
            *("XA PREPARE 'x'", "XA COMMIT 'x'"),
            *("CREATE TABLE d.last (id INT PRIMARY KEY)", "INSERT INTO d.last VALUES (1)"),
        )
        life.wait_until(database.is_same("d.last"))
        first, _ = min(letters.states("d.t"))
        found = letters.states("d.t")
        assert [index for position, index in sorted(found) if position == first] == [1, 3, 4]
        assert sorted(found.values()) == ["open"] * 6 + ["superseded"]
        assert [*letters.states("d.s").values()] == ["open"]
        here = {row["id"]: row["at"] for row in database.delta_rows("d.t")}
        assert {*here} == {1, 3, 6, 8}
        assert str(here[3]) == "2021-03-03"

        server.execute("UPDATE d.t SET at = '2022-02-02' WHERE id = 4")
        life.wait_until(lambda: letters.states("d.t")[first, 3] == "superseded")
        life.wait_until(lambda: all("zero-date" in each for each in refusals(letters)))

    with database.followed(zero_date="null") as life:
        server.execute("UPDATE d.t SET v = 'newer' WHERE id = 5")
        life.wait_until(lambda: letters.states("d.t")[first, 4] == "superseded")
        code, done = letters("replay", "--all")
        assert (code, {each["state"] for each in done}) == (0, {"replayed"})
        life.wait_until(database.is_same("d.t", COLUMNS))
        assert database.delta_rows("d.s") == database.database_rows("d.s1", f"{COLUMNS}, '1' AS t")
        assert [*letters.states("d.t").values()].count("replayed") == 4
        server.execute(
            "UPDATE d.t SET v = 'after' WHERE id IN (2, 66)", "DELETE FROM d.t WHERE id = 7"
        )
        life.wait_until(database.is_same("d.t", COLUMNS))
        code, again = letters("replay", "--all")
        assert (code, again) == (0, [])
