"""The same command again: after the end, on a quiet feed, and when Kafka is not what it was."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from coordination.etcd.embedded import EmbeddedEtcd
from coordination.model import TSO_LOGICAL_BITS
from tests.acceptance.processes import Life, Stage
from tests.services.kafka_broker import KafkaBroker
from tests.shop.canal_json import encode_watermark
from tests.shop.feed import CLEAN, messages
from tests.shop.history import HistorySettings, history
from tests.shop.tables import SCHEMA

pytestmark = pytest.mark.acceptance

QUICK_S = 25.0  # a bad start answers within seconds; on a busy machine
PARTITIONS = range(3)
KAFKA = "kafka://{brokers}/{topic}?protocol={protocol}&enable-tidb-extension=true"


def versions(stage: Stage) -> dict[str, int]:
    tables = sorted((stage.warehouse / SCHEMA).iterdir())
    return {table.name: DeltaTable(str(table)).version() for table in tables}


def assert_one_line(life: Life, *says: str, code: int = 1) -> None:
    """It ended with this code, and its last line says what is wrong."""
    assert life.await_exit() == code, life.tail()
    last = life.lines()[-1]
    assert last.startswith("tidelake: "), life.tail()
    assert [word for word in says if word not in last] == [], last
    assert life.lines("Traceback") == []


def test_targets_one_after_the_other_a_quiet_feed_and_a_kafka_that_lost_it(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
):
    events = list(history(HistorySettings(seed=7, transactions=160)))
    middle_ts, last_ts = events[80].commit_ts, events[-1].commit_ts
    with Stage(broker, etcd.endpoint, tmp_path) as stage:
        # The feed itself ends at last_ts: no watermark above it ever comes.
        broker.produce(stage.topic, messages(events, replace(CLEAN, closing=False)))

        far_below = stage.start("far-below", target_ts=middle_ts)
        assert far_below.await_exit() == 0, far_below.tail()
        stage.assert_equal(events, up_to=middle_ts)

        reads_all = stage.start("reads-all")
        stage.await_checkpoint(last_ts - 1, reads_all)
        reads_all.kill(group=True)
        reads_all.assert_gone()

        quiet = stage.start("quiet", target_ts=last_ts, quiet_s=1)
        assert quiet.await_exit() == 0, quiet.tail()
        stage.assert_equal(events)
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


def test_bad_starts_answer_at_once(broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path):
    with Stage(broker, etcd.endpoint, tmp_path) as stage:
        ours = {"brokers": broker.bootstrap, "topic": stage.topic, "protocol": "canal-json"}
        nobody = "127.0.0.1:9"
        cases = [
            ("no-broker", {"brokers": nobody}, {}, 1, nobody),
            ("no-topic", {"topic": "nowhere"}, {}, 2, "topic nowhere does not exist"),
            ("no-protocol", {"protocol": "open-protocol"}, {}, 2, "open-protocol"),
            ("no-etcd", {}, {"etcd_endpoint": f"http://{nobody}"}, 1, nobody),
            ("no-such-key", {}, {"batch_colour": "red"}, 2, "TIDELAKE_BATCH_COLOUR"),
        ]
        for name, source, settings, code, says in cases:
            uri = KAFKA.format(**ours | source)
            life = stage.start(name, source_uri=uri, **settings)
            assert_one_line(life, says, code=code)
            took_s = time.monotonic() - life.started
            print(f"{name}: {took_s:.1f} s: {life.lines()[-1]}")
            assert took_s < QUICK_S
            assert life.lines("java") == []
            assert len(life.lines("tidelake: ")) == 1
        assert not stage.watch.sightings
