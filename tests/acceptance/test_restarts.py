"""The same command again: after an end, after kills, on a quiet feed, and when Kafka is not what it
was."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from coordination.etcd.embedded import EmbeddedEtcd
from coordination.failpoint import Failpoint
from coordination.model import TSO_LOGICAL_BITS
from tests.acceptance.processes import Stage, identities
from tests.acceptance.test_bad_starts import assert_one_line
from tests.acceptance.victims import Victim
from tests.services.kafka_broker import KafkaBroker
from tests.shop.canal_json import encode_watermark
from tests.shop.feed import FeedSettings, messages
from tests.shop.history import HistorySettings, history
from tests.shop.tables import SCHEMA

pytestmark = pytest.mark.acceptance
BATCH_MESSAGES = 600
PARTITIONS = range(3)


def versions(stage: Stage) -> dict[str, int]:
    tables = sorted((stage.warehouse / SCHEMA).iterdir())
    return {table.name: DeltaTable(str(table)).version() for table in tables}


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
        before = versions(stage)

        kafka_loses_it(stage, broker, last_ts)
        assert versions(stage) == before


def kafka_loses_it(stage: Stage, broker: KafkaBroker, last_ts: int) -> None:
    """Retention overtakes the changefeed; then somebody makes the topic anew."""
    later_ts = last_ts + (1 << TSO_LOGICAL_BITS)
    ends = broker.end_offsets(stage.topic)
    for _ in range(2):
        marks = [(p, None, encode_watermark(later_ts, 0)) for p in PARTITIONS]
        broker.produce(stage.topic, marks)
    broker.delete_records(stage.topic, {1: ends[1] + 1})
    again = stage.start("the-same-again", target_ts=last_ts)
    assert again.await_exit() == 0, again.tail()  # it has finished: nothing is missing
    assert again.lines("finished already")
    print(f"\nthe same command after the end: {time.monotonic() - again.started:.1f} s")

    overtaken = stage.start("overtaken", target_ts=later_ts - 1)
    needed, begins = f"offset {ends[1]} is needed", f"Kafka begins at {ends[1] + 1}"
    assert_one_line(overtaken, f"topic {stage.topic} partition 1", needed, begins)

    broker.delete_topic(stage.topic)
    broker.create_topic(stage.topic)
    made_again = stage.start("made-again", target_ts=later_ts - 1)
    assert_one_line(made_again, f"topic {stage.topic} was deleted and made again")
