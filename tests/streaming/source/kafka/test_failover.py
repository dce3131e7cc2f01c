"""Two brokers: one is read because it is near, and one dies in mid-read: the other one has its
partitions then, and nothing is lost or read twice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Assignment

from conf.sources.kafka_uri import KafkaSettings
from streaming.source.kafka.librdkafka_settings import librdkafka_settings
from streaming.source.kafka.source import KafkaSource
from tests.services.kafka_broker import KafkaBroker
from tests.services.topic_producer import Outgoing

pytestmark = pytest.mark.kafka
TOPIC = "failover"
PARTITIONS = 4
MESSAGES = 2_000  # of each partition
PATIENCE_S = 120
SMALL = {"fetch.message.max.bytes": 16 << 10, "queued.max.messages.kbytes": 64}


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[KafkaBroker, KafkaBroker]]:
    """The first is the controller too; each leads every other partition."""
    near = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    soon = {"broker.session.timeout.ms": "1500"}
    with (
        KafkaBroker(heap="256m", settings={**soon, **near, "broker.rack": "a"}) as first,
        KafkaBroker(heap="256m", settings={**near, "broker.rack": "b"}, beside=first) as second,
    ):
        first.create_topic(TOPIC, PARTITIONS, replicas=2)
        first.produce(TOPIC, messages())
        yield first, second


def messages() -> Iterator[Outgoing]:
    for number in range(MESSAGES):
        for partition in range(PARTITIONS):
            yield partition, None, b"%d " % number * 100


def read_past_a_death(consumer: Consumer, second: KafkaBroker) -> dict[int, list[int]]:
    """Offsets by partition; the second broker dies when a quarter has been read."""
    read: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    total, count, died = PARTITIONS * MESSAGES, 0, False
    while count < total:
        found = consumer.consume(min(200, total - count), timeout=PATIENCE_S)
        assert found, f"nothing came for {PATIENCE_S} s"
        for message in found:
            error = message.error()
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            if error is None:
                read[message.partition() or 0].append(message.offset() or 0)
                count += 1
        if count > total / 4 and not died:
            second.kill()
            died = True
    return read


def source_of(brokers: tuple[KafkaBroker, KafkaBroker]) -> KafkaSettings:
    first, second = brokers
    return KafkaSettings(
        brokers=(second.bootstrap, first.bootstrap),
        topic=TOPIC,
        topics=(TOPIC,),
        protocol="canal-json",
        partition_num=PARTITIONS,
    )


def read_from(stats: str) -> dict[str, tuple[int, int]]:
    """Partition -> (leader, the broker that it is read from), as librdkafka tells."""
    partitions = json.loads(stats)["topics"].get(TOPIC, {"partitions": {}})["partitions"]
    return {n: (p["leader"], p["broker"]) for n, p in partitions.items() if p["desired"]}


def test_the_near_broker_is_read(brokers: tuple[KafkaBroker, KafkaBroker]):
    kafka = replace(source_of(brokers), client_rack="b")
    told: list[str] = []
    watched = {"statistics.interval.ms": 100, "stats_cb": told.append}
    consumer = Consumer({**librdkafka_settings(kafka), **SMALL, **watched, "log_level": 0})
    consumer.assign([Assignment(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    deadline = time.monotonic() + PATIENCE_S
    places: dict[str, tuple[int, int]] = {}
    while {broker for _, broker in places.values()} != {2} and time.monotonic() < deadline:
        consumer.consume(100, timeout=0.1)
        places = read_from(told[-1]) if told else {}
    consumer.close()
    assert {broker for _, broker in places.values()} == {2}
    assert {leader for leader, _ in places.values()} == {1, 2}


def test_reading_goes_on(brokers: tuple[KafkaBroker, KafkaBroker]):
    _, second = brokers
    kafka = source_of(brokers)
    source = KafkaSource(kafka)
    shape = source.shape()
    consumer = Consumer({**librdkafka_settings(kafka), **SMALL, "log_level": 0})
    consumer.assign([Assignment(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    read = read_past_a_death(consumer, second)
    consumer.close()
    assert read == {partition: list(range(MESSAGES)) for partition in range(PARTITIONS)}
    ends = {f"{TOPIC}/{partition}": MESSAGES for partition in range(PARTITIONS)}
    assert source.ends(ends) == ends
    source.check_unchanged(shape)
    source.close()
