"""A job of a cluster copies a database and follows it, and a capture that is killed is replaced."""

from __future__ import annotations

import json
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from conf.settings import EtcdSettings
from coordination.etcd.embedded import EmbeddedEtcd, free_ports
from coordination.etcd.etcd3_client import connect
from coordination.jobmaster.job_operator import JobOperator
from coordination.jobmaster.records import TaskCfg
from coordination.model import JobID, TaskID, time_tso
from sinks.control.changefeeds import Changefeeds
from sinks.control.progress import Progress
from tests.acceptance.processes import (
    BOTH_PROGRAMS,
    ON_THREADS,
    Life,
    await_,
    environment,
    field,
)
from tests.services.commands_here import run_here
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows
from tests.shop import proof

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb, pytest.mark.etcd]

NAME = "tasks"
JOB, TASK = JobID("copy"), TaskID("one")


def server(number: int, etcd: str, cluster_id: str, folder: Path, program: str) -> Life:
    place = folder / f"server-{number}"
    place.mkdir()
    command = [
        *(sys.executable, "-m", program, "server", "--etcd", etcd),
        *("--cluster-id", cluster_id, "--addr", f"127.0.0.1:{free_ports(1)[0]}"),
    ]
    env = environment(place, capture_session_ttl=5, session_safety_margin_s=1.0)
    return Life(f"server-{number}", place, command, env)


def queried(etcd: str, cluster_id: str) -> dict[str, Any]:
    """What an operator is shown of the task."""
    where = ("--etcd", etcd, "--cluster-id", cluster_id, "--format", "json")
    found = run_here("task", "query", JOB, *where)
    assert found.code == 0, found.err
    (row,) = json.loads(found.out)["rows"]
    return dict(row)


@BOTH_PROGRAMS
def test_a_job_copies_and_follows_through_the_death_of_its_capture(
    mariadb: DatabaseServer, etcd: EmbeddedEtcd, tmp_path: Path, program: str
) -> None:
    cluster_id, lake = f"tasks-{uuid.uuid4().hex[:8]}", tmp_path / "lake"
    client = connect(EtcdSettings(endpoints=(etcd.endpoint,), embedded=False))
    jobs = JobOperator(client, cluster_id)
    config = {
        "source-uri": f"mysql://root@{mariadb.host}:{mariadb.port}/?task-mode=all&chunk-rows=100",
        "sink-uri": f"delta://{lake}",
        "document": {"filter": {"rules": [f"{NAME}.*"]}},
    }

    def is_equal() -> bool:
        if not DeltaTable.is_deltatable(str(lake / NAME / "t")):
            return False
        found = {row["id"]: row["v"] for row in read_rows(lake / NAME / "t")}
        return found == dict(mariadb.query(f"SELECT id, v FROM {NAME}.t"))

    def shown() -> dict[str, Any]:
        return queried(etcd.endpoint, cluster_id)

    def holders() -> set[str]:
        return {row.capture_id for row in Progress(str(lake)).read(f"{JOB}-{TASK}").values()}

    lives = [server(number, etcd.endpoint, cluster_id, tmp_path, program) for number in (1, 2)]
    try:
        with mariadb.database(NAME):
            mariadb.execute(f"CREATE TABLE {NAME}.t (id INT PRIMARY KEY, v VARCHAR(20))")
            mariadb.insert(f"{NAME}.t", [(number, "a") for number in range(2_000)])
            jobs.create(JOB, {TASK: TaskCfg(task_mode="all", config=config)})
            await_("the copy", is_equal, every_s=0.5)
            await_("the unit that follows", lambda: shown()["stage"] == "Running", every_s=0.5)
            now = shown()
            assert (now["unit"], now["error"], now["changefeed_state"]) == ("sync", None, "normal")
            assert now["lag_s"] >= 0
            mariadb.execute(f"UPDATE {NAME}.t SET v = 'b' WHERE id < 1000")
            mariadb.execute(f"DELETE FROM {NAME}.t WHERE id > 1990")
            await_("the changes", is_equal, every_s=0.5)
            await_("the row of the capture that has the table", lambda: holders() != {""})
            (holder,) = holders()
            starts = {field(each.lines("capture starts")[-1], "capture_id"): each for each in lives}
            killed = starts[holder]
            killed.kill(group=True)
            mariadb.execute(f"UPDATE {NAME}.t SET v = 'c' WHERE id < 500")
            await_("the changes after the death of a capture", is_equal, every_s=0.5)
            await_("the row of another capture", lambda: holders() != {holder})
    finally:
        for life in lives:
            life.end()
        client.close()


@pytest.mark.more  # in one process: test_task_modes
def test_a_full_task_finishes_and_goes_on_when_its_mode_is_updated(
    mariadb: DatabaseServer, etcd: EmbeddedEtcd, tmp_path: Path
) -> None:
    cluster_id, lake = f"tasks-{uuid.uuid4().hex[:8]}", tmp_path / "lake"
    client = connect(EtcdSettings(endpoints=(etcd.endpoint,), embedded=False))
    jobs = JobOperator(client, cluster_id)

    def cfg(mode: str, *tables: str) -> TaskCfg:
        config = {
            "source-uri": f"mysql://root@{mariadb.host}:{mariadb.port}/",
            "sink-uri": f"delta://{lake}",
            "document": {
                "filter": {"rules": [f"{NAME}.{each}" for each in tables]},
                "mysql": {"task-mode": mode},
            },
        }
        return TaskCfg(task_mode=mode, config=config)

    def count(table: str = "t") -> int:
        return len(read_rows(lake / NAME / table))

    def checkpoint() -> int:
        row = Changefeeds(str(lake)).read(f"{JOB}-{TASK}")
        return row.checkpoint_ts if row is not None else 0

    life = server(1, etcd.endpoint, cluster_id, tmp_path, ON_THREADS)
    try:
        with mariadb.database(NAME):
            mariadb.execute(f"CREATE TABLE {NAME}.t (id INT PRIMARY KEY)")
            mariadb.insert(f"{NAME}.t", [(number,) for number in range(500)])
            jobs.create(JOB, {TASK: cfg("full", "t")})

            def has_finished() -> bool:
                assert not life.is_over, life.tail()
                now = queried(etcd.endpoint, cluster_id)
                assert now["stage"] != "Error", now["error"]
                return bool(now["state"] == "finished")

            await_("the end of the task", has_finished, every_s=0.5)
            now = queried(etcd.endpoint, cluster_id)
            assert (now["finished"], now["changefeed_state"]) == ("dump, load", "finished")
            assert proof.ledger(lake, f"{JOB}-{TASK}")
            mariadb.execute(f"INSERT INTO {NAME}.t VALUES (1000)")
            assert count() == 500
            jobs.update(JOB, {TASK: cfg("all", "t")})
            await_("what came since", lambda: count() == 501, every_s=0.5)
            mariadb.execute(
                f"CREATE TABLE {NAME}.other (id INT PRIMARY KEY)",
                f"INSERT INTO {NAME}.other SELECT id FROM {NAME}.t",
            )
            passed = time_tso(datetime.now(UTC))  # its rows were read, and left out
            await_("the checkpoint behind", lambda: checkpoint() > passed, every_s=0.5)
            jobs.update(JOB, {TASK: cfg("all", "t", "other")})
            await_("the table that joins", (lake / NAME / "other").exists, every_s=0.5)
            mariadb.execute(f"INSERT INTO {NAME}.other VALUES (2000)")
            await_("all of it", lambda: count("other") == 502, every_s=0.5)
    finally:
        life.end()
        client.close()
