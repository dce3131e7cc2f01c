"""One start of a Spark streaming query, with a checkpoint of its own that is thrown away after it
(design 3, rule 1)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.events import TopicPartition
from streaming.session import expect_rows
from streaming.source.kafka import Source

CHECKPOINT_PREFIX = "tidelake-checkpoint-"  # in a folder of this process (``scratch.py``)


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A query and the folder that goes with it."""

    query: StreamingQuery
    checkpoint_dir: Path

    @staticmethod
    def start(
        spark: SparkSession,
        source: Source,
        offsets: Mapping[TopicPartition, int],
        *,
        max_messages: int,
        name: str,
        batch: Callable[[DataFrame, int], None],
    ) -> RunningQuery:
        """Read all partitions from these offsets on; one query of a name in a session."""
        behind = sum(source.ends(offsets).values()) - sum(offsets.values())
        expect_rows(spark, min(behind, max_messages))
        directory = Path(tempfile.mkdtemp(prefix=CHECKPOINT_PREFIX))
        messages = source.stream(spark, offsets, max_messages)
        query = (
            messages.writeStream.foreachBatch(batch)
            .option("checkpointLocation", directory.as_uri())
            .queryName(name)
            .start()
        )
        return RunningQuery(query, directory)

    def stop(self) -> None:
        """Blocks until no batch runs; stopping twice is fine, and so is a JVM that is gone."""
        with suppress(Py4JError, PySparkException, OSError):
            self.query.stop()
        shutil.rmtree(self.checkpoint_dir, ignore_errors=True)
