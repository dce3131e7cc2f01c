"""What a serving capture writes of metadata: the same as an operator's."""

from __future__ import annotations

import pytest

from coordination.etcd import keys
from coordination.etcd.client import Keys, RangeResult, WatchBatch
from coordination.metadata.lookup import read_changefeed
from coordination.metadata.records import FeedState, RunningError, TaskPosition, dump, load
from tests.coordination.capture.test_server import Cluster, life_id
from tests.fakes.fake_etcd import FakeEtcd
from tests.simulation.feeds import CLUSTER, NAME
from tests.simulation.world import SimCapture


def test_what_roles_of_a_server_write_outlives_a_death_a_stop_and_a_failure() -> None:
    """The owner dies, its successor stops in order, a changefeed fails and is removed."""
    cluster = Cluster(3)
    cluster.settle()
    kill_owner(cluster)
    cluster.settle()
    stopping = cluster.owner
    stopping.server.request_stop()
    cluster.until(lambda: stopping.is_stopped)
    cluster.world.captures.remove(stopping)
    cluster.settle()
    cluster.owner.plane.fails_at = cluster.world.clock.now_s
    cluster.until(lambda: cluster.info is not None and cluster.info.state is FeedState.PENDING)
    cluster.operator.remove(NAME)
    cluster.until(lambda: cluster.info is None)


def test_a_report_is_written_once_however_soon_it_is_taken() -> None:
    """The owner may take it before the reporter has seen it stand in etcd."""
    cluster = Cluster(3)
    cluster.settle()
    reporter = next(each for each in cluster.world.captures if each is not cluster.owner)
    key = keys.task_position_key(CLUSTER, life_id(reporter), NAME)
    etcd, written = cluster.world.etcd, []

    def saw(batch: WatchBatch) -> None:
        told = [load(TaskPosition, each.kv.value) for each in batch.events if each.kind == "put"]
        written.extend(each.warning.message for each in told if each.warning is not None)

    watch = etcd.watch(key, saw)
    replica = reporter.plane.replicas[-1]
    for number in range(10):
        texts = [f"{number} fails", f"{number} is tried again"]
        replica.warnings += [RunningError(code="CDC:ErrKafkaSend", message=text) for text in texts]
        cluster.step(8)
    watch.cancel()
    assert written == [f"{n} {what}" for n in range(10) for what in ("fails", "is tried again")]
    cluster.until(lambda: cluster.info is not None and cluster.info.state is FeedState.NORMAL)


def test_a_report_that_comes_after_the_cleanup_leaves_no_key() -> None:
    """A capture that hears late reports of a changefeed that is gone."""
    cluster = Cluster(2)
    cluster.settle()
    late = next(each for each in cluster.world.captures if each is not cluster.owner)
    deaf(late)
    removed(cluster)
    late.plane.replicas[-1].warnings.append(RunningError(code="CDC:ErrKafkaSend", message="late"))
    written: list[WatchBatch] = []
    key = keys.task_position_key(CLUSTER, life_id(late), NAME)
    watch = cluster.world.etcd.watch(key, written.append)
    cluster.step(60)
    watch.cancel()
    assert written == []
    assert positions(cluster) == []


def test_a_report_of_an_epoch_that_is_over_is_not_the_next_ones() -> None:
    cluster = Cluster(2)
    cluster.settle()
    late = next(each for each in cluster.world.captures if each is not cluster.owner)
    deaf(late)
    cluster.operator.pause(NAME)
    cluster.operator.resume(NAME)
    late.plane.replicas[-1]._trouble.append(RunningError(code="CDC:ErrKafkaSend", message="late"))
    cluster.step(40)
    assert cluster.info is not None
    assert (cluster.info.state, cluster.info.error) == (FeedState.NORMAL, None)


def test_what_a_living_capture_left_of_a_changefeed_that_is_gone_is_removed() -> None:
    """The next changefeed of that name would hear of it."""
    cluster = Cluster(2)
    cluster.settle()
    removed(cluster)
    position = TaskPosition(error=RunningError(code="CDC:ErrKafkaSend", message="of its last life"))
    key = keys.task_position_key(CLUSTER, life_id(cluster.world.captures[0]), NAME)
    cluster.world.etcd.put(key, dump(position))
    cluster.until(lambda: positions(cluster) == [])


def test_a_capture_reads_nothing_of_other_clusters_or_of_tidb(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(1)
    etcd, read, watched = cluster.world.etcd, set(), set()
    for key in ("/tidb/server/info", "/tidb/cdc/sim2/a", "/tidelake/sim2/a", "/tidelake/another"):
        etcd.put(key, b"1")
    ranged, watch = FakeEtcd.range, FakeEtcd.watch

    def recorded(self: FakeEtcd, key: Keys, *, prefix: bool = False) -> RangeResult:
        found = ranged(self, key, prefix=prefix)
        read.update(kv.key for kv in found.kvs)
        return found

    def followed(self: FakeEtcd, key: Keys, *arguments: object, **named: object) -> object:
        watched.update([key] if isinstance(key, str) else key)
        return watch(self, key, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(FakeEtcd, "range", recorded)
    monkeypatch.setattr(FakeEtcd, "watch", followed)
    cluster.world.start_capture()
    cluster.settle()
    ours = (keys.base_prefix(CLUSTER), keys.own_prefix(CLUSTER))
    assert read
    assert [each for each in (*read, *watched) if not each.startswith(ours)] == []


def deaf(capture: SimCapture) -> None:
    """For a while: what it reads anew it hears of."""
    vars(capture.link).update(deliver=lambda: None)


def removed(cluster: Cluster) -> None:
    cluster.operator.remove(NAME)
    cluster.until(lambda: cluster.info is None)


def positions(cluster: Cluster) -> list[str]:
    prefix = keys.base_prefix(CLUSTER)
    found = cluster.world.etcd.range(prefix, prefix=True).kvs
    return [kv.key for kv in found if "/task/position/" in kv.key]


def test_a_state_that_follows_etcd_is_what_a_read_finds() -> None:
    cluster = Cluster(2)
    cluster.settle()
    leader = cluster.owner.server.capture
    assert leader is not None
    parts = ("info", "status", "schedule", "task_positions")

    def is_same() -> bool:
        cluster.step()
        followed = leader._state.changefeeds[NAME]
        found = read_changefeed(cluster.world.etcd, CLUSTER, NAME)
        return all(getattr(followed, each) == getattr(found, each) for each in parts)

    cluster.until(is_same)


def kill_owner(cluster: Cluster) -> None:
    owner = cluster.owner
    cluster.world.captures.remove(owner)
    owner.crash()
