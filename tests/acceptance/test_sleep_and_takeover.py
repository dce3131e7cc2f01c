"""The owner of a changefeed is frozen between its last fence check and the commit, and another
takes over. Frozen anywhere: ``test_zombies``."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from tests.acceptance.live_feed import LiveFeed
from tests.acceptance.processes import Stage, identities
from tests.acceptance.takeover import sleep_through_a_takeover
from tests.services.kafka_broker import KafkaBroker

pytestmark = pytest.mark.acceptance

WON = "capture leads"
# Amid its first batch: the other, which has half of the four tables, joins before that.
FREEZES_ITSELF = "after-fence-check=stop:2"


def test_an_owner_that_sleeps_is_followed_by_its_standby(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
) -> None:
    with (
        Stage(broker, etcd.endpoint, tmp_path) as stage,
        LiveFeed(broker, stage.topic, seed=4) as feed,
    ):
        one = stage.start("one", apply_engine="spark", failpoints=FREEZES_ITSELF)
        one.await_line(WON)
        other = stage.start("other", apply_engine="merge-on-write")
        other.await_line("joins")
        assert not other.lines(WON), "two lead"
        sleep_through_a_takeover(stage, one, other, wins=1)
        one.await_line("joins")
        last_ts = feed.close()
        stage.await_checkpoint(last_ts, other)
        stage.assert_equal(feed.events)
        captures = list(identities([one, other]))
        assert len(set(captures)) == len(captures) == 3
