"""Tables that a copy cannot tell row by row: they wait where everybody sees it, and what becomes of
them later is whole, or nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conf.settings import DeltaSink, FilterSettings, TableRule
from coordination.errors import ConfigError
from streaming.changefeed.freshness import Freshness
from streaming.operations.check import Finding, verdict
from streaming.operations.progress_report import read_progress
from tests.acceptance.binlog_stage import BinlogStage
from tests.acceptance.copied_database import ACCOUNT, CopiedDatabase
from tests.acceptance.keyless_tables import (
    BEFORE,
    DURING,
    WITHOUT_KEY,
    assert_waiting,
    diff,
)
from tests.services.database_editions import MYSQL_9_7
from tests.services.database_server import DatabaseServer

pytestmark = pytest.mark.mariadb


def test_a_start_refuses_them_until_it_is_said_what_they_shall_be(
    server: DatabaseServer, tmp_path: Path
) -> None:
    server.execute(*BEFORE)
    database = CopiedDatabase(server, tmp_path)
    with pytest.raises(ConfigError, match=r"c\.auto, c\.m, c\.p, c\.u\. .*on-no-key"):
        database.copy()
    assert database.progress() == {}


@pytest.mark.acceptance
def test_run_ends_with_2_and_names_all_of_them(server: DatabaseServer, tmp_path: Path) -> None:
    server.execute(*BEFORE)
    rules = "[filter]\nrules = ['c.*']\n"
    with BinlogStage(server, tmp_path, mode="full", rules=rules) as stage:
        refused = stage.start(user=ACCOUNT)
        assert refused.await_exit() == 2, refused.tail()
        assert all(table in refused.tail() for table in (*WITHOUT_KEY, "on-no-key"))
        stage.write_rules(f"on-no-key = 'leave-out'\n{rules}")
        life = stage.start(user=ACCOUNT)
        assert life.await_exit() == 0, life.tail()
        found = verdict(
            read_progress(DeltaSink(warehouse=str(stage.warehouse)), None, Freshness()), 60.0
        )
        assert (found.finding, "is not replicated" in found.why) == (Finding.FAILED, True)


def test_no_rewind_makes_a_part_of_one(server: DatabaseServer, tmp_path: Path) -> None:
    server.execute(*BEFORE)
    database = CopiedDatabase(server, tmp_path, on_no_key="leave-out")
    database.copy()
    begun_ts = database.progress()["c.beside"].checkpoint_ts
    rule = TableRule(matcher=("c.*",), key="all-columns")
    sink = replace(database.sink, tables=(rule,))
    with database.followed() as life:
        server.execute("INSERT INTO c.p VALUES (4,4)")
        database.wait_beside(life)
    with database.followed(sink=sink, overwrite_checkpoint_ts=begun_ts) as life:
        server.execute("INSERT INTO c.p VALUES (5,5)", *DURING[3:])
        database.wait_beside(life)
        assert_waiting(database, *WITHOUT_KEY)
    assert_waiting(database, *WITHOUT_KEY)


def test_one_that_a_filter_leaves_out_is_no_trouble(server: DatabaseServer, tmp_path: Path) -> None:
    server.execute(*BEFORE)
    database = CopiedDatabase(server, tmp_path, on_no_key="leave-out")
    database.copy()
    with database.followed() as life:
        database.wait_beside(life)
        assert_waiting(database, *WITHOUT_KEY)
    with database.followed(filter=FilterSettings(rules=("c.beside",))) as life:
        server.execute("INSERT INTO c.p VALUES (4,4)")
        database.wait_beside(life)
        found = verdict(read_progress(database.sink, None, Freshness()), 60.0)
        assert (found.finding, found.why) == (Finding.FRESH, found.why)


def test_one_that_is_made_without_a_key_in_the_stream_is_whole(
    server: DatabaseServer, tmp_path: Path
) -> None:
    """Its whole life is in the log."""
    server.execute(BEFORE[0])
    rule = TableRule(matcher=("c.late",), key="all-columns")
    database = CopiedDatabase(server, tmp_path, tables=(rule,))
    database.copy()
    with database.followed() as life:
        server.execute(
            "CREATE TABLE c.late (id INT NOT NULL, v INT)",
            "INSERT INTO c.late VALUES (1,1), (2,2)",
            "CREATE TABLE c.keyed (id INT NOT NULL, v INT)",
            "ALTER TABLE c.keyed ADD PRIMARY KEY (id)",
            "INSERT INTO c.keyed VALUES (1,1), (2,2)",
        )
        life.wait_until(database.is_same("c.late"))
        life.wait_until(lambda: database.progress()["c.keyed"].state == "blocked")
        assert database.delta_rows("c.keyed") == []  # and never a part: it waits for an operator
        assert {each.lacks for each in database.progress().values()} == {None}


def test_a_key_over_a_prefix_is_a_key(server: DatabaseServer, tmp_path: Path) -> None:
    server.execute(
        "CREATE TABLE c.t (u TEXT NOT NULL, v INT, PRIMARY KEY(u(20)))",
        "INSERT INTO c.t VALUES ('http://a',1),('http://b',2),('http://d',4)",
    )
    database = CopiedDatabase(server, tmp_path)
    database.copy()
    with database.followed() as life:
        server.execute(
            "INSERT INTO c.t VALUES ('http://c',3)", "UPDATE c.t SET v=9 WHERE u='http://a'"
        )
        life.wait_until(database.is_same("c.t"))
        assert len(database.delta_rows("c.t")) == 4
        assert {each.result for each in diff(database).tables} == {"equal"}


@pytest.mark.parametrize("own_server", [MYSQL_9_7], indirect=True)  # MariaDB generates no keys
def test_a_key_that_the_server_hides_is_a_key(server: DatabaseServer, tmp_path: Path) -> None:
    columns = "my_row_id, v"
    hides = "show_gipk_in_create_table_and_information_schema"
    server.execute(
        "SET GLOBAL sql_generate_invisible_primary_key = ON",
        f"SET GLOBAL {hides} = OFF",
    )
    try:
        server.execute("CREATE TABLE c.t (v INT)", "INSERT INTO c.t VALUES (1), (1), (2)")
        database = CopiedDatabase(server, tmp_path)
        database.copy()
        with database.followed() as life:
            server.execute(
                "CREATE TABLE c.later (v INT)",
                "INSERT INTO c.later VALUES (1), (1)",
                "INSERT INTO c.t VALUES (2)",
                "DELETE FROM c.t WHERE v = 1 LIMIT 1",
            )
            for table in ("c.t", "c.later"):
                life.wait_until(database.is_same(table, columns))
            assert len(database.delta_rows("c.t")) == 3
            assert {each.result for each in diff(database).tables} == {"equal"}
    finally:
        server.execute(
            "SET GLOBAL sql_generate_invisible_primary_key = OFF", f"SET GLOBAL {hides} = ON"
        )
