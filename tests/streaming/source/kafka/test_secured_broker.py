"""Both clients against a broker that asks who is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assignment

from conf.sources.kafka_uri import KafkaSettings
from conf.sources.source_uri import parse_source_uri
from streaming.source.kafka.broker import Broker
from streaming.source.kafka.librdkafka_settings import librdkafka_settings
from streaming.source.kafka.topic_partition import TopicPartition
from tests.services.secured_broker import SecuredBroker
from tests.services.token_endpoint import TokenServer

pytestmark = pytest.mark.kafka
TOPIC = "secured"
VALUES = [b"one", b"two", b"three"]


@pytest.fixture(scope="module")
def broker(secured_broker: SecuredBroker) -> SecuredBroker:
    secured_broker.create_topic(TOPIC, partitions=1)
    secured_broker.produce(TOPIC, [(0, None, value) for value in VALUES])
    return secured_broker


@pytest.fixture(scope="module")
def tokens() -> Iterator[TokenServer]:
    with TokenServer() as running:
        yield running


def source(broker: SecuredBroker, listener: str, parameters: str) -> KafkaSettings:
    return parse_source_uri(broker.source_uri(listener, TOPIC, parameters))


def end(kafka: KafkaSettings) -> int:
    """As the broker tells it."""
    asked = Broker(kafka)
    try:
        assert asked.shape().topic_ids[TOPIC]
        return asked.ends([TopicPartition(TOPIC, 0)])[TopicPartition(TOPIC, 0)]
    finally:
        asked.close()


def values(kafka: KafkaSettings, count: int) -> list[bytes | None]:
    """As librdkafka reads them."""
    consumer = Consumer({**librdkafka_settings(kafka), "log_level": 0})
    try:
        consumer.assign([Assignment(TOPIC, 0, 0)])
        return [message.value() for message in consumer.consume(count, timeout=60)]
    finally:
        consumer.close()


def both_read(kafka: KafkaSettings) -> None:
    assert end(kafka) == len(VALUES)
    assert values(kafka, len(VALUES)) == VALUES


def test_tls(broker: SecuredBroker):
    both_read(source(broker, "tls", broker.trusted))


def test_tls_that_trusts_anybody(broker: SecuredBroker):
    both_read(source(broker, "elsewhere", "&enable-tls=true&insecure-skip-verify=true"))


def test_mutual_tls_with_a_chain(broker: SecuredBroker):
    both_read(source(broker, "mtls", broker.with_certificate))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("listener", ["sasl", "sasl_tls"])
def test_sasl(broker: SecuredBroker, listener: str, mechanism: str):
    tls = broker.trusted if listener == "sasl_tls" else ""
    both_read(source(broker, listener, tls + broker.login(mechanism)))


def test_openid(broker: SecuredBroker, tokens: TokenServer):
    both_read(source(broker, "oauth", tokens.login()))
    assert set(tokens.asked) == {("client_credentials", "kafka read")}
