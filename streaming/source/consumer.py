"""A consumer that reads ranges and stays open from one read to the next. Of executors and driver.

    assign(ranges) ──► fetch() … fetch() ──► finish(reached)   it stands at ``reached`` and fetches
         │                                                    ahead, or fetches nothing
         └── aborted ──► where it stands is unknown: the next range is assigned anew

No Spark in it. A consumer lives in the process that made it: librdkafka's threads end in a fork.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as Assignment

from streaming.source.ranges import OffsetRange, TopicPartition

Settings = Mapping[str, str | int | bool]

WAIT_S: Final = 0.02  # ``consume`` waits for its whole time-out unless it gets all it asked for
METADATA_S: Final = 10.0  # the broker may take so long to tell a topic's partitions
CONSUMERS: Final = 2  # of one process: for the settings that were used last
GUESSED_BYTES: Final = 16 << 10  # of a message, as long as none has been read
READING: Final[Settings] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",  # the default goes on somewhere else in silence
    "enable.partition.eof": True,
    # What was fetched ahead is thrown away when this process goes on elsewhere.
    "queued.max.messages.kbytes": 16 << 10,
    "fetch.max.bytes": 16 << 20,
    "fetch.message.max.bytes": 2 << 20,
    "fetch.wait.max.ms": 20,  # a range that is assigned meanwhile waits for it
    "fetch.queue.backoff.ms": 20,
    "fetch.error.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1_000,
    "log_level": 0,
    "log.connection.close": False,
}

_consumers: dict[tuple[int, frozenset[tuple[str, str | int | bool]]], RangeConsumer] = {}


class RangeConsumer:
    """One librdkafka consumer, one thread, never in a group."""

    def __init__(self, settings: Settings) -> None:
        self._topic_ids: dict[str, str] = {}
        self._partitions: set[TopicPartition] = set()
        self._place: tuple[TopicPartition, int, int] | None = None
        self.message_bytes = GUESSED_BYTES  # about so large are messages here
        self.trouble = ""  # the last thing that librdkafka complained of
        self._consumer = Consumer({**READING, **settings, "error_cb": self._complain})

    def is_of(self, ranges: Sequence[OffsetRange]) -> bool:
        """Whether what it knows of these topics is of the topics that these offsets are of."""
        return all(
            self._topic_ids.get(each.topic, each.topic_id) == each.topic_id for each in ranges
        )

    def continues(self, wanted: OffsetRange) -> bool:
        """Whether it stands where this range begins: nothing lies between the two offsets."""
        if self._place is None:
            return False
        partition, first, last = self._place
        return partition == wanted.topic_partition and first <= wanted.begin <= last

    def assign(self, ranges: Sequence[OffsetRange]) -> None:
        """Begin to read these, which are of different partitions, side by side."""
        is_continued = len(ranges) == 1 and self.continues(ranges[0])
        self._place, self.trouble = None, ""
        self._learn(ranges)
        if not is_continued:
            self._consumer.assign(
                [Assignment(each.topic, each.partition, each.begin) for each in ranges]
            )

    def _learn(self, ranges: Sequence[OffsetRange]) -> None:
        """Partitions that a topic grew would otherwise be found at the next of rare refreshes."""
        known = self._topic_ids.keys()
        new = {each.topic_partition for each in ranges} - self._partitions
        for topic in {each.topic for each in new if each.topic in known}:
            self._consumer.list_topics(topic, METADATA_S)
        self._topic_ids |= {each.topic: each.topic_id for each in ranges}
        self._partitions |= new

    def fetch(self, messages: int) -> list[Message]:
        """At most so many; events are among them, their ``error()`` says which."""
        return self._consumer.consume(messages, WAIT_S)

    def positions(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, int]:
        """Behind what it has passed; unlike messages this counts transactions' markers."""
        asked = [Assignment(each.topic, each.partition) for each in ranges]
        return {
            TopicPartition(each.topic, each.partition): each.offset
            for each in self._consumer.position(asked)
            if each.offset >= 0
        }

    def finish(self, read: OffsetRange, reached: int, position: int) -> None:
        """All before ``reached`` was taken and nothing up to ``position`` is left untaken.

        It fetches ahead only where there is more: what waits at an end makes others wait.
        """
        here = Assignment(read.topic, read.partition)
        _, end = self._consumer.get_watermark_offsets(here, cached=True)
        if end > position:
            self._place = (read.topic_partition, reached, position)
        else:
            self.rest()

    def rest(self) -> None:
        self._place = None
        self._consumer.unassign()

    def leave(self, partition: TopicPartition) -> None:
        """Fetch nothing more of it."""
        here = Assignment(partition.topic, partition.partition)
        self._consumer.incremental_unassign([here])

    def close(self) -> None:
        self._consumer.close()

    def _complain(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.trouble:  # it says why before
            self.trouble = error.str()


def consumer_for(settings: Settings, ranges: Sequence[OffsetRange]) -> RangeConsumer:
    """This process's own, new where there is none or where a topic was made again."""
    key = (os.getpid(), frozenset(settings.items()))
    found = _consumers.pop(key, None)
    if found is not None and not found.is_of(ranges):
        found.close()
        found = None
    if found is None:
        mine = [each for each in _consumers if each[0] == key[0]]
        for each in mine[: len(mine) - CONSUMERS + 1]:
            _consumers.pop(each).close()
        found = RangeConsumer(settings)
    _consumers[key] = found  # at the end: the one that was used last
    return found


def discard(consumer: RangeConsumer) -> None:
    """After an error: the next read begins with a new connection."""
    for key in [key for key, each in _consumers.items() if each is consumer]:
        del _consumers[key]
    consumer.close()
