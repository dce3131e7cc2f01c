"""What `MemoryBroker` gives in the place of librdkafka's clients: the part of them that is used.

Messages, errors, topics' descriptions and the like are librdkafka's own. What a client here lacks
raises NotImplementedError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Node,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
)
from confluent_kafka.admin import (
    ConfigResource,
    ListOffsetsResultInfo,
    OffsetSpec,
    TopicDescription,
)

from tests.fakes.memory_log import PartitionLog, Topics

# What a consumer here does, whatever it is told: the product's reading must ask for just that.
READS: Final = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
}
_OUT_OF_RANGE: Final = (
    "fetch failed due to requested offset not available on the broker: "
    "Broker: Offset out of range (broker 1)"
)
_UNKNOWN_TOPIC: Final = "Broker: Unknown topic or partition"
_NODE: Final = Node(1, "memory", 9092)


class Client:
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotImplementedError(f"{type(self).__name__} has no {name}: use a real broker")


@dataclass(slots=True)
class _Assigned:
    """``fetch``: the next offset; ``position``: as librdkafka tells it, once it has passed one."""

    fetch: int
    position: int = OFFSET_INVALID
    end_told: int = -1
    is_over: bool = False  # after an error that ends reading, or to say no more of it


class MemoryConsumer(Client):
    """Used by one thread, as the product's are."""

    def __init__(self, topics: Topics, settings: Mapping[str, Any]) -> None:
        self._topics = topics
        self._settings = settings
        self._complain: Callable[[KafkaError], None] = settings.get("error_cb", lambda _: None)
        self._assigned: dict[tuple[str, int], _Assigned] = {}
        self._is_closed = False

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        for name, value in READS.items():
            if self._settings.get(name) != value:
                raise NotImplementedError(f"a consumer in memory reads with {name}={value} alone")
        if any(each.offset < 0 for each in partitions):
            raise NotImplementedError("a consumer in memory is assigned at explicit offsets alone")
        self._assigned = {
            (each.topic, each.partition): _Assigned(each.offset) for each in partitions
        }

    def unassign(self) -> None:
        self._assigned = {}

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            del self._assigned[each.topic, each.partition]

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """As many as there are, at once; librdkafka would wait for more."""
        if self._is_closed:
            raise RuntimeError("Consumer closed")
        with self._topics.changed:
            found = self._come(num_messages)
            if not found and timeout > 0:
                self._topics.changed.wait(timeout)
                found = self._come(num_messages)
        return found

    def _come(self, count: int) -> list[Message]:
        found: list[Message] = []
        for (topic, partition), place in self._assigned.items():
            if len(found) < count and not place.is_over:
                log = self._topics.log(topic, partition)
                if log is None:
                    self._miss(topic, partition, place)
                else:
                    found += self._of(log, topic, partition, place, count - len(found))
        return found

    def _of(
        self, log: PartitionLog, topic: str, partition: int, place: _Assigned, count: int
    ) -> list[Message]:
        if not log.start <= place.fetch <= log.end:
            place.is_over = True
            return [
                event(topic, partition, place.fetch, KafkaError._AUTO_OFFSET_RESET, _OUT_OF_RANGE)
            ]
        found, reached = log.read(place.fetch, count)
        if reached > place.fetch:
            place.fetch = place.position = reached
        if len(found) < count and place.end_told != reached == log.stable_end:
            place.end_told = reached
            found.append(event(topic, partition, reached, KafkaError._PARTITION_EOF, None))
        return found

    def _miss(self, topic: str, partition: int, place: _Assigned) -> None:
        """Nothing comes of a topic that is not there, without a word at first."""
        if topic in self._topics.by_name:
            place.is_over = True
            why = "desired partition is not available (Local: Unknown partition)"
            told = f"{topic} [{partition}]: {why}"
            self._complain(KafkaError(KafkaError._UNKNOWN_PARTITION, told))

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        places = [self._assigned.get((each.topic, each.partition)) for each in partitions]
        return [
            TopicPartition(
                each.topic, each.partition, OFFSET_INVALID if place is None else place.position
            )
            for each, place in zip(partitions, places, strict=True)
        ]

    def get_watermark_offsets(self, partition: TopicPartition, *, cached: bool) -> tuple[int, int]:
        if not cached:
            raise NotImplementedError("a consumer in memory tells the cached offsets alone")
        with self._topics.changed:
            log = self._topics.log(partition.topic, partition.partition)
            return (OFFSET_INVALID, OFFSET_INVALID) if log is None else (log.start, log.end)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:  # noqa: ARG002
        return metadata(self._topics)

    def poll(self, timeout: float = -1) -> None:
        if timeout or self._assigned:
            raise NotImplementedError("a consumer in memory is polled for errors alone")

    def close(self) -> None:
        self._is_closed = True


