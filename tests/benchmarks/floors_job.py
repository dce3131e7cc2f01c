"""The process of (d): one step after the other, three times each, told as events."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assignment
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from conf.source_uri import parse_source_uri
from coordination.model import TableName, Ts
from sinks.apply import OP_COLUMN, Engine, TableWrite, Target
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.schema import TableSchema
from sinks.spark_engine import SparkEngine
from sinks.tables import inspect
from streaming.cells import CastRules
from streaming.due import TableTask, settled_keys
from streaming.events import KAFKA_COLUMNS, TopicPartition
from streaming.jvm import DriverJvm
from streaming.protocols.canal_json_sql import decode
from streaming.resolve import Resolver
from streaming.segments import Segment, read_segment
from streaming.session import expect_rows, spark_session
from streaming.source.kafka import Source
from tests.benchmarks import delta_rs
from tests.benchmarks.measure import tell
from tests.benchmarks.targets import copy_warehouse

REPEATS = 3
COMMITS = 5
BATCH = 200_000
NAME = TableName("shop", "orders")
RULES = CastRules(time_zone="UTC", zero_date="null")


@contextmanager
def timed(step: str, count: int = 0, unit: str = "messages", note: str = "") -> Iterator[None]:
    """Tell how long the block took."""
    start = time.monotonic()
    yield
    tell("floor", step=step, seconds=time.monotonic() - start, count=count, unit=unit, note=note)


class Floors:
    """All steps over one topic and one table."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._source = Source(parse_source_uri(args.source_uri))
        partitions = self._source.shape().partitions
        self._begin = self._source.beginnings(partitions)
        self._end = self._source.ends(partitions)
        self._count = sum(self._end.values()) - sum(self._begin.values())
        share = min(BATCH / self._count, 1.0)
        self._batch_end = {p: int(end * share) for p, end in self._end.items()}
        self._folder: Path = args.folder
        state = inspect(str(self._folder / "tidelake" / "shop" / "orders"), {})
        assert state is not None
        assert state.schema is not None
        self._schema: TableSchema = state.schema

    def run(self) -> None:
        """From the cheapest to the dearest."""
        values = self._read_confluent()
        self._decode_arrow(values)
        del values
        self._commit_delta_rs()
        spark = spark_session(DriverJvm())
        expect_rows(spark, BATCH)  # as the program does before such a batch
        self._read_spark(spark)
        self._decode_spark(spark)
        segment = self._segment(spark, self._batch_end)
        changes = self._resolve(segment)
        self._apply(SparkEngine({}), lambda: changes)
        arrow = changes.toArrow()
        self._apply(MergeOnWriteEngine({}), lambda: arrow)
        self._commit_spark(spark)
        spark.stop()
        self._source.close()

    def _read_confluent(self) -> list[bytes]:
        values: list[bytes] = []
        for _ in range(REPEATS):
            values = []
            consumer = Consumer(
                {
                    "bootstrap.servers": self._args.bootstrap,
                    "group.id": "floor",
                    "enable.auto.commit": False,
                    "fetch.message.max.bytes": 8 << 20,
                    "queued.min.messages": 200_000,
                    "queued.max.messages.kbytes": 256 << 10,
                }
            )
            consumer.assign([Assignment(p.topic, p.partition, o) for p, o in self._begin.items()])
            with timed("read alone, confluent-kafka", self._count):
                while len(values) < self._count:
                    wanted = min(50_000, self._count - len(values))
                    values += [m.value() for m in consumer.consume(wanted, 1.0)]
            consumer.close()
        return values

    def _decode_arrow(self, values: list[bytes]) -> None:
        for _ in range(REPEATS):
            with timed("decode alone, pyarrow.json", self._count, note="last change per key too"):
                for first in range(0, len(values), BATCH):
                    delta_rs.decode(values[first : first + BATCH])

    def _read_spark(self, spark: SparkSession) -> None:
        for _ in range(REPEATS):
            with timed("read alone, Spark", self._count, note="count and sum of lengths"):
                frame = self._source.read(spark, self._begin, self._end)
                frame.agg(F.count("*"), F.sum(F.length("value"))).collect()

    def _decode_spark(self, spark: SparkSession) -> None:
        for _ in range(REPEATS):
            with timed("read and decode, Tidelake", self._count, note="persisted and counted"):
                segment = self._segment(spark, self._end)
            segment.frame.unpersist(blocking=True)

    def _segment(self, spark: SparkSession, end: dict[TopicPartition, int]) -> Segment:
        messages = self._source.read(spark, self._begin, end).select(*KAFKA_COLUMNS)
        return read_segment(decode(messages, settled_keys({NAME: self._schema})))

    def _resolve(self, segment: Segment) -> DataFrame:
        task = TableTask(name=NAME, schema=self._schema, checkpoint=Ts(0), segments=(segment,))
        count = segment.tables[NAME].rows
        columns = [f"`{column.name}`" for column in self._schema.delivered]
        changes = Resolver(RULES).resolve(task, Ts(2**62)).select(*columns, OP_COLUMN)
        for number in range(REPEATS):
            with timed("cast and last change per key, Tidelake", count, "changes"):
                changes.persist().count()
            if number < REPEATS - 1:
                changes.unpersist(blocking=True)
        return changes

    def _apply(self, engine: Engine, changes: Callable[[], DataFrame | pa.Table]) -> None:
        rows = changes()
        count = rows.num_rows if isinstance(rows, pa.Table) else rows.count()
        for number in range(REPEATS):
            warehouse = self._folder / "apply"
            copy_warehouse(self._folder / "tidelake", warehouse)
            uri = str(warehouse / "shop" / "orders")
            write = TableWrite(
                target=Target(name=NAME, uri=uri, schema=self._schema, app_id="floor"),
                checkpoint=Ts(0),
                limit=Ts(number + 1),
                changes=rows,
                user_metadata="",
                before_commit=lambda: None,
            )
            with timed(f"apply alone, {engine.name} engine", count, "different keys"):
                engine.apply(write)
            shutil.rmtree(warehouse)

    def _commit_delta_rs(self) -> None:
        uri = str(self._folder / "commits-delta-rs")
        row = pa.table({"n": np.arange(1)})
        write_deltalake(uri, row)
        table = DeltaTable(uri)
        for _ in range(COMMITS):
            with timed("commit alone, delta-rs", note="append of one row, handle kept"):
                write_deltalake(table, row, mode="append")

    def _commit_spark(self, spark: SparkSession) -> None:
        uri = str(self._folder / "commits-spark")
        row = spark.range(1)
        row.write.format("delta").save(uri)
        for _ in range(COMMITS):
            with timed("commit alone, Spark", note="append of one row, Tidelake's settings"):
                row.write.format("delta").mode("append").save(uri)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("source-uri", "bootstrap", "topic"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    Floors(parser.parse_args()).run()


if __name__ == "__main__":
    main()
