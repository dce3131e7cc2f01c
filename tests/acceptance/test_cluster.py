"""Captures as a cluster: twelve tables, bad lines, and everything that can happen to a process."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from sinks.control.changefeeds import ChangefeedRow, Changefeeds
from tests.acceptance.cluster import FEED, TTL_S, Cluster, Server
from tests.acceptance.processes import ON_THREADS
from tests.services.kafka_broker import KafkaBroker
from tests.shop import proof
from tests.shop.mall import SHOPS, TABLES_OF_A_SHOP

pytestmark = pytest.mark.acceptance

TABLES = TABLES_OF_A_SHOP * len(SHOPS)
ASK_AGAIN_S = 20.0
STOP_WITHIN_S = 120.0  # it hands over first
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
    """By the real command; done when its new capture has brought it on. Asked again where it does
    not go there: an owner that ends takes what it was asked for along."""
    begun, asked_at = time.time(), 0.0

    def has_come() -> bool:
        nonlocal asked_at
        if name in cluster.commits.since(begun, to.capture):
            return True
        is_elsewhere = cluster.holders().get(name) not in (None, to.capture)
        if is_elsewhere and time.time() - asked_at > ASK_AGAIN_S:
            cluster.cli("table", "move", "-c", FEED, "--table", name, "--capture-id", to.capture)
            asked_at = time.time()
        return False

    cluster.await_(f"{name} goes on at {to.name}", has_come)
    print(f"move of {name}: gap {cluster.commits.longest_gap_s(name, begun, time.time()):.1f} s")


def move_one(cluster: Cluster, one: Server, other: Server) -> None:
    move(cluster, min(cluster.tables_of(one.capture)), other)


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
    """All that happened has arrived; then nothing runs, and all is right."""
    cluster.await_checkpoint(cluster.feed.close())
    control = Changefeeds(str(cluster.warehouse))
    cluster.await_("no backlog", lambda: no_backlog(control.read(FEED)))
    stop_all(cluster)
    snapshots = cluster.assert_right(cluster.feed.events)
    assert snapshots > 0
    print(f"snapshots: {snapshots}")


def no_backlog(row: ChangefeedRow | None) -> bool:
    assert row is not None
    return row.state == "finished" or row.messages_behind == 0


def freeze(cluster: Cluster, sleeper: Server) -> None:
    """Beyond its lease: others take its tables; awake again it dies, and comes back as another."""
    capture, names = sleeper.capture, cluster.tables_of(sleeper.capture)
    begun = time.time()
    sleeper.life.signal(signal.SIGSTOP, group=True)
    cluster.frozen.add(capture)
    took_s = cluster.await_failover(capture, names, begun)
    print(f"failover of {len(names)} tables of a frozen capture: {took_s:.1f} s")
    wake(sleeper, capture, group=True)


def wake(sleeper: Server, capture: str, *, group: bool) -> None:
    sleeper.life.signal(signal.SIGCONT, group=group)
    sleeper.life.await_line(SUICIDE)
    sleeper.life.await_line(STARTS, nth=2)
    assert sleeper.capture != capture


def freeze_before_a_commit(cluster: Cluster, name: str) -> None:
    """A new capture stops itself between its last fence check and a commit."""
    sleeper = cluster.start(name, failpoints="after-fence-check=stop:8")
    sleeper.life.await_line(STARTS)
    capture = sleeper.capture
    cluster.frozen.add(capture)
    cluster.cli("table", "rebalance", "-c", FEED)
    cluster.await_("it stops itself before a commit", lambda: sleeper.life.is_frozen)
    begun = time.time()
    cluster.await_(
        "its tables are replicated elsewhere",
        lambda: len(found := cluster.holders()) == TABLES and capture not in found.values(),
    )
    print(f"failover of one that was frozen before a commit: {time.time() - begun:.1f} s")
    wake(sleeper, capture, group=False)


def kill_the_owner_during_a_move(cluster: Cluster) -> None:
    cluster.await_("an owner", cluster.owner)
    owner = cluster.owner()
    assert owner is not None
    one, other = [each for each in cluster.running() if each is not owner][:2]
    cluster.await_("tables to move", lambda: cluster.tables_of(one.capture))
    capture, names = owner.capture, cluster.tables_of(owner.capture)
    name = min(cluster.tables_of(one.capture))
    cluster.cli("table", "move", "-c", FEED, "--table", name, "--capture-id", other.capture)
    begun = owner.life.kill(group=True)
    took_s = cluster.await_failover(capture, names, begun)
    cluster.await_("all are replicated", lambda: len(cluster.holders()) == TABLES)
    print(f"failover of the owner with {len(names)} tables: {took_s:.1f} s")


def cut_a_pair(cluster: Cluster) -> None:
    """The owner and another do not hear of each other for longer than a lease."""
    cluster.await_("an owner", cluster.owner)
    owner = cluster.owner()
    assert owner is not None
    other = next(each for each in cluster.running() if each is not owner)
    cluster.await_("tables of both", lambda: cluster.tables_of(other.capture))
    owner.proxy.cut(other.capture)
    other.proxy.cut(owner.capture)
    time.sleep(2 * TTL_S)
    assert owner.proxy.refused + other.proxy.refused > 0
    owner.proxy.heal()
    other.proxy.heal()
    cluster.await_commits(other.capture)
    cluster.await_("all are replicated", lambda: len(cluster.holders()) == TABLES)


def restart_all(cluster: Cluster) -> None:
    names = [server.name for server in cluster.running()]
    stop_all(cluster)
    for name in names:
        cluster.start(name)
    cluster.await_shared_out(TABLES, among=len(names))


def finish(cluster: Cluster) -> None:
    """At a target-ts that it is given while it is paused."""
    target = ("--target-ts", str(cluster.feed.close()))
    cluster.cli("changefeed", "pause", "-c", FEED)
    cluster.cli("changefeed", "update", "-c", FEED, *cluster.description, *target)
    cluster.cli("changefeed", "resume", "-c", FEED)
    cluster.await_("finished", lambda: proof.changefeed_state(cluster.warehouse) == "finished")


# On Spark in make test-more: `test_tasks`, `test_numbered_cluster`.
def test_tables_go_on_while_captures_come_and_go(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
):
    with Cluster(broker, etcd.endpoint, tmp_path, program=ON_THREADS) as cluster:
        begin(cluster)
        owner = cluster.owner()
        one, other = [each for each in cluster.running() if each is not owner]
        move_one(cluster, one, other)
        kill(cluster, one)
        drain(cluster, other)
        end(cluster)


@pytest.mark.soak
def test_everything_that_can_happen_to_a_capture(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
):
    with Cluster(broker, etcd.endpoint, tmp_path) as cluster:
        begin(cluster)
        owner = cluster.owner()
        one, other = [each for each in cluster.running() if each is not owner]
        move_back_and_forth(cluster, one, other)
        kill(cluster, one)
        freeze(cluster, other)
        freeze_before_a_commit(cluster, "d")
        cut_a_pair(cluster)
        kill_the_owner_during_a_move(cluster)
        cluster.start("e").life.await_line(STARTS)
        restart_all(cluster)
        finish(cluster)
        end(cluster)
