"""What cannot be applied goes to the dead letters with its bytes (design 3, rule 8).

Undecodable messages still have their bytes in the segment. Rows that failed later (a cast, a table
without a key) are read once more from Kafka, by their offsets and nothing else: keeping every row's
bytes for the few that fail would double what a batch holds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from coordination.errors import TidelakeError
from coordination.model import Ts
from sinks.dead_letters import DeadLetters, Undertaker
from streaming.due import ERROR_CLASS, ERROR_MESSAGE, TableTask
from streaming.events import BAD, ROW, TopicPartition
from streaming.segments import Segment, union
from streaming.source.kafka import Source

if TYPE_CHECKING:
    from coordination.model import TableName

logger = logging.getLogger(__name__)

NO_KEY = "no-key"
NO_KEY_MESSAGE = "the table has no primary key and no NOT NULL unique key that is known"
NO_TABLE = "no-table"
NO_TABLE_MESSAGE = "there is no target: no whole row has told yet which columns and key it has"
SLICE_ROWS = 20_000  # bytes of so many failed rows are held at a time


class Graveyard:
    """Writes dead letters, and ends the stream instead where ``on-error = "fail"``."""

    def __init__(
        self,
        *,
        undertaker: Undertaker,
        spark: Callable[[], SparkSession],
        source: Source,
        dead_letters: DeadLetters,
        fail: bool,
    ) -> None:
        changefeed_id = undertaker.changefeed_id
        self._undertaker = undertaker
        self._changefeed_id = changefeed_id
        self._spark = spark
        self._source = source
        self._dead_letters = dead_letters
        self._fail = fail
        self.counts: dict[TableName | None, int] = dict(dead_letters.counts(changefeed_id))

    def refreshed(self) -> dict[TableName | None, int]:
        """The counts as they are stored now: other captures bury too."""
        self.counts = dict(self._dead_letters.counts(self._changefeed_id))
        return self.counts

    def bury_messages(self, segment: Segment) -> None:
        """The undecodable messages of a segment: one Spark job."""
        bad = segment.frame.where(F.col("kind") == BAD)
        reasons = bad.select(*_reasons(F.col("error_class"), F.col("error_message")), "value")
        self._bury(reasons.toArrow())

    def bury_rows(
        self, failed: Sequence[pa.Table], keyless: Sequence[TableTask], limit: Ts
    ) -> None:
        """Rows that failed in ``resolve``, and every due row of tables without a target."""
        found = [_reasons_of(errors) for errors in failed]
        found += [_keyless_rows(task, limit) for task in keyless]
        if not any(len(table) for table in found):
            return
        reasons = pa.concat_tables(map(_nullable, found)).sort_by(
            [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
        )
        for start in range(0, len(reasons), SLICE_ROWS):
            self._bury(self._with_bytes(reasons.slice(start, SLICE_ROWS)))

    def _with_bytes(self, reasons: pa.Table) -> pa.Table:
        """``reasons`` with ``value``: a bounded read of just the span of offsets, cut to the wanted
        ones.
        """
        begin: dict[TopicPartition, int] = {}
        end: dict[TopicPartition, int] = {}
        for partition, offset in _origins(reasons):
            begin[partition] = min(offset, begin.get(partition, offset))
            end[partition] = max(offset + 1, end.get(partition, 0))
        keys = ["topic", "partition", "offset"]
        spark = self._spark()
        wanted = spark.createDataFrame(reasons.select(keys))
        read = self._source.read(spark, begin, end).select(*keys, "value")
        values = read.join(F.broadcast(wanted), keys, "left_semi").toArrow()
        return reasons.join(values, keys, join_type="left outer")

    def _bury(self, letters: pa.Table) -> None:
        first = letters.slice(0, 1).to_pylist()[0]
        what = (
            f"{len(letters)} messages cannot be applied; the first: topic {first['topic']} "
            "partition "
            f"{first['partition']} offset {first['offset']}: {first['message']}"
        )
        if self._fail:
            raise TidelakeError(
                f"{what}. on-error is 'fail': mend it, or set on-error = 'dead-letter'"
            )
        logger.warning("%s. They are in _tidelake/dead_letters with their bytes", what)
        now = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
        constant = {"changefeed_id": pa.scalar(self._changefeed_id), "created_at": now}
        for name, value in constant.items():
            letters = letters.append_column(
                name, pa.array([value.as_py()] * len(letters), value.type)
            )
        self._dead_letters.merge(letters, self._undertaker)
        self.refreshed()


def _nullable(table: pa.Table) -> pa.Table:
    """Spark marks what cannot be null, differently in each query; Arrow then joins no tables."""
    return table.cast(pa.schema([field.with_nullable(True) for field in table.schema]))


def _reasons(error_class: Column, message: Column) -> list[Column]:
    return [
        F.col("topic"),
        F.col("partition"),
        F.col("offset"),
        F.col("schema_name"),
        F.col("table_name"),
        F.col("commit_ts"),
        error_class.alias("error_class"),
        message.alias("message"),
    ]


def _reasons_of(errors: pa.Table) -> pa.Table:
    """The dead letters' columns from those of ``resolve``."""
    renamed = {
        "topic": "_topic ",
        "partition": "_partition ",
        "offset": "_offset ",
        "schema_name": "schema_name",
        "table_name": "table_name",
        "commit_ts": "_commit_ts ",
        "error_class": ERROR_CLASS,
        "message": ERROR_MESSAGE,
    }
    return pa.table({name: errors[column] for name, column in renamed.items()})


def _keyless_rows(task: TableTask, limit: Ts) -> pa.Table:
    frame: DataFrame = union(segment.frame for segment in task.segments)
    due = frame.where(
        (F.col("kind") == ROW)
        & (F.col("schema_name") == task.name.schema)
        & (F.col("table_name") == task.name.table)
        & (F.col("commit_ts") > task.checkpoint)
        & (F.col("commit_ts") <= limit)
        & ~F.col("op").isin(*[event.upper() for event in sorted(task.ignored_events)])
    )
    reason = (NO_KEY, NO_KEY_MESSAGE) if task.is_keyless else (NO_TABLE, NO_TABLE_MESSAGE)
    error_class = F.coalesce("error_class", F.lit(reason[0]))
    message = F.coalesce("error_message", F.lit(reason[1]))
    return due.select(*_reasons(error_class, message)).toArrow()


def _origins(reasons: pa.Table) -> Iterator[tuple[TopicPartition, int]]:
    """The first and last offset of each partition in ``reasons``."""
    grouped = reasons.group_by(["topic", "partition"]).aggregate(
        [("offset", "min"), ("offset", "max")]
    )
    for row in grouped.to_pylist():
        partition = TopicPartition(row["topic"], row["partition"])
        yield partition, row["offset_min"]
        yield partition, row["offset_max"]
