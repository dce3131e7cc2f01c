"""Who owns a changefeed, who leads, and writes that lose a race."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from coordination.etcd import keys
from coordination.metadata.errors import (
    ChangefeedUpdateRefused,
    InvalidSchedule,
    MetadataError,
    NotLaunched,
    OwnerNotFound,
)
from coordination.metadata.feed_state import FeedEvent
from coordination.metadata.lookup import read_captures, read_changefeeds, read_controller
from coordination.metadata.records import (
    FeedState,
    RunningError,
    SchedState,
    ScheduleRow,
    dump,
    load,
)
from coordination.model import ChangefeedID
from tests.coordination.metadata.cluster import C1, C2, NAME, SHOP, START_TS, Cluster
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd

ERROR = RunningError(time="t", addr="a", code="CDC:ErrKafkaSend", message="no broker")

# the schedule


def test_each_launch_is_unlike_any_other_and_over_for_ever(shop: Cluster) -> None:
    first = shop.launch()
    assert (shop.row.owner, shop.row.owner_state, shop.row.launches) == (C1, SchedState.LAUNCHED, 1)
    with pytest.raises(InvalidSchedule):
        shop.launch(C2)
    shop.release()
    shop.launch()
    assert shop.row.launches == 2
    with pytest.raises(NotLaunched):
        first.decide(FeedEvent.UNRETRYABLE_ERROR, ERROR)
    assert shop.info.state is FeedState.NORMAL


def test_an_owner_is_stopped_before_another_is_launched(shop: Cluster) -> None:
    with pytest.raises(InvalidSchedule):  # it has no owner to be stopped
        shop.commit(shop.found.writes().stop_owner())
    owner = shop.launch()
    shop.commit(shop.found.writes().stop_owner())
    with pytest.raises(NotLaunched):
        owner.decide(FeedEvent.FINISH)
    with pytest.raises(InvalidSchedule):  # not before the old one has ended
        shop.launch(C2)
    with pytest.raises(NotLaunched):
        shop.release(C2)
    shop.release(C1)
    assert (shop.row.owner, shop.row.owner_state) == (None, SchedState.REMOVED)
    shop.launch(C2)


def test_a_removed_changefeed_is_not_launched(shop: Cluster) -> None:
    shop.operator.remove(NAME)
    with pytest.raises(InvalidSchedule, match="removed"):
        shop.launch()


def test_what_a_dead_capture_owned_is_released_and_not_before_it_is_dead(shop: Cluster) -> None:
    shop.register(C1)
    owner = shop.launch()
    release = shop.found.writes().release_dead(C1)
    with pytest.raises(MetadataError, match="registered"):
        shop.commit(release)
    shop.kill(C1)
    shop.commit(release)
    assert shop.row.owner is None
    with pytest.raises(NotLaunched):
        owner.decide(FeedEvent.STOP)


def test_a_row_comes_back_and_a_state_that_is_unknown_is_invalid() -> None:
    others = {"processors": None, "task-position": {"checkpoint-ts": 4}}
    row = ScheduleRow(owner=C1, owner_state=SchedState.LAUNCHED, launches=3, unknown=others)
    assert load(ScheduleRow, dump(row)) == row
    assert load(ScheduleRow, b'{"owner-state":"Odd"}').owner_state is SchedState.INVALID
    assert load(ScheduleRow, b'{"owner-state":"launched"}').owner_state is SchedState.LAUNCHED


# who is there


def test_the_controller_is_who_stood_first(cluster: Cluster) -> None:
    with pytest.raises(OwnerNotFound, match="leads"):
        read_controller(cluster.client, cluster.id)
    infos = [cluster.register(each) for each in (C1, C2)]
    for lease, each in ((9, C2), (3, C1)):
        cluster.client.put(keys.election_prefix(cluster.id) + f"{lease:x}", each.encode())
    assert read_controller(cluster.client, cluster.id) == infos[1]
    assert list(read_captures(cluster.client, cluster.id)) == infos
    assert list(read_captures(cluster.client, cluster.id, C2)) == infos[1:]
    cluster.kill(C2)
    with pytest.raises(OwnerNotFound, match="no longer registered"):
        read_controller(cluster.client, cluster.id)
    assert list(read_captures(cluster.client, cluster.id)) == infos[:1]


# races


class RacedEtcd(FakeEtcd):
    """Somebody does something right before the next transaction that puts or deletes."""

    race: Callable[[], None] | None = None

    def txn(self, compares, then):
        if self.race is not None and then:
            race, self.race = self.race, None
            race()
        return super().txn(compares, then)


@pytest.fixture
def raced_etcd() -> RacedEtcd:
    return RacedEtcd(FakeClock())


@pytest.fixture
def raced(raced_etcd: RacedEtcd) -> Cluster:
    made = Cluster(raced_etcd)
    made.operator.create(SHOP)
    return made


def test_an_owner_that_is_stopped_before_its_commit_writes_nothing(
    raced: Cluster, raced_etcd: RacedEtcd
) -> None:
    """Its row is among the conditions of the transaction, though the owner does not change it."""
    owner, stop = raced.launch(), raced.found.writes().stop_owner()
    raced_etcd.race = lambda: raced.commit(stop)
    with pytest.raises(NotLaunched):
        owner.advance(500, 500, 1)
    assert raced.status.checkpoint_ts == START_TS


def test_two_who_launch_it_at_once_do_not_both(raced: Cluster, raced_etcd: RacedEtcd) -> None:
    other = raced.found.writes().launch(C2)
    raced_etcd.race = lambda: raced.commit(other)
    with pytest.raises(InvalidSchedule):
        raced.launch(C1)
    assert raced.row.owner == C2


def test_a_capture_that_comes_back_before_the_commit_keeps_what_it_owns(
    raced: Cluster, raced_etcd: RacedEtcd
) -> None:
    raced.launch(C1)
    release = raced.found.writes().release_dead(C1)

    def come_back() -> None:
        raced.client.put(keys.capture_key(raced.id, C1), b"{}")

    raced_etcd.race = come_back
    with pytest.raises(MetadataError, match="registered"):
        raced.commit(release)
    assert raced.row.owner == C1


def test_an_update_that_meets_a_resume_is_refused(raced: Cluster, raced_etcd: RacedEtcd) -> None:
    raced.operator.pause(NAME)
    raced_etcd.race = lambda: raced.operator.resume(NAME)
    with pytest.raises(ChangefeedUpdateRefused):
        raced.operator.update(NAME, replace(SHOP, sink_uri="delta:///other"))
    assert raced.info.sink_uri == SHOP.sink_uri


def test_epochs_are_given_out_once_however_many_ask(raced: Cluster, raced_etcd: RacedEtcd) -> None:
    other = replace(SHOP, id=ChangefeedID("b"))
    raced.operator.create(other)
    for name in (NAME, other.name):
        raced.operator.pause(name)
    raced_etcd.race = lambda: raced.operator.resume(other.name)
    raced.operator.resume(NAME)
    epochs = [each.known_info.epoch for each in read_changefeeds(raced.client, raced.id)]
    assert sorted(epochs) == [3, 4]
