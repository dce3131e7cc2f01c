"""Make a class archive, with which Spark's JVM starts in half the time and with a third less CPU
(AppCDS, JEP 350).

A JVM spends most of its start on finding, checking and linking some 25,000 classes. The archive
holds them as they are in memory. ``python -m streaming.spark.class_archive`` makes it beside the
jars, once per machine; ``session.py`` uses it if it is there. The JVM checks that Java and all jars
are those that the archive was made from, and starts without the archive otherwise."""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from coordination.model import TableName, Ts
from sinks.merge_on_write.lifecycle.create import create
from sinks.spark.merge_engine import SparkEngine
from sinks.target.engine_port import OP_COLUMN, UPSERT, TableWrite, Target
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from streaming.spark.jvm import DriverJvm
from streaming.spark.session import spark_session
from streaming.spark.spark_conf import ARCHIVE_NAME, archive_folder
from streaming.spark.ticking_query import ticking_query

logger = logging.getLogger(__name__)

_NAME = TableName("archive", "rows")
_SCHEMA = TableSchema(
    columns=tuple(
        Column(name=name, type=MySQLType.parse(text))
        for name, text in {"id": "bigint", "name": "varchar(8)"}.items()
    ),
    key=("id",),
)
_ROWS = pa.table({"id": [1, 2], "name": ["a", "b"], OP_COLUMN: [UPSERT, UPSERT]})
_STREAM_S = 20.0


def main() -> int:
    """Make the archive; returns the exit code."""
    folder = archive_folder()
    if folder is None:
        print("class archive: no folder of jars, nothing to do", file=sys.stderr)
        return 1
    made = folder / ARCHIVE_NAME
    made.unlink(missing_ok=True)
    jvm = DriverJvm()
    spark = spark_session(jvm, archive_to=made)
    with tempfile.TemporaryDirectory(prefix="tidelake-archive-") as scratch:
        _read(spark)
        _commit(spark, Path(scratch))
    spark.stop()
    jvm.stop(within_s=120)  # the JVM writes the archive when it ends
    return 0 if made.exists() else 1


def _read(spark: SparkSession) -> None:
    """Load the classes that a stream's read needs: run one job of one stage in a batch of the
    ticking query."""
    has_read = threading.Event()

    def nothing(_number: int, rows: Iterable[object]) -> Iterable[object]:
        return list(rows)

    def foreach_batch(_tick: DataFrame, _batch_id: int) -> None:
        spark.sparkContext.parallelize([], 2).mapPartitionsWithIndex(nothing).collect()
        has_read.set()

    with ticking_query(spark, name="archive", foreach_batch=foreach_batch):
        has_read.wait(_STREAM_S)


def _commit(spark: SparkSession, scratch: Path) -> None:
    target = Target(name=_NAME, uri=str(scratch / "rows"), schema=_SCHEMA, app_id="archive")
    create(target, properties={}, storage_options={})
    write = TableWrite(
        target=target,
        checkpoint=Ts(0),
        limit=Ts(10),
        changes=spark.createDataFrame(_ROWS),
        user_metadata="",
        before_commit=lambda: None,
    )
    SparkEngine({}).apply(write)


if __name__ == "__main__":
    sys.exit(main())
