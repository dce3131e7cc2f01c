"""Several captures on one changefeed and one etcd: they share its tables, and one leads.

The owner is killed, and asked to stop. Who stops in order has a long lease: nobody may wait for its
end. An owner that sleeps: ``test_sleep_and_takeover``.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from tests.acceptance.live_feed import LiveFeed
from tests.acceptance.processes import (
    BOTH_PROGRAMS,
    STOP_WITHIN_S,
    Life,
    Stage,
    await_,
    field,
    identities,
    time_of,
)
from tests.services.kafka_broker import KafkaBroker

pytestmark = pytest.mark.acceptance

TTL_S = 20
SHORT_TTL_S = 5  # of who is killed
WON = "capture leads"


def seconds_to_progress(stage: Stage, heir: Life, since: float, *, wins: int) -> float:
    capture_id = field(heir.await_line(WON, nth=wins), "capture_id")
    await_("the heir's first progress", lambda: stage.watch.first_moved_by(capture_id))
    return stage.watch.first_moved_by(capture_id) - since


def kill_and_take_over(stage: Stage, owner: Life, heir: Life, *, wins: int) -> None:
    killed_at = owner.kill(group=True)
    owner.assert_gone()
    failover_s = seconds_to_progress(stage, heir, killed_at, wins=wins)
    print(f"\nkill -9 to the next progress commit: {failover_s:.1f} s, TTL {SHORT_TTL_S} s")


def stop_and_hand_over(
    stage: Stage, owner: Life, heir: Life, how: signal.Signals, *, wins: int
) -> None:
    """An orderly stop: exit code 0, nothing stays, and nobody waits for a TTL."""
    asked = time.time()
    owner.signal(how, group=how is signal.SIGINT)  # as a terminal does with Ctrl-C
    assert owner.await_exit(STOP_WITHIN_S) == 0, owner.tail()
    ended = time.time()
    assert owner.lines("capture stopped as asked")
    assert owner.lines("Traceback") == []
    progress_s = seconds_to_progress(stage, heir, asked, wins=wins)
    released = time_of(owner.lines("capture is released")[-1])
    won_s = time_of(heir.await_line(WON, nth=wins)) - released
    print(
        f"{how.name}: exit code 0 after {ended - asked:.1f} s; the standby won {won_s:.2f} s "
        f"after the release; its first progress {progress_s:.1f} s after the signal"
    )
    assert won_s < TTL_S / 2


@BOTH_PROGRAMS  # of the standbys: who is asked to stop has a JVM, which is asked too
def test_an_owner_that_stops_or_dies_is_followed_by_its_standby(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path, program: str
) -> None:
    with (
        Stage(broker, etcd.endpoint, tmp_path, ttl_s=TTL_S) as stage,
        LiveFeed(broker, stage.topic, seed=4) as feed,
    ):
        one = stage.start("one")
        one.await_line(WON)
        other = stage.start("other", program=program, capture_session_ttl=SHORT_TTL_S)
        other.await_line("joins")
        stage.await_checkpoint(1, one)
        assert not other.lines(WON), "two lead"
        stop_and_hand_over(stage, one, other, signal.SIGINT, wins=1)

        last = stage.start("last", program=program)
        last.await_line("joins")
        kill_and_take_over(stage, other, last, wins=1)
        last_ts = feed.close()
        stage.await_checkpoint(last_ts, last)
        last.signal(signal.SIGTERM, group=True)  # its JVM too, as a service manager does
        assert last.await_exit(STOP_WITHIN_S) == 0, last.tail()
        stage.assert_equal(feed.events)
        captures = list(identities([one, other, last]))
        assert len(set(captures)) == len(captures) == 3
