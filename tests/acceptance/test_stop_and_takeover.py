"""Several captures on one changefeed and one etcd: one runs, the next stands by with a warm Spark.

With the lease of a default installation (TTL 10 s): the times printed are those a user would see.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from tests.acceptance.live_feed import LiveFeed
from tests.acceptance.processes import STOP_WITHIN_S, Life, Stage, await_, field, time_of
from tests.services.kafka_broker import KafkaBroker

pytestmark = pytest.mark.acceptance

TTL_S = 10
FAILOVER_WITHIN_S = 40.0  # 15 on a quiet machine; other people's load must not fail the test
WON = "won the election"


def standby(stage: Stage, name: str) -> Life:
    """A second capture, with its Spark session warm."""
    life = stage.start(name)
    life.await_line("capture campaigns")
    return life


def seconds_to_progress(stage: Stage, heir: Life, since: float) -> float:
    capture_id = field(heir.await_line(WON), "capture_id")
    await_("the heir's first progress", lambda: stage.watch.first_moved_by(capture_id))
    return stage.watch.first_moved_by(capture_id) - since


def stop_and_hand_over(stage: Stage, owner: Life, heir: Life, how: signal.Signals) -> None:
    """An orderly stop: exit code 0, nothing stays, and nobody waits for a TTL."""
    asked = time.time()
    owner.signal(how, group=how is signal.SIGINT)  # as a terminal does with Ctrl-C
    assert owner.await_exit(STOP_WITHIN_S) == 0, owner.tail()
    ended = time.time()
    assert owner.lines("capture stopped as asked")
    assert owner.lines("Traceback") == []
    progress_s = seconds_to_progress(stage, heir, asked)
    released = time_of(owner.await_line("capture is released"))
    won_s = time_of(heir.await_line(WON)) - released
    print(
        f"{how.name}: exit code 0 after {ended - asked:.1f} s; the standby won {won_s:.2f} s "
        f"after the release; its first progress {progress_s:.1f} s after the signal"
    )
    assert won_s < TTL_S / 2


def test_a_standby_takes_over_from_the_killed_and_from_the_stopped(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
):
    with (
        Stage(broker, etcd.endpoint, tmp_path, ttl_s=TTL_S) as stage,
        LiveFeed(broker, stage.topic, seed=4) as feed,
    ):
        first = stage.start("killed")
        stage.await_checkpoint(1, first)
        second = standby(stage, "interrupted")
        stage.await_progress(first)
        assert not second.lines(WON), "the standby ran beside the owner"
        killed_at = first.kill(group=True)
        first.assert_gone()
        failover_s = seconds_to_progress(stage, second, killed_at)
        print(
            f"\nkill -9 to the successor's next progress commit: {failover_s:.1f} s, TTL {TTL_S} s"
        )
        assert failover_s < FAILOVER_WITHIN_S

        third = standby(stage, "last")
        stage.await_progress(second)
        stop_and_hand_over(stage, second, third, signal.SIGINT)

        last_ts = feed.close()
        stage.await_checkpoint(last_ts, third)
        third.signal(signal.SIGTERM, group=True)  # its JVM too, as a service manager does
        assert third.await_exit(STOP_WITHIN_S) == 0, third.tail()
        stage.assert_equal(feed.events)
