"""Shards of a replicated database in a cluster of two captures, which share the targets: a target
moves, and the primary is killed while both write."""

from __future__ import annotations

import signal
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest
from deltalake import DeltaTable

from conf.settings import EtcdSettings
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import connect
from coordination.jobmaster.job_operator import JobOperator
from coordination.jobmaster.records import TaskCfg
from coordination.model import JobID, TaskID
from sinks.control.progress import Progress
from tests.acceptance.processes import ON_THREADS, await_
from tests.acceptance.test_tasks import server
from tests.services.commands_here import run_here
from tests.services.database_editions import MARIADB_10_11
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows
from tests.services.replication import await_caught_up, member, promote, replicate

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb, pytest.mark.etcd]

JOB, TASK = JobID("shards"), TaskID("one")
FEED = f"{JOB}-{TASK}"
SHARDS = [(schema, table) for schema in "12" for table in "12"]
TARGETS = ("orders", "users")
ROUTES = [
    {
        "matcher": [f"shop_*.{target}_*"],
        "target-schema": "lake",
        "target-table": target,
        "extract-table": {"table-regexp": "_(.*)", "target-column": "t"},
        "extract-schema": {"schema-regexp": "_(.*)", "target-column": "s"},
    }
    for target in TARGETS
]


def each(statement: str) -> list[str]:
    """``{}``: the name of each shard of each target."""
    names = [f"shop_{s}.{target}_{t}" for target in TARGETS for s, t in SHARDS]
    return [statement.format(name) for name in names]


def is_union(lake: Path, database: DatabaseServer, columns: str) -> bool:
    names = [*columns.split(", "), "t", "s"]
    for target in TARGETS:
        if not DeltaTable.is_deltatable(str(lake / "lake" / target)):
            return False
        selects = (
            f"SELECT {columns}, '{t}' AS t, '{s}' AS s FROM shop_{s}.{target}_{t}"
            for s, t in SHARDS
        )
        wanted = sorted(database.query(" UNION ALL ".join(selects)))
        rows = read_rows(lake / "lake" / target)
        if sorted(tuple(row.get(name) for name in names) for row in rows) != wanted:
            return False
    return True


@pytest.mark.more
def test_shards_that_two_captures_write_move_and_fail_over(
    etcd: EmbeddedEtcd, tmp_path: Path
) -> None:
    cluster_id, lake = f"routed-{uuid.uuid4().hex[:8]}", tmp_path / "lake"

    def holders() -> dict[str, str]:
        rows = Progress(str(lake)).read(FEED).values()
        return {row.table_name: row.capture_id for row in rows}

    with ExitStack() as stack:
        first, second = (stack.enter_context(member(MARIADB_10_11, number)) for number in (1, 2))
        replicate(second, first)
        first.execute(
            *("CREATE DATABASE shop_1", "CREATE DATABASE shop_2"),
            *each("CREATE TABLE {} (id INT PRIMARY KEY, v INT)"),
            *each("INSERT INTO {} VALUES (1, 1), (2, 2), (3, 3)"),
        )
        client = connect(EtcdSettings(endpoints=(etcd.endpoint,), embedded=False))
        stack.callback(client.close)
        places = f"{first.host}:{first.port},{second.host}:{second.port}"
        config = {
            "source-uri": f"mysql://root@{places}/?task-mode=all",
            "sink-uri": f"delta://{lake}",
            "document": {"filter": {"rules": ["shop_*.*"]}, "sink": {"routes": ROUTES}},
        }
        lives = [
            server(number, etcd.endpoint, cluster_id, tmp_path, ON_THREADS) for number in (1, 2)
        ]
        for life in lives:
            stack.callback(life.end)
        JobOperator(client, cluster_id).create(JOB, {TASK: TaskCfg(task_mode="all", config=config)})
        await_("the copy", lambda: is_union(lake, first, "id, v"), every_s=0.5)
        await_("both captures have a target", lambda: len(set(holders().values()) - {""}) == 2)
        before = holders()
        to = before["users"]

        def move(capture: str) -> None:
            where = ("--etcd", etcd.endpoint, "--cluster-id", cluster_id)
            names = ("--table", "lake.orders", "--capture-id", capture)
            moved = run_here("table", "move", "-c", FEED, *names, *where)
            assert moved.code == 0, moved.err

        move(to)
        alters = each("ALTER TABLE {} ADD COLUMN w INT DEFAULT 5")
        first.execute(*alters[:2], *each("UPDATE {} SET v = v + 1 WHERE id = 1"))
        await_("the target has moved", lambda: holders()["orders"] == to)
        first.execute(*alters[2:], *each("INSERT INTO {} VALUES (4, 4, 4)"))
        await_("the new column", lambda: is_union(lake, first, "id, v, w"), every_s=0.5)
        move(before["orders"])
        await_("it has moved back", lambda: len(set(holders().values())) == 2)

        first.execute(*each("UPDATE {} SET v = v + 1"))
        for life in lives:
            life.signal(signal.SIGSTOP)
        await_caught_up(second, first)
        first.kill()
        promote(second)
        for life in lives:
            life.signal(signal.SIGCONT)
        second.execute(
            *each("UPDATE {} SET w = 9 WHERE id = 2"),
            *each("ALTER TABLE {} DROP COLUMN v"),
            *each("DELETE FROM {} WHERE id = 3"),
        )
        await_("the new primary", lambda: is_union(lake, second, "id, w"), every_s=0.5)
        await_("both captures write", lambda: len(set(holders().values()) - {""}) == 2)
