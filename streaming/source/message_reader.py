"""A few messages by their offsets, read in the driver without Spark: for dead letters' bytes and
for a watermark at a recorded offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from conf.settings import KafkaSource
from streaming.protocols.contract import Block, Messages, Wanted
from streaming.source.consumer import RangeConsumer
from streaming.source.kafka import Source, SourceAway
from streaming.source.librdkafka_settings import librdkafka_settings
from streaming.source.ranges import Range, TopicPartition
from streaming.source.reading import ReadError, read_list

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


class MessageReader:
    """Of one changefeed's topics; connects for each call."""

    def __init__(self, kafka: KafkaSource) -> None:
        self._kafka = kafka

    def values(self, offsets: Offsets, topic_ids: Mapping[str, str]) -> pa.Table:
        """``MESSAGES``, one row for each of these offsets that a message has, in order.

        Raises SourceLost where the topic is another by now or begins behind them, SourceAway.
        """
        ranges = _ranges(offsets, topic_ids)
        if not ranges:
            return MESSAGES.empty_table()
        found: list[pa.Table] = []
        source = Source(self._kafka)
        try:
            try:
                self._read(ranges, offsets, found)
            finally:
                source.check_topic_ids({each.topic: each.topic_id for each in ranges})
                source.check_beginnings({each.topic_partition: each.begin for each in ranges[::-1]})
        except ReadError as error:
            raise SourceAway(f"cannot read {error}") from error
        finally:
            source.close()
        order = [(name, "ascending") for name in ("topic", "partition", "offset")]
        return pa.concat_tables([MESSAGES.empty_table(), *found]).sort_by(order)

    def _read(self, ranges: Sequence[Range], offsets: Offsets, found: list[pa.Table]) -> None:
        asked = {each: pa.array(list(at), pa.int64()) for each, at in offsets.items()}

        def keep(messages: Messages, wanted: Wanted) -> Iterator[Block]:  # noqa: ARG001
            here = asked[TopicPartition(messages.topic, messages.partition)]
            found.append(_rows(messages).filter(pc.is_in(messages.offsets, value_set=here)))
            return iter(())

        consumer = RangeConsumer(librdkafka_settings(self._kafka))
        try:
            left = list(ranges)
            while left:
                *_, done = read_list(consumer, left, keep, {})
                ends = {(each.topic, each.partition, each.first): each.last for each in done}
                left = [rest for each in left if (rest := _rest(each, ends))]
        finally:
            consumer.close()


def _rest(read: Range, ends: Mapping[tuple[str, int, int], int]) -> Range | None:
    """What a budget left of a range."""
    at = ends[read.topic, read.partition, read.begin]
    if at >= read.end:
        return None
    return Range(read.topic, read.topic_id, read.partition, at, read.end)


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
