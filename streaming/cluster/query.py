"""The streaming query that ticks: Spark plans, distributes and tries again what its batches ask.

Its source is one row a batch, which nobody computes; its checkpoint is thrown away with it, since
what was read and applied stands in Delta (rule 1)."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT_PREFIX = "tidelake-checkpoint-"  # in a folder of this process (``scratch.py``)
LOOK_EVERY_S = 0.5  # whether it still runs
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class TickingQuery:
    """A query and the folder that goes with it."""

    query: StreamingQuery
    checkpoint_dir: Path

    @staticmethod
    def start(spark: SparkSession, *, name: str, batch: Callable[[], None]) -> TickingQuery:
        """``batch`` is called again and again, on one thread; it must not raise."""
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
        return TickingQuery(query, directory)

    def wait(self, stopping: threading.Event) -> None:
        """Until it is to stop, or has ended by itself: raises what it ended with."""
        while not stopping.wait(LOOK_EVERY_S):
            if not self.query.isActive:
                error = self.query.exception()
                raise error or ConnectionError("the streaming query was stopped")

    def stop(self) -> None:
        """Stopping twice is fine, and so is a JVM that is gone."""
        with suppress(Py4JError, PySparkException, OSError):
            self.query.stop()
        shutil.rmtree(self.checkpoint_dir, ignore_errors=True)
