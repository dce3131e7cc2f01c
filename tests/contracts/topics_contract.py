"""What a real broker and one in memory must both say, message by message, of the same history.

`write` makes a history by a seed; `told` asks the product's `Broker` and its reading about it;
`REFUSALS` are what the product says of things that are not there. The answers of both are compared
(`tests/streaming/source/kafka/test_topics.py`), so that nothing of them is written down here. The
tests of reading itself run on both too (`test_read_ranges.py`).
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Final
from unittest.mock import patch

from confluent_kafka import Producer

from conf.sources.kafka_uri import KafkaSettings
from streaming.source.kafka import read_ranges
from streaming.source.kafka.broker import Broker
from streaming.source.kafka.consumer import RangeConsumer
from streaming.source.kafka.deleted_messages import refuse_a_hole
from streaming.source.kafka.librdkafka_settings import librdkafka_settings
from streaming.source.kafka.message_bytes import all_messages, values_at
from streaming.source.kafka.offset_ranges import OffsetRange
from streaming.source.kafka.read_ranges import read_list
from streaming.source.kafka.read_task import ReadTask
from streaming.source.kafka.retention import kept
from streaming.source.kafka.topic_partition import TopicPartition
from tests.fakes.memory_broker import MemoryBroker
from tests.fakes.memory_producer import MemoryProducer
from tests.services.kafka_broker import KafkaBroker
from tests.streaming.source.kafka.tiny_decoder import decode

Cluster = KafkaBroker | MemoryBroker
Ask = Callable[[Cluster, str], Any]  # of a cluster about a topic
# The messages' times. Markers of transactions are later: they have the broker's. Kafka would begin
# a new segment at a message a week later than the first one; where a segment that is cut off has
# not been deleted yet, it finds no offset of a time any more.
LAST_MS: Final = int(time.time() * 1e3) - 60_000
FIRST_MS: Final = LAST_MS - 1_000_000
PATIENCE_S: Final = 30.0
MOST: Final = 1 << 40


def settings_of(cluster: Cluster, *topics: str, **more: Any) -> KafkaSettings:
    return KafkaSettings(
        brokers=(cluster.bootstrap,),
        topic=topics[0],
        topics=topics,
        protocol="canal-json",
        **{"partition_num": None, **more},
    )


@contextmanager
def asked(cluster: Cluster, *topics: str, **more: Any) -> Iterator[Broker]:
    with closing(Broker(settings_of(cluster, *topics, **more))) as broker:
        yield broker


def outcome(cluster: Cluster, ask: Callable[[], Any]) -> Any:
    """What comes of it; an error by its class and words, without what only this broker has."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001  # compared
        words = str(error).replace(cluster.bootstrap, "<broker>")
        return type(error).__name__, re.sub(r"ID [-0-9a-f]{36}", "ID <id>", words)


