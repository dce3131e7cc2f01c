from __future__ import annotations

import pytest

from coordination.errors import Fenced
from coordination.model import CaptureID, Ownership, ProcessorEpoch, Revision
from coordination.trust.fence import Fence
from tests.fakes.fake_clock import FakeClock

OWNER = Ownership(
    capture_id=CaptureID("c1"),
    epoch=ProcessorEpoch("e1"),
    etcd_cluster_id="f1",
    election_revision=Revision(7),
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(100.0)


@pytest.fixture
def fence(clock: FakeClock) -> Fence:
    return Fence(clock)


def test_a_fence_that_was_never_opened_is_shut(fence: Fence) -> None:
    with pytest.raises(Fenced, match="has not won its election"):
        fence.check()


def test_trust_ends_exactly_at_its_time(fence: Fence, clock: FakeClock) -> None:
    fence.open(OWNER, 108.0)
    clock.advance(7.999)
    assert fence.check() == OWNER
    clock.advance(0.001)
    with pytest.raises(Fenced, match="lapsed"):
        fence.check()


def test_an_extension_moves_trust_on_and_never_back(fence: Fence, clock: FakeClock) -> None:
    fence.open(OWNER, 108.0)
    fence.extend(110.5)
    fence.extend(109.0)
    clock.advance(10.4)
    fence.check()
    clock.advance(0.1)
    with pytest.raises(Fenced):
        fence.check()


@pytest.mark.parametrize("late_s", [0.0, 0.5])
def test_a_lapsed_fence_is_not_opened_again_by_an_extension(
    fence: Fence, clock: FakeClock, late_s: float
) -> None:
    fence.open(OWNER, 108.0)
    clock.advance(8.0 + late_s)
    fence.extend(200.0)
    with pytest.raises(Fenced):
        fence.check()


def test_a_shut_fence_ignores_extensions_and_keeps_its_first_reason(fence: Fence) -> None:
    fence.open(OWNER, 108.0)
    fence.shut("the lease is gone")
    fence.shut("another reason")
    fence.extend(200.0)
    with pytest.raises(Fenced, match="the lease is gone"):
        fence.check()


def test_writes_that_etcd_does_not_carry_out_are_known_until_they_are(
    fence: Fence, clock: FakeClock
) -> None:
    """The session lives on: keep-alives are no writes."""
    one, two = object(), object()
    assert fence.refused_write is None
    fence.unanswered(one, "it is full")
    clock.advance(4.0)
    fence.unanswered(one, "it is still full")
    fence.unanswered(two, "it is full, too")
    assert fence.refused_write == (4.0, "it is full")
    fence.unanswered(one, None)
    assert fence.refused_write == (0.0, "it is full, too")
    fence.unanswered(two, None)
    fence.unanswered(two, None)
    assert fence.refused_write is None
