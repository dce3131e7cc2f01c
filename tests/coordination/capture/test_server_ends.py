"""What hangs lets go of its tables: ends have deadlines, and who makes no step keeps no lease."""

from __future__ import annotations

import logging

import pytest

from conf.settings import SessionSettings
from coordination.capture.server import STOP_AFTER_SUICIDE_S, STOP_S, Phase
from coordination.errors import TidelakeError
from coordination.model import CaptureID
from tests.coordination.capture.test_server import Cluster, life_id
from tests.own_lines import own_records, own_text
from tests.simulation.feeds import NAME
from tests.simulation.world import STEP_S, SimCapture

STALL_S = SessionSettings().stall_timeout_s
STALL_STEPS = round(STALL_S / STEP_S)


def hang(cluster: Cluster) -> tuple[SimCapture, CaptureID]:
    """A capture that does not lead, with tables; nothing of its data plane gets on any more."""
    victim = next(each for each in cluster.world.captures if each is not cluster.owner)
    assert victim.plane.replicas[0].writers()
    victim.plane.hangs = True
    return victim, life_id(victim)


def wake_up(cluster: Cluster, victim: SimCapture) -> None:
    """It has tables again. (What lies behind may take it minutes: it stops at each sync point.)"""
    victim.plane.hangs = False
    cluster.until(lambda: victim.server.phase is Phase.SERVING)
    cluster.until(lambda: len(set(cluster.where().values())) == len(cluster.world.captures))


def test_while_something_hangs_its_tables_go_to_others_and_it_comes_back_as_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(3)
    cluster.settle()
    victim, victim_id = hang(cluster)
    jvm = victim.watchdog.watch("Spark's JVM", 5.0)
    jvm.step()
    cluster.step(round(4.0 / STEP_S))
    assert victim_id in cluster.where().values(), "it may take its limit"
    cluster.until(lambda: victim_id not in cluster.where().values())
    assert "capture dies by suicide" in own_text(caplog)
    assert "Spark's JVM hangs: no step for" in own_text(caplog)
    assert not victim.plane.replicas[0].is_trusted
    victim.plane.hangs = False  # its roles end, but the JVM still does not answer
    cluster.until(lambda: victim.server.phase is Phase.WAITING)
    cluster.step(40)
    assert victim.server.phase is Phase.WAITING
    jvm.rest()
    wake_up(cluster, victim)
    assert life_id(victim) != victim_id


def test_a_replica_that_never_ends_ends_with_its_capture() -> None:
    cluster = Cluster(2)
    cluster.settle()
    victim, victim_id = hang(cluster)
    cluster.operator.pause(NAME)
    cluster.step(4)
    cluster.operator.resume(NAME)
    cluster.step(round(STALL_STEPS * 0.9))
    assert victim.server.phase is Phase.SERVING
    assert life_id(victim) == victim_id
    cluster.until(lambda: victim.server.phase is not Phase.SERVING, steps=STALL_STEPS // 4)
    cluster.until(lambda: set(cluster.where().values()) == {life_id(cluster.owner)})
    wake_up(cluster, victim)


def test_an_owners_role_that_never_ends_lets_another_capture_lead() -> None:
    cluster = Cluster(2)
    cluster.settle()
    owner = cluster.owner
    assert owner.server.capture is not None
    owner.plane.hangs = True
    capture = owner.server.capture
    capture._leadership.end(drop=True, resigns=True)  # a refused term, say
    cluster.until(lambda: cluster.world.owner not in (None, owner), steps=STALL_STEPS + 200)
    assert owner.server.phase is Phase.ENDING
    wake_up(cluster, owner)


def test_a_stop_in_order_that_takes_too_long_is_a_suicide_and_then_the_end_of_the_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(1)
    cluster.settle()
    capture = cluster.owner
    capture.plane.hangs = True
    capture.server.request_stop()
    cluster.until(lambda: capture.server.phase is Phase.ENDING)  # it has drained for so long
    cluster.step(round(STOP_S * 0.9 / STEP_S))  # its clock is not the world's
    assert capture.plane.replicas[0].is_trusted, "a commit that is under way may end in order"
    cluster.until(lambda: not capture.plane.replicas[0].is_trusted)
    assert [r.levelno for r in own_records(caplog) if "suicide" in r.message] == [logging.ERROR]
    with pytest.raises(TidelakeError, match="it has not ended 10 s after the capture's suicide"):
        cluster.step(round(STOP_AFTER_SUICIDE_S / STEP_S) + 16)


def test_a_suicide_after_which_something_still_hangs_ends_the_process() -> None:
    cluster = Cluster(2)
    cluster.settle()
    victim, _ = hang(cluster)
    victim.watchdog.watch("applying", 5.0).step()
    with pytest.raises(TidelakeError, match=r"hangs: .* Start it again"):
        cluster.step(STALL_STEPS + 200)
