"""The first message that says something, or that there is none."""

from __future__ import annotations

import pytest

from conf.settings import KafkaSource
from streaming.source.kafka import Source, SourceAway
from streaming.source.ranges import TopicPartition
from tests.services.kafka_broker import KafkaBroker

pytestmark = pytest.mark.kafka


def number(value: bytes | None) -> int | None:
    return int(value) if value and value.isdigit() else None


def source(bootstrap: str, topic: str) -> Source:
    return Source(
        KafkaSource(
            brokers=(bootstrap,),
            topic=topic,
            topics=(topic,),
            protocol="canal-json",
            partition_num=1,
        )
    )


def test_of_each_partition_the_first_that_can_be_read(broker: KafkaBroker):
    topic = "first-values"
    broker.create_topic(topic, partitions=4)
    late = [(1, None, b"x")] * 2_000 + [(1, None, b"7")]
    broker.produce(topic, [(0, None, b"1"), (0, None, b"2"), *late, (2, None, None)])
    first = {TopicPartition(topic, partition): 0 for partition in range(4)}
    found = source(broker.bootstrap, topic).search(first, number)
    assert found == {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 7}
    second = {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 2_001}
    assert source(broker.bootstrap, topic).search(second, number) == {TopicPartition(topic, 0): 2}
    assert source(broker.bootstrap, topic).search({}, number) == {}


def test_an_offset_that_is_not_there_is_not_another_one(broker: KafkaBroker):
    topic = "first-values-deleted"
    broker.create_topic(topic, partitions=1)
    broker.produce(topic, [(0, None, b"1"), (0, None, b"2")])
    broker.delete_records(topic, {0: 1})
    with pytest.raises(SourceAway, match="first-values-deleted/0: "):
        source(broker.bootstrap, topic).search({TopicPartition(topic, 0): 0}, number)
