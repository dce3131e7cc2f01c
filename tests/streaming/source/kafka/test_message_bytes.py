"""Single messages by their offsets, and how far the partitions are."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest

from conf.sources.kafka_uri import KafkaSettings
from streaming.source.contract import SourceAway, SourceLost
from streaming.source.kafka.broker import Broker
from streaming.source.kafka.message_bytes import values_at
from streaming.source.kafka.read_ranges import CHUNK_BYTES, TASK_BYTES
from streaming.source.kafka.topic_partition import TopicPartition
from tests.contracts.topics_contract import Cluster
from tests.services.kafka_broker import KafkaBroker


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"single-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, 2)
    return name


def source_of(broker: Cluster, topic: str) -> KafkaSettings:
    return KafkaSettings(
        brokers=(broker.bootstrap,),
        topic=topic,
        topics=(topic,),
        protocol="canal-json",
        partition_num=None,
    )


def topic_ids(kafka: KafkaSettings) -> Mapping[str, str]:
    source = Broker(kafka)
    try:
        return source.shape().topic_ids
    finally:
        source.close()


def test_messages_by_their_offsets(cluster: Cluster, topic: str):
    cluster.produce(topic, ((each % 2, b"k", b"%d" % each) for each in range(6_000)))
    cluster.produce(topic, [(1, b"k", None)])
    kafka = source_of(cluster, topic)
    asked = {TopicPartition(topic, 0): [2_900, 7, 8], TopicPartition(topic, 1): [3_000, 0]}
    (table,) = values_at(kafka, asked, topic_ids(kafka))
    found = table.to_pylist()
    assert [(int(row["part"][-1]), row["position"], row["value"]) for row in found] == [
        (0, 7, b"14"),
        (0, 8, b"16"),
        (0, 2_900, b"5800"),
        (1, 0, b"1"),
        (1, 3_000, None),
    ]
    assert {row["part"] for row in found} == {f"{topic}/0", f"{topic}/1"}


def test_more_than_a_task_may_hold_comes_in_parts(cluster: Cluster, topic: str):
    cluster.produce(topic, ((0, None, b"x" * 1_000_000) for _ in range(100)))
    kafka = source_of(cluster, topic)
    parts = list(values_at(kafka, {TopicPartition(topic, 0): range(100)}, topic_ids(kafka)))
    assert max(part.nbytes for part in parts) < TASK_BYTES + CHUNK_BYTES
    assert [at for part in parts for at in part["position"].to_pylist()] == list(range(100))


def test_nothing_is_asked_for(cluster: Cluster, topic: str):
    assert not list(values_at(source_of(cluster, topic), {}, {}))


def test_messages_that_are_gone_are_left_out(cluster: Cluster, topic: str):
    cluster.produce(topic, [(0, None, b"x")] * 1_000)
    kafka = source_of(cluster, topic)
    ids = topic_ids(kafka)
    cluster.delete_records(topic, {0: 500})
    assert not list(values_at(kafka, {TopicPartition(topic, 0): [3]}, ids))
    (table,) = values_at(kafka, {TopicPartition(topic, 0): [3, 499, 500, 900]}, ids)
    assert table["position"].to_pylist() == [500, 900]
    with pytest.raises(SourceLost, match="made again"):
        list(values_at(kafka, {TopicPartition(topic, 0): [6]}, {topic: "another"}))


@pytest.mark.kafka
def test_a_source_connects_again():
    with KafkaBroker() as own:
        own.create_topic("t", 1)
        source, partitions = Broker(source_of(own, "t")), [TopicPartition("t", 0)]
        assert source.ends(partitions) == {TopicPartition("t", 0): 0}
        own.kill()
        with pytest.raises(SourceAway):
            source.ends(partitions)
        own.restart()
        assert source.ends(partitions) == {TopicPartition("t", 0): 0}
        source.close()
