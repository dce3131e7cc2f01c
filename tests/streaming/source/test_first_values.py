"""The first message that says something, or that there is none."""

from __future__ import annotations

import pytest

from conf.settings import KafkaSource
from streaming.source.first_values import NoAnswer, first_values
from streaming.source.ranges import TopicPartition
from tests.services.kafka_broker import KafkaBroker

pytestmark = pytest.mark.kafka


def number(value: bytes | None) -> int | None:
    return int(value) if value and value.isdigit() else None


def source(bootstrap: str, topic: str) -> KafkaSource:
    return KafkaSource(
        brokers=(bootstrap,), topic=topic, topics=(topic,), protocol="canal-json", partition_num=1
    )


def test_of_each_partition_the_first_that_can_be_read(broker: KafkaBroker):
    topic = "first-values"
    broker.create_topic(topic, partitions=4)
    late = [(1, None, b"x")] * 2_000 + [(1, None, b"7")]
    broker.produce(topic, [(0, None, b"1"), (0, None, b"2"), *late, (2, None, None)])
    first = {TopicPartition(topic, partition): 0 for partition in range(4)}
    kafka = source(broker.bootstrap, topic)
    found = first_values(kafka, first, number, 20)
    assert found == {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 7}
    second = {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 2_001}
    assert first_values(kafka, second, number, 20) == {TopicPartition(topic, 0): 2}
    assert first_values(kafka, {}, number, 20) == {}


def test_an_offset_that_is_not_there_is_not_another_one(broker: KafkaBroker):
    topic = "first-values-deleted"
    broker.create_topic(topic, partitions=1)
    broker.produce(topic, [(0, None, b"1"), (0, None, b"2")])
    broker.delete_records(topic, {0: 1})
    with pytest.raises(NoAnswer, match="first-values-deleted/0: "):
        first_values(source(broker.bootstrap, topic), {TopicPartition(topic, 0): 0}, number, 20)


def test_a_broker_that_is_away_ends_it():
    with pytest.raises(NoAnswer, match=r"no watermark of t/0 was found within 1 s: .*refused"):
        first_values(source("127.0.0.1:1", "t"), {TopicPartition("t", 0): 0}, number, 1)
