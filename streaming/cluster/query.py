"""The streaming query that ticks: Spark plans, distributes and tries again what its batches ask.

Its source is one row a batch, which nobody computes; its checkpoint is thrown away with it, since
what was read and applied stands in Delta (rule 1)."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT_PREFIX = "tidelake-checkpoint-"  # in a folder of this process (``scratch.py``)
_numbers = itertools.count(1)


@contextmanager
def ticking_query(
    spark: SparkSession, *, name: str, batch: Callable[[], None]
) -> Iterator[StreamingQuery]:
    """``batch`` is called again and again meanwhile, on one thread; it must not raise. It may end
    by itself, and its JVM may be gone at the end."""
    directory = Path(tempfile.mkdtemp(prefix=CHECKPOINT_PREFIX))
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def ticked(_frame: DataFrame, _batch_id: int) -> None:
        batch()

    query = (
        ticks.writeStream.foreachBatch(ticked)
        .option("checkpointLocation", directory.as_uri())
        .queryName(f"{name}-{next(_numbers)}")
        .start()
    )
    try:
        yield query
    finally:
        with suppress(Py4JError, PySparkException, OSError):
            query.stop()
        shutil.rmtree(directory, ignore_errors=True)
