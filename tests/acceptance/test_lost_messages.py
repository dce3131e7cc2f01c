"""The same command again after its end, and when Kafka is not what it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from coordination.etcd.embedded import EmbeddedEtcd
from coordination.model import TSO_LOGICAL_BITS
from tests.acceptance.processes import ON_THREADS, Stage
from tests.acceptance.test_bad_starts import assert_one_line
from tests.services.kafka_broker import KafkaBroker
from tests.shop.canal_json import encode_watermark
from tests.shop.feed import FeedSettings, messages
from tests.shop.history import HistorySettings, history
from tests.shop.tables import SCHEMA

pytestmark = pytest.mark.acceptance
PARTITIONS = range(3)


def versions(stage: Stage) -> dict[str, int]:
    tables = sorted((stage.warehouse / SCHEMA).iterdir())
    return {table.name: DeltaTable(str(table)).version() for table in tables}


def test_what_is_lost_behind_the_end_is_missed_by_who_goes_beyond_it(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
) -> None:
    """Retention overtakes the changefeed; then somebody makes the topic anew."""
    events = list(history(HistorySettings(seed=7, transactions=200)))
    last_ts = events[-1].commit_ts
    with Stage(broker, etcd.endpoint, tmp_path, program=ON_THREADS) as stage:
        broker.produce(stage.topic, messages(events, FeedSettings(seed=7, closing=False)))
        first = stage.start("first", target_ts=last_ts, quiet_s=1)
        assert first.await_exit() == 0, first.tail()
        before = versions(stage)

        later_ts = last_ts + (1 << TSO_LOGICAL_BITS)
        ends = broker.end_offsets(stage.topic)
        for _ in range(2):
            marks = [(p, None, encode_watermark(later_ts, 0)) for p in PARTITIONS]
            broker.produce(stage.topic, marks)
        broker.delete_records(stage.topic, {1: ends[1] + 1})
        again = stage.start("the-same-again", target_ts=last_ts)
        assert again.await_exit() == 0, again.tail()  # it has finished: nothing is missing
        assert again.lines("finished already")

        overtaken = stage.start("overtaken", target_ts=later_ts - 1)
        needed, begins = f"offset {ends[1]} is needed", f"Kafka begins at {ends[1] + 1}"
        assert_one_line(overtaken, f"topic {stage.topic} partition 1", needed, begins)

        broker.delete_topic(stage.topic)
        broker.create_topic(stage.topic)
        made_again = stage.start("made-again", target_ts=later_ts - 1)
        assert_one_line(made_again, f"topic {stage.topic} was deleted and made again")
        assert versions(stage) == before
