"""The first message of each partition that says something: a few reads in the driver, no stream.

By librdkafka, as all reading is: kafka-python has no codec for snappy, lz4 or zstd of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Assignment

from conf.settings import KafkaSource
from streaming.source.librdkafka_settings import librdkafka_settings
from streaming.source.ranges import TopicPartition

_MESSAGES = 500
_WAIT_S = 0.2
_SETTINGS = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "fetch.queue.backoff.ms": 20,
    "log_level": 0,
}

Read = Callable[[bytes | None], int | None]


class NoAnswer(Exception):
    """Some partitions were not read within the time; the message says which, and what was told."""


def first_values(
    kafka: KafkaSource, first: Mapping[TopicPartition, int], read: Read, patience_s: float
) -> dict[TopicPartition, int]:
    """What ``read`` makes of the first message from these offsets on that it can read.

    A partition that ends before there is one is left out. Raises NoAnswer.
    """
    if not first:
        return {}
    search = _Search(first, read)
    try:
        consumer = Consumer({**librdkafka_settings(kafka), **_SETTINGS, "error_cb": search.told})
    except KafkaException as error:
        raise NoAnswer(str(error.args[0].str())) from error
    give_up_at = time.monotonic() + patience_s
    try:
        consumer.assign([Assignment(p.topic, p.partition, at) for p, at in first.items()])
        while search.waiting:
            for done in map(search.take, consumer.consume(_MESSAGES, _WAIT_S)):
                if done is not None:
                    consumer.incremental_unassign([Assignment(done.topic, done.partition)])
            if time.monotonic() > give_up_at:
                raise NoAnswer(search.unread(patience_s))
    finally:
        consumer.close()
    return search.found


class _Search:
    def __init__(self, first: Mapping[TopicPartition, int], read: Read) -> None:
        self.waiting = set(first)
        self.found: dict[TopicPartition, int] = {}
        self._read = read
        self._trouble = ""

    def told(self, error: KafkaError) -> None:
        self._trouble = f": {error.str()}"

    def take(self, message: Message) -> TopicPartition | None:
        """The partition, once nothing more of it is needed."""
        partition = TopicPartition(message.topic() or "", message.partition() or 0)
        if partition not in self.waiting:
            return None
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise NoAnswer(f"{partition}: {error.str()}")
        if error is None:
            value = self._read(message.value())
            if value is None:
                return None
            self.found[partition] = value
        self.waiting.remove(partition)
        return partition

    def unread(self, patience_s: float) -> str:
        where = ", ".join(map(str, sorted(self.waiting)))
        return f"no watermark of {where} was found within {patience_s:.0f} s{self._trouble}"
