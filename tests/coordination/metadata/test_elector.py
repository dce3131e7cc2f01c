"""The election of a controller: what ends it comes out, and the next one leads."""

from __future__ import annotations

import pytest

from coordination.errors import LeaseGone
from coordination.metadata.errors import OwnerNotFound
from coordination.metadata.etcd_observation import EtcdCaptureObservation
from coordination.metadata.observation import ControllerObservation
from tests.contracts.metadata_contract import Done, stop_waiting
from tests.coordination.metadata.etcd_cluster import EtcdCluster
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd


@pytest.fixture
def cluster() -> EtcdCluster:
    return EtcdCluster(FakeEtcd(FakeClock()))


def test_who_comes_second_waits_and_leads_when_the_first_is_gone(cluster: EtcdCluster) -> None:
    first, second = cluster.capture("c1"), cluster.capture("c2")
    seen: list[str] = []

    def lead_second(_controller: ControllerObservation) -> None:
        seen.append(second.get_controller().id)
        raise Done

    def wait(_timeout_s: float) -> None:
        seen.append(second.get_controller().id)
        cluster.kill(first)

    def lead_first(_controller: ControllerObservation) -> None:
        second.run(lead_second, wait)

    with pytest.raises(Done):
        first.run(lead_first, stop_waiting)
    assert seen == ["c1", "c2"]


def test_what_ends_a_control_is_not_hidden_by_an_etcd_that_is_away(cluster: EtcdCluster) -> None:
    capture = cluster.capture("c1")

    def body(_controller: ControllerObservation) -> None:
        cluster.client.down = True  # type: ignore[attr-defined]
        raise Done

    with pytest.raises(Done):
        capture.run(body, stop_waiting)


def test_a_control_that_ends_is_sought_again(cluster: EtcdCluster) -> None:
    capture, times = cluster.capture("c1"), []

    def body(_controller: ControllerObservation) -> None:
        times.append(capture.get_controller().id)
        if len(times) == 3:
            raise Done

    with pytest.raises(Done):
        capture.run(body, stop_waiting)
    assert times == ["c1"] * 3


def test_a_capture_without_a_lease_does_not_lead(cluster: EtcdCluster) -> None:
    capture: EtcdCaptureObservation = cluster.capture("c1")
    cluster.kill(capture)
    with pytest.raises(LeaseGone):
        capture.run(lambda _controller: None, stop_waiting)
    with pytest.raises(OwnerNotFound):
        capture.get_controller()
