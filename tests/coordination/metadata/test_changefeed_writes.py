"""What of the metadata is etcd's own: keys, JSON, transactions that lose a race."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from coordination.etcd import keys
from coordination.etcd.client import delete, get
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.errors import (
    CaptureNotFound,
    ChangefeedUpdateRefused,
    MetadataError,
    NotController,
    NotLaunched,
)
from coordination.metadata.model import (
    ChangefeedInfo,
    ChangefeedStatus,
    FeedState,
    RunningError,
    TaskPosition,
    UpstreamInfo,
    dump,
)
from coordination.metadata.schedule import SchedState, ScheduledChangefeed
from coordination.model import CaptureID, ChangefeedID, Ts
from tests.contracts.metadata_contract import SHOP, launched, lead, removing, set_owner
from tests.coordination.metadata.etcd_cluster import EtcdCluster
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd

NAME = ChangefeedName(ChangefeedID("shop"))
ERROR = RunningError(code="CDC:E")


class RacedEtcd(FakeEtcd):
    """Somebody does something right before the next transaction that puts or deletes."""

    race: Callable[[], None] | None = None

    def txn(self, compares, then):
        if self.race is not None and then:
            race, self.race = self.race, None
            race()
        return super().txn(compares, then)


@pytest.fixture
def etcd() -> RacedEtcd:
    return RacedEtcd(FakeClock())


@pytest.fixture
def cluster(etcd: RacedEtcd) -> EtcdCluster:
    return EtcdCluster(etcd)


def stored(cluster: EtcdCluster, key: str) -> dict | None:
    found = get(cluster.client, key)
    return None if found is None else json.loads(found.value)


def test_a_changefeed_lies_where_ticdc_has_it_and_the_schedule_beside(
    cluster: EtcdCluster,
) -> None:
    ident = cluster.operator().create_changefeed(SHOP, UpstreamInfo(id=9, pd_endpoints="pd:2379"))
    root = f"/tidb/cdc/{cluster.id}/default"
    info = stored(cluster, f"{root}/changefeed/info/shop")
    assert info is not None
    assert (info["changefeed-id"], info["state"], info["epoch"]) == ("shop", "normal", 1)
    assert stored(cluster, f"{root}/changefeed/status/shop") == {
        "checkpoint-ts": 400,
        "min-table-barrier-ts": 400,
        "admin-job-type": 0,
    }
    upstream = stored(cluster, f"{root}/upstream/9")
    assert upstream is not None
    assert upstream["pd-endpoints"] == "pd:2379"
    row = stored(cluster, f"/tidelake/{cluster.id}/default/changefeed/schedule/shop")
    assert row is not None
    assert (row["owner"], row["owner-state"], row["creation-epoch"]) == (None, "Removed", 1)
    found = get(cluster.client, f"{root}/changefeed/info/shop")
    assert found is not None
    assert found.create_revision == ident.uuid


def test_the_owner_revision_is_that_of_the_launched_row(cluster: EtcdCluster) -> None:
    ident, c1 = cluster.operator().create_changefeed(SHOP), cluster.capture("c1")
    set_owner(c1, launched(ident, c1))
    row = get(cluster.client, keys.schedule_key(cluster.id, NAME))
    assert row is not None
    revision = row.mod_revision
    owner = c1.on_owner_launched(ident.uuid)
    owner.pause_changefeed()
    owner.resume_changefeed()
    schedule = cluster.operator().get_changefeed_schedule(ident.uuid)
    assert schedule.row_revision == revision


def test_another_upstream_under_a_known_id_is_refused(cluster: EtcdCluster) -> None:
    cluster.operator().create_changefeed(SHOP, UpstreamInfo(id=9, pd_endpoints="a"))
    other = replace(SHOP, id=ChangefeedID("b"))
    with pytest.raises(MetadataError, match="upstream"):
        cluster.operator().create_changefeed(other, UpstreamInfo(id=9, pd_endpoints="b"))
    assert len(cluster.querier.get_changefeed()) == 1
    cluster.operator().create_changefeed(other, UpstreamInfo(id=9, pd_endpoints="a"))


def test_fields_of_a_newer_program_survive_every_write(cluster: EtcdCluster) -> None:
    newer = replace(SHOP, unknown={"sync-mode": {"a": 1}})
    ident, c1 = cluster.operator().create_changefeed(newer), cluster.capture("c1")
    set_owner(c1, launched(ident, c1))
    owner = c1.on_owner_launched(ident.uuid)
    owner.set_changefeed_pending(ERROR)
    owner.retry_changefeed()
    owner.pause_changefeed()
    owner.update_changefeed(replace(SHOP, sink_uri="delta:///other"))
    info = stored(cluster, keys.changefeed_info_key(cluster.id, NAME))
    assert info is not None
    assert info["sync-mode"] == {"a": 1}


def test_an_owner_that_is_stopped_before_its_commit_writes_nothing(
    cluster: EtcdCluster, etcd: RacedEtcd
) -> None:
    """Its row is among the conditions of the transaction, though the owner does not change it."""
    ident = cluster.operator().create_changefeed(SHOP)
    c1, c2 = cluster.capture("c1"), cluster.capture("c2")
    set_owner(c1, launched(ident, c1))
    owner = c1.on_owner_launched(ident.uuid)
    etcd.race = lambda: set_owner(c2, removing(ident, c1))
    with pytest.raises(NotLaunched):
        owner.advance_changefeed(Ts(500), Ts(500), epoch=1)
    progress = cluster.querier.get_changefeed_progress()[ident.uuid]
    assert progress.checkpoint_ts == 400


def test_a_controller_that_is_deposed_before_its_commit_schedules_nothing(
    cluster: EtcdCluster, etcd: RacedEtcd
) -> None:
    ident, c1 = cluster.operator().create_changefeed(SHOP), cluster.capture("c1")
    c2 = cluster.capture("c2")

    def body(controller) -> None:
        etcd.race = lambda: cluster.kill(c1)
        with pytest.raises(NotController):
            controller.set_owner(launched(ident, c2))

    lead(c1, body)
    assert cluster.operator().get_changefeed_schedule(ident.uuid).owner is None


def test_a_capture_that_dies_before_the_commit_is_not_launched_at(
    cluster: EtcdCluster, etcd: RacedEtcd
) -> None:
    ident, c1 = cluster.operator().create_changefeed(SHOP), cluster.capture("c1")
    c2 = cluster.capture("c2")

    def body(controller) -> None:
        etcd.race = lambda: cluster.kill(c2)
        with pytest.raises(CaptureNotFound):
            controller.set_owner(launched(ident, c2))

    lead(c1, body)


def test_an_update_that_meets_a_resume_is_refused(cluster: EtcdCluster, etcd: RacedEtcd) -> None:
    ident = cluster.operator().create_changefeed(SHOP)
    mine, other = cluster.operate(ident), cluster.operate(ident)
    mine.pause_changefeed()
    etcd.race = other.resume_changefeed
    with pytest.raises(ChangefeedUpdateRefused):
        mine.update_changefeed(replace(SHOP, sink_uri="delta:///other"))
    (found,) = cluster.querier.get_changefeed()
    assert found.info.sink_uri == SHOP.sink_uri


def test_epochs_are_given_out_once_however_many_ask(cluster: EtcdCluster, etcd: RacedEtcd) -> None:
    first = cluster.operator().create_changefeed(SHOP)
    second = cluster.operator().create_changefeed(replace(SHOP, id=ChangefeedID("b")))
    feeds = [cluster.operate(first), cluster.operate(second)]
    for feed in feeds:
        feed.pause_changefeed()
    etcd.race = feeds[1].resume_changefeed
    feeds[0].resume_changefeed()
    epochs = [each.info.epoch for each in cluster.querier.get_changefeed()]
    assert sorted(epochs) == [3, 4]


def test_a_changefeed_that_ticdc_made_is_operated_and_owned_like_ours(
    cluster: EtcdCluster,
) -> None:
    """It has no row of ours, and its epoch is a TSO: ours goes on above it."""
    epoch = 454176230809600001
    info = ChangefeedInfo(id=NAME.id, state=FeedState.STOPPED, epoch=epoch)
    cluster.client.put(keys.changefeed_info_key(cluster.id, NAME), dump(info))
    (found,) = cluster.querier.get_changefeed()
    cluster.operate(found.ident).resume_changefeed()
    (found,) = cluster.querier.get_changefeed()
    assert found.info.epoch == epoch + 1
    c1 = cluster.capture("c1")
    set_owner(c1, launched(found.ident, c1))
    c1.on_owner_launched(found.ident.uuid).advance_changefeed(Ts(5), Ts(6), epoch=epoch + 1)
    assert cluster.querier.get_changefeed_progress()[found.ident.uuid].checkpoint_ts == 5


def test_a_cleanup_leaves_nothing_however_many_captures_reported(cluster: EtcdCluster) -> None:
    ident = cluster.operator().create_changefeed(SHOP)
    for number in range(300):
        key = keys.task_position_key(cluster.id, CaptureID(f"c{number}"), NAME)
        cluster.client.put(key, dump(TaskPosition(error=ERROR)))
    neighbour = keys.task_position_key(
        cluster.id, CaptureID("c1"), ChangefeedName(ChangefeedID("shop-2"))
    )
    cluster.client.put(neighbour, dump(TaskPosition()))
    cluster.operator().remove_changefeed(ident.uuid)
    cluster.operator().cleanup_changefeed(ident.uuid)
    left = [
        *cluster.client.range(keys.base_prefix(cluster.id), prefix=True).kvs,
        *cluster.client.range(keys.own_prefix(cluster.id), prefix=True).kvs,
    ]
    assert {each.key for each in left} == {
        neighbour,
        keys.delete_counter_key(cluster.id),
        keys.epoch_key(cluster.id),
    }


def test_an_info_that_nobody_understands_hides_no_other(cluster: EtcdCluster) -> None:
    cluster.operator().create_changefeed(SHOP)
    broken = ChangefeedName(ChangefeedID("broken"))
    cluster.client.put(keys.changefeed_info_key(cluster.id, broken), b"{")
    assert [each.ident.name for each in cluster.querier.get_changefeed()] == [NAME]


def test_a_broken_status_counts_as_missing(cluster: EtcdCluster) -> None:
    ident = cluster.operator().create_changefeed(SHOP)
    cluster.client.put(keys.changefeed_status_key(cluster.id, NAME), b"x")
    assert cluster.querier.get_changefeed_progress() == {ident.uuid: ChangefeedStatus()}


def test_a_status_that_is_gone_is_made_again(cluster: EtcdCluster) -> None:
    ident, c1 = cluster.operator().create_changefeed(SHOP), cluster.capture("c1")
    set_owner(c1, launched(ident, c1))
    delete(cluster.client, keys.changefeed_status_key(cluster.id, NAME))
    assert cluster.querier.get_changefeed_progress() == {ident.uuid: ChangefeedStatus()}
    owner = c1.on_owner_launched(ident.uuid)
    owner.pause_changefeed()
    owner.resume_changefeed()
    owner.advance_changefeed(Ts(500), Ts(500), epoch=2)
    assert cluster.querier.get_changefeed_progress()[ident.uuid].checkpoint_ts == 500


def test_a_target_that_means_another_state_is_refused_before_anything_is_read(
    cluster: EtcdCluster,
) -> None:
    ident, c1 = cluster.operator().create_changefeed(SHOP), cluster.capture("c1")
    for state in (SchedState.INVALID, SchedState.REMOVED):
        target = ScheduledChangefeed(changefeed_uuid=ident.uuid, owner_state=state)
        with pytest.raises(MetadataError, match="not set to"):
            c1.run(lambda controller, target=target: controller.set_owner(target), lambda _s: None)
