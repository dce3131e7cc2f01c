"""The process of (g) that writes a table anew, as an owner: ``<table> <one process|Spark>``. Spark
is up before the clock begins, as it is in an owner that reads; its Python workers are not."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

from coordination.trust.clock import SystemClock
from coordination.trust.watchdog import Watchdog
from sinks.merge_on_write.alter.rewrite import Part, Result
from sinks.merge_on_write.engine import MergeOnWriteEngine
from streaming.jobs.on_spark import SparkJobs
from streaming.owner.rewrite_on_spark import SparkRewriter
from streaming.spark.jvm import DriverJvm
from streaming.spark.session import spark_session
from tests.benchmarks.ddl import KINDS, order_of
from tests.benchmarks.measure import tell


def main(table: str, way: str) -> None:
    spark = spark_session(DriverJvm())
    order = order_of(Path(table), KINDS["ADD COLUMN with a default"])
    engine = SimpleNamespace(jobs=lambda _stopping: SparkJobs(spark.sparkContext))
    context: Any = SimpleNamespace(
        changefeed=SimpleNamespace(sink=SimpleNamespace(warehouse=table)),
        name="bench",
        stream=SimpleNamespace(context=SimpleNamespace(engine=engine)),
        trust=SimpleNamespace(check=lambda: None),
        watch=lambda what: Watchdog(SystemClock()).watch(what, 600.0),
    )
    large_bytes = 0 if way == "Spark" else sys.maxsize
    mapper = SparkRewriter(context, order.target.name, Event(), large_bytes=large_bytes)
    count = 0

    def counted(
        work: Callable[[Part], Result], parts: Sequence[Part], size_bytes: int
    ) -> Generator[Result]:
        nonlocal count
        count = len(parts)
        yield from mapper(work, parts, size_bytes)

    writer = MergeOnWriteEngine({}, keeps_up=False)
    first = time.time()
    writer.alter(replace(order, map_parts=counted))
    tell("rewrite", first=first, last=time.time(), parts=count)
    writer.close()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
