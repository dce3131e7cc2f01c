"""What one job has read, and where that leaves each partition. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from coordination.model import TableName, Ts
from sinks.changefeeds import RecordedWatermark
from streaming.protocols.contract import Block, Kind
from streaming.source.ranges import TopicPartition
from streaming.watermark import Watermarks

T = TypeVar("T")
Offsets = Mapping[TopicPartition, int]
Marks = Mapping[TopicPartition, RecordedWatermark]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Read:
    """What one job has read: whole, in order, and contiguous with the read before."""

    begin: Offsets  # of the partitions that were read
    end: Offsets
    position: Offsets  # of all partitions, after it
    watermarks: Watermarks  # after it
    blocks: tuple[Block, ...]
    job_ms: float
    ends_ms: float = 0.0  # asking for the ends before it

    @property
    def messages(self) -> int:
        """Offsets, of which some may hold none."""
        return sum(self.end.values()) - sum(self.begin.values())

    def first_ts(self) -> dict[TableName, Ts]:
        """The least commit-ts of each table's rows, wanted or not."""
        first: dict[TableName, Ts] = {}
        for block in self.blocks:
            if block.kind is Kind.ROW and block.min_ts is not None:
                first[block.name] = Ts(min(block.min_ts, first.get(block.name, block.min_ts)))
        return first


def reached(blocks: Iterable[Block]) -> dict[TopicPartition, int]:
    """Where the next read of each partition begins, as its DONE block says."""
    return {
        TopicPartition(block.topic, block.partition): block.last
        for block in blocks
        if block.kind is Kind.DONE
    }


def marks_of(blocks: tuple[Block, ...]) -> dict[TopicPartition, RecordedWatermark]:
    """The greatest watermark of each partition, with the offset of its last one."""
    marks: dict[TopicPartition, RecordedWatermark] = {}
    for block in blocks:
        if block.kind is Kind.WATERMARK and block.max_ts is not None:
            partition = TopicPartition(block.topic, block.partition)
            before = marks.get(partition)
            if before is None or before.ts <= block.max_ts:
                marks[partition] = RecordedWatermark(ts=block.max_ts, offset=block.last)
    return marks


def texts(offsets: Mapping[TopicPartition, T]) -> dict[str, T]:
    """As they are stored."""
    return {str(partition): each for partition, each in offsets.items()}


def parsed(stored: Mapping[str, T]) -> dict[TopicPartition, T]:
    """From how they are stored."""
    return {TopicPartition.parse(text): each for text, each in stored.items()}


def low(offsets: list[Offsets]) -> dict[TopicPartition, int]:
    """The least of each partition."""
    lowest: dict[TopicPartition, int] = {}
    for each in offsets:
        for partition, offset in each.items():
            lowest[partition] = min(offset, lowest.get(partition, offset))
    return lowest
