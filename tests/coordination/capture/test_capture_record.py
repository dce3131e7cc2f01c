"""What a capture says of itself in etcd: a put whose answer was lost may land after a later one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordination.errors import TryAgain
from coordination.etcd import keys
from coordination.etcd.client import Compare, Op, TxnResult
from coordination.metadata.lookup import read_captures
from coordination.model import CaptureInfo
from tests.coordination.capture.test_server import Cluster, life_id
from tests.simulation.etcd_link import EtcdLink
from tests.simulation.feeds import CLUSTER
from tests.simulation.world import SimCapture


def lose_next_put(cluster: Cluster, capture: SimCapture) -> Callable[[], bool]:
    """The capture's next put of its own key is under way, until the test has it land."""
    link, late = capture.link, []

    def txn(compares: Sequence[Compare], then: Sequence[Op]) -> TxnResult:
        if not late and any(op.key.startswith(keys.capture_prefix(CLUSTER)) for op in then):
            late.append((tuple(compares), tuple(then)))
            raise TryAgain("the answer got lost")
        return EtcdLink.txn(link, compares, then)

    def land() -> bool:
        """Whether there was one."""
        for each in late:
            cluster.world.etcd.txn(*each)
        return bool(late)

    vars(link).update(txn=txn)
    return land


def record_of(cluster: Cluster, capture: SimCapture) -> CaptureInfo:
    (found,) = read_captures(cluster.world.etcd, CLUSTER, life_id(capture))
    return found


def test_a_registration_that_lands_late_does_not_undo_that_it_was_reached() -> None:
    """Owners do not wait for one that was never reached: it would write beside its successor."""
    cluster = Cluster(2)
    cluster.settle()
    capture = cluster.world.start_capture()
    land = lose_next_put(cluster, capture)
    cluster.until(lambda: capture.server.capture is not None and capture.server.capture.is_reached)
    assert record_of(cluster, capture).is_reached
    assert land()
    assert record_of(cluster, capture).is_reached


def test_a_drain_that_lands_late_does_not_undo_that_it_was_taken_back() -> None:
    cluster = Cluster(3)
    cluster.settle()
    target = next(each for each in cluster.world.captures if each is not cluster.owner)
    land = lose_next_put(cluster, target)
    cluster.ask(lambda owner: owner.drain(life_id(target)))
    cluster.until(lambda: record_of(cluster, target).is_draining)
    cluster.take_back(target)
    cluster.until(lambda: not record_of(cluster, target).is_draining)
    assert land()
    assert not record_of(cluster, target).is_draining
    assert record_of(cluster, target).is_reached


def test_a_drain_that_is_taken_back_before_it_was_told_does_not_land_later() -> None:
    cluster = Cluster(3)
    cluster.settle()
    target = next(each for each in cluster.world.captures if each is not cluster.owner)
    land = lose_next_put(cluster, target)
    inner = target.server.capture
    assert inner is not None
    inner.stop()
    inner._announce()
    assert inner.serve_again()
    cluster.step(4)
    assert land()
    assert not record_of(cluster, target).is_draining
