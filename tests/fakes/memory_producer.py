"""A producer of `MemoryBroker`: the part of librdkafka's that tests use."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
)

from tests.fakes.memory_clients import Client, refusal
from tests.fakes.memory_log import Entry, PartitionLog, Topic, Topics, Transaction

Delivered = Callable[[KafkaError | None, Message], None]

_SETTINGS: Final = {"transactional.id", "message.max.bytes", "log_level"}
_MOST_BYTES: Final = 15 << 20  # as `TopicProducer` has it
_BESIDE: Final = 70  # bytes of a batch of one message, about, besides its key and value
_AHEAD_MS: Final = 3_600_000  # as Kafka has it: no message is stamped later than that from now


class MemoryProducer(Client):
    """All is sent at once, so that there is nothing to wait for; ``flush`` tells nothing new."""

    def __init__(self, topics: Topics, settings: Mapping[str, Any]) -> None:
        if lacking := settings.keys() - _SETTINGS:
            raise NotImplementedError(f"a producer in memory has no {sorted(lacking)}")
        self._topics = topics
        self._most_bytes = int(settings.get("message.max.bytes", _MOST_BYTES))
        self._has_id = "transactional.id" in settings
        self._transaction: Transaction | None = None
        self._touched: list[PartitionLog] = []

    def produce(  # noqa: PLR0917  # as librdkafka's
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        on_delivery: Delivered | None = None,
        timestamp: int = 0,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """``timestamp``: ms since 1970; 0: now."""
        if partition < 0:
            raise NotImplementedError("a producer in memory has no partitioner")
        if timestamp < 0:
            raise NotImplementedError("a producer in memory sends no message without a time")
        if self._has_id and self._transaction is None:
            raise refusal(KafkaError._STATE, "Unable to produce message: Local: Erroneous state")
        size = len(value or b"") + len(key or b"")
        if size > self._most_bytes:
            raise _unsent(KafkaError.MSG_SIZE_TOO_LARGE)
        with self._topics.changed:
            found = self._topics.by_name.get(topic)
            if found is not None and partition >= len(found.partitions):
                raise _unsent(KafkaError._UNKNOWN_PARTITION)
            now_ms = int(time.time() * 1e3)
            is_stamped_here = found is not None and _stamps(found)
            at_ms = now_ms if is_stamped_here else timestamp or now_ms
            message = Message(
                topic=topic,
                partition=partition,
                offset=found.partitions[partition].end if found else -1001,
                key=key,
                value=value,
                headers=list(headers) if headers else None,
                timestamp=(
                    TIMESTAMP_LOG_APPEND_TIME if is_stamped_here else TIMESTAMP_CREATE_TIME,
                    at_ms,
                ),
            )
            code = _refused(found, size, key, at_ms - now_ms)
            if code is None:
                assert found is not None
                self._append(
                    found.partitions[partition], Entry(at_ms, key, message, self._transaction)
                )
        if on_delivery is not None:
            on_delivery(None if code is None else KafkaError(code), message)

    def _append(self, log: PartitionLog, entry: Entry) -> None:
        log.append(entry)
        if self._transaction is not None and log not in self._touched:
            self._touched.append(log)
        self._topics.changed.notify_all()

    def flush(self, timeout: float = -1) -> int:  # noqa: ARG002
        return 0

    def poll(self, timeout: float = -1) -> int:  # noqa: ARG002
        return 0

    def init_transactions(self, timeout: float = -1) -> None:  # noqa: ARG002
        """Nothing is known of an earlier producer of the same ID: it is not fenced off."""
        assert self._has_id, "transactional.id is not set"

    def begin_transaction(self) -> None:
        assert self._has_id, "transactional.id is not set"
        assert self._transaction is None, "the transaction before is open"
        self._transaction = object()

    def commit_transaction(self, timeout: float = -1) -> None:  # noqa: ARG002
        self._end(is_committed=True)

    def abort_transaction(self, timeout: float = -1) -> None:  # noqa: ARG002
        self._end(is_committed=False)

    def _end(self, *, is_committed: bool) -> None:
        assert self._transaction is not None, "no transaction is open"
        with self._topics.changed:
            for log in self._touched:
                log.end_transaction(
                    self._transaction, int(time.time() * 1e3), is_committed=is_committed
                )
            self._topics.changed.notify_all()
        self._transaction, self._touched = None, []


def _stamps(topic: Topic) -> bool:
    return topic.configs["message.timestamp.type"] == "LogAppendTime"


def _refused(topic: Topic | None, size: int, key: bytes | None, ahead_ms: int) -> int | None:
    """The code of the broker's error."""
    if topic is None:
        return KafkaError.UNKNOWN_TOPIC_OR_PART
    if size + _BESIDE > int(topic.configs["max.message.bytes"]):
        return KafkaError.MSG_SIZE_TOO_LARGE
    if topic.is_compacted and key is None:
        return KafkaError.INVALID_RECORD
    if ahead_ms > _AHEAD_MS:
        return KafkaError.INVALID_TIMESTAMP
    return None


def _unsent(code: int) -> KafkaException:
    return refusal(code, f"Unable to produce message: {KafkaError(code).str()}")
