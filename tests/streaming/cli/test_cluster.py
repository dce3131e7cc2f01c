"""The cluster's commands, on a real etcd where nobody serves, and as a user mistypes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conf.settings import Changefeed, DeltaSink, EtcdSettings
from conf.sources.kafka_uri import KafkaSettings
from coordination.capture.run_admission import RunAdmission
from coordination.errors import ConfigError, TidelakeError, TopicMissing
from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import connect
from coordination.metadata.changefeed_writes import ChangefeedWrites
from coordination.metadata.lookup import read_changefeeds
from coordination.metadata.records import ChangefeedInfo
from coordination.metadata.version import tidelake_version
from coordination.model import (
    CaptureID,
    CaptureInfo,
    ChangefeedID,
    LeaseID,
    Revision,
    TableName,
)
from coordination.trust.clock import SystemClock
from sinks.control.warehouse import ControlTables
from streaming.changefeed import preflight
from streaming.changefeed.admission import info_of, refuse_a_clusters, refuse_beside_other_versions
from streaming.changefeed.settings_in_etcd import changefeed_settings
from streaming.cli import cluster as cli_cluster
from streaming.operations import cluster as operations

SOURCE = "kafka://127.0.0.1:9/shop?protocol=canal-json&enable-tidb-extension=true"
Cluster = Callable[..., list[dict[str, Any]]]


def create(cluster: Cluster, tmp_path: Path, name: str = "shop", *more: str) -> dict[str, Any]:
    sink = f"delta://{tmp_path}/warehouse"
    (row,) = cluster(
        "changefeed", "create", "--changefeed-id", name,
        "--source-uri", SOURCE, "--sink-uri", sink, *more,
    )  # fmt: skip
    return row


def test_a_changefeed_from_its_making_to_its_end(cluster: Cluster, tmp_path: Path) -> None:
    made = create(
        cluster, tmp_path, "shop", "--start-ts", "5", "--target-ts", "900", "--no-confirm"
    )
    assert (made["state"], made["start_ts"], made["target_ts"]) == ("normal", 5, 900)
    assert made["awaits"] == (
        "no capture is there that would replicate it: start a `tidelake server`"
    )
    assert (made["source_uri"], made["sink_uri"]) == (SOURCE, f"delta://{tmp_path}/warehouse")
    assert [row["changefeed"] for row in cluster("changefeed", "list")] == ["shop"]

    paused = cluster("changefeed", "pause", "-c", "shop")[0]
    assert (paused["state"], paused["awaits"]) == ("stopped", None)
    sink = f"delta://{tmp_path}/other"
    (changed,) = cluster(
        "changefeed", "update", "-c", "shop",
        "--source-uri", SOURCE, "--sink-uri", sink, "--target-ts", "1000", "--no-confirm",
    )  # fmt: skip
    assert (changed["target_ts"], changed["start_ts"]) == (1000, 5)
    (resumed,) = cluster(
        "changefeed", "resume", "-c", "shop", "--overwrite-checkpoint-ts", "7", "--no-confirm"
    )
    assert (resumed["state"], resumed["checkpoint_ts"]) == ("normal", 7)
    assert resumed["epoch"] > made["epoch"]

    assert cluster("changefeed", "remove", "-c", "shop")[0]["state"] == "removed"
    assert cluster("changefeed", "list") == []
    again = create(cluster, tmp_path)
    assert again["epoch"] > resumed["epoch"]  # messages of its first life mean nothing to it


def test_the_file_and_the_environment_go_into_the_config(
    cluster: Cluster, etcd: EmbeddedEtcd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELAKE_APPLY_ENGINE", "merge-on-write")
    file = tmp_path / "changefeed.toml"
    file.write_text(
        'enable-sync-point = true\nsync-point-interval = "30s"\n[filter]\nrules = ["a.*"]'
    )
    create(cluster, tmp_path, "shop", "--config", str(file))
    assert [row["state"] for row in cluster("changefeed", "list")] == ["normal"]
    (stored,) = read_stored(etcd)
    assert (stored.config or {})["enable-sync-point"] is True
    settings = changefeed_settings(stored)
    assert (settings.sink.apply_engine, settings.filter.rules) == ("merge-on-write", ("a.*",))


def test_uris_may_come_from_the_environment_and_etcd_from_the_file(
    cluster: Cluster, etcd: EmbeddedEtcd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "changefeed.toml"
    file.write_text(f'etcd = "{etcd.endpoint}"\ncapture-session-ttl = 7\ncase-sensitive = true')
    monkeypatch.delenv("TIDELAKE_ETCD")
    monkeypatch.setenv("TIDELAKE_SOURCE_URI", SOURCE)
    monkeypatch.setenv("TIDELAKE_SINK_URI", f"delta://{tmp_path}/warehouse")
    (made,) = cluster("changefeed", "create", "-c", "shop", "--config", str(file))
    assert made["source_uri"] == SOURCE
    (stored,) = read_stored(etcd)
    assert stored.config == {
        "case-sensitive": True,
        "sink": {"delta-uri": f"delta://{tmp_path}/warehouse"},
    }  # nothing of how to reach etcd


@contextmanager
def client_of(etcd: EmbeddedEtcd) -> Iterator[EtcdClient]:
    client = connect(EtcdSettings(endpoints=(etcd.endpoint,), embedded=False))
    try:
        yield client
    finally:
        client.close()


def read_stored(etcd: EmbeddedEtcd) -> list[ChangefeedInfo]:
    with client_of(etcd) as client:
        scope = os.environ["TIDELAKE_CLUSTER_ID"]
        return [each.known_info for each in read_changefeeds(client, scope)]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("changefeed", "query", "-c", "nothing"), 1, "there is no changefeed"),
        (("changefeed", "pause", "-c", "nothing"), 1, "there is no changefeed"),
        (("changefeed", "create", "--changefeed-id", "x"), 2, "source-uri is missing"),
        (("processor", "list"), 1, "is a server running?"),
        (("changefeed", "list", "--cluster-id", "a/b"), 2, "cluster-id 'a/b': letters and digits"),
        (("capture", "drain", "--capture-id", "x"), 1, "is a server running?"),
        (("table", "move", "-c", "x", "--table", "x", "--capture-id", "x"), 2, "schema.table"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    command: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...], code: int, says: str
) -> None:
    ended, out, err = command(*arguments)
    assert (ended, out) == (code, "")
    assert says in err
    assert err.startswith("tidelake: ")
    assert len(err.splitlines()) == 1


def test_a_name_is_taken_once(
    cluster: Cluster, command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    create(cluster, tmp_path)
    sink = f"delta://{tmp_path}/warehouse"
    code, _, err = command(
        "changefeed",
        "create",
        "--changefeed-id",
        "shop",
        "--source-uri",
        SOURCE,
        "--sink-uri",
        sink,
    )
    assert code == 2
    assert "changefeed resume" in err


def test_a_run_of_what_the_cluster_has_is_refused(
    cluster: Cluster, etcd: EmbeddedEtcd, tmp_path: Path
) -> None:
    create(cluster, tmp_path)
    cluster("changefeed", "pause", "-c", "shop")
    cluster_id, warehouse = os.environ["TIDELAKE_CLUSTER_ID"], f"{tmp_path}/warehouse"
    with client_of(etcd) as client:
        with pytest.raises(ConfigError, match=r"belongs to the captures of cluster c-.*remove"):
            refuse_a_clusters(client, cluster_id, "shop", warehouse)
        refuse_a_clusters(client, cluster_id, "shop", f"{tmp_path}/another")
        refuse_a_clusters(client, cluster_id, "other", warehouse)
        refuse_a_clusters(client, "elsewhere", "shop", warehouse)


def test_a_capture_of_another_version_than_the_others_is_refused(etcd: EmbeddedEtcd) -> None:
    first = CaptureInfo(id=CaptureID("c1"), address="b:8300", version="7.0.0", start_timestamp=0)
    key = keys.capture_key("far", first.id)
    with client_of(etcd) as client:
        client.put(key, keys.dump_capture_info(first))
        (found,) = client.range(key).kvs
        registered = found.create_revision
        refuse_beside_other_versions(client, "far", registered)
        refuse_beside_other_versions(client, "elsewhere", Revision(registered + 1))
        with pytest.raises(ConfigError, match=r"c1 at b:8300 has version 7\.0\.0: .*Stop"):
            refuse_beside_other_versions(client, "far", Revision(registered + 1))
        client.put(key, keys.dump_capture_info(replace(first, version=tidelake_version())))
        refuse_beside_other_versions(client, "far", Revision(registered + 1))


def admit_a_run(client: EtcdClient, cluster_id: str, warehouse: str, lease: LeaseID) -> None:
    """As it is while one replicates the shop."""
    source = KafkaSettings(
        brokers=("b:1",), topic="t", topics=("t",), protocol="canal-json", partition_num=None
    )
    shop = Changefeed(id="shop", source=source, sink=DeltaSink(warehouse=warehouse))
    scope = keys.run_scope(cluster_id, ChangefeedID("shop"))
    info = CaptureInfo(id=CaptureID("c1"), address="127.0.0.1:8300", version="1", start_timestamp=0)
    key = keys.capture_key(scope, info.id)
    client.put(key, keys.dump_capture_info(info), lease)
    (registered,) = client.range(key).kvs
    admission = RunAdmission(client, scope, info_of(shop), ttl_s=10, clock=SystemClock())
    assert admission(info.id, registered.create_revision)


def test_a_changefeed_that_a_run_replicates_is_not_made(
    cluster: Cluster,
    command: Callable[..., tuple[int, str, str]],
    etcd: EmbeddedEtcd,
    tmp_path: Path,
) -> None:
    cluster_id, sink = os.environ["TIDELAKE_CLUSTER_ID"], f"{tmp_path}/warehouse"
    asked = ("changefeed", "create", "-c", "shop", "--source-uri", SOURCE)
    with client_of(etcd) as client:
        lease = client.grant(60)
        admit_a_run(client, cluster_id, sink, lease.id)
        assert cluster("capture", "list") == []
        code, _, err = command(*asked, "--sink-uri", f"delta://{sink}")
        assert (code, len(err.splitlines())) == (2, 1)
        assert "is replicated by a `tidelake run` at 127.0.0.1:8300 (capture c1)" in err
        client.revoke(lease.id)
    create(cluster, tmp_path)


def test_only_a_paused_changefeed_is_updated(
    cluster: Cluster, command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    create(cluster, tmp_path)
    sink = f"delta://{tmp_path}/warehouse"
    code, _, err = command(
        "changefeed", "update", "-c", "shop", "--source-uri", SOURCE, "--sink-uri", sink
    )
    assert code == 1
    assert "pause" in err


def test_a_pause_amid_a_reload_says_that_one_runs(
    cluster: Cluster, command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """The leader has paused the changefeed, and resumes it."""
    create(cluster, tmp_path)
    cluster("changefeed", "pause", "-c", "shop")
    reloads = ControlTables.of(DeltaSink(warehouse=f"{tmp_path}/warehouse")).reloads
    order = reloads.order("shop", TableName("shop", "orders"))
    pause = ("changefeed", "pause", "-c", "shop")
    _, _, err = command(*pause)  # the order waits for the operator's resumption
    assert "anew" not in err
    reloads.note(replace(order, state="copying"))
    code, _, err = command(*pause)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "is stopped while table shop.orders is loaded anew" in err
    assert "pause it then" in err


def test_an_update_keeps_what_is_not_given(
    cluster: Cluster, etcd: EmbeddedEtcd, tmp_path: Path
) -> None:
    file = tmp_path / "changefeed.toml"
    file.write_text(
        "start-ts = 3\n"
        'zero-date = "fail"\n[filter]\nrules = ["a.*", "b.*"]\n'
        '[storage-options]\nAWS_REGION = "eu-west-1"'
    )
    create(cluster, tmp_path, "shop", "--config", str(file), "--target-ts", "900")
    (before,) = read_stored(etcd)
    cluster("changefeed", "pause", "-c", "shop")

    (changed,) = cluster("changefeed", "update", "-c", "shop", "--target-ts", "1000")
    (after,) = read_stored(etcd)
    assert changed["target_ts"] == 1000
    assert (after.sink_uri, after.config) == (before.sink_uri, before.config)

    other = tmp_path / "other.toml"
    other.write_text('start-ts = 99\n[filter]\nrules = ["c.*"]\n[storage-options]\nx = "y"')
    sink = f"delta://{tmp_path}/other"
    cluster("changefeed", "update", "-c", "shop", "--config", str(other), "--sink-uri", sink)
    (last,) = read_stored(etcd)
    settings = changefeed_settings(last)
    assert (settings.start_ts, settings.target_ts, settings.zero_date) == (3, 1000, "fail")
    assert settings.filter.rules == ("c.*",)
    assert settings.sink.warehouse == f"{tmp_path}/other"
    assert dict(settings.sink.storage_options) == {"AWS_REGION": "eu-west-1", "x": "y"}
    assert last.sink_uri == SOURCE

    (endless,) = cluster("changefeed", "update", "-c", "shop", "--target-ts", "0")
    assert endless["target_ts"] == 0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("update",), "nothing is changed"),
        (("update", "--target-ts", "900"), "nothing is changed"),
        (("update", "--target-ts", "4"), "target-ts 4 must be above start-ts 5"),
        (("update", "--source-uri", SOURCE.replace("canal-json", "craft")), "craft is not read"),
        (("update", "--sink-uri", SOURCE), "that is --source-uri here"),
        (("resume", "--overwrite-checkpoint-ts", "-5"), "must be a TSO, 0 or above"),
        (("resume", "--overwrite-checkpoint-ts", "9" * 30), "must be a TSO, 0 or above"),
        (("resume", "--overwrite-checkpoint-ts", "900"), "below the changefeed's target-ts 900"),
        (("resume", "--overwrite-checkpoint-ts", "9" * 18), "more than a minute ahead"),
        (("resume", "--overwrite-checkpoint-ts", "1700000000123"), "looks like milliseconds since"),
    ],
)
def test_what_a_changefeed_cannot_become_is_one_line_and_changes_nothing(
    cluster: Cluster,
    command: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    *,
    given: tuple[str, ...],
    says: str,
) -> None:
    create(cluster, tmp_path, "shop", "--start-ts", "5", "--target-ts", "900")
    cluster("changefeed", "pause", "-c", "shop")
    before = cluster("changefeed", "query", "-c", "shop")
    code, _, err = command("changefeed", *given, "-c", "shop")
    assert (code, len(err.splitlines())) == (2, 1)
    assert says in err
    assert cluster("changefeed", "query", "-c", "shop") == before


def test_what_run_would_refuse_is_not_made_nor_changed(
    cluster: Cluster,
    command: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless that cannot be found out from here, as the operator says."""
    create(cluster, tmp_path, "shop")
    cluster("changefeed", "pause", "-c", "shop")

    found: list[TidelakeError] = [TidelakeError("no answer about shop")]
    monkeypatch.setattr(preflight, "findings", lambda _, *, is_new: found)  # noqa: ARG005
    uris = ("--source-uri", SOURCE, "--sink-uri", f"delta://{tmp_path}/lake")
    create_other = ("changefeed", "create", "-c", "other", *uris)
    update = ("changefeed", "update", "-c", "shop", "--target-ts", "9")
    for asked in (create_other, update):
        code, _, err = command(*asked)
        assert (code, len(err.splitlines())) == (1, 1)
        assert "no answer about shop" in err
        assert "--no-check" in err
    (row,) = cluster("changefeed", "list")
    assert (row["changefeed"], row["checkpoint_time"]) == ("shop", None)  # and not 1970
    assert cluster("changefeed", "query", "-c", "shop")[0]["target_ts"] == 0

    found[:] = [TopicMissing("no such topic shop")]
    assert command(*update) == (2, "", "tidelake: no such topic shop\n")
    assert command(*create_other, "--no-check")[0] == 0
    assert command(*update, "--no-check")[0] == 0


def test_there_must_be_an_etcd(
    command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELAKE_ETCD", "embedded")
    code, _, err = command("changefeed", "list")
    assert code == 2
    assert "--etcd http://" in err
    monkeypatch.setenv("TIDELAKE_ETCD", "http://127.0.0.1:9")
    code, _, err = command("changefeed", "list")
    assert code == 1
    assert "127.0.0.1:9" in err


def test_the_commands_write_by_the_one_implementation(
    cluster: Cluster,
    command: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No parallel world: where an observation's write fails, the command that needs it fails."""
    create(cluster, tmp_path)

    def broken(*_arguments: object, **_keywords: object) -> None:
        raise operations.ConfigError("the implementation is broken")

    monkeypatch.setattr(ChangefeedWrites, "feed_event", broken)
    code, _, err = command("changefeed", "pause", "-c", "shop")
    assert (code, err) == (2, "tidelake: the implementation is broken\n")
    monkeypatch.setattr(ChangefeedWrites, "remove", broken)
    code, _, err = command("changefeed", "remove", "-c", "shop")
    assert (code, err) == (2, "tidelake: the implementation is broken\n")
    assert cli_cluster.server.__doc__
