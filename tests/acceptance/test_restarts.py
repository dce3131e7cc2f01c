"""The same command again: after kills, and on a quiet feed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from coordination.failpoint import Failpoint
from tests.acceptance.processes import Stage, identities
from tests.acceptance.victims import Victim
from tests.services.kafka_broker import KafkaBroker
from tests.shop.feed import FeedSettings, messages
from tests.shop.history import HistorySettings, history

pytestmark = pytest.mark.acceptance
BATCH_MESSAGES = 600

# At every step, with each engine: `test_failpoints` without processes, `test_kills` in make soak.
CHAIN = (Victim(Failpoint.AFTER_APPLY_ONE), Victim(group=True), Victim(jvm=True))


def test_each_restart_is_the_next_victim_and_goes_on_from_there(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
):
    events = list(history(HistorySettings(seed=7, transactions=1300)))
    last_ts = events[-1].commit_ts
    dice = random.Random(7)
    with Stage(broker, etcd.endpoint, tmp_path) as stage:
        # The feed itself ends at last_ts: no watermark above it ever comes.
        broker.produce(stage.topic, messages(events, FeedSettings(seed=7, closing=False)))

        for victim in CHAIN:
            settings = {"max_batch_messages": BATCH_MESSAGES, **victim.settings}
            life = stage.start("victim", target_ts=last_ts, **settings)
            victim.die(life, dice)

        quiet = stage.start("quiet", target_ts=last_ts, quiet_s=1)
        assert quiet.await_exit() == 0, quiet.tail()
        stage.assert_equal(events)
        seen = list(identities(stage.lives))
        assert len(set(seen)) == len(seen) == len(CHAIN) + 1
