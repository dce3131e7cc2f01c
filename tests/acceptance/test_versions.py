"""Captures of an earlier release and of this one, on one changefeed together."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from coordination.model import TableName
from sinks.control.progress import Progress, ProgressRow
from sinks.merge_on_write.log.pause import set_paused
from tests.acceptance.cluster import FEED, Cluster, Server
from tests.acceptance.test_cluster import STARTS, STOP_WITHIN_S, TABLES, end, move
from tests.services.kafka_broker import REPOSITORY, KafkaBroker

pytestmark = pytest.mark.acceptance

RELEASE = "f81c780"  # the last one that landed
VERSION = "0.0.9"  # what it says of itself here


def earlier(folder: Path) -> Path:
    """The program as of that release, with a version of its own."""
    archive = subprocess.run(
        ["git", "archive", RELEASE, "conf", "coordination", "sinks", "streaming"],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
    )
    if archive.returncode != 0:
        pytest.skip(f"commit {RELEASE} is not here: this tree has no history, or a short one")
    folder.mkdir()
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
    (folder / ".jars").symlink_to(REPOSITORY / ".jars")
    described = folder / f"tidelake-{VERSION}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: tidelake\nVersion: {VERSION}\n"
    )
    return folder


def stop(server: Server) -> None:
    server.life.signal(signal.SIGTERM)
    assert server.life.await_exit(STOP_WITHIN_S) == 0, server.life.tail()


def pause_one(cluster: Cluster, server: Server) -> str:
    """An operator pauses a table of this capture: a field of its status that the two write in
    different places. The owner goes on hearing of the capture's other tables."""
    name, other, *_ = sorted(cluster.tables_of(server.capture))
    uri = str(cluster.warehouse / name.replace(".", "/"))
    assert set_paused(uri, {}, paused=True)
    server.life.await_line("paused by an operator")
    for _ in range(2):
        before = progress(cluster, other).checkpoint_ts
        cluster.await_(
            f"{other} goes on beside {name}, which is paused",
            lambda before=before: progress(cluster, other).checkpoint_ts > before,
        )
    state = progress(cluster, name).state
    assert set_paused(uri, {}, paused=False)
    return state


def progress(cluster: Cluster, name: str) -> ProgressRow:
    return Progress(str(cluster.warehouse)).read(FEED)[TableName(*name.split("."))]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("new", "old"), id="the-release-follows"),
        pytest.param(("old", "new"), id="the-release-leads", marks=pytest.mark.soak),
    ],
)
def test_a_capture_of_before_and_one_of_now_share_a_changefeed(
    names: tuple[str, str],
    broker: KafkaBroker,
    etcd: EmbeddedEtcd,
    tmp_path: Path,
):
    code = earlier(tmp_path / "earlier")
    with Cluster(broker, etcd.endpoint, tmp_path) as cluster:
        for name in names:
            server = cluster.start(name, code=code if name == "old" else REPOSITORY)
            server.life.await_line(STARTS)
        leads, follows = (cluster.servers[name] for name in names)
        leads.life.await_line("capture leads")
        cluster.create(has_sync_points=False)
        cluster.feed.__enter__()
        holders = cluster.await_shared_out(TABLES, among=2)
        for server in (leads, follows):
            own = {name for name, capture in holders.items() if capture == server.capture}
            cluster.await_commits(server.capture, own)
        state = pause_one(cluster, follows)
        assert state == "paused"
        move(cluster, min(cluster.tables_of(leads.capture)), follows)
        move(cluster, min(cluster.tables_of(follows.capture)), leads)
        stop(leads)
        cluster.await_("all go on", lambda: len(cluster.tables_of(follows.capture)) == TABLES)
        cluster.await_commits(follows.capture)
        end(cluster)
