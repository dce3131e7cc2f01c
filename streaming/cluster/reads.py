"""What one job has read, and where that leaves each partition. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coordination.model import TableName, Ts
from sinks.changefeeds import RecordedWatermark
from streaming.protocols.contract import Block, Kind
from streaming.source.ranges import TopicPartition
from streaming.watermark import Watermarks

Offsets = Mapping[TopicPartition, int]
Marks = Mapping[TopicPartition, RecordedWatermark]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount:
    """The rows of one table in one read."""

    rows: int
    min_ts: Ts
    max_ts: Ts


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

    def tables(self) -> dict[TableName, RowCount]:
        """How many rows of which tables, wanted ones or not."""
        return counted(self.blocks)


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


def counted(blocks: tuple[Block, ...]) -> dict[TableName, RowCount]:
    """The rows of each table in these blocks."""
    found: dict[TableName, RowCount] = {}
    for block in blocks:
        if block.kind is not Kind.ROW or block.min_ts is None or block.max_ts is None:
            continue
        before = found.get(block.name)
        if before is None:
            before = RowCount(rows=0, min_ts=Ts(block.min_ts), max_ts=Ts(block.max_ts))
        found[block.name] = RowCount(
            rows=before.rows + block.rows,
            min_ts=Ts(min(before.min_ts, block.min_ts)),
            max_ts=Ts(max(before.max_ts, block.max_ts)),
        )
    return found


def shown(offsets: Offsets) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def texts(offsets: Offsets) -> dict[str, int]:
    """As they are stored."""
    return {str(partition): offset for partition, offset in offsets.items()}


def low(offsets: list[Offsets]) -> dict[TopicPartition, int]:
    """The least of each partition."""
    lowest: dict[TopicPartition, int] = {}
    for each in offsets:
        for partition, offset in each.items():
            lowest[partition] = min(offset, lowest.get(partition, offset))
    return lowest
