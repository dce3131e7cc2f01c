"""Read messages in the driver, without Spark: the bytes of dead letters, and a recording."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException

from conf.sources.kafka_uri import KafkaSettings
from streaming.protocols.contract import Block, Decoder, Messages, Wanted
from streaming.protocols.decoders import decoder_of
from streaming.source.contract import RAW, SourceAway
from streaming.source.kafka.broker import Broker
from streaming.source.kafka.consumer import RangeConsumer
from streaming.source.kafka.librdkafka_settings import librdkafka_settings
from streaming.source.kafka.offset_ranges import OffsetRange
from streaming.source.kafka.read_ranges import NO_PROGRESS_S, ReadError, read_list
from streaming.source.kafka.topic_partition import TopicPartition

# Offsets at most so far apart are read as one range: to begin another takes milliseconds.
NEAR: Final = 100
_FETCHED: Final = 1_000  # messages at a time

Offsets = Mapping[TopicPartition, Sequence[int]]


def values_at(
    kafka: KafkaSettings, offsets: Offsets, topic_ids: Mapping[str, str]
) -> Iterator[pa.Table]:
    """The messages at these offsets as tables of schema ``RAW``, in order; an offset without a
    message, or whose message Kafka has deleted, has no row. Messages may be large, so each table
    holds about ``TASK_BYTES``.

    Raises SourceLost if a topic was made again, TopicMissing, or SourceAway. Blocks.
    """
    asked = {each: pa.array(list(at), pa.int64()) for each, at in offsets.items()}
    order = [(name, "ascending") for name in ("part", "position")]
    left = _ranges(offsets, topic_ids)
    while left:
        found: list[pa.Table] = []
        left = _read(kafka, left, _Keep(asked, found, decoder_of(kafka.protocol).reads_keys))
        if found:
            yield pa.concat_tables(found).sort_by(order)


@dataclass(frozen=True, slots=True)
class _Keep:
    """In the place of a decoder: keeps the messages as they are."""

    asked: Mapping[TopicPartition, pa.Int64Array]
    found: list[pa.Table]
    reads_keys: bool

    def __call__(self, messages: Messages, wanted: Wanted) -> Iterator[Block]:  # noqa: ARG002
        here = self.asked[TopicPartition.parse(messages.part)]
        self.found.append(_rows(messages).filter(pc.is_in(messages.positions, value_set=here)))
        return iter(())


def _read(
    kafka: KafkaSettings, ranges: Sequence[OffsetRange], decode: Decoder
) -> list[OffsetRange]:
    """Read the messages that Kafka still has of the ranges until the byte budget is used up, and
    return the rest of the ranges. Before and after, also after an error, check that the topics are
    the same."""
    topic_ids = {each.topic: each.topic_id for each in ranges}
    error: Exception | None = None
    left: list[OffsetRange] = []
    with closing(Broker(kafka)) as source:
        source.check_topic_ids(topic_ids)
        first = source.beginnings({each.topic_partition for each in ranges})
        there = [
            replace(each, begin=max(each.begin, first[each.topic_partition])) for each in ranges
        ]
        there = [each for each in there if each.begin < each.end]
        consumer = RangeConsumer(librdkafka_settings(kafka))
        try:
            *_, done = read_list(consumer, there, decode, {})
            rest = zip(there, (each.last for each in done), strict=True)
            left = [replace(each, begin=at) for each, at in rest if at < each.end]
        except (ReadError, KafkaException) as failure:
            error = failure
        finally:
            consumer.close()
        source.check_topic_ids(topic_ids)
    if error is not None:
        raise SourceAway(f"cannot read {error}") from error
    return left


def _ranges(offsets: Offsets, topic_ids: Mapping[str, str]) -> list[OffsetRange]:
    """A few ranges that cover all of these offsets and little else."""
    ranges: list[OffsetRange] = []
    for partition, wanted in sorted(offsets.items()):
        topic, topic_id = partition.topic, topic_ids[partition.topic]
        begin = end = -1
        for offset in sorted(wanted):
            if begin >= 0 and offset - end > NEAR:
                ranges.append(OffsetRange(topic, topic_id, partition.partition, begin, end))
                begin = -1
            begin = offset if begin < 0 else begin
            end = offset + 1
        if begin >= 0:
            ranges.append(OffsetRange(topic, topic_id, partition.partition, begin, end))
    return ranges


def _rows(messages: Messages) -> pa.Table:
    count = len(messages)
    columns = [
        pa.repeat(pa.scalar(messages.part, pa.string()), count),
        messages.positions,
        messages.values.cast(pa.large_binary()),
    ]
    return pa.Table.from_arrays(columns, schema=RAW)


class Sent(NamedTuple):
    """A message as the broker has it. ``timestamp_ms``: 0 where it has none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def all_messages(kafka: KafkaSettings, ranges: Sequence[OffsetRange]) -> Iterator[Sent]:
    """The messages of these ranges of different partitions, as they come. Blocks; raises
    SourceAway."""
    left = {each.topic_partition: each.end for each in ranges}
    last_s = time.monotonic()
    with closing(RangeConsumer(librdkafka_settings(kafka))) as consumer:
        try:
            consumer.assign(ranges)
            while left:
                for message in consumer.fetch(_FETCHED):
                    partition = TopicPartition(message.topic() or "", message.partition() or 0)
                    error, at = message.error(), message.offset() or 0
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        raise SourceAway(f"cannot read {partition}: {error.str()}")
                    if partition not in left:
                        continue
                    last_s = time.monotonic()
                    if error is None and at < left[partition]:
                        at_ms = max(0, message.timestamp()[1])
                        yield Sent(
                            partition.topic,
                            partition.partition,
                            at,
                            at_ms,
                            message.key(),
                            message.value(),
                        )
                    if error is not None or at + 1 >= left[partition]:
                        del left[partition]
                if time.monotonic() - last_s > NO_PROGRESS_S:
                    where = ", ".join(map(str, sorted(left)))
                    raise SourceAway(f"nothing came of {where} for {NO_PROGRESS_S:.0f} s")
        except KafkaException as error:
            raise SourceAway(f"cannot read: {error.args[0].str()}") from error
