"""A few messages by their offsets, read in the driver without Spark: for dead letters' bytes and
for a watermark at a recorded offset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException

from conf.settings import KafkaSource
from streaming.protocols.contract import Block, Messages, Wanted
from streaming.source.consumer import RangeConsumer
from streaming.source.kafka import Source, SourceAway
from streaming.source.librdkafka_settings import librdkafka_settings
from streaming.source.ranges import Range, TopicPartition, cut
from streaming.source.reading import ReadError, read_list

SEARCH_S: Final = 60.0  # for the first watermarks: one comes about every second
NEAR: Final = 100  # offsets that are read together: to begin elsewhere takes milliseconds
MESSAGES: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.large_binary()),  # null: a tombstone
    ]
)

Offsets = Mapping[TopicPartition, Sequence[int]]
_Take = Callable[[Messages], None]
_Read = Callable[[Sequence[Range], _Take], list[Range]]


class MessageReader:
    """Of one changefeed's topics; connects for each call."""

    def __init__(self, kafka: KafkaSource) -> None:
        self._kafka = kafka

    def values(self, offsets: Offsets, topic_ids: Mapping[str, str]) -> pa.Table:
        """``MESSAGES``, one row for each of these offsets that a message has, in order.

        Raises SourceLost where the topic is another by now or begins behind them, SourceAway.
        """
        wanted = {each: pa.array(list(at), pa.int64()) for each, at in offsets.items()}
        found: list[pa.Table] = [MESSAGES.empty_table()]

        def keep(messages: Messages) -> None:
            here = wanted[TopicPartition(messages.topic, messages.partition)]
            found.append(_rows(messages).filter(pc.is_in(messages.offsets, value_set=here)))

        left = _ranges(offsets, topic_ids)
        with self._reading(left) as read:
            while left:
                left = read(left, keep)
        order = [(name, "ascending") for name in ("topic", "partition", "offset")]
        return pa.concat_tables(found).sort_by(order)

    def search(
        self,
        first: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str],
        read_value: Callable[[bytes | None], int | None],
    ) -> dict[TopicPartition, int]:
        """What ``read_value`` makes of the first message from these offsets on that it can read.

        A partition in which it reads none is left out. Raises SourceAway when that takes too long.
        """
        found: dict[TopicPartition, int] = {}

        def look(messages: Messages) -> None:
            here = TopicPartition(messages.topic, messages.partition)
            values = map(read_value, messages.values.to_pylist() if here not in found else [])
            if (value := next((each for each in values if each is not None), None)) is not None:
                found[here] = value

        ends = self._ends(first)
        left = cut(first, ends, topic_ids, messages=sum(ends.values()))
        give_up_s, messages = time.monotonic() + SEARCH_S, NEAR
        with self._reading(left) as read:
            while left := [each for each in left if each.topic_partition not in found]:
                if time.monotonic() > give_up_s:
                    where = ", ".join(str(each.topic_partition) for each in left)
                    raise SourceAway(f"no watermark of {where} was found within {SEARCH_S:.0f} s")
                near = [replace(each, end=min(each.end, each.begin + messages)) for each in left]
                rest = {each.topic_partition: each.begin for each in read(near, look)}
                left = [
                    replace(each, begin=begin)
                    for each, read_to in zip(left, near, strict=True)
                    if (begin := rest.get(each.topic_partition, read_to.end)) < each.end
                ]
                messages *= 4
        return found

    def _ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        with closing(Source(self._kafka)) as source:
            return source.ends(partitions)

    @contextmanager
    def _reading(self, ranges: Sequence[Range]) -> Iterator[_Read]:
        """Reads ranges and returns what a budget left of them. At last, or after an error: are the
        topics still the same?
        """
        if not ranges:
            yield lambda _ranges, _take: []
            return
        consumer = RangeConsumer(librdkafka_settings(self._kafka))
        error: Exception | None = None
        try:
            yield partial(_read, consumer)
        except (ReadError, KafkaException) as failure:
            error = failure
        finally:
            consumer.close()
        with closing(Source(self._kafka)) as source:
            source.check_topic_ids({each.topic: each.topic_id for each in ranges})
            source.check_beginnings({each.topic_partition: each.begin for each in ranges[::-1]})
        if error is not None:
            raise SourceAway(f"cannot read {error}") from error


def _read(consumer: RangeConsumer, ranges: Sequence[Range], take: _Take) -> list[Range]:
    def decode(messages: Messages, wanted: Wanted) -> Iterator[Block]:  # noqa: ARG001
        take(messages)
        return iter(())

    *_, done = read_list(consumer, ranges, decode, {})
    ends = {(each.topic, each.partition, each.first): each.last for each in done}
    return [rest for each in ranges if (rest := _rest(each, ends))]


def _rest(read: Range, ends: Mapping[tuple[str, int, int], int]) -> Range | None:
    """What a budget left of a range."""
    at = ends[read.topic, read.partition, read.begin]
    if at >= read.end:
        return None
    return replace(read, begin=at)


def _ranges(offsets: Offsets, topic_ids: Mapping[str, str]) -> list[Range]:
    """Few ranges with all of these offsets and little else."""
    ranges: list[Range] = []
    for partition, wanted in sorted(offsets.items()):
        topic, topic_id = partition.topic, topic_ids[partition.topic]
        begin = end = -1
        for offset in sorted(wanted):
            if begin >= 0 and offset - end > NEAR:
                ranges.append(Range(topic, topic_id, partition.partition, begin, end))
                begin = -1
            begin = offset if begin < 0 else begin
            end = offset + 1
        if begin >= 0:
            ranges.append(Range(topic, topic_id, partition.partition, begin, end))
    return ranges


def _rows(messages: Messages) -> pa.Table:
    count = len(messages)
    columns = [
        pa.repeat(pa.scalar(messages.topic, pa.string()), count),
        pa.repeat(pa.scalar(messages.partition, pa.int32()), count),
        messages.offsets,
        messages.values.cast(pa.large_binary()),
    ]
    return pa.Table.from_arrays(columns, schema=MESSAGES)
