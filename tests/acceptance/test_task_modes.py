"""The task modes of DM by the real program; in a soak while the bank is open and it is killed."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from coordination.failpoint import Failpoint
from tests.acceptance import copied_bank
from tests.acceptance.binlog_stage import BinlogStage, end_of_log
from tests.acceptance.processes import Life, environment
from tests.acceptance.test_first_copy import DEATHS, PARAMETERS, dying, open_bank
from tests.services.database_editions import EDITIONS, Edition
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]


def killed(stage: BinlogStage, point: Failpoint, nth: int, parameters: str) -> None:
    life = dying(stage, point, nth, parameters)
    assert life.await_exit() == -signal.SIGKILL, (point, life.tail())


def ended(stage: BinlogStage, name: str, parameters: str) -> Life:
    life = stage.start(name, parameters=parameters)
    assert life.await_exit() == 0, life.tail()
    return life


def test_a_dump_is_loaded_later_and_then_followed(mariadb: DatabaseServer, tmp_path: Path) -> None:
    parameters, rules = f"&dump-dir={tmp_path}/dump", "[filter]\nrules = ['dumped.*']\n"
    with (
        mariadb.database("dumped"),
        BinlogStage(mariadb, tmp_path, rules=rules, mode="dump") as stage,
    ):
        mariadb.execute("CREATE TABLE dumped.t (id INT PRIMARY KEY, v INT)")
        mariadb.insert("dumped.t", [(number, 1) for number in range(100)])
        assert ended(stage, "dump", parameters).lines("dumped tables=1 rows=100: ")
        assert not stage.warehouse.exists()
        mariadb.execute("UPDATE dumped.t SET v = 2 WHERE id < 50")
        stage.mode = "load&sync"
        life = stage.start("load", parameters=parameters)
        stage.await_position(end_of_log(mariadb), life)
        found = sorted((row["id"], row["v"]) for row in read_rows(stage.warehouse / "dumped" / "t"))
        assert found == sorted(mariadb.query("SELECT id, v FROM dumped.t"))
        life.signal(signal.SIGTERM)
        assert life.await_exit() == 0, life.tail()
    assert (tmp_path / "dump" / "settled.json").exists()


def test_a_task_file_runs_on_one_machine(mariadb: DatabaseServer, tmp_path: Path) -> None:
    file, lake = tmp_path / "task.yaml", tmp_path / "lake"
    file.write_text(
        "name: shop\ntask-mode: full\nclean-dump-file: true\nmysql-instances:\n"
        f"  - source-id: m1\n    from: {{host: {mariadb.host}, port: {mariadb.port}, user: root}}\n"
        "    block-allow-list: a\nblock-allow-list: {a: {do-dbs: [task_file]}}\n"
    )
    with mariadb.database("task_file"):
        mariadb.execute("CREATE TABLE task_file.t (id INT PRIMARY KEY, v INT)")
        mariadb.insert("task_file.t", [(number, 1) for number in range(100)])
        command = [*(sys.executable, "-m", "streaming.cli.main", "run", "--task", str(file))]
        life = Life(
            "run", tmp_path, [*command, "--sink-uri", f"delta://{lake}"], environment(tmp_path)
        )
        try:
            assert life.await_exit() == 0, life.tail()
        finally:
            life.end()
        assert life.lines("without an effect here: clean-dump-file")
        assert life.lines("replication finished changefeed_id=shop-m1")
        assert len(read_rows(lake / "task_file" / "t")) == 100


@pytest.mark.soak
@pytest.mark.parametrize("edition", EDITIONS, ids=lambda edition: edition.name)
def test_a_dump_and_its_load_are_killed_at_every_step(tmp_path: Path, edition: Edition) -> None:
    parameters = f"{PARAMETERS}&dump-dir={tmp_path}/dump"
    with open_bank(edition, tmp_path, mode="dump", parameters=parameters) as stage:
        for point, nth in DEATHS[:2]:
            killed(stage, point, nth, parameters)
        ended(stage, "dump", parameters)
        stage.mode = "load&sync"
        for point, nth in DEATHS[2:]:
            killed(stage, point, nth, parameters)


@pytest.mark.soak
@pytest.mark.parametrize("edition", EDITIONS, ids=lambda edition: edition.name)
def test_a_full_task_is_killed_at_every_step(tmp_path: Path, edition: Edition) -> None:
    with open_bank(edition, tmp_path, mode="full") as stage:
        for point, nth in DEATHS:
            killed(stage, point, nth, PARAMETERS)
        life = stage.start("follows", parameters=PARAMETERS)
        life.await_line("claimed the changefeed")
        life.kill(group=True)
        ended(stage, "full", PARAMETERS)
        row, (cut,) = stage.row(), stage.cuts()
        assert row is not None
        assert (row.state, row.checkpoint_ts) == ("finished", cut["primary_ts"])
        assert copied_bank.cut_differences(stage.warehouse, cut["tables"]) == []
        stage.mode = "incremental"
