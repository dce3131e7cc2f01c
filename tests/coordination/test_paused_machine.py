"""A machine that stands still: suspended, which its clock knows, or paused from outside, which it
may not know (docs/operations.md)."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from coordination.errors import Fenced
from coordination.model import CaptureID, Ownership, ProcessorEpoch, Revision
from coordination.trust.clock import SystemClock
from coordination.trust.fence import Fence
from tests.coordination.capture.test_server import Cluster, life_id
from tests.simulation.world import SESSION, STEP_S, SimCapture

OWNERSHIP = Ownership(
    capture_id=CaptureID("c"),
    epoch=ProcessorEpoch("e"),
    etcd_cluster_id="etcd",
    election_revision=Revision(1),
)


def test_trust_is_over_after_a_suspension(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("this platform has no clock that counts suspension")
    clock, read, slept_s = SystemClock(), time.clock_gettime, 0.0
    monkeypatch.setattr(
        time, "clock_gettime", lambda id_: read(id_) + (id_ == time.CLOCK_BOOTTIME) * slept_s
    )
    fence = Fence(clock)
    fence.open(OWNERSHIP, clock.monotonic() + 60.0)
    fence.check()
    slept_s = 61.0
    with pytest.raises(Fenced, match="lapsed"):
        fence.check()
    fence.extend(clock.monotonic() + 60.0)  # what was answered before it slept
    with pytest.raises(Fenced):
        fence.check()


def test_the_clock_is_the_kernels_that_counts_suspension() -> None:
    """In a time namespace whose machine has slept for 1,000 s more than it was awake."""
    look = (
        "import time; from coordination.trust.clock import SystemClock as C; print(C().monotonic())"
    )
    command = ["unshare", "--time", "--boottime", "1000", sys.executable, "-c", look]
    try:
        found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no time namespaces here: {error}")
    assert float(found.stdout) - SystemClock().monotonic() > 900.0


def test_a_machine_that_does_not_know_that_it_was_paused_does_no_harm() -> None:
    """It trusts itself until etcd answers; its tables are others' by then. What it writes meanwhile
    is right on top of theirs: the warehouse looks at each landing. Then it is another capture."""
    cluster = Cluster(3)
    world, paused = cluster.world, cluster.world.captures[0]
    cluster.settle()
    before = life_id(paused)
    assert writes(paused)
    vars(cluster.watchman).update(_one_writer=lambda _: None)  # two believe it, for a moment

    paused_s = 12.0
    paused.freeze(world.clock.now_s + paused_s)
    cluster.until(lambda: world.clock.now_s >= paused.frozen_until - STEP_S)  # before it looks
    paused.clock.lose(paused_s - STEP_S)
    assert before not in cluster.where().values(), "others have its tables"
    assert paused.plane.replicas[0].is_trusted, "it does not know"
    woken_at = world.clock.now_s
    cluster.until(lambda: not paused.plane.replicas[0].is_trusted)
    assert world.clock.now_s - woken_at <= SESSION.ttl_s
    cluster.until(lambda: paused.server.capture is not None and life_id(paused) != before)
    cluster.settle()


def writes(capture: SimCapture) -> bool:
    return any(replica.writers() for replica in capture.plane.replicas)
