"""Whole servers go on when etcd was restored from a backup, as docs/operations.md says."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.settings import EtcdSettings
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import connect
from sinks.control.changefeeds import ChangefeedRow, Changefeeds
from tests.acceptance.cluster import FEED, Cluster
from tests.acceptance.test_cluster import STARTS, TABLES, end, stop_all
from tests.services import etcd_backup
from tests.services.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.acceptance, pytest.mark.soak]

RESTORED = "etcd was restored from a backup"
OTHER_WRITES = 300


def row_of(cluster: Cluster) -> ChangefeedRow:
    row = Changefeeds(str(cluster.warehouse)).read(FEED)
    assert row is not None
    return row


def share_out(cluster: Cluster) -> None:
    """Both servers have tables, and bring them to what has happened by now."""
    cluster.await_("tables", lambda: len(cluster.holders()) == TABLES)
    cluster.cli("table", "rebalance", "-c", FEED)
    cluster.await_shared_out(TABLES, among=2)
    cluster.await_checkpoint(cluster.feed.latest_ts)


def elect_another(cluster: Cluster) -> None:
    """The owner dies, and comes back as another capture, last in the queue of candidates."""
    cluster.await_("an owner", cluster.owner)
    owner = cluster.owner()
    assert owner is not None
    term = row_of(cluster).term
    owner.life.kill(group=True)
    cluster.await_("another owner", lambda: row_of(cluster).term > term)
    cluster.start(owner.name).life.await_line(STARTS)


def write_elsewhere(etcd: EmbeddedEtcd) -> int:
    """So much that revisions do not come up again to where they are then; which one that was at
    the beginning."""
    client = connect(EtcdSettings(endpoints=(etcd.endpoint,), embedded=False))
    revision = client.range("/").revision
    for _ in range(OTHER_WRITES):
        client.put("/elsewhere", b"")
    client.close()
    return revision


@pytest.mark.parametrize("is_restarted", [False, True], ids=["living-servers", "restarted-ones"])
def test_servers_go_on_over_an_etcd_that_was_restored_from_a_backup(
    broker: KafkaBroker, tmp_path: Path, *, is_restarted: bool
):
    with EmbeddedEtcd() as etcd, Cluster(broker, etcd.endpoint, tmp_path) as cluster:
        for name in ("a", "b"):
            cluster.start(name).life.await_line(STARTS)
        cluster.create()
        cluster.feed.__enter__()
        share_out(cluster)
        etcd_backup.save(etcd, tmp_path / "backup")
        saved_at = write_elsewhere(etcd)
        while row_of(cluster).owner_revision <= saved_at:  # who stood before the backup leads first
            elect_another(cluster)
        share_out(cluster)
        before = row_of(cluster)
        if is_restarted:
            stop_all(cluster)
        etcd_backup.restore(etcd, tmp_path / "backup")
        if is_restarted:
            for name in ("a", "b"):
                cluster.start(name)
        cluster.await_("a new term", lambda: row_of(cluster).term > before.term)
        assert row_of(cluster).owner_revision < before.owner_revision

        def told() -> list[str]:
            return [line for life in cluster.lives for line in life.lines(RESTORED)]

        cluster.await_("a warning", told)
        # The owner's line of a changefeed that changes may quote the warning.
        assert ["WARNING" in line for line in told()].count(True) == 1, told()
        share_out(cluster)
        cluster.fallen.clear()  # the checkpoint in etcd was the backup's for a while
        # Why its owner does not begin yet is shown at once, until that owner begins.
        assert [each for each in cluster.errors if "elected later" not in str(each)] == []
        end(cluster)
