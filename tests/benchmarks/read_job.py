"""The process of (d) that reads and decodes a topic through Spark and does nothing with it.

It tells when each pass began and ended: what the processes around it used meanwhile is the price
of Spark jobs, worker processes and blocks on their way.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from pyspark.sql import SparkSession

from conf.sources.source_uri import parse_source_uri
from coordination.model import TableName, Ts
from streaming.jobs.on_spark import SparkJobs
from streaming.protocols.contract import Kind, WantedTable
from streaming.source.contract import ReadOrder
from streaming.source.sources import open_source
from streaming.spark.jvm import DriverJvm
from streaming.spark.session import spark_session
from tests.benchmarks.measure import tell

REPEATS = 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--source-uri", required=True)
    parser.add_argument("--tables", required=True, type=lambda text: text.split(","))
    parser.add_argument("--bare", type=Path, help="a folder whose files are read first, as bytes")
    parser.add_argument("--ends-with", default="", help="of those files' names")
    args = parser.parse_args()
    wanted = {
        TableName(*name.split(".")): WantedTable(above_ts=Ts(0), key=("id",))
        for name in args.tables
    }
    source = open_source(parse_source_uri(args.source_uri))
    shape = source.shape()
    ends = source.ends(shape.parts)
    spark = spark_session(DriverJvm())
    if args.bare is not None:
        _read_bytes(spark, args.bare, args.ends_with)
    reader = source.reader(SparkJobs(spark.sparkContext), start_ts=0, name="benchmark")
    for _ in range(REPEATS):
        at: dict[str, int] = dict.fromkeys(ends, 0)
        first, jobs, messages = time.time(), 0, 0
        while any(at[part] < end for part, end in ends.items()):
            blocks = reader.read(
                ReadOrder(
                    begin=at,
                    ends=ends,
                    wanted=wanted,
                    identities=shape.identities,
                    limits=source.limits(shape, {}),
                    messages=1_000_000,
                )
            )
            jobs += 1
            for block in blocks:
                if block.kind is Kind.DONE:
                    at[block.part] = block.last
                    messages += block.rows
        tell("pass", first=first, last=time.time(), messages=messages, jobs=jobs)
    reader.close()
    source.close()
    spark.stop()


def _read_bytes(spark: SparkSession, folder: Path, ending: str) -> None:
    """Tell how long a job takes that does no more, with as many tasks as cores."""
    paths = [str(each) for each in sorted(folder.rglob(f"CDC*.{ending}"))]
    files = spark.sparkContext.parallelize(paths)
    for _ in range(REPEATS):
        first = time.time()
        size = files.map(lambda path: len(Path(path).read_bytes())).sum()
        tell("bare", first=first, last=time.time(), messages=size)


if __name__ == "__main__":
    main()
