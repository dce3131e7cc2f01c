"""Captures as a cluster: twelve tables, bad lines, and everything that can happen to a process."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from tests.acceptance.cluster import FEED, TTL_S, Cluster, Server
from tests.services.kafka_broker import KafkaBroker
from tests.shop.mall import SHOPS, TABLES_OF_A_SHOP

pytestmark = pytest.mark.acceptance

TABLES = TABLES_OF_A_SHOP * len(SHOPS)
STOP_WITHIN_S = 60.0  # it hands over first
SUICIDE, STARTS = "capture dies by suicide", "capture starts"


def begin(cluster: Cluster) -> None:
    """Three captures replicate tables of their own, under load."""
    for name in ("a", "b", "c"):
        cluster.start(name)
    for server in cluster.servers.values():
        server.life.await_line(STARTS)
    cluster.create()
    cluster.feed.__enter__()
    holders = cluster.await_shared_out(TABLES, among=3)
    for server in cluster.servers.values():
        own = {name for name, capture in holders.items() if capture == server.capture}
        cluster.await_commits(server.capture, own)


def move(cluster: Cluster, name: str, to: Server) -> None:
    """By the real command; done when its new capture has brought it on."""
    begun = time.time()
    cluster.cli("table", "move", "-c", FEED, "--table", name, "--capture-id", to.capture)
    cluster.await_commits(to.capture, {name})
    print(f"move of {name}: gap {cluster.commits.longest_gap_s(name, begun, time.time()):.1f} s")


def move_back_and_forth(cluster: Cluster, one: Server, other: Server) -> None:
    name = min(cluster.tables_of(one.capture))
    move(cluster, name, other)
    move(cluster, name, one)


def kill(cluster: Cluster, victim: Server) -> None:
    """kill -9; its tables go on elsewhere."""
    capture, names = victim.capture, cluster.tables_of(victim.capture)
    begun = victim.life.kill(group=True)
    took_s = cluster.await_failover(capture, names, begun)
    print(f"failover of {len(names)} tables: {took_s:.1f} s (ttl {TTL_S} s)")


def drain(cluster: Cluster, leaver: Server) -> None:
    """By the real command, asked again until nothing remains."""
    capture, names, begun = leaver.capture, cluster.tables_of(leaver.capture), time.time()
    usual_s = cluster.highest_lag_s(begun - 10, begun)
    cluster.await_(
        "nothing remains",
        lambda: cluster.cli("capture", "drain", "--capture-id", capture)[0]["remaining"] == 0,
    )
    took_s = cluster.await_failover(capture, names, begun)
    lag_s = cluster.highest_lag_s(begun, time.time())
    print(f"drain of {len(names)} tables: {took_s:.1f} s, lag {lag_s:.1f} s (was {usual_s:.1f} s)")


def stop_all(cluster: Cluster) -> None:
    stopped = cluster.running()
    for server in stopped:
        server.life.signal(signal.SIGTERM)
    codes = [server.life.await_exit(STOP_WITHIN_S) for server in stopped]
    assert codes == [0] * len(stopped), "\n".join(server.life.tail() for server in stopped)


def end(cluster: Cluster) -> None:
    """All that happened has arrived; then nothing runs."""
    cluster.await_checkpoint(cluster.feed.close())
    stop_all(cluster)
    snapshots = cluster.assert_right(cluster.feed.events)
    assert snapshots > 0
    print(f"snapshots: {snapshots}")


def test_tables_go_on_while_captures_come_and_go(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
):
    with Cluster(broker, etcd.endpoint, tmp_path) as cluster:
        begin(cluster)
        owner = cluster.owner()
        one, other = [each for each in cluster.running() if each is not owner]
        move_back_and_forth(cluster, one, other)
        kill(cluster, one)
        drain(cluster, other)
        end(cluster)
