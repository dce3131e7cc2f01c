"""A Spark streaming query that only ticks: its batches call us, and the Spark jobs that read topics
are started from there. Spark plans, distributes and retries those jobs.

The query's own source yields one row a batch, which is never computed. Its checkpoint is deleted
with it: Delta knows what was read and applied (rule 1).
"""

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

CHECKPOINT_PREFIX = "tidelake-checkpoint-"  # in a folder of this process (``temporary_folder.py``)
_numbers = itertools.count(1)


@contextmanager
def ticking_query(
    spark: SparkSession, *, name: str, foreach_batch: Callable[[DataFrame, int], None]
) -> Iterator[StreamingQuery]:
    """Within the context ``foreach_batch`` is called again and again, on one thread; it must not
    raise, as that would end the query. The query may also end by itself (see ``isActive``), and its
    JVM may be gone when the context ends: both are no error here."""
    directory = Path(tempfile.mkdtemp(prefix=CHECKPOINT_PREFIX))
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    query = (
        ticks.writeStream.foreachBatch(foreach_batch)
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
