"""`tidelake run` on a real binlog: it follows, tells the time when nothing comes, waits for what is
prepared, and says in one line why it cannot go on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.binlog_stage import BinlogStage, end_of_log
from tests.acceptance.processes import ON_SPARK, await_
from tests.services.database_editions import MARIADB_11_8, Edition
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows
from tests.services.kafka_broker import REPOSITORY
from tests.services.second_editions import MARIADB_FIRST

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]


def progress_of(stage: BinlogStage) -> dict[str, Any]:
    shown = subprocess.run(
        [
            *(sys.executable, "-m", "streaming.cli.main", "progress"),
            *("--sink-uri", f"delta://{stage.warehouse}", "--format", "json"),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


@pytest.mark.parametrize("edition", MARIADB_FIRST, ids=lambda each: each.name)
def test_it_follows_tells_the_time_of_an_idle_log_and_waits_for_an_xa_commit(
    edition: Edition, tmp_path: Path
) -> None:
    with (
        DatabaseServer(edition) as server,
        BinlogStage(server, tmp_path, program=ON_SPARK) as stage,
    ):
        life = stage.start()
        stage.await_checkpoint(1, life)  # of an empty log
        server.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(20))",
            "INSERT INTO shop.t VALUES (1, 'a'), (2, 'b')",
            "UPDATE shop.t SET v = 'c', id = 3 WHERE id = 2",
        )
        stage.await_position(end_of_log(server), life)
        rows = read_rows(stage.warehouse / "shop" / "t")
        assert sorted(map(tuple, map(dict.values, rows))) == [(1, "a"), (3, "c")]
        for _ in range(2):  # nothing comes
            stage.await_checkpoint(stage.watch.checkpoint + 1, life)
        (feed,) = progress_of(stage)["changefeeds"]
        assert feed["messages_behind"] == 0
        assert feed["lag_s"] < 30
        server.execute(
            "XA START 'x'", "INSERT INTO shop.t VALUES (9, 'x')", "XA END 'x'", "XA PREPARE 'x'"
        )
        server.execute("INSERT INTO shop.t VALUES (4, 'd')")
        stage.await_position(end_of_log(server), life)
        assert ids(stage) == [1, 3, 4]
        life.end()
        server.execute("XA COMMIT 'x'")
        stage.await_position(end_of_log(server), stage.start())
        assert ids(stage) == [1, 3, 4, 9]


def test_an_xa_transaction_that_was_prepared_before_the_copy(tmp_path: Path) -> None:
    """The copy does not see its rows. They come with the COMMIT, which another life reads."""
    with DatabaseServer(MARIADB_11_8) as server, BinlogStage(server, tmp_path, mode="all") as stage:
        server.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(20))",
            "INSERT INTO shop.t VALUES (1, 'a'), (2, 'b')",
        )
        server.execute(
            "XA START 'x'", "UPDATE shop.t SET v = 'x' WHERE id = 1",
            "INSERT INTO shop.t VALUES (9, 'x')", "XA END 'x'", "XA PREPARE 'x'",
        )  # fmt: skip
        server.execute("FLUSH BINARY LOGS", "INSERT INTO shop.t VALUES (3, 'c')")
        life = stage.start()
        server.execute("INSERT INTO shop.t VALUES (4, 'd')")
        stage.await_position(end_of_log(server), life)
        assert ids(stage) == [1, 2, 3, 4]
        life.end()
        server.execute("INSERT INTO shop.t VALUES (5, 'e')", "XA COMMIT 'x'")
        stage.await_position(end_of_log(server), stage.start())
        rows = sorted((row["id"], row["v"]) for row in read_rows(stage.warehouse / "shop" / "t"))
        assert rows == list(server.query("SELECT id, v FROM shop.t ORDER BY id"))


def ids(stage: BinlogStage) -> list[int]:
    return sorted(row["id"] for row in read_rows(stage.warehouse / "shop" / "t"))


@pytest.mark.soak
def test_rights_and_passwords_that_are_taken_away_are_named(tmp_path: Path) -> None:
    with DatabaseServer() as server, BinlogStage(server, tmp_path) as stage:
        server.execute(
            "CREATE USER lake IDENTIFIED BY 'one'",
            "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO lake",
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY)",
        )
        life = stage.start(user="lake:one")
        stage.await_position(end_of_log(server), life)
        server.execute("REVOKE REPLICATION SLAVE, REPLICATION CLIENT ON *.* FROM lake")
        server.restart()
        server.execute("INSERT INTO shop.t VALUES (1)")
        assert life.await_exit() == 2
        assert "The user needs: GRANT SELECT, REPLICATION SLAVE" in life.lines("ERROR tidelake")[-1]
        server.execute(
            "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO lake",
            "SET PASSWORD FOR lake = PASSWORD('two')",
        )
        life = stage.start(user="lake:one")
        assert life.await_exit() != 0
        assert "refuses the login" in life.lines()[-1]
        life = stage.start(user="lake:two")
        stage.await_position(end_of_log(server), life)
        assert read_rows(stage.warehouse / "shop" / "t") == [{"id": 1}]


@pytest.mark.soak
def test_a_target_ts_ends_it_and_a_purged_log_is_named(tmp_path: Path) -> None:
    with DatabaseServer() as server, BinlogStage(server, tmp_path) as stage:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        life = stage.start("first")
        stage.await_position(end_of_log(server), life)
        stage.await_checkpoint(1, life)
        life.signal(signal.SIGTERM)
        assert life.await_exit() == 0
        stopped = stage.row()
        assert stopped is not None
        target_ts = stopped.checkpoint_ts + (20_000 << 18)
        server.execute("INSERT INTO shop.t VALUES (1)")
        life = stage.start("to-target", arguments=("--target-ts", str(target_ts)))
        assert life.await_exit() == 0, life.tail()
        row = stage.row()
        assert row is not None
        assert (row.state, row.checkpoint_ts) == ("finished", target_ts)
        server.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS", "INSERT INTO shop.t VALUES (2)")
        newest = server.query("SHOW BINARY LOGS")[-1][0]
        server.execute(f"PURGE BINARY LOGS TO '{newest}'")
        life = stage.start("too-late")
        assert life.await_exit() == 1
        assert "is needed, and" in life.lines("ERROR tidelake")[-1]
        await_("one line", lambda: len(life.lines("ERROR tidelake")) == 1, within_s=1)
