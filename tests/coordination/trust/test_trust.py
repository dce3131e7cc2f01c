"""A process has one fence and many sessions."""

from __future__ import annotations

import pytest

from coordination.errors import Fenced
from coordination.model import CaptureID, Ownership, ProcessorEpoch, Revision
from coordination.trust.fence import CaptureIdentity, Fence, Trust
from tests.fakes.fake_clock import FakeClock


def session(number: int) -> Ownership:
    return Ownership(
        capture_id=CaptureID(f"c{number}"),
        epoch=ProcessorEpoch(f"e{number}"),
        etcd_cluster_id="etcd",
        election_revision=Revision(0),
    )


def test_what_a_lost_session_began_has_no_trust_in_the_next_one():
    fence = Fence(FakeClock())
    first = session(1)
    fence.open(first, 1e9)
    identity = CaptureIdentity(capture_id=first.capture_id, epoch=first.epoch, address="a")
    trust = Trust(fence, identity)
    trust.check()
    fence.shut("the lease is gone")
    with pytest.raises(Fenced, match="the lease is gone"):
        trust.check()
    fence.open(session(2), 1e9)
    with pytest.raises(Fenced, match="goes on as c2"):
        trust.check()