class History:
    """The same messages, transactions and deletions for every cluster that has the same seed."""

    def __init__(self, cluster: Cluster, topic: str, seed: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._rng = random.Random(seed)
        self._plain = cluster.producer()
        self._ends = [0, 0]
        self._open: list[tuple[Producer | MemoryProducer, set[int]]] = []
        self._number = 0
        cluster.create_topic(topic, len(self._ends))

    def write(self, steps: int) -> None:
        steps_of = [self._send] * 5 + [self._transaction] * 3 + [self._cut, self._widen]
        for _ in range(steps):
            self._rng.choice(steps_of)()
        if self._rng.random() < 0.5:
            self._leave_open()
            self._send()

    def close(self) -> None:
        """What is open would keep a real broker waiting."""
        for producer, _ in self._open:
            producer.abort_transaction(PATIENCE_S)

    def _send(self, by: Producer | MemoryProducer | None = None) -> set[int]:
        producer, touched = by or self._plain, set()
        for _ in range(self._rng.randrange(1, 30)):
            partition = self._rng.randrange(len(self._ends))
            self._number += 1
            value = b"%d" % self._number * self._rng.choice((1, 1, 20))
            producer.produce(
                self._topic,
                self._rng.choice((value, value, value, b"", None)),
                self._rng.choice((None, b"", b"key-%d" % self._rng.randrange(5))),
                partition=partition,
                timestamp=self._rng.randrange(FIRST_MS, LAST_MS),
                headers=self._rng.choice((None, [("a", b"1"), ("a", None)])),
            )
            self._ends[partition] += 1
            touched.add(partition)
        assert producer.flush(PATIENCE_S) == 0
        return touched

    def _begun(self) -> tuple[Producer | MemoryProducer, set[int]]:
        self._number += 1
        identity = f"{self._topic}-{self._number}"
        producer = self._cluster.producer(**{"transactional.id": identity})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        return producer, self._send(producer)

    def _transaction(self) -> None:
        """Messages of others may lie between those of it."""
        producer, touched = self._begun()
        if self._rng.random() < 0.5:
            self._send()
            touched |= self._send(producer)
        is_committed = self._rng.random() < 0.5
        (producer.commit_transaction if is_committed else producer.abort_transaction)(PATIENCE_S)
        for each in touched:
            self._ends[each] += 1
        self._await_ends()

    def _leave_open(self) -> None:
        self._open.append(self._begun())

    def _await_ends(self) -> None:
        """A marker is written a little later."""
        give_up_s = time.monotonic() + PATIENCE_S
        while (now := self._cluster.end_offsets(self._topic)) != dict(enumerate(self._ends)):
            assert time.monotonic() < give_up_s, f"{now}, not {self._ends}"
            time.sleep(0.02)

    def _cut(self) -> None:
        first = self._cluster.start_offsets(self._topic)
        partition = self._rng.randrange(len(self._ends))
        middle = (first[partition] + self._ends[partition]) // 2
        before = self._rng.choice((middle, middle, self._ends[partition]))
        self._cluster.delete_records(self._topic, {partition: before})

    def _widen(self) -> None:
        if len(self._ends) < 4:
            self._ends.append(0)
            self._cluster.add_partitions(self._topic, len(self._ends))
            self._plain = self._cluster.producer()  # it knows of it


def told(cluster: Cluster, topic: str, seed: int) -> dict[str, Any]:
    """Question by question. Those about ranges are chosen by the seed."""
    rng, found = random.Random(seed), dict[str, Any]()
    settings = settings_of(cluster, topic)
    with asked(cluster, topic) as broker:
        shape = broker.shape()
        parts = sorted(shape.partitions)
        first, ends = broker.beginnings(parts), broker.ends(parts)
        found |= {"parts": parts, "beginnings": first, "ends": ends}
        for at_ms in (0, *(rng.randrange(FIRST_MS, LAST_MS) for _ in range(9)), LAST_MS):
            found[f"offsets at {at_ms}"] = broker.offsets_at(parts, at_ms)
        found["first times"] = broker.times_ms(first)
        for part in parts:
            for offset in (first[part] - 1, first[part], ends[part], ends[part] + 40):
                at = {part: offset}
                found[f"check {part} {offset}"] = outcome(
                    cluster, lambda at=at: broker.check_offsets(at, 5)
                )
    whole = [
        OffsetRange(topic, shape.topic_ids[topic], p.partition, first[p], ends[p])
        for p in parts
        if first[p] < ends[p]
    ]
    found["messages"] = sorted(all_messages(settings, whole), key=str)
    for each in whole:
        found[f"messages of {each.part}"] = messages_of(cluster, each)
        offsets = sorted(rng.sample(range(each.begin, each.end), min(5, each.messages)))
        tables = values_at(settings, {each.topic_partition: offsets}, shape.topic_ids)
        found[f"values of {each.part}"] = [table.to_pylist() for table in tables]
        for _ in range(3):
            begin = rng.randrange(each.begin, each.end)
            some = OffsetRange(*(topic, each.topic_id, each.partition, begin, each.end))
            found[f"task {some}"] = task_of(cluster, some, budget_bytes=rng.choice((60, MOST)))
    return found


def messages_of(cluster: Cluster, whole: OffsetRange) -> list[tuple[Any, ...]]:
    """All that a message has; the times of all are their senders'."""
    found = []
    with closing(RangeConsumer(librdkafka_settings(settings_of(cluster, whole.topic)))) as consumer:
        consumer.assign([whole])
        while True:
            for each in consumer.fetch(10):
                if each.error() is not None:
                    return [*found, (each.offset(), each.error().name())]
                found.append(
                    (each.offset(), each.timestamp(), each.key(), each.value(), each.headers())
                )


def task_of(cluster: Cluster, some: OffsetRange, *, budget_bytes: int = MOST) -> list[Any]:
    """What a task returns, in chunks of seven messages."""
    settings = librdkafka_settings(settings_of(cluster, some.topic))
    with patch.object(read_ranges, "CHUNK_MESSAGES", 7), few_seconds():
        task = ReadTask(settings, [[some]], decode, {}, budget_bytes)
        return [
            (each.kind, each.part, each.rows, each.first, each.last, each.message_bytes, each.body)
            if hasattr(each, "kind")
            else (each.is_unreadable, each.reason)
            for each in task.read([some])
        ]


@contextmanager
def few_seconds() -> Iterator[None]:
    with patch.object(read_ranges, "NO_PROGRESS_S", 1.5):
        yield


def _read(cluster: Cluster, topic: str, partition: int, begin: int, end: int) -> Any:
    """Each read with a consumer of its own."""
    some = OffsetRange(topic, "id", partition, begin, end)
    settings = librdkafka_settings(settings_of(cluster, topic))
    with few_seconds(), closing(RangeConsumer(settings)) as consumer:
        blocks = [b for each in read_list(consumer, [some], decode, {}) for b in each]
    return [(each.kind, each.first, each.last, each.rows) for each in blocks]


def _of(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


def _shape(cluster: Cluster, *topics: str, **more: Any) -> Any:
    with asked(cluster, *topics, **more) as broker:
        return sorted(broker.shape().partitions)


def _ask(cluster: Cluster, topic: str, question: Callable[[Broker], Any]) -> Any:
    with asked(cluster, topic) as broker:
        return question(broker)


def _hole(cluster: Cluster, topic: str, *, checkpoint_ts: int, reached_ts: int | None) -> None:
    with asked(cluster, topic) as broker:
        first = broker.beginnings([_of(topic)])
        refuse_a_hole(first, broker, checkpoint_ts=checkpoint_ts, reached_ts=reached_ts)


def _sent(cluster: Cluster, topic: str, value: bytes, **more: Any) -> list[str]:
    """The errors of the broker."""
    errors: list[str] = []
    producer = cluster.producer()
    producer.produce(
        topic,
        value,
        partition=0,
        on_delivery=lambda error, _: errors.append("" if error is None else error.str()),
        **more,
    )
    producer.flush(PATIENCE_S)
    return errors


# About a topic of two partitions, the first of which has [4, 10).
REFUSALS: Final[Mapping[str, Ask]] = {
    "a topic that is missing": lambda c, t: _shape(c, f"{t}-none"),
    "a topic that is missing beside another": lambda c, t: _shape(c, t, f"{t}-none"),
    "too few partitions": lambda c, t: _shape(c, t, partition_num=5),
    "identity of a missing topic": lambda c, t: _ask(
        c, t, lambda b: b.check_topic_ids({f"{t}-none": "id"})
    ),
    "ends of a missing topic": lambda c, t: _ask(c, t, lambda b: b.ends([_of("none")])),
    "ends of a missing partition": lambda c, t: _ask(c, t, lambda b: b.ends([_of(t, 9)])),
    "beginnings with a missing partition": lambda c, t: _ask(
        c, t, lambda b: b.beginnings([_of(t), _of(t, 9)])
    ),
    "ends with a missing topic": lambda c, t: _ask(c, t, lambda b: b.ends([_of(t), _of("none")])),
    "time of a missing partition": lambda c, t: _ask(c, t, lambda b: b.offsets_at([_of(t, 9)], 5)),
    "retention of a missing topic": lambda c, t: _ask(c, t, lambda b: b.retention_ms(["none"])),
    "retention": lambda c, t: _ask(c, t, lambda b: (b.retention_ms([t]), b.compacted([t]))),
    "kept": lambda c, t: _ask(c, t, lambda b: kept(b, {_of(t): 4})),
    "newest": lambda c, t: _ask(c, t, lambda b: b.newest_ms()),
    "newest of nothing": lambda c, t: _ask(c, f"{t}-empty", lambda b: b.newest_ms()),
    "first message of what was deleted": lambda c, t: _ask(c, t, lambda b: b.times_ms({_of(t): 0})),
    "first message behind the end": lambda c, t: _ask(c, t, lambda b: b.times_ms({_of(t): 99})),
    "first message at the end": lambda c, t: _ask(
        c, t, lambda b: b.times_ms({_of(t): 10, _of(t, 1): 0})
    ),
    "a hole, at a start": lambda c, t: _hole(c, t, checkpoint_ts=5, reached_ts=None),
    "a hole, of a rewind": lambda c, t: _hole(c, t, checkpoint_ts=5, reached_ts=MOST),
    "no hole": lambda c, t: _hole(c, t, checkpoint_ts=1 << 60, reached_ts=None),
    "what was deleted is read": lambda c, t: _read(c, t, 0, 1, 10),
    "behind the end is read": lambda c, t: _read(c, t, 0, 15, 20),
    "across the end is read": lambda c, t: _read(c, t, 0, 5, 20),
    "at the end is read": lambda c, t: _read(c, t, 0, 10, 12),
    "a missing partition is read": lambda c, t: _read(c, t, 9, 0, 5),
    "a missing topic is read": lambda c, t: _read(c, f"{t}-none", 0, 0, 5),
    "values of another topic of this name": lambda c, t: [
        *values_at(settings_of(c, t), {_of(t): [5]}, {t: "00000000-0000-0000-0000-000000000000"})
    ],
    "too large for the topic": lambda c, t: (
        _sent(c, f"{t}-small", b"x" * 900),
        _sent(c, f"{t}-small", b"x" * 1_001),
    ),
    "too large for the sender": lambda c, t: c.produce(t, [(0, None, b"x" * (16 << 20))]),
    "a missing partition is sent to": lambda c, t: (
        # A client that knows the topic refuses at once; before, with the report of the delivery.
        c.produce(f"{t}-sent", [(0, None, b"x")]),
        c.produce(f"{t}-sent", [(9, None, b"x")]),
    ),
    "without a key to a compacted topic": lambda c, t: (
        _sent(c, f"{t}-keys", b"x", key=b"k"),
        _sent(c, f"{t}-keys", b"x"),
    ),
    "a time far ahead": lambda c, t: _sent(
        c, t, b"x", timestamp=int(time.time() * 1e3) + 86_400_000
    ),
    "end offsets of a missing topic": lambda c, t: c.end_offsets(f"{t}-none"),
}
# Those of kafka-python, whose words are about requests: they are alike by class.
ADMIN_REFUSALS: Final[Mapping[str, Ask]] = {
    "a topic that is there": lambda c, t: c.create_topic(t),
    "no topic is deleted": lambda c, t: c.delete_topic(f"{t}-none"),
    "more records are deleted than there are": lambda c, t: c.delete_records(t, {0: 99}),
    "records of no partition are deleted": lambda c, t: c.delete_records(t, {9: 1}),
}


def small_topic(cluster: Cluster, topic: str) -> None:
    """And others beside it."""
    cluster.create_topic(topic, 2)
    cluster.create_topic(f"{topic}-empty")
    cluster.create_topic(f"{topic}-sent")
    cluster.create_topic(f"{topic}-small", 1, **{"max.message.bytes": "1000"})
    cluster.create_topic(f"{topic}-keys", 1, **{"cleanup.policy": "compact"})
    producer = cluster.producer()
    for each in range(10):
        producer.produce(topic, b"%d" % each, partition=0, timestamp=FIRST_MS + each)
        producer.flush(PATIENCE_S)
    cluster.delete_records(topic, {0: 4})
    for beside in ("empty", "sent", "small", "keys"):
        while not cluster.end_offsets(f"{topic}-{beside}"):
            time.sleep(0.02)
