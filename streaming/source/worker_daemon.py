"""Spark's Python daemon, which imports what a task needs before it forks its workers.

Set as ``spark.python.daemon.module`` where the executors' Python has this package. Nothing here may
start a thread or make a consumer: neither survives a fork.
"""

from __future__ import annotations

import confluent_kafka  # noqa: F401
import pyarrow.compute  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import streaming.source.read_task  # noqa: F401
from streaming.imports import do_without_pandas

do_without_pandas()

if __name__ == "__main__":
    manager()
