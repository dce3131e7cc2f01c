"""A Kafka consumer that reads ranges of offsets and stays open from one read to the next.

    assign(ranges) ──► fetch() … fetch() ──► finish(reached)   it is at ``reached`` and fetches
         │                                                    ahead, or fetches nothing
         └── aborted ──► its position is unknown: the next range is assigned anew

Used on executors and in the driver, without Spark. A consumer works only in the process that made
it: librdkafka's threads do not survive a fork. Tasks may run on threads of one process too, so each
thread has consumers of its own.

Only this module makes librdkafka's clients (`new_consumer`, `new_admin`): in their place tests put
a log in memory.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Assignment
from confluent_kafka.admin import AdminClient

from streaming.source.kafka.offset_ranges import OffsetRange
from streaming.source.kafka.topic_partition import TopicPartition

ConsumerConfig = Mapping[str, str | int | bool]

WAIT_S: Final = 0.02  # ``consume`` waits all of its time-out unless it gets all it asked for
_TICK_S: Final = 0.001
ASSIGNED_S: Final = 10.0  # seen to take milliseconds
METADATA_S: Final = 10.0  # the time-out for asking the broker for a topic's partitions
CONSUMERS: Final = 2  # kept open by a thread: those of the settings that were used last
GUESSED_BYTES: Final = 16 << 10  # the assumed size of a message until one has been read
READING: Final[ConsumerConfig] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",  # the default silently goes on at another offset
    "enable.partition.eof": True,
    # Small, since what was fetched ahead is thrown away when another range is assigned.
    "queued.max.messages.kbytes": 16 << 10,
    "fetch.max.bytes": 16 << 20,
    "fetch.message.max.bytes": 2 << 20,
    "fetch.wait.max.ms": 20,  # a range that is assigned during a fetch waits for its end
    "fetch.queue.backoff.ms": 20,
    "fetch.error.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1_000,
    "log_level": 0,
    "log.connection.close": False,
}


def new_consumer(settings: Mapping[str, Any]) -> Consumer:
    """Raises KafkaException for settings that cannot be used."""
    return Consumer(dict(settings))


def new_admin(settings: Mapping[str, Any]) -> AdminClient:
    """Raises KafkaException for settings that cannot be used."""
    return AdminClient(dict(settings))


class RangeConsumer:
    """One librdkafka consumer that assigns its partitions itself (no consumer group). Used by one
    thread."""

    def __init__(self, settings: ConsumerConfig) -> None:
        self._topic_ids: dict[str, str] = {}
        self._partitions: set[TopicPartition] = set()
        self._place: tuple[TopicPartition, int, int] | None = None
        self.message_bytes = GUESSED_BYTES  # the estimated size of a message
        self._told: list[KafkaError] = []
        # The callback does not know this object: no circle keeps a consumer that nobody has.
        self._consumer = new_consumer({**READING, **settings, "error_cb": _kept_in(self._told)})

    @property
    def trouble(self) -> str:
        """librdkafka's last error since the last assignment."""
        return self._told[-1].str() if self._told else ""

    def is_of(self, ranges: Sequence[OffsetRange]) -> bool:
        """Whether the ranges' topics have the IDs that this consumer read them by. If not, a topic
        was made again and the consumer must not be used for it."""
        return all(
            self._topic_ids.get(each.topic, each.topic_id) == each.topic_id for each in ranges
        )

    def continues(self, wanted: OffsetRange) -> bool:
        """Whether the consumer is positioned where this range begins, so that it can go on
        without a new assignment."""
        if self._place is None:
            return False
        partition, first, last = self._place
        return partition == wanted.topic_partition and first <= wanted.begin <= last

    def assign(self, ranges: Sequence[OffsetRange]) -> None:
        """Begin to read these ranges at the same time; they must be of different partitions. Raises
        KafkaException."""
        is_continued = len(ranges) == 1 and self.continues(ranges[0])
        self._place = None
        self._told.clear()
        self._learn(ranges)
        if not is_continued:
            self._consumer.assign(
                [Assignment(each.topic, each.partition, each.begin) for each in ranges]
            )
            self._await_assignment(ranges)

    def _await_assignment(self, ranges: Sequence[OffsetRange]) -> None:
        """A thread of librdkafka ends the assignment before. Until then it tells positions of
        that, by which a range would have been read that has not been begun. Raises KafkaException
        after ``ASSIGNED_S``."""
        give_up_s = time.monotonic() + ASSIGNED_S
        while self.positions(ranges):
            if time.monotonic() > give_up_s:
                why = f"librdkafka still has the assignment before after {ASSIGNED_S:g} s"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, why))
            time.sleep(_TICK_S)

    def _learn(self, ranges: Sequence[OffsetRange]) -> None:
        """Fetch a topic's metadata if it has new partitions: librdkafka would otherwise learn of
        them only at its next refresh, which is rare. Remember topic IDs and partitions."""
        known = self._topic_ids.keys()
        new = {each.topic_partition for each in ranges} - self._partitions
        for topic in {each.topic for each in new if each.topic in known}:
            self._consumer.list_topics(topic, METADATA_S)
        self._topic_ids |= {each.topic: each.topic_id for each in ranges}
        self._partitions |= new

    def fetch(self, messages: int) -> list[Message]:
        """At most so many messages. Events (such as the end of a partition) are among them: their
        ``error()`` is not None and says what happened. Blocks for about ``WAIT_S``."""
        return self._consumer.consume(messages, WAIT_S)

    def positions(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, int]:
        """The consumer's position in each range's partition: the offset after the last one that it
        passed, which includes the markers of transactions. Unknown positions are left out."""
        asked = [Assignment(each.topic, each.partition) for each in ranges]
        return {
            TopicPartition(each.topic, each.partition): each.offset
            for each in self._consumer.position(asked)
            if each.offset >= 0
        }

    def finish(self, read: OffsetRange, reached: int, position: int) -> None:
        """End a read: all messages before ``reached`` were taken, and there is none between
        ``reached`` and ``position``.

        If the partition has more messages, the consumer stays assigned and fetches ahead. If not,
        it is unassigned: a fetch that waits at a partition's end would delay the next assignment.
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
        """Fetch nothing more of this partition."""
        here = Assignment(partition.topic, partition.partition)
        self._consumer.incremental_unassign([here])

    def close(self) -> None:
        self._consumer.close()


def _kept_in(told: list[KafkaError]) -> Callable[[KafkaError], None]:
    def complain(error: KafkaError) -> None:
        # librdkafka says why before it says that all brokers are down: keep the reason.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not told:
            told[:] = [error]

    return complain


_Key = tuple[int, int, frozenset[tuple[str, str | int | bool]]]
# By process and thread, the one that was used last at the end. Not thread-local: the values of all
# other threads are freed in a fork, and a client whose threads did not come along crashes then.
_consumers: dict[_Key, RangeConsumer] = {}


def consumer_for(settings: ConsumerConfig, ranges: Sequence[OffsetRange]) -> RangeConsumer:
    """This thread's consumer for these settings. It is a new one if there is none, or if a topic
    of the ranges was made again."""
    key = (os.getpid(), threading.get_ident(), frozenset(settings.items()))
    found = _consumers.pop(key, None)
    if found is not None and not found.is_of(ranges):
        found.close()
        found = None
    if found is None:
        mine = [each for each in list(_consumers) if each[:2] == key[:2]]
        for each in mine[: len(mine) - CONSUMERS + 1]:
            _consumers.pop(each).close()
        found = RangeConsumer(settings)
    _consumers[key] = found
    return found


def discard(consumer: RangeConsumer) -> None:
    """Close and forget a consumer after an error: the next read begins with a new connection."""
    for key in [key for key, each in list(_consumers.items()) if each is consumer]:
        del _consumers[key]
    consumer.close()
