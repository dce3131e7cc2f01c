"""The carry: what has been read and is not wholly applied yet (design 3, rule 3).

Each micro-batch becomes a *segment*: its decoded messages, persisted (memory, then disk), with
counts made by one Spark job. A segment lives until nothing of it lies above what has been applied;
nothing is copied from segment to segment, and rows that are already applied are filtered out by
their commit-ts. The low-water offsets are where the oldest live segment begins, so the carry can be
rebuilt from Kafka at any time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from coordination.model import TableName, Ts
from sinks.changefeeds import Watermark
from streaming.events import BAD, DDL, ROW, WATERMARK, DdlEvent, TopicPartition

MAX_SEGMENTS = 24  # beyond it, neighbours are joined, so that plans stay small while W stands still


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCount:
    """The rows of one table in one segment."""

    rows: int
    min_ts: int
    max_ts: int
    key_updates: int  # rows whose UPDATE may have changed the key

    def __add__(self, other: TableCount) -> TableCount:
        return TableCount(
            rows=self.rows + other.rows,
            min_ts=min(self.min_ts, other.min_ts),
            max_ts=max(self.max_ts, other.max_ts),
            key_updates=self.key_updates + other.key_updates,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segment:
    """Decoded messages of one micro-batch (``EVENT_COLUMNS``), persisted."""

    frame: DataFrame
    begin: Mapping[TopicPartition, int]  # the first offset of each partition in it
    end: Mapping[TopicPartition, int]  # the offset after the last
    tables: Mapping[TableName, TableCount]
    watermarks: Mapping[TopicPartition, Watermark]
    ddls: tuple[DdlEvent, ...]
    bad: int

    @property
    def max_ts(self) -> int:
        """The greatest commit-ts of a row or DDL in it."""
        rows = (count.max_ts for count in self.tables.values())
        return max((*rows, *(ddl.commit_ts for ddl in self.ddls)), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What is in a frame of messages, by one Spark job."""

    begin: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    tables: Mapping[TableName, TableCount]
    watermarks: Mapping[TopicPartition, Watermark]
    ddls: int
    bad: int


def read_segment(events: DataFrame) -> Segment:
    """Persist decoded messages and count them: one Spark job, a second one only where there are
    DDLs.
    """
    frame = events.persist()
    counts = count_messages(frame, F.count("old"))
    return Segment(
        frame=frame,
        begin=counts.begin,
        end=counts.end,
        tables=counts.tables,
        watermarks=counts.watermarks,
        ddls=_ddls(frame) if counts.ddls else (),
        bad=counts.bad,
    )


