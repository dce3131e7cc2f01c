"""A Kafka cluster in memory, in the place of `KafkaBroker`.

    with MemoryBroker() as broker:                 bootstrap is a name that nothing else has
        broker.create_topic("shop", partitions=3)
        Broker(KafkaSettings(brokers=(broker.bootstrap,), ...)).shape()

While one is open, the product's clients (`consumer.new_consumer`, `consumer.new_admin`) with its
name as ``bootstrap.servers`` are `MemoryConsumer` and `MemoryAdmin`; all others are librdkafka's as
ever. Only this process has it: tasks must run on its threads.

`tests/contracts/topics_contract.py` says in what it is like Kafka. What it lacks raises
NotImplementedError. Nothing is deleted by time or size: `delete_records` moves a beginning, and
`compact` compacts.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Final
from unittest.mock import patch

from confluent_kafka import KafkaError, Message
from kafka.errors import (
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from streaming.source.kafka import consumer
from tests.fakes.memory_clients import MemoryAdmin, MemoryConsumer, refusal
from tests.fakes.memory_log import PartitionLog, Topic, Topics
from tests.fakes.memory_producer import MemoryProducer
from tests.services.kafka_broker import ReadMessage
from tests.services.topic_producer import BrokerError, Outgoing

# As `broker_settings` and Kafka have them.
_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "max.message.bytes": str(16 << 20),
    "message.timestamp.type": "CreateTime",
}
# They say when Kafka does what is done here when it is asked for.
_WITHOUT_EFFECT: Final = {"segment.ms", "segment.bytes", "min.cleanable.dirty.ratio",
                          "max.compaction.lag.ms", "file.delete.delay.ms"}  # fmt: skip
_NAME: Final = "memory-"
_numbers = itertools.count(1)
_open: dict[str, Topics] = {}
_patched = ExitStack()
_lock = threading.Lock()


class MemoryBroker:
    """Used from any thread."""

    def __init__(self) -> None:
        self.bootstrap = f"{_NAME}{next(_numbers)}:9092"
        self._topics = Topics(self.bootstrap)

    def __enter__(self) -> MemoryBroker:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def start(self) -> MemoryBroker:
        with _lock:
            if not _open:
                _in_place_of_librdkafka()
            _open[self.bootstrap] = self._topics
        return self

    def stop(self) -> None:
        """Stopping twice is fine."""
        with _lock:
            if _open.pop(self.bootstrap, None) is not None and not _open:
                _patched.close()

    def create_topic(
        self, name: str, partitions: int = 3, replicas: int = 1, **configs: str
    ) -> None:
        if replicas != 1:
            raise NotImplementedError("a broker in memory is alone: use a real cluster")
        if lacking := configs.keys() - _CONFIGS.keys() - _WITHOUT_EFFECT:
            raise NotImplementedError(f"a broker in memory has no topic with {sorted(lacking)}")
        with self._topics.changed:
            if name in self._topics.by_name:
                raise TopicAlreadyExistsError(f"Topic '{name}' already exists.")
            logs = [PartitionLog() for _ in range(partitions)]
            self._topics.by_name[name] = Topic({**_CONFIGS, **configs}, logs)

    def delete_topic(self, name: str) -> None:
        with self._topics.changed:
            self._topic(name)
            del self._topics.by_name[name]

    def add_partitions(self, topic: str, count: int) -> None:
        """So that there are so many."""
        with self._topics.changed:
            logs = self._topic(topic).partitions
            assert count > len(logs), f"{topic} has {len(logs)} partitions"
            logs.extend(PartitionLog() for _ in range(count - len(logs)))

    def delete_records(self, topic: str, before: dict[int, int]) -> None:
        """Drop what lies before these offsets (partition -> first offset that stays; -1: none)."""
        with self._topics.changed:
            for partition, offset in before.items():
                log = self._log(topic, partition)
                if offset > log.end:
                    raise OffsetOutOfRangeError(
                        f"Error deleting records from topic {topic} partition {partition}"
                    )
                log.cut(log.end if offset == -1 else offset)

    def compact(self, topic: str, before: Mapping[int, int] | None = None) -> None:
        """Of each key keep the last message among those before these offsets (partition -> offset),
        or among all. Kafka never compacts a partition's newest segment. Tombstones stay, as Kafka
        keeps them for a day."""
        with self._topics.changed:
            found = self._topic(topic)
            assert found.is_compacted, f"{topic} has cleanup.policy={found.configs}"
            for partition, log in enumerate(found.partitions):
                log.compact(log.end if before is None else before.get(partition, 0))

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Partition -> the offset that the next message will get, or where the first open
        transaction begins, as `KafkaBroker` says it."""
        return self._each(topic, lambda log: log.stable_end)

    def start_offsets(self, topic: str) -> dict[int, int]:
        """Partition -> the oldest offset that is still there."""
        return self._each(topic, lambda log: log.start)

    def produce(self, topic: str, messages: Iterable[Outgoing]) -> None:
        """Send in this order per partition. A message is too large where its bytes alone are:
        Kafka also counts what a batch has besides."""
        producer, errors = self.producer(), list[KafkaError]()
        for partition, key, value in messages:
            producer.produce(topic, value, key, partition=partition, on_delivery=_kept_in(errors))
        if errors:
            raise BrokerError(f"0 messages not sent, errors: {errors[:3]}")

    def producer(self, **settings: Any) -> MemoryProducer:
        """In the place of a ``confluent_kafka.Producer``: for times, headers, transactions."""
        return MemoryProducer(self._topics, settings)

    def read(self, topic: str) -> list[ReadMessage]:
        """All messages of a topic, partition by partition."""
        with self._topics.changed:
            logs = enumerate(self._topic(topic).partitions)
            return [
                ReadMessage(partition, message.offset() or 0, message.key(), message.value())
                for partition, log in logs
                for message in log.read(log.start, log.end)[0]
            ]

    def _each(self, topic: str, of: Callable[[PartitionLog], int]) -> dict[int, int]:
        with self._topics.changed:
            found = self._topics.by_name.get(topic)
            return {} if found is None else {n: of(each) for n, each in enumerate(found.partitions)}

    def _topic(self, name: str) -> Topic:
        if name not in self._topics.by_name:
            raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        return self._topics.by_name[name]

    def _log(self, topic: str, partition: int) -> PartitionLog:
        logs = self._topic(topic).partitions
        if not 0 <= partition < len(logs):
            raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        return logs[partition]

    def __getattr__(self, name: str) -> Any:
        """What has to do with a process, with ports, with logins."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotImplementedError(f"a broker in memory has no {name}: use a real one")


def _kept_in(errors: list[KafkaError]) -> Callable[[KafkaError | None, Message], None]:
    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            errors.append(error)

    return delivered


def _in_place_of_librdkafka() -> None:
    for name, of_memory in (("Consumer", MemoryConsumer), ("AdminClient", MemoryAdmin)):
        _patched.enter_context(
            patch.object(consumer, name, _either(getattr(consumer, name), of_memory))
        )


def _either(real: Callable[..., Any], of_memory: Callable[..., Any]) -> Callable[..., Any]:
    def client(settings: Mapping[str, Any]) -> Any:
        bootstrap = settings["bootstrap.servers"]
        if not bootstrap.startswith(_NAME):
            return real(settings)
        topics = _open.get(bootstrap)
        if topics is None:
            raise refusal(KafkaError._TRANSPORT, f"{bootstrap} has been stopped")
        return of_memory(topics, settings)

    return client
