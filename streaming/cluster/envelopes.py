"""What one read of the topic is about, before any row of it is decoded (cluster.md 3, 4).

The scan sees every message of every sink partition; the bytes of a message are kept only where
somebody here wants it, so that what comes behind costs as much as what is ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from coordination.model import TableName
from sinks.changefeeds import Watermark
from streaming.events import BAD, DDL, KAFKA_COLUMNS, ROW, Envelope, TopicPartition
from streaming.segments import Counts, TableCount, count_messages


def rows_of(names: Collection[TableName]) -> Column:
    """The row messages of these tables."""
    if not names:
        return F.lit(False)
    wanted = [f"{name.schema}\0{name.table}" for name in sorted(names)]
    return (F.col("kind") == ROW) & F.concat_ws("\0", "schema_name", "table_name").isin(wanted)


def control_messages() -> Column:
    """DDLs, and what means nothing: the owner's business."""
    return F.col("kind").isin(DDL, BAD)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Envelopes:
    """One read, scanned by one Spark job. Release it when all of it is taken."""

    frame: DataFrame  # persisted; the values of wanted messages only
    counts: Counts

    @property
    def begin(self) -> Mapping[TopicPartition, int]:
        return self.counts.begin

    @property
    def end(self) -> Mapping[TopicPartition, int]:
        return self.counts.end

    @property
    def tables(self) -> Mapping[TableName, TableCount]:
        return self.counts.tables

    @property
    def watermarks(self) -> Mapping[TopicPartition, Watermark]:
        return self.counts.watermarks

    def messages(self, which: Column) -> DataFrame:
        """For a decoder."""
        return self.frame.where(which).select(*KAFKA_COLUMNS)

    def release(self) -> None:
        self.frame.unpersist()


def read_envelopes(messages: DataFrame, envelope: Envelope, *wanted: Column) -> Envelopes:
    """Persist and count. ``wanted``: the messages whose bytes are kept."""
    is_wanted = reduce(lambda left, right: left | right, wanted, F.lit(False))
    read = envelope(messages.select(*KAFKA_COLUMNS))
    frame = read.withColumn("value", F.when(is_wanted, F.col("value"))).persist()
    return Envelopes(frame=frame, counts=count_messages(frame, F.max(F.lit(0))))
