"""What is looked at before a changefeed is created, changed or started again."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conf.settings import EtcdSettings
from coordination.etcd import keys
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import connect
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.feed_state import Decision, FeedEvent
from coordination.metadata.lookup import read_changefeed
from coordination.model import (
    CaptureID,
    ChangefeedID,
    Ownership,
    ProcessorEpoch,
    Revision,
    TableName,
    Ts,
)
from coordination.orchestrator.commit_once import commit_once
from sinks.control.changefeeds import ChangefeedRow, Changefeeds
from sinks.control.progress import Progress, ProgressRow
from streaming.changefeed import preflight
from tests.streaming.cli.test_cluster import SOURCE, Cluster, create

Command = Callable[..., tuple[int, str, str]]
REAL_FINDINGS = preflight.findings
IN_2090 = "999999999999999999"


@pytest.fixture
def at_checkpoint(etcd: EmbeddedEtcd) -> Callable[..., None]:
    """Have the changefeed of etcd be where a run has brought it, or finished there."""

    def bring(checkpoint_ts: int, *, finished: bool = False) -> None:
        cluster_id = os.environ["TIDELAKE_CLUSTER_ID"]
        client = connect(EtcdSettings(endpoints=(etcd.endpoint,), embedded=False))
        try:
            found = read_changefeed(client, cluster_id, ChangefeedName(ChangefeedID("shop")))
            writes, ts = found.writes(), Ts(checkpoint_ts)
            epoch, counter = found.known_info.epoch, keys.delete_counter_key(cluster_id)
            commit_once(client, [writes.advance_checkpoint(ts, ts, epoch)], counter)
            if finished:
                commit_once(client, [writes.feed_event(Decision(event=FeedEvent.FINISH))], counter)
        finally:
            client.close()

    return bring


@pytest.mark.parametrize("target", [1, 100])
def test_a_target_at_or_below_the_checkpoint_is_refused(
    cluster: Cluster,
    command: Command,
    tmp_path: Path,
    at_checkpoint: Callable[..., None],
    target: int,
) -> None:
    create(cluster, tmp_path)
    at_checkpoint(100)
    cluster("changefeed", "pause", "-c", "shop")
    code, _, err = command("changefeed", "update", "-c", "shop", "--target-ts", str(target))
    assert (code, len(err.splitlines())) == (2, 1)
    assert f"target-ts {target} must be above the checkpoint-ts 100" in err
    assert cluster("changefeed", "update", "-c", "shop", "--target-ts", "101")


def test_from_finished_there_are_ways_on_and_each_command_names_them(
    cluster: Cluster, command: Command, tmp_path: Path, at_checkpoint: Callable[..., None]
) -> None:
    create(cluster, tmp_path, "shop", "--target-ts", "100")
    at_checkpoint(100, finished=True)
    assert cluster("changefeed", "query", "-c", "shop")[0]["state"] == "finished"
    for asked in ("pause", "resume"):
        code, _, err = command("changefeed", asked, "-c", "shop")
        assert (code, len(err.splitlines())) == (2, 1)
        assert "changefeed update --target-ts" in err
    cluster("changefeed", "update", "-c", "shop", "--target-ts", "200")
    (resumed,) = cluster("changefeed", "resume", "-c", "shop")
    assert (resumed["state"], resumed["checkpoint_ts"]) == ("normal", 100)


def test_a_finished_one_is_rewound_without_another_target(
    cluster: Cluster, tmp_path: Path, at_checkpoint: Callable[..., None]
) -> None:
    create(cluster, tmp_path, "shop", "--target-ts", "100")
    at_checkpoint(100, finished=True)
    (resumed,) = cluster("changefeed", "resume", "-c", "shop", "--overwrite-checkpoint-ts", "40")
    assert (resumed["state"], resumed["checkpoint_ts"]) == ("normal", 40)


def test_a_rewind_into_the_future_is_refused(
    cluster: Cluster, command: Command, tmp_path: Path
) -> None:
    create(cluster, tmp_path)
    cluster("changefeed", "pause", "-c", "shop")
    code, _, err = command(
        "changefeed", "resume", "-c", "shop", "--overwrite-checkpoint-ts", IN_2090
    )
    assert (code, len(err.splitlines())) == (2, 1)
    assert f"overwrite-checkpoint-ts {IN_2090} is the time 2090-11-18" in err


@pytest.mark.parametrize("is_dry", [False, True])
def test_all_that_is_wrong_is_found_before_anything_is_made(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_dry: bool
) -> None:
    monkeypatch.setattr(preflight, "findings", REAL_FINDINGS)
    (tmp_path / "file").write_text("no folder")
    sink = f"delta://{tmp_path}/file/lake"
    asked = ("changefeed", "create", "-c", "shop", "--source-uri", SOURCE, "--sink-uri", sink)
    asked += ("--start-ts", IN_2090, *(("--dry-run", "--format", "json") if is_dry else ()))
    code, out, err = command(*asked)
    assert (code, len(err.splitlines())) == (2, 1)
    told = json.loads(out)["rows"][0]["findings"] if is_dry else [err]
    for says in ("is no folder", f"start-ts {IN_2090} is the time 2090"):
        assert any(says in each for each in told), told
    assert command("changefeed", "list", "--format", "json")[1].count("shop") == 0


def test_a_dry_run_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    uris = ("--source-uri", SOURCE, "--sink-uri", f"delta://{tmp_path}/lake")
    (tmp_path / "schema.sql").write_text("USE shop; CREATE TABLE a (k INT PRIMARY KEY, v INT);")
    uris += ("--schema-file", f"{tmp_path}/schema.sql")
    (planned,) = cluster("changefeed", "create", "-c", "shop", *uris, "--dry-run")
    assert (planned["changefeed"], planned["findings"]) == ("shop", [])
    assert planned["tables"][0] == (
        f"shop.a → {tmp_path}/lake/shop/a: write-mode = 'upsert', primary key k, not copied"
    )
    assert not (tmp_path / "lake").exists()
    assert cluster("changefeed", "list") == []
    create(cluster, tmp_path)
    cluster("changefeed", "pause", "-c", "shop")
    (planned,) = cluster("changefeed", "update", "-c", "shop", "--target-ts", "9", "--dry-run")
    assert planned["changed"] == {"target-ts": {"from": None, "to": 9}}
    assert cluster("changefeed", "query", "-c", "shop")[0]["target_ts"] == 0


# The warehouse: these ask no broker.


def owned(warehouse: Path, changefeed_id: str, **changes: object) -> ChangefeedRow:
    changefeeds, term = Changefeeds(str(warehouse)), threading.Event()
    initial = ChangefeedRow(changefeed_id=changefeed_id, start_ts=1, checkpoint_ts=1, resolved_ts=1)
    owner = Ownership(
        capture_id=CaptureID("c-other"),
        epoch=ProcessorEpoch("e"),
        etcd_cluster_id="e1/u1",
        election_revision=Revision(7),
    )
    claimed = changefeeds.claim(initial, owner, ttl_s=10, stop=term)
    changed = replace(claimed, **changes)  # type: ignore[arg-type]
    changefeeds.save(changed)
    return changed


def refusal(tmp_path: Path, changefeed_id: str = "shop") -> str:
    from tests.streaming.changefeed.test_preflight import changefeed

    wanted = changefeed(f"delta://{tmp_path}/lake", **{"changefeed-id": changefeed_id})
    found = [str(each) for each in REAL_FINDINGS(wanted, is_new=False)]
    return "\n".join(each for each in found if each.startswith("sink-uri"))


def test_a_warehouse_that_somebody_writes_is_refused(tmp_path: Path) -> None:
    owned(tmp_path / "lake", "shop")
    said = refusal(tmp_path)
    assert "is replicated into" in said
    assert "capture c-other" in said
    assert "etcd cluster e1/u1" in said


def test_one_whose_changefeed_was_stopped_is_taken_over(tmp_path: Path) -> None:
    owned(tmp_path / "lake", "shop", state="stopped")
    assert refusal(tmp_path) == ""


def test_tables_of_another_changefeed_are_named(tmp_path: Path) -> None:
    other = owned(tmp_path / "lake", "mall", state="stopped")
    progress = Progress(str(tmp_path / "lake"))
    progress.claim("mall", other.term)
    row = ProgressRow(
        changefeed_id="mall",
        incarnation=1,
        schema_name="shop",
        table_name="orders",
        generation=1,
        state="stopped",
        checkpoint_ts=1,
        resolved_ts=1,
        capture_id="c-other",
        epoch="e",
        fence=1,
    )
    progress.advance([row], other.term)
    said = refusal(tmp_path)
    assert "belong to changefeed mall: shop.orders" in said
    assert refusal(tmp_path, "mall") == ""
    assert TableName("shop", "orders") in progress.read("mall")
