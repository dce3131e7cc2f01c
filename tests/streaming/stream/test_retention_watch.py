"""Before the source is lost there is a warning, once, and a number."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from conf.settings import KafkaSettings
from sinks.control.changefeeds import ChangefeedRow
from streaming.operations.progress_report import ProgressReport
from streaming.source.kafka.broker import KafkaSource, SourceAway
from streaming.source.positions import TopicPartition
from streaming.stream.lasting_warnings import LastingWarnings
from streaming.stream.retention_watch import RetentionWatch, oldest
from tests.services.kafka_broker import KafkaBroker

DAY_MS = 86_400_000
ONE, OTHER, KEPT = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("kept", 0)


def test_the_message_that_goes_first_counts():
    times = {ONE: 10 * DAY_MS, OTHER: 9 * DAY_MS, KEPT: 0}
    found = oldest(times, {"a": 7 * DAY_MS}, 11 * DAY_MS)
    assert found is not None
    assert (found.partition, found.age_s, found.left_s) == (OTHER, 2 * 86_400, 5 * 86_400)
    assert found.concern is None
    assert oldest(times, {}, 11 * DAY_MS) is None
    assert oldest({}, {"a": DAY_MS}, 11 * DAY_MS) is None


@pytest.mark.parametrize(("age_days", "warns"), [(3.4, False), (3.6, True), (30.0, True)])
def test_it_warns_when_half_of_the_retention_has_passed(age_days: float, warns: bool):
    found = oldest({ONE: 0}, {"a": 7 * DAY_MS}, age_days * DAY_MS)
    assert found is not None
    assert (found.concern is not None) is warns
    assert found.left_s >= 0


class Broker:
    """What a source says."""

    def __init__(self) -> None:
        self.at_ms = 0.0

    def retention_ms(self, topics: set[str]) -> dict[str, int]:
        assert topics == {"a"}
        return {"a": DAY_MS}

    def times_ms(self, first: Any) -> dict[TopicPartition, int]:
        assert first == {ONE: 5}
        return {ONE: int(self.at_ms)}


def test_it_is_said_once_and_it_is_over_when_there_is_time_again(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO)
    broker: Any = Broker()
    concerns = LastingWarnings()
    watch = RetentionWatch(lambda: broker, lambda: {"a/0": 5}, concerns)
    for age_h in (13, 14, 15):
        broker.at_ms = (time.time() - age_h * 3600) * 1e3
        watch.look(broker)
    assert watch.left_s == pytest.approx(9 * 3600, abs=60)
    assert concerns.first is not None
    assert "topic a partition 0" in concerns.first
    assert "retention.ms (24 h)" in concerns.first
    broker.at_ms = time.time() * 1e3
    watch.look(broker)
    assert concerns.first is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]

    broker.at_ms = 0.0
    watch.look(broker)
    assert concerns.first is not None
    watch.close()  # another capture is the owner now, and watches it
    watch.look(broker)
    assert concerns.first is None


@pytest.mark.kafka
def test_a_broker_tells_its_retention_and_how_old_a_message_is(broker: KafkaBroker):
    topic = "retention"
    broker.create_topic(topic, partitions=2)
    source = KafkaSource(
        KafkaSettings(
            brokers=(broker.bootstrap,),
            topic=topic,
            topics=(topic,),
            protocol="canal-json",
            partition_num=None,
        )
    )
    before_ms = time.time() * 1e3
    broker.produce(topic, [(0, None, b"x"), (0, None, b"y")])
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    times = source.times_ms({first: 1, second: 0})
    assert set(times) == {first}, "nothing is needed of the other"
    assert before_ms - 1 <= times[first] <= time.time() * 1e3
    assert source.retention_ms([topic]) == {}, "this broker keeps all for ever"
    broker.create_topic(f"{topic}-1h", **{"retention.ms": "3600000"})
    assert source.retention_ms([topic, f"{topic}-1h"]) == {f"{topic}-1h": 3_600_000}
    source.close()


def test_what_was_left_before_the_broker_went_is_not_shown_any_more():
    def away(_topics: object) -> Any:
        raise SourceAway("no answer")

    broker: Any = SimpleNamespace(retention_ms=away, close=lambda: None)
    watch = RetentionWatch(lambda: broker, lambda: {"a/0": 5}, LastingWarnings())
    watch.left_s = 3600.0
    watch.begin()
    until = time.monotonic() + 10.0
    while watch.left_s is not None:
        assert time.monotonic() < until
        time.sleep(0.01)
    watch.close()


def test_what_is_left_goes_on_falling_while_nobody_looks():
    seen = datetime(2026, 1, 1, tzinfo=UTC)
    row = ChangefeedRow(
        changefeed_id="shop",
        start_ts=0,
        checkpoint_ts=0,
        resolved_ts=0,
        state="stopped",
        source_left_s=3600.0,
        updated_at=seen,
    )

    def left_s(after_s: float, row: ChangefeedRow = row) -> float | None:
        now = seen + timedelta(seconds=after_s)
        return ProgressReport(changefeeds=(row,), spans=(), now=now).source_left_s(row)

    assert left_s(600.0) == 3000.0
    assert left_s(7200.0) == 0.0
    assert left_s(0.0, replace(row, source_left_s=None)) is None
