"""Spark's Python daemon, which imports what a task needs before it forks its workers.

Set as ``spark.python.daemon.module`` where the executors' Python has this package. Nothing here may
start a thread or make a consumer: neither survives a fork.
"""

from __future__ import annotations

import sys
from io import BufferedReader, BufferedWriter

import pyarrow.compute  # noqa: F401
from pyspark import worker
from pyspark.daemon import manager

import streaming.source.kafka.read_task  # noqa: F401
from streaming.spark.light_imports import do_without_pandas

do_without_pandas()
_work = worker.main


def work(infile: BufferedReader, outfile: BufferedWriter) -> None:
    """The work of a worker at its next task. A worker without a task for a minute ends when Spark
    lets go of it; pyspark would write the end of its input to Spark, fail, and write a stack
    trace."""
    if not infile.peek(1):
        sys.exit(1)
    _work(infile, outfile)


worker.main = work

if __name__ == "__main__":
    manager()
