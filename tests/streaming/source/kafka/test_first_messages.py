"""The first message from an offset on."""

from __future__ import annotations

import pytest

from conf.sources.kafka_uri import KafkaSettings
from streaming.source.contract import SourceAway
from streaming.source.kafka.broker import Broker
from streaming.source.kafka.topic_partition import TopicPartition
from tests.contracts.topics_contract import Cluster


def source(bootstrap: str, topic: str) -> Broker:
    return Broker(
        KafkaSettings(
            brokers=(bootstrap,),
            topic=topic,
            topics=(topic,),
            protocol="canal-json",
            partition_num=1,
        )
    )


def test_an_offset_that_is_not_there_is_not_another_one(cluster: Cluster):
    topic = "first-values-deleted"
    cluster.create_topic(topic, partitions=1)
    cluster.produce(topic, [(0, None, b"1"), (0, None, b"2")])
    cluster.delete_records(topic, {0: 1})
    with pytest.raises(SourceAway, match="first-values-deleted/0: "):
        source(cluster.bootstrap, topic).times_ms({TopicPartition(topic, 0): 0})