class MemoryAdmin(Client):
    def __init__(self, topics: Topics, settings: Mapping[str, Any]) -> None:  # noqa: ARG002
        self._topics = topics

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:  # noqa: ARG002
        return metadata(self._topics)

    def describe_topics(
        self,
        asked: TopicCollection,
        *,
        request_timeout: float,  # noqa: ARG002
    ) -> dict[str, Future[Any]]:
        with self._topics.changed:
            return {name: done(self._described(name)) for name in asked.topic_names}

    def _described(self, name: str) -> TopicDescription | KafkaException:
        topic = self._topics.by_name.get(name)
        if topic is None:
            return refusal(KafkaError.UNKNOWN_TOPIC_OR_PART, _UNKNOWN_TOPIC)
        infos = [
            TopicPartitionInfo(number, _NODE, [_NODE], [_NODE])
            for number in range(len(topic.partitions))
        ]
        return TopicDescription(name, topic.id, False, infos)

    def list_offsets(
        self,
        asked: Mapping[TopicPartition, OffsetSpec],
        *,
        request_timeout: float,  # noqa: ARG002
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, Future[Any]]:
        is_committed = isolation_level is IsolationLevel.READ_COMMITTED
        with self._topics.changed:
            logs = {each: self._topics.log(each.topic, each.partition) for each in asked}
            has_any = any(log is not None for log in logs.values())
            return {
                each: done(
                    self._leaderless(each.topic, has_any=has_any)
                    if log is None
                    else offset_of(log, asked[each], is_committed=is_committed)
                )
                for each, log in logs.items()
            }

    def _leaderless(self, topic: str, *, has_any: bool) -> KafkaException:
        """``has_any``: others that were asked for with it have leaders."""
        if not has_any:
            return refusal(KafkaError._NOENT, "Failed to query partition leaders: No leaders found")
        if topic in self._topics.by_name:
            return refusal(KafkaError._UNKNOWN_PARTITION, "Local: Unknown partition")
        return refusal(KafkaError.UNKNOWN_TOPIC_OR_PART, _UNKNOWN_TOPIC)

    def describe_configs(
        self,
        asked: Iterable[ConfigResource],
        *,
        request_timeout: float,  # noqa: ARG002
    ) -> dict[ConfigResource, Future[Any]]:
        with self._topics.changed:
            return {each: done(self._configs(each)) for each in asked}

    def _configs(self, asked: ConfigResource) -> dict[str, Any] | KafkaException:
        topic = self._topics.by_name.get(asked.name)
        if topic is None:
            return refusal(KafkaError.UNKNOWN_TOPIC_OR_PART, _UNKNOWN_TOPIC)
        return {name: SimpleNamespace(value=value) for name, value in topic.configs.items()}


def offset_of(log: PartitionLog, spec: OffsetSpec, *, is_committed: bool) -> ListOffsetsResultInfo:
    end = log.stable_end if is_committed else log.end
    if spec is OffsetSpec.earliest():
        return ListOffsetsResultInfo(log.start, -1, 0)
    if spec is OffsetSpec.latest():
        return ListOffsetsResultInfo(end, -1, 0)
    if spec is OffsetSpec.max_timestamp():
        return ListOffsetsResultInfo(log.newest_at, log.newest_ms, 0)
    if is_committed:
        raise NotImplementedError("an admin in memory looks for times as one who reads all")
    at_ms: int = spec._value
    return ListOffsetsResultInfo(log.first_at(at_ms), at_ms, 0)


def metadata(topics: Topics) -> Any:
    with topics.changed:
        found = {
            name: SimpleNamespace(topic=name, partitions=dict.fromkeys(range(len(each.partitions))))
            for name, each in topics.by_name.items()
        }
    return SimpleNamespace(topics=found, brokers={1: _NODE})


def event(topic: str, partition: int, offset: int, code: int, why: str | None) -> Message:
    error = KafkaError(code) if why is None else KafkaError(code, why)
    return Message(topic=topic, partition=partition, offset=offset, error=error)


def refusal(code: int, why: str) -> KafkaException:
    return KafkaException(KafkaError(code, why))


def done(found: Any) -> Future[Any]:
    """A future that is known, or has failed."""
    future: Future[Any] = Future()
    if isinstance(found, BaseException):
        future.set_exception(found)
    else:
        future.set_result(found)
    return future