def count_messages(frame: DataFrame, key_updates: Column) -> Counts:
    """Of a frame with at least the columns that are counted here. ``key_updates``: an aggregate."""
    counts = frame.groupBy("topic", "partition", "kind", "schema_name", "table_name").agg(
        F.count("*").alias("rows"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.min("commit_ts").alias("min_ts"),
        F.max("commit_ts").alias("max_ts"),
        F.max("watermark_ts").alias("watermark_ts"),
        key_updates.alias("key_updates"),
    )
    return _counted(counts.collect())


def _counted(counts: Iterable[Row]) -> Counts:
    begin: dict[TopicPartition, int] = {}
    end: dict[TopicPartition, int] = {}
    tables: dict[TableName, TableCount] = {}
    watermarks: dict[TopicPartition, Watermark] = {}
    kinds = {BAD: 0, DDL: 0}
    for row in counts:
        partition = TopicPartition(row.topic, row.partition)
        begin[partition] = min(row["first"], begin.get(partition, row["first"]))
        end[partition] = max(row["last"] + 1, end.get(partition, 0))
        if row.kind == ROW:
            name = TableName(row.schema_name, row.table_name)
            count = TableCount(
                rows=row.rows, min_ts=row.min_ts, max_ts=row.max_ts, key_updates=row.key_updates
            )
            tables[name] = tables[name] + count if name in tables else count
        elif row.kind == WATERMARK:
            watermarks[partition] = Watermark(ts=row.watermark_ts, offset=row["last"])
        else:
            kinds[row.kind] += row.rows
    return Counts(
        begin=begin,
        end=end,
        tables=tables,
        watermarks=watermarks,
        ddls=kinds[DDL],
        bad=kinds[BAD],
    )


def _ddls(frame: DataFrame) -> tuple[DdlEvent, ...]:
    columns = ("commit_ts", "offset", "schema_name", "table_name", "ddl_type", "query")
    rows = frame.where(F.col("kind") == DDL).select(*columns).collect()
    return tuple(
        DdlEvent(
            commit_ts=Ts(row.commit_ts),
            offset=row["offset"],
            name=TableName(row.schema_name, row.table_name),
            ddl_type=row.ddl_type or "",
            query=row.query or "",
        )
        for row in rows
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTables:
    """Tables with rows that may be due, and the segments that hold them."""

    names: tuple[TableName, ...]
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Carry:
    """The live segments, oldest first. Immutable; the frames in it are released by ``trimmed``."""

    segments: tuple[Segment, ...] = ()

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def add(self, segment: Segment) -> Carry:
        """With a new segment; when there are too many, the two smallest neighbours become one."""
        segments = (*self.segments, segment)
        if len(segments) <= MAX_SEGMENTS:
            return Carry(segments)
        at = min(
            range(len(segments) - 1), key=lambda i: _rows(segments[i]) + _rows(segments[i + 1])
        )
        joined = _join(segments[at], segments[at + 1])
        return Carry((*segments[:at], joined, *segments[at + 2 :]))

    def rows_above(self, limit: int) -> int:
        """How many rows may wait above ``limit`` (an upper bound): the carry's size as a metric."""
        counts = (count for segment in self for count in segment.tables.values())
        return sum(count.rows for count in counts if count.max_ts > limit)

    def due(self, name: TableName, checkpoint: int, limit: int) -> tuple[Segment, ...]:
        """The segments that may hold rows of a table in ``(checkpoint, limit]``."""
        return tuple(
            segment
            for segment in self
            if (count := segment.tables.get(name))
            and count.min_ts <= limit
            and count.max_ts > checkpoint
        )

    def due_of(self, names: Iterable[TableName], checkpoint: int, limit: int) -> DueTables:
        """Those of the tables that may have rows in ``(checkpoint, limit]``, and where."""
        found = {name: self.due(name, checkpoint, limit) for name in sorted(names)}
        segments = {id(segment): segment for each in found.values() for segment in each}
        due = tuple(name for name, each in found.items() if each)
        return DueTables(names=due, segments=tuple(segments.values()))

    def names(self, limit: int) -> set[TableName]:
        """The tables with rows at or below ``limit``."""
        return {
            name
            for segment in self
            for name, count in segment.tables.items()
            if count.min_ts <= limit
        }

    def ddls(self) -> list[DdlEvent]:
        """All DDLs in order, replays left out. Identity is (commit-ts, query, table), never
        commit-ts alone.
        """
        ordered = sorted(
            (ddl for segment in self for ddl in segment.ddls),
            key=lambda ddl: (ddl.commit_ts, ddl.offset),
        )
        once = {(ddl.commit_ts, ddl.query, ddl.name): ddl for ddl in reversed(ordered)}
        return sorted(once.values(), key=lambda ddl: (ddl.commit_ts, ddl.offset))

    def trimmed(self, applied: int) -> Carry:
        """Without the segments that lie wholly at or below ``applied``."""
        return self.kept(lambda segment: segment.max_ts > applied)

    def kept(self, is_live: Callable[[Segment], bool]) -> Carry:
        """With the live segments only; the frames of the others are unpersisted."""
        live = tuple(segment for segment in self if is_live(segment))
        for segment in self:
            if segment not in live:
                segment.frame.unpersist()
        return Carry(live)

    def low_water(self, position: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where a restart must read from: the begin of the oldest live segment, else the read
        position.
        """
        offsets = dict(position)
        for segment in self:
            for partition, offset in segment.begin.items():
                offsets[partition] = min(offset, offsets.get(partition, offset))
        return offsets


def union(frames: Iterable[DataFrame]) -> DataFrame:
    """All rows of frames with equal columns."""
    return reduce(DataFrame.unionAll, frames)


def _rows(segment: Segment) -> int:
    return sum(count.rows for count in segment.tables.values())


def _join(first: Segment, second: Segment) -> Segment:
    """Two neighbours as one; ``localCheckpoint`` cuts the plan, else it would grow with every
    join.
    """
    frame = union((first.frame, second.frame)).localCheckpoint()
    for segment in (first, second):
        segment.frame.unpersist()
    tables = dict(first.tables)
    for name, count in second.tables.items():
        tables[name] = tables[name] + count if name in tables else count
    return replace(
        first,
        frame=frame,
        begin={**second.begin, **first.begin},
        end={**first.end, **second.end},
        tables=tables,
        watermarks={**first.watermarks, **second.watermarks},
        ddls=first.ddls + second.ddls,
        bad=first.bad + second.bad,
    )
