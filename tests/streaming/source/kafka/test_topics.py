"""A log in memory says what Kafka says, of the same history."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.contracts import topics_contract as contract
from tests.contracts.topics_contract import Cluster, History, outcome
from tests.fakes.memory_broker import MemoryBroker
from tests.services.kafka_broker import KafkaBroker
from tests.services.topic_producer import BrokerError


@pytest.mark.kafka
@pytest.mark.seeds(6)
def test_a_history_is_told_alike(broker: KafkaBroker, memory_broker: MemoryBroker, seed: int):
    found = [
        _told(each, f"history-{seed}-{uuid.uuid4().hex[:8]}", seed)
        for each in (broker, memory_broker)
    ]
    kafka, memory = found
    assert kafka.keys() == memory.keys()
    for question, answer in kafka.items():
        assert memory[question] == answer, question


def _told(cluster: Cluster, topic: str, seed: int) -> dict[str, Any]:
    """The topic's name is taken out of the answers."""
    history = History(cluster, topic, seed)
    try:
        history.write(12)
        found = contract.told(cluster, topic, seed)
    finally:
        history.close()
    return {
        each.replace(topic, "topic"): repr(answer).replace(topic, "topic")
        for each, answer in found.items()
    }


@pytest.fixture(scope="module")
def small_topics(broker: KafkaBroker, memory_broker: MemoryBroker) -> str:
    name = f"small-{uuid.uuid4().hex[:8]}"
    for each in (broker, memory_broker):
        contract.small_topic(each, name)
    return name


@pytest.mark.kafka
@pytest.mark.parametrize("question", contract.REFUSALS)
def test_the_product_says_the_same(
    broker: KafkaBroker, memory_broker: MemoryBroker, small_topics: str, question: str
):
    ask = contract.REFUSALS[question]
    kafka = outcome(broker, lambda: ask(broker, small_topics))
    assert outcome(memory_broker, lambda: ask(memory_broker, small_topics)) == kafka


@pytest.mark.kafka
def test_a_refusal_is_not_the_next_sender_s(broker: KafkaBroker):
    topic = f"refused-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, 1, **{"max.message.bytes": "1000"})
    with pytest.raises(BrokerError):
        broker.produce(topic, [(0, None, b"x" * 2000)])
    broker.produce(topic, [(0, None, b"x")])
    assert broker.end_offsets(topic) == {0: 1}


@pytest.mark.kafka
@pytest.mark.parametrize("question", contract.ADMIN_REFUSALS)
def test_an_admin_is_refused_alike(
    broker: KafkaBroker, memory_broker: MemoryBroker, small_topics: str, question: str
):
    ask = contract.ADMIN_REFUSALS[question]
    kafka, _ = outcome(broker, lambda: ask(broker, small_topics))
    memory, _ = outcome(memory_broker, lambda: ask(memory_broker, small_topics))
    assert (memory, kafka) == (kafka, kafka)
    assert kafka.endswith("Error")
