"""Spark's own ``from_avro`` over messages that a script has in Parquet: its processor time, and
that of reading the same messages without it, of all of the JVM's threads.

Runs as a process of its own: ``python -m tests.benchmarks.from_avro_job``. The package spark-avro
is downloaded by Spark itself, the first time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import psutil
import pyspark

from tests.benchmarks.measure import REPOSITORY, tell

COPIES = 10  # of the messages: a job of few is mostly planning
WARM_UP = 4  # rounds before the first that counts: the JVM compiles what is often run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", required=True, type=Path, help="Parquet, with a value each")
    parser.add_argument("--schema", required=True, type=Path)
    parser.add_argument("--skip", required=True, type=int, help="bytes before Avro's own")
    parser.add_argument("--rounds", required=True, type=int)
    args = parser.parse_args()
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    package = f"org.apache.spark:spark-avro_2.13:{pyspark.__version__}"
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars.packages", package)
        .config("spark.jars.ivy", str(REPOSITORY / ".jars" / "naive"))
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    (jvm,) = (each for each in psutil.Process().children(True) if each.name() == "java")
    messages = spark.read.parquet(*[str(args.messages)] * COPIES).coalesce(1).cache()
    rows = messages.count()
    body = f.expr(f"substring(value, {args.skip + 1})")
    decoded = messages.select(from_avro(body, args.schema.read_text(), {"mode": "FAILFAST"}))
    bare = messages.select(body)

    def timed(work: Callable[[], None]) -> float:
        before = jvm.cpu_times()
        work()
        after = jvm.cpu_times()
        return float(after.user + after.system - before.user - before.system)

    for number in range(WARM_UP + args.rounds):
        seconds = {
            name: timed(lambda frame=frame: frame.write.format("noop").mode("overwrite").save())  # type: ignore[misc]
            for name, frame in (("bare_s", bare), ("decoded_s", decoded))
        }
        if number >= WARM_UP:
            tell("round", rows=rows, **seconds)
    spark.stop()


if __name__ == "__main__":
    main()
