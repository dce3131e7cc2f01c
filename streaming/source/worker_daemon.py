"""Spark's Python daemon, which imports what a task needs before it forks its workers.

Set as ``spark.python.daemon.module`` where the executors' Python has this package. Nothing here may
start a thread or make a consumer: neither survives a fork.

pyarrow imports pandas with its first array if it finds it. That would take each worker, after the
fork, a quarter of a second of its first read and some 40 MB, and nothing uses it.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

import confluent_kafka  # noqa: F401
import pyarrow.compute
import pyarrow.json  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import streaming.source.read_task  # noqa: F401


class _NoPandas(MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("no module named 'pandas' in a worker")


sys.meta_path.insert(0, _NoPandas())

if __name__ == "__main__":
    manager()
