"""How long Kafka keeps what is needed, as far as the broker tells."""

from __future__ import annotations

import time

import pytest

from conf.sources.kafka_uri import KafkaSettings
from streaming.source.kafka.broker import Broker
from streaming.source.kafka.retention import oldest, tell_of_compacted
from streaming.source.kafka.topic_partition import TopicPartition
from tests.contracts.topics_contract import Cluster
from tests.own_lines import own_lines

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


def test_a_broker_tells_its_retention_and_how_old_a_message_is(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
):
    topic = "retention"
    cluster.create_topic(topic, partitions=2)
    source = Broker(
        KafkaSettings(
            brokers=(cluster.bootstrap,),
            topic=topic,
            topics=(topic,),
            protocol="canal-json",
            partition_num=None,
        )
    )
    before_ms = time.time() * 1e3
    cluster.produce(topic, [(0, None, b"x"), (0, None, b"y")])
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    times = source.times_ms({first: 1, second: 0})
    assert set(times) == {first}, "nothing is needed of the other"
    assert before_ms - 1 <= times[first] <= time.time() * 1e3
    assert source.retention_ms([topic]) == {}, "this broker keeps all for ever"
    cluster.create_topic(f"{topic}-1h", **{"retention.ms": "3600000"})
    assert source.retention_ms([topic, f"{topic}-1h"]) == {f"{topic}-1h": 3_600_000}
    assert source.compacted([topic, f"{topic}-1h"]) == []
    cluster.create_topic(f"{topic}-keys", **{"cleanup.policy": "compact,delete"})
    tell_of_compacted(source, [topic, f"{topic}-1h"])
    assert own_lines(caplog) == []
    tell_of_compacted(source, [topic, f"{topic}-keys"])
    (told,) = own_lines(caplog)
    assert told.endswith(f"topics={topic}-keys")
    source.close()
