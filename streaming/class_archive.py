"""A class archive: Spark's JVM starts in half the time and for a third less CPU (AppCDS, JEP 350).

A JVM spends most of a start on finding, checking and linking some 25,000 classes. The archive holds
them as they are in memory. ``python -m streaming.class_archive`` makes it beside the jars, once per
machine; ``session.py`` uses it where it finds one. The JVM itself checks that Java and every jar
are the ones it was made from, and starts without it otherwise."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from coordination.model import TableName, Ts
from sinks.apply import OP_COLUMN, TableWrite, Target
from sinks.creation import create
from sinks.schema import Column, MySQLType, TableSchema
from sinks.spark_engine import SparkEngine
from streaming.cells import CastRules
from streaming.due import TableTask
from streaming.events import KAFKA_COLUMNS
from streaming.jvm import DriverJvm
from streaming.protocols.canal_json_sql import decode
from streaming.resolve import Resolver
from streaming.segments import Segment, read_segment
from streaming.session import (
    ARCHIVE_NAME,
    MANY_ROWS,
    archive_folder,
    expect_rows,
    spark_session,
)
from streaming.small_tables import SmallTables

logger = logging.getLogger(__name__)

_NAME = TableName("archive", "rows")
_RULES = CastRules(time_zone="UTC", zero_date="null")
_TYPES = {"id": "bigint", "name": "varchar(8)", "amount": "decimal(10,2)", "at": "datetime(6)"}
_SCHEMA = TableSchema(
    columns=tuple(Column(name=name, type=MySQLType.parse(text)) for name, text in _TYPES.items()),
    key=("id",),
)
_NOBODY = "127.0.0.1:9"  # Kafka's classes are loaded by failing to reach it
_STREAM_S = 20.0


def main() -> int:
    """Make the archive; the exit code."""
    folder = archive_folder()
    if folder is None:
        print("class archive: no folder of jars, nothing to do", file=sys.stderr)
        return 1
    made = folder / ARCHIVE_NAME
    made.unlink(missing_ok=True)
    jvm = DriverJvm()
    spark = spark_session(jvm, archive_to=made)
    with tempfile.TemporaryDirectory(prefix="tidelake-archive-") as scratch:
        _exercise(spark, Path(scratch))
    spark.stop()
    jvm.stop(within_s=120)  # it writes the archive when it ends
    return 0 if made.exists() else 1


def _exercise(spark: SparkSession, scratch: Path) -> None:
    """What a first batch does, without a broker."""
    segment = _segment(spark)
    task = TableTask(name=_NAME, schema=_SCHEMA, checkpoint=Ts(0), segments=(segment,))
    SmallTables(_RULES).resolve([task], Ts(10)).read()
    expect_rows(spark, MANY_ROWS + 1)
    columns = [f"`{name}`" for name in _TYPES]
    changes = Resolver(_RULES).resolve(task, Ts(10)).select(*columns, OP_COLUMN)
    target = Target(name=_NAME, uri=str(scratch / "rows"), schema=_SCHEMA, app_id="archive")
    create(target, properties={}, storage_options={})
    write = TableWrite(
        target=target,
        checkpoint=Ts(0),
        limit=Ts(10),
        changes=changes,
        user_metadata="",
        before_commit=lambda: None,
    )
    SparkEngine({}).apply(write)
    expect_rows(spark, 1)
    _stream(spark, scratch)
    _fail_to_read(spark)


def _segment(spark: SparkSession) -> Segment:
    row = {
        "database": _NAME.schema, "table": _NAME.table, "type": "INSERT", "isDdl": False,
        "pkNames": ["id"], "mysqlType": _TYPES,
        "data": [{"id": "1", "name": "a", "amount": "1.00", "at": "2026-01-01 00:00:00.000000"}],
        "_tidb": {"commitTs": 5},
    }  # fmt: skip
    deleted = {**row, "type": "DELETE", "data": [{**row["data"][0], "id": "2"}]}  # type: ignore[index]
    values = [("t", 0, n, json.dumps(each).encode()) for n, each in enumerate((row, deleted))]
    columns = "topic string, partition int, offset bigint, value binary"
    messages = spark.createDataFrame(values, columns)
    return read_segment(decode(messages.select(*KAFKA_COLUMNS), {_NAME: ("id",)}))


def _stream(spark: SparkSession, scratch: Path) -> None:
    stream = spark.readStream.format("rate").load()
    query = (
        stream.writeStream.foreachBatch(_count)
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .start()
    )
    deadline = time.monotonic() + _STREAM_S
    while query.lastProgress is None and time.monotonic() < deadline:
        time.sleep(0.2)
    query.stop()


def _count(frame: DataFrame, _batch_id: int) -> None:
    frame.count()


def _fail_to_read(spark: SparkSession) -> None:
    timeouts = {"default.api.timeout.ms": "500", "request.timeout.ms": "400"}
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", _NOBODY)
    reader = reader.option("assign", json.dumps({"t": [0]}))
    for name, value in timeouts.items():
        reader = reader.option(f"kafka.{name}", value)
    with suppress(PySparkException, Py4JError):
        reader.load().count()
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    consumer = jvm.java.util.HashMap()
    for name in ("key.deserializer", "value.deserializer"):
        consumer[name] = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    consumer["bootstrap.servers"] = _NOBODY
    jvm.org.apache.kafka.clients.consumer.KafkaConsumer(consumer).close()


if __name__ == "__main__":
    sys.exit(main())
