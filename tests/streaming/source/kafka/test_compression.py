"""Whatever the producer compressed with: values are read by librdkafka, which has all codecs."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assignment

from conf.sources.kafka_uri import KafkaSettings
from streaming.source.kafka.broker import Broker
from streaming.source.kafka.librdkafka_settings import librdkafka_settings
from streaming.source.kafka.topic_partition import TopicPartition
from tests.services.kafka_broker import KafkaBroker

pytestmark = pytest.mark.kafka
VALUES = [f"{number} ".encode() * 200 for number in range(50)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_is_read_whatever_it_is_compressed_with(broker: KafkaBroker, codec: str):
    topic = f"compressed-{codec}"
    broker.create_topic(topic, partitions=1)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 50}
    )
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0
    kafka = KafkaSettings(
        brokers=(broker.bootstrap,), topic=topic, topics=(topic,), protocol="canal-json",
        partition_num=1,
    )  # fmt: skip
    consumer = Consumer({**librdkafka_settings(kafka), "log_level": 0})
    consumer.assign([Assignment(topic, 0, 0)])
    assert [each.value() for each in consumer.consume(len(VALUES), timeout=60)] == VALUES
    consumer.close()
    source = Broker(kafka)
    partition = TopicPartition(topic, 0)
    assert source.ends([partition]) == {partition: len(VALUES)}
    assert source.times_ms({partition: 3})[partition] > 0
    source.close()
