"""``tidelake task`` on a real etcd where nobody serves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from coordination.metadata.errors import ChangefeedNotFound
from tests.streaming.cli.test_owner import serving

Command = Callable[..., tuple[int, str, str]]
Cluster = Callable[..., list[dict[str, Any]]]
TASK = """
name: shop
task-mode: all
mysql-instances:
  - source-id: m1
    from: {host: db, user: root, password: '${env:PW}'}
    block-allow-list: a
block-allow-list: {a: {do-dbs: [shop]}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "task.yaml"
    path.write_text(TASK)
    return path


@pytest.mark.etcd
def test_a_task_from_its_start_to_its_end(cluster: Cluster, file: Path, tmp_path: Path) -> None:
    sink = f"delta://{tmp_path}/lake"
    (made,) = cluster("task", "start", str(file), "--sink-uri", sink)
    assert (made["task"], made["source"], made["mode"], made["state"]) == (
        *("shop", "m1", "all", "running"),
    )
    (row,) = cluster("task", "list")
    assert (row["task"], row["stage"]) == ("shop", None)
    assert "no capture of the cluster" in row["error"]
    assert cluster("task", "pause", "shop")[0]["changed"] == {
        "state": {"from": "running", "to": "paused"}
    }
    assert cluster("task", "resume", "shop")[0]["state"] == "running"

    (found,) = cluster("task", "query", "shop")
    assert (found["sink_uri"], found["rules"]) == (sink, "shop.*")
    file.write_text(TASK.replace("[shop]", "[shop, more]"))
    (updated,) = cluster("task", "update", str(file))
    assert updated["changed"] == {"revision": {"from": 0, "to": 1}}
    (found,) = cluster("task", "query", "shop")
    assert (found["sink_uri"], found["rules"]) == (sink, "shop.*, more.*")

    assert cluster("task", "stop", "shop")[0]["state"] == "stopping"


@pytest.mark.etcd
def test_what_its_unit_reports_is_shown(
    cluster: Cluster, etcd: EmbeddedEtcd, file: Path, tmp_path: Path
) -> None:
    cluster("task", "start", str(file), "--sink-uri", f"delta://{tmp_path}/lake")
    done = {"tables": 3, "whole_tables": 1, "rows": 10, "of_about_rows": 40, "bytes": 99}
    told = {"job": "shop", "task": "m1", "stage": "Error", "error": "the disk is full"}
    held = {**told, "stage": "Unscheduled", "error": "", "problem": "no capture takes it"}
    gone = ChangefeedNotFound("there is no job shop")
    answers = [{"rows": [{**told, "status": done}]}, {"rows": [held]}, gone, {"rows": []}]
    with serving(etcd, "c1", list_tasks=answers) as owner:
        (found,) = cluster("task", "query", "shop")
        assert owner.asked == [("list-tasks", {"job-id": "shop"})]
        assert (found["stage"], found["error"]) == ("Error", "the disk is full")
        assert done.items() <= found.items()
        (row,) = cluster("task", "list")
        assert (row["stage"], row["error"]) == ("Unscheduled", "no capture takes it")
        (found,) = cluster("task", "query", "shop")
        assert (found["stage"], found["rows"]) == (None, None)
        assert "there is no job shop" in found["error"]
        (found,) = cluster("task", "query", "shop")
        assert (found["stage"], found["error"]) == (None, None)


@pytest.mark.etcd
def test_what_is_refused(command: Command, file: Path, tmp_path: Path) -> None:
    sink = ("--sink-uri", f"delta://{tmp_path}/lake")
    code, _, err = command("task", "query", "shop")
    assert (code, "there is no task shop: `tidelake task list` shows them" in err) == (2, True)
    assert command("task", "start", str(file), *sink)[0] == 0
    code, _, err = command("task", "start", str(file), *sink)
    assert (code, "there is a task shop" in err) == (2, True)
    code, _, err = command("task", "start", str(file), *sink, "--source-uri", "mysql://a@b/")
    assert (code, "the task file has `from`" in err) == (2, True)
    file.write_text(TASK.replace("m1", "m2"))
    code, _, err = command("task", "update", str(file))
    assert (code, "task shop has no source m2, but m1" in err) == (2, True)


def test_a_check_shows_what_would_be_done(command: Command, file: Path) -> None:
    file.write_text(TASK + "meta-schema: dm_meta\n")
    code, out, err = command(
        "task", "check", str(file), "--sink-uri", "delta:///lake", "--no-check", "--format", "json"
    )
    assert code == 0
    assert "without an effect here: meta-schema" in err
    (row,) = json.loads(out)["rows"]
    assert (row["units"], row["rules"]) == ("dump, load, sync", "shop.*")
    assert row["source_uri"] == "mysql://root@db:3306/"


def test_the_server_may_be_named_beside_the_file(command: Command, file: Path) -> None:
    lines = [line for line in TASK.splitlines() if "from:" not in line]
    file.write_text("\n".join(lines))
    given = ("task", "check", str(file), "--sink-uri", "delta:///lake", "--no-check")
    code, _, err = command(*given)
    assert (code, "has no `from`" in err) == (2, True)
    assert command(*given, "--source-uri", "mysql://root@db:3306/")[0] == 0
    code, _, err = command(*given, "--source-uri", "mysql://root@db/?task-mode=incremental")
    assert (code, "leave it out of the URI" in err) == (2, True)


def test_what_the_task_file_says_is_said_nowhere_else(command: Command, file: Path) -> None:
    config = file.with_name("changefeed.toml")
    config.write_text("start-ts = 5")
    given = ("task", "check", str(file), "--sink-uri", "delta:///lake", "--no-check")
    code, _, err = command(*given, "--config", str(config))
    assert (code, "start-ts: a task file says" in err) == (2, True)


@pytest.mark.etcd
def test_a_changefeed_of_a_cluster_does_not_leave_out_a_copy(
    command: Command, tmp_path: Path
) -> None:
    given = ("changefeed", "create", "--sink-uri", f"delta://{tmp_path}/lake", "-c", "shop")
    code, _, err = command(*given, "--source-uri", "mysql://root@db/")
    assert (code, "which a cluster makes for a task: `tidelake task start`" in err) == (2, True)
    assert command(*given, "--source-uri", "mysql://root@db/?task-mode=incremental")[0] == 0
