"""The job from the Delta documentation: foreachBatch, from_json, row_number, MERGE, all defaults.

What most people run first: one MERGE per table and batch of 200,000 messages, nothing persisted,
Spark's and Delta's settings untouched. Runs as a process of its own: ``python -m
tests.benchmarks.naive``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import pyspark
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

from tests.benchmarks.measure import REPOSITORY, tell
from tests.benchmarks.rows import SCHEMA

_TYPES = {"id": "bigint", "cust": "bigint", "amount": "decimal(18,2)", "name": "string",
          "ts": "timestamp_ntz", "status": "string", "note": "string", "flag": "tinyint",
          "x": "double", "ver": "int"}  # fmt: skip
_MESSAGE = (
    "database string, `table` string, type string, data array<struct<"
    + ",".join(f"{name}:string" for name in SCHEMA.names)
    + ">>"
)


def spark_session(memory: str) -> SparkSession:
    """Spark, Delta and Spark's Kafka source as they come: only the jars, the cores and the heap are
    said. Tidelake needs no Kafka source, so Spark downloads it itself, the first time."""
    jars = ",".join(str(jar) for jar in sorted((REPOSITORY / ".jars" / "spark").glob("*.jar")))
    version = pyspark.__version__
    return (
        SparkSession.builder.master("local[2]")
        .appName("bench")
        .config("spark.jars", jars)
        .config("spark.jars.packages", f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}")
        .config("spark.jars.ivy", str(REPOSITORY / ".jars" / "naive"))
        .config("spark.driver.memory", memory)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .getOrCreate()
    )


def upsert(changes: DataFrame, path: str) -> None:
    """Last change per key, merged."""
    newest = Window.partitionBy("id").orderBy(F.col("offset").desc())
    source = changes.withColumn("n", F.row_number().over(newest)).where("n = 1")
    values = {name: f"s.{name}" for name in SCHEMA.names}
    (
        DeltaTable.forPath(changes.sparkSession, path)
        .alias("t")
        .merge(source.alias("s"), "t.id = s.id")
        .whenMatchedDelete("s.type = 'DELETE'")
        .whenMatchedUpdate(set=values)
        .whenNotMatchedInsert("s.type <> 'DELETE'", values)
        .execute()
    )


def batch_writer(
    warehouse: str, tables: list[str], batches: int | None
) -> Callable[[DataFrame, int], None]:
    """The foreachBatch body; batches from number ``batches`` on are passed over."""

    def write(batch: DataFrame, batch_id: int) -> None:
        if batches is not None and batch_id >= batches:
            return
        message = F.from_json(F.col("value").cast("string"), _MESSAGE).alias("m")
        rows = (
            batch.select("offset", message)
            .where("m.type in ('INSERT', 'UPDATE', 'DELETE')")
            .select("offset", "m.table", "m.type", F.explode("m.data").alias("d"))
            .select(
                "offset",
                "table",
                "type",
                *(F.col(f"d.{n}").cast(t).alias(n) for n, t in _TYPES.items()),
            )
        )
        for table in tables:
            upsert(rows.where(F.col("table") == table), f"{warehouse}/shop/{table}")
        tell("applied", batch=batch_id)

    return write


def report(query: StreamingQuery, told: set[int]) -> None:
    """Tell where each batch ended, once."""
    for progress in query.recentProgress:
        source = progress["sources"][0]
        if progress["numInputRows"] and progress["batchId"] not in told:
            told.add(progress["batchId"])
            end = source["endOffset"]
            offsets = json.loads(end) if isinstance(end, str) else end
            tell("read", batch=progress["batchId"], end=next(iter(offsets.values())))


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "topic", "warehouse", "checkpoint", "memory"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--tables", required=True, type=lambda text: text.split(","))
    parser.add_argument("--start", required=True, help="JSON: partition -> first offset")
    parser.add_argument("--batch", type=int, default=200_000)
    parser.add_argument("--batches", type=int, help="stop after so many")
    parser.add_argument("--follow", action="store_true", help="wait for more instead of ending")
    args = parser.parse_args()
    spark = spark_session(args.memory)
    tell("ready")
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("subscribe", args.topic)
        .option("startingOffsets", json.dumps({args.topic: json.loads(args.start)}))
        .option("maxOffsetsPerTrigger", args.batch)
        .load()
    )
    writer = source.writeStream.option("checkpointLocation", args.checkpoint).foreachBatch(
        batch_writer(args.warehouse, args.tables, args.batches)
    )
    query = (writer if args.follow else writer.trigger(availableNow=True)).start()
    told: set[int] = set()
    while query.isActive:
        report(query, told)
        time.sleep(0.1)
    query.awaitTermination()
    report(query, told)
    spark.stop()


if __name__ == "__main__":
    main()
