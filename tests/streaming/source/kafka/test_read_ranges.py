"""Reading ranges from a real broker, and from one in memory: what comes, and where it ends."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaException

from streaming.protocols.contract import Block
from streaming.source.kafka import read_ranges
from streaming.source.kafka.consumer import RangeConsumer, consumer_for, discard
from streaming.source.kafka.offset_ranges import OffsetRange
from streaming.source.kafka.read_ranges import ReadError, read_list
from tests.contracts.topics_contract import Cluster
from tests.fakes.memory_broker import MemoryBroker
from tests.services.kafka_broker import KafkaBroker
from tests.streaming.source.kafka.tiny_decoder import decode, decoded, done

COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0001",
    "segment.ms": "100",
    "max.compaction.lag.ms": "100",
}
NO_SETTINGS = {"client.id": "tests", "group.id": "tests"}


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"reading-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, 2)
    return name


@pytest.fixture
def consumer(cluster: Cluster) -> Iterator[RangeConsumer]:
    one = RangeConsumer({**NO_SETTINGS, "bootstrap.servers": cluster.bootstrap})
    yield one
    one.close()


def read(consumer: RangeConsumer, *ranges: OffsetRange, **more: Any) -> list[Block]:
    blocks = [each for batch in read_list(consumer, ranges, decode, {}, **more) for each in batch]
    consumed = {(each.part, each.first) for each in blocks if each.kind == "done"}
    assert consumed == {(each.part, each.begin) for each in ranges}
    return blocks


def offsets(blocks: Sequence[Block], partition: int = 0) -> list[int]:
    return [offset for offset, _ in decoded(blocks, partition)]


def produce(cluster: Cluster, topic: str, count: int, partition: int = 0, start: int = 0) -> None:
    cluster.produce(
        topic, ((partition, None, b"%d" % each) for each in range(start, start + count))
    )


def transactions(cluster: Cluster, topic: str, *each: tuple[int, bool]) -> None:
    """So many messages of partition 0 in each of them, committed or not."""
    producer = cluster.producer(**{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    for count, is_committed in each:
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(topic, b"aborted" if not is_committed else b"kept", partition=0)
        producer.flush(30)
        before = cluster.end_offsets(topic)[0]
        (producer.commit_transaction if is_committed else producer.abort_transaction)(30)
        for _ in range(200):  # its marker is written a little later
            if cluster.end_offsets(topic)[0] > before:
                break
            time.sleep(0.05)


def test_ranges_come_whole_and_nothing_else_does(
    cluster: Cluster, topic: str, consumer: RangeConsumer
):
    produce(cluster, topic, 5_000)
    produce(cluster, topic, 40, partition=1)
    blocks = read(
        consumer, OffsetRange(topic, "id", 0, 7, 4_000), OffsetRange(topic, "id", 1, 10, 40)
    )
    assert decoded(blocks) == [(each, b"%d" % each) for each in range(7, 4_000)]
    assert decoded(blocks, 1) == [(each, b"%d" % each) for each in range(10, 40)]
    assert (done(blocks).last, done(blocks).rows, done(blocks, 1).rows) == (4_000, 3_993, 30)


def test_an_empty_range_is_done_at_once(topic: str, consumer: RangeConsumer):
    blocks = read(consumer, OffsetRange(topic, "id", 0, 0, 0))
    assert (len(blocks), done(blocks).last, done(blocks).rows) == (1, 0, 0)


def test_tombstones_are_messages(cluster: Cluster, topic: str, consumer: RangeConsumer):
    cluster.produce(topic, [(0, b"k", b"v"), (0, b"k", None), (0, b"k", b"")])
    assert decoded(read(consumer, OffsetRange(topic, "id", 0, 0, 3))) == [
        (0, b"v"),
        (1, None),
        (2, b""),
    ]


def test_a_consumer_goes_on_where_it_stands_and_elsewhere(
    cluster: Cluster, topic: str, consumer: RangeConsumer
):
    produce(cluster, topic, 3_000)
    produce(cluster, topic, 3_000, partition=1)
    for partition, begin, end in [
        (0, 0, 1_500), (0, 1_500, 2_000), (0, 0, 10), (1, 10, 1_200), (0, 2_000, 3_000),
        (1, 1_200, 3_000), (1, 5, 6),
    ]:  # fmt: skip
        blocks = read(consumer, OffsetRange(topic, "id", partition, begin, end))
        assert offsets(blocks, partition) == list(range(begin, end))


def test_a_place_from_before_is_not_taken_for_the_next_one(
    cluster: Cluster, topic: str, consumer: RangeConsumer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "streaming.source.kafka.consumer.WAIT_S", 0.0
    )  # librdkafka is slower than we are
    produce(cluster, topic, 3_000)
    for _ in range(60):
        consumer.assign([OffsetRange(topic, "id", 0, 2_000, 2_900)])
        while not consumer.fetch(500):
            pass
        assert offsets(read(consumer, OffsetRange(topic, "id", 0, 0, 100))) == list(range(100))


def test_a_place_from_before_that_stays_is_an_error_and_no_endless_wait(
    cluster: Cluster, topic: str, consumer: RangeConsumer, monkeypatch: pytest.MonkeyPatch
):
    produce(cluster, topic, 10)
    asked = OffsetRange(topic, "id", 0, 0, 10)
    monkeypatch.setattr("streaming.source.kafka.consumer.ASSIGNED_S", 0.05)
    monkeypatch.setattr(consumer, "positions", lambda _: {asked.topic_partition: 7})
    with pytest.raises(KafkaException, match="assignment before"):
        consumer.assign([asked])


def test_what_is_left_behind_leaves_nothing_for_the_next_read(
    cluster: Cluster, topic: str, consumer: RangeConsumer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(read_ranges, "CHUNK_MESSAGES", 500)
    produce(cluster, topic, 4_000)
    begun = read_list(consumer, [OffsetRange(topic, "id", 0, 0, 4_000)], decode, {})
    next(begun)
    begun.close()  # as Spark does with a task that is killed
    assert offsets(read(consumer, OffsetRange(topic, "id", 0, 0, 1_100))) == list(range(1_100))
    assert offsets(read(consumer, OffsetRange(topic, "id", 0, 1_100, 4_000))) == list(
        range(1_100, 4_000)
    )


def test_a_budget_stops_and_the_next_range_begins_there(
    cluster: Cluster, topic: str, consumer: RangeConsumer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(read_ranges, "CHUNK_BYTES", 8 << 20)
    cluster.produce(topic, ((0, None, b"x" * 1_000_000) for _ in range(30)))
    at, read_so_far = 0, []
    while at < 30:
        blocks = read(consumer, OffsetRange(topic, "id", 0, at, 30), budget_bytes=10 << 20)
        assert done(blocks).message_bytes <= 18 << 20
        assert done(blocks).last == offsets(blocks)[-1] + 1
        at = done(blocks).last
        read_so_far += offsets(blocks)
    assert read_so_far == list(range(30))


def test_a_budget_leaves_later_ranges_unread(cluster: Cluster, topic: str, consumer: RangeConsumer):
    produce(cluster, topic, 2_000)
    produce(cluster, topic, 2_000, partition=1)
    blocks = read(
        consumer,
        OffsetRange(topic, "id", 0, 0, 2_000),
        OffsetRange(topic, "id", 1, 3, 2_000),
        budget_bytes=1,
    )
    assert done(blocks).last > 0
    assert (done(blocks, 1).last, done(blocks, 1).rows) == (3, 0)


def test_aborted_transactions_are_passed_over(
    cluster: Cluster, topic: str, consumer: RangeConsumer
):
    transactions(cluster, topic, (5, True), (300, False), (2, True), (50, False))
    blocks = read(consumer, OffsetRange(topic, "id", 0, 0, 361))
    assert [offset for offset, value in decoded(blocks)] == [0, 1, 2, 3, 4, 307, 308]
    assert {value for _, value in decoded(blocks)} == {b"kept"}
    assert (done(blocks).last, done(blocks).rows) == (361, 7)


@pytest.mark.parametrize("end", [5, 6, 7, 306, 307, 308, 309, 310])
def test_a_range_that_ends_in_markers_ends(
    cluster: Cluster, topic: str, consumer: RangeConsumer, end: int
):
    transactions(cluster, topic, (5, True), (300, False), (2, True))
    produce(cluster, topic, 1)  # behind the markers there is more, or nothing
    blocks = read(consumer, OffsetRange(topic, "id", 0, 0, end))
    assert done(blocks).last == end
    later = read(consumer, OffsetRange(topic, "id", 0, end, 311))
    assert [*offsets(blocks), *offsets(later)] == [0, 1, 2, 3, 4, 307, 308, 310]


def test_an_open_transaction_is_not_waited_for(
    cluster: Cluster, topic: str, consumer: RangeConsumer
):
    producer = cluster.producer(**{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    produce(cluster, topic, 3)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    produce(cluster, topic, 3)
    blocks = read(consumer, OffsetRange(topic, "id", 0, 0, 3))
    assert offsets(blocks) == [0, 1, 2]
    producer.abort_transaction(30)
    assert offsets(read(consumer, OffsetRange(topic, "id", 0, 3, 7))) == [4, 5, 6]


def test_what_compaction_took_is_no_hole(cluster: Cluster, consumer: RangeConsumer):
    name = f"compacted-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, 1, **COMPACTED)
    sent = [(b"k%d" % (each % 5), b"%d" % each) for each in [*range(200)] * 3]
    for first in (0, 200, 400):
        cluster.produce(name, ((0, key, value) for key, value in sent[first : first + 200]))
        time.sleep(0.15)  # a segment is rolled by what comes after it
    whole = OffsetRange(name, "id", 0, 0, cluster.end_offsets(name)[0])
    if isinstance(cluster, MemoryBroker):
        cluster.compact(name, {0: 400})
    give_up_s = time.monotonic() + 60
    while len(found := offsets(read(consumer, whole))) > 300:
        assert time.monotonic() < give_up_s, "nothing was compacted"
        cluster.produce(name, [(0, b"other", b"")])
        time.sleep(0.2)
    gap = next(each for each in range(whole.end) if each not in found)
    blocks = read(consumer, OffsetRange(name, "id", 0, gap, gap + 1))
    assert (offsets(blocks), done(blocks).last) == ([], gap + 1)
    assert offsets(read(consumer, whole)) == sorted(set(offsets(read(consumer, whole))))
    left = [each for each in cluster.read(name) if each.offset < whole.end]
    assert [(each.key, each.value) for each in left] == [sent[each.offset] for each in left]
    of_cleaned = ([*range(end - 5, 600)] for end in (400, 600))  # segments, or one more
    assert [each.offset for each in left] in [*of_cleaned], "of each key the last one is left"


def test_a_large_message_is_a_chunk_by_itself(
    cluster: Cluster, consumer: RangeConsumer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(read_ranges, "CHUNK_BYTES", 8 << 20)
    name = f"large-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, 1, **{"max.message.bytes": str(32 << 20)})
    producer = cluster.producer(**{"message.max.bytes": 32 << 20})
    large = b"L" * (20 << 20)
    for value in (b"small", large, b"small"):
        producer.produce(name, value, partition=0)
        producer.flush(60)
    blocks = read(consumer, OffsetRange(name, "id", 0, 0, 3))
    assert [value for _, value in decoded(blocks)] == [b"small", large, b"small"]
    assert [each.rows for each in blocks[:-1]] == [1, 1, 1]


def test_what_was_deleted_is_an_error(cluster: Cluster, topic: str, consumer: RangeConsumer):
    produce(cluster, topic, 100)
    cluster.delete_records(topic, {0: 60})
    with pytest.raises(ReadError, match=f"topic {topic} partition 0 offset 20: "):
        read(consumer, OffsetRange(topic, "id", 0, 20, 100))


def test_a_range_behind_the_end_is_an_error_at_last(
    cluster: Cluster, topic: str, consumer: RangeConsumer, monkeypatch: pytest.MonkeyPatch
):
    produce(cluster, topic, 10)
    read(consumer, OffsetRange(topic, "id", 0, 0, 10))  # it is connected
    monkeypatch.setattr(read_ranges, "NO_PROGRESS_S", 1.0)
    with pytest.raises(ReadError, match="offset 10: nothing came for"):
        read(consumer, OffsetRange(topic, "id", 0, 0, 20))
    with pytest.raises(ReadError):
        read(consumer, OffsetRange(topic, "id", 0, 15, 20))


def test_a_topic_that_is_not_there_is_an_error(
    consumer: RangeConsumer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(read_ranges, "NO_PROGRESS_S", 1.0)
    with pytest.raises(ReadError, match="topic nowhere partition 0 offset 0"):
        read(consumer, OffsetRange("nowhere", "id", 0, 0, 1))


def test_partitions_that_are_added_are_read(cluster: Cluster, topic: str, consumer: RangeConsumer):
    produce(cluster, topic, 10)
    assert offsets(read(consumer, OffsetRange(topic, "id", 0, 0, 10))) == list(range(10))
    cluster.add_partitions(topic, 4)
    cluster.produce(topic, [(3, None, b"x")] * 10)
    assert offsets(read(consumer, OffsetRange(topic, "id", 3, 0, 10)), 3) == list(range(10))


def test_a_topic_that_was_made_again_gets_a_new_consumer(cluster: Cluster, topic: str):
    settings = {**NO_SETTINGS, "bootstrap.servers": cluster.bootstrap}
    first = consumer_for(settings, [OffsetRange(topic, "one", 0, 0, 1)])
    try:
        produce(cluster, topic, 3)
        read(first, OffsetRange(topic, "one", 0, 0, 3))
        assert consumer_for(settings, [OffsetRange(topic, "one", 1, 0, 1)]) is first
        cluster.delete_topic(topic)
        cluster.create_topic(topic, 2)
        produce(cluster, topic, 5, start=100)
        again = OffsetRange(topic, "two", 0, 0, 5)
        second = consumer_for(settings, [again])
        assert second is not first
        assert decoded(read(second, again)) == [(each, b"%d" % (100 + each)) for each in range(5)]
    finally:
        discard(consumer_for(settings, []))


def test_many_small_ranges_are_read_side_by_side(cluster: Cluster, consumer: RangeConsumer):
    names = [f"many-{uuid.uuid4().hex[:8]}" for _ in range(20)]
    for name in names:
        cluster.create_topic(name, 3)
        cluster.produce(name, ((each % 3, None, b"%d" % each) for each in range(30)))
    ranges = [OffsetRange(name, "id", partition, 2, 9) for name in names for partition in range(3)]
    blocks = read(consumer, *ranges)
    for name in names:
        mine = [each for each in blocks if each.part.startswith(f"{name}/")]
        for partition in range(3):
            assert offsets(mine, partition) == list(range(2, 9))


@pytest.mark.kafka
def test_a_broker_that_starts_again_in_mid_read_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(read_ranges, "CHUNK_MESSAGES", 100)
    with KafkaBroker() as own:
        own.create_topic("t", 1)
        own.produce(
            "t", ((0, None, b"x" * 10_000) for _ in range(8_000))
        )  # more than is prefetched
        consumer = RangeConsumer({**NO_SETTINGS, "bootstrap.servers": own.bootstrap})
        try:
            batches = read_list(
                consumer, [OffsetRange("t", "id", 0, 0, 8_000)], decode, {}, 1 << 30
            )
            blocks = next(batches)
            own.kill()
            with ThreadPoolExecutor(1) as reader:
                coming = reader.submit(lambda: [each for batch in batches for each in batch])
                time.sleep(1)
                own.restart()
                blocks += coming.result(60)
            assert offsets(blocks) == list(range(8_000))
        finally:
            consumer.close()
