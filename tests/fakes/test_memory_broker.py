"""What a log in memory lacks it says, and it stands in nobody's way."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from conf.sources.source_uri import parse_source_uri
from streaming.source.kafka import consumer
from streaming.source.kafka.consumer import READING, new_admin, new_consumer
from tests.contracts.topics_contract import settings_of
from tests.fakes.memory_broker import MemoryBroker
from tests.fakes.memory_clients import MemoryAdmin, MemoryConsumer
from tests.test_tidy import PRODUCT, tree

LACKS: dict[str, Callable[[MemoryBroker], Any]] = {
    "a process": lambda b: b.kill(),
    "logins": lambda b: b.sasl_bootstrap,
    "other brokers": lambda b: b.create_topic("t", 1, replicas=2),
    "settings of topics": lambda b: b.create_topic("t", 1, **{"delete.retention.ms": "0"}),
    "a partitioner": lambda b: b.producer().produce("t", b"x"),
    "compression": lambda b: b.producer(**{"compression.type": "zstd"}),
    "groups": lambda b: new_consumer({"bootstrap.servers": b.bootstrap}).subscribe(["t"]),
    "other reading": lambda b: new_consumer(
        {**READING, "bootstrap.servers": b.bootstrap, "isolation.level": "read_uncommitted"}
    ).assign([]),
    "other requests": lambda b: new_admin({"bootstrap.servers": b.bootstrap}).list_groups(),
}


@pytest.mark.parametrize("what", LACKS)
def test_what_it_lacks_is_said(memory_broker: MemoryBroker, what: str):
    with pytest.raises(NotImplementedError, match=r"in memory|use a real"):
        LACKS[what](memory_broker)


def test_other_names_are_librdkafkas(memory_broker: MemoryBroker):
    ours = {"bootstrap.servers": memory_broker.bootstrap}
    other = {"bootstrap.servers": "127.0.0.1:1", "group.id": "tests", "log_level": 0}
    assert isinstance(new_consumer(ours), MemoryConsumer)
    assert isinstance(new_admin(ours), MemoryAdmin)
    theirs = new_consumer(other)
    assert isinstance(theirs, Consumer)
    theirs.close()
    del other["group.id"]
    assert isinstance(new_admin(other), AdminClient)


def test_one_that_was_stopped_is_gone_and_the_others_stay(memory_broker: MemoryBroker):
    with MemoryBroker() as one, MemoryBroker() as two:
        one.create_topic("t", 1)
        with pytest.raises(KeyError):
            new_admin({"bootstrap.servers": two.bootstrap}).list_topics().topics["t"]
        one.stop()
        with pytest.raises(KafkaException, match="has been stopped"):
            new_consumer({"bootstrap.servers": one.bootstrap})
        two.create_topic("t", 1)
    assert consumer.Consumer is not Consumer, "the session's is open"
    new_admin({"bootstrap.servers": memory_broker.bootstrap})


def test_its_name_is_a_brokers(memory_broker: MemoryBroker):
    query = "protocol=canal-json&enable-tidb-extension=true"
    found = parse_source_uri(f"kafka://{memory_broker.bootstrap}/t?{query}")
    assert found == settings_of(memory_broker, "t")


def test_one_module_makes_the_clients():
    """Else some of the product would go past a log in memory."""
    makers = {
        str(path)
        for path in PRODUCT
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"Consumer", "AdminClient", "Producer"}
    }
    assert makers == {"streaming/source/kafka/consumer.py"}
