"""The cluster as a reactor's state: captures with their grace, and all changefeeds."""

from __future__ import annotations

import pytest

from coordination.etcd import keys
from coordination.etcd.client import KeyValue
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.global_state import GlobalReactorState
from coordination.metadata.records import (
    ChangefeedInfo,
    ChangefeedStatus,
    SchedState,
    ScheduleRow,
    TaskPosition,
    dump,
)
from coordination.model import CaptureID, CaptureInfo, ChangefeedID, Revision
from coordination.orchestrator.transaction import Patch

CLUSTER, GRACE_S = "test", 5.0
C1, C2 = CaptureID("c1"), CaptureID("c2")
SHOP, ACME = ChangefeedName(ChangefeedID("shop")), ChangefeedName(ChangefeedID("shop"), "acme")


class Cluster:
    def __init__(self) -> None:
        self.state = GlobalReactorState(CLUSTER, removal_grace_s=GRACE_S)

    def register(self, capture_id: CaptureID, address: str = "a:1") -> None:
        info = CaptureInfo(id=capture_id, address=address, version="1", start_timestamp=1)
        self.update(keys.capture_key(CLUSTER, capture_id), keys.dump_capture_info(info))

    def vanish(self, capture_id: CaptureID) -> None:
        self.update(keys.capture_key(CLUSTER, capture_id), None)

    def update(self, key: str, value: bytes | None) -> None:
        one = Revision(1)
        kv = KeyValue(key=key, value=value or b"", create_revision=one, mod_revision=one)
        self.state.update(key, None if value is None else kv)

    def at(self, now_s: float) -> set[CaptureID]:
        self.state.update_pending_change(now_s)
        return set(self.state.captures)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_capture_whose_key_is_gone_counts_until_its_grace_is_over(cluster: Cluster) -> None:
    cluster.register(C1)
    cluster.register(C2, "b:1")
    assert cluster.at(100.0) == {C1, C2}
    cluster.vanish(C1)
    assert cluster.state.is_gone(C1)
    assert cluster.at(101.0) == {C1, C2}
    assert cluster.at(105.999) == {C1, C2}
    assert cluster.at(106.0) == {C2}
    assert cluster.at(200.0) == {C2}
    assert cluster.state.is_gone(C1)
    assert not cluster.state.is_gone(C2)


def test_who_comes_back_in_time_was_never_away(cluster: Cluster) -> None:
    cluster.register(C1)
    cluster.vanish(C1)
    cluster.at(100.0)
    cluster.register(C1)
    assert not cluster.state.is_gone(C1)
    assert cluster.at(1000.0) == {C1}
    cluster.vanish(C1)
    assert cluster.at(1001.0) == {C1}  # a new absence, a new grace
    assert cluster.at(1005.9) == {C1}
    assert cluster.at(1006.0) == set()


def test_a_second_deletion_does_not_prolong_the_grace(cluster: Cluster) -> None:
    cluster.register(C1)
    cluster.vanish(C1)
    cluster.at(100.0)
    cluster.vanish(C1)
    assert cluster.at(105.0) == set()


def test_a_stranger_that_goes_is_passed_by_and_another_address_counts(cluster: Cluster) -> None:
    cluster.vanish(C2)
    cluster.register(C1, "a:1")
    cluster.register(C1, "a:2")
    assert cluster.at(0.0) == cluster.at(100.0) == {C1}
    assert cluster.state.captures[C1].address == "a:2"


def test_a_new_owner_knows_of_no_dead_before_a_grace_has_passed(cluster: Cluster) -> None:
    """Who died right before it came is in no event: its spans must wait like any other's."""
    assert not cluster.state.knows_the_dead(0.0)
    cluster.at(100.0)
    assert not cluster.state.knows_the_dead(104.9)
    assert cluster.state.knows_the_dead(105.0)
    cluster.at(300.0)
    assert cluster.state.knows_the_dead(105.0)


def test_changefeeds_come_and_go_with_their_keys(cluster: Cluster) -> None:
    for name in (SHOP, ACME):
        info = ChangefeedInfo(id=name.id, namespace=name.namespace)
        cluster.update(keys.changefeed_info_key(CLUSTER, name), dump(info))
    cluster.update(keys.changefeed_status_key(CLUSTER, SHOP), dump(ChangefeedStatus()))
    assert set(cluster.state.changefeeds) == {SHOP, ACME}
    assert cluster.state.changefeeds[ACME].status is None
    cluster.update(keys.changefeed_info_key(CLUSTER, SHOP), None)
    assert cluster.state.changefeeds[SHOP].info is None
    cluster.update(keys.changefeed_status_key(CLUSTER, SHOP), None)
    assert set(cluster.state.changefeeds) == {ACME}


def test_the_rest_of_the_cluster(cluster: Cluster) -> None:
    entries = [
        (keys.election_prefix(CLUSTER) + "10", b"c1"),
        (keys.own_prefix(CLUSTER) + "capture/progress/c1", b"{}"),  # of no program that is known
        (keys.epoch_key(CLUSTER), b"12"),
        (keys.meta_version_key(CLUSTER), b"1"),
    ]
    for key, value in entries:
        cluster.update(key, value)
    state = cluster.state
    assert state.candidates == {16}
    for key, _ in entries:
        cluster.update(key, None)
    assert state.candidates == set()


@pytest.mark.parametrize(
    "key",
    [
        keys.capture_key(CLUSTER, C1),
        keys.epoch_key(CLUSTER),
    ],
)
@pytest.mark.parametrize("value", [b"", b"{", b"{}", b"[]", b"x", b"\xff"])
def test_one_bad_value_does_not_end_the_clusters_work(
    cluster: Cluster, key: str, value: bytes
) -> None:
    cluster.update(key, value)
    cluster.update(keys.capture_key("test2", C2), b"x")
    cluster.register(C2)
    assert cluster.at(0.0) == {C2}


def test_patches_of_the_cluster_come_before_those_of_its_changefeeds(cluster: Cluster) -> None:
    for name in (SHOP, ACME):
        cluster.update(keys.task_position_key(CLUSTER, C1, name), dump(TaskPosition(count=1)))
        cluster.state.changefeeds[name].add_group((Patch(f"/{name}", lambda _old: b""),))
    cluster.state.add_group((Patch("/mine", lambda _old: b""),))
    groups = cluster.state.take_patches()
    assert [group[0].key for group in groups] == ["/mine", "/acme/shop", "/default/shop"]
    assert cluster.state.take_patches() == []
    cluster.state.remove_stale_positions()
    assert len(cluster.state.take_patches()) == 2


def test_who_owns_what(cluster: Cluster) -> None:
    for name, owner in ((SHOP, C1), (ACME, None)):
        info = ChangefeedInfo(id=name.id, namespace=name.namespace)
        cluster.update(keys.changefeed_info_key(CLUSTER, name), dump(info))
        row = ScheduleRow(owner=owner, owner_state=SchedState.REMOVING)
        cluster.update(keys.schedule_key(CLUSTER, name), dump(row))
    assert [each.name for each in cluster.state.owned_by(C1)] == [SHOP]
    assert cluster.state.owned_by(C2) == []
