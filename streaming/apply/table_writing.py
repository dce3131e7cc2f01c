"""How one table is written: by which engine, and how often it is tried.

The merge-on-write engine comes first; if it refuses a table, Spark writes the same rows.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from conf.settings import BatchSettings, DeltaSink
from coordination.errors import TidelakeError, TryAgain
from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName, Ts
from coordination.secrets import revealed_options
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log.physical_schema import NotForThisEngine
from sinks.spark.merge_engine import SparkEngine
from sinks.storage.errors import StorageAway
from sinks.target.engine_choice import engine_choice
from sinks.target.engine_port import Applied, Engine, LastSeen, Skipped, TableWrite, Target
from streaming.apply.commit_guard import CommitGuard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

MAX_TRIES = 8  # of one commit; a try fails when another writer commits to the table first


class TableWriting:
    """Thread-safe: several tables are written at the same time, each by one thread."""

    def __init__(
        self,
        sink: DeltaSink,
        batch: BatchSettings,
        *,
        compiling: Callable[[], SparkSession],
        permit: CommitGuard,
        job_tag: str,
    ) -> None:
        """``compiling``: a new session that compiles its queries, for the Spark engine."""
        self._compiling = compiling
        self._permit = permit
        self._job_tag = job_tag
        self._choice = engine_choice(
            sink.apply_engine, sink.warehouse, allow_unsafe_commits=sink.allow_unsafe_commits
        )
        options = revealed_options(sink.storage_options)
        self._merge_on_write = MergeOnWriteEngine(
            options, index_memory_bytes=batch.key_index_memory_mib << 20
        )
        self._spark_engine = SparkEngine(options)

    def close(self) -> None:
        self._merge_on_write.close()

    def rows_wait(self, rows_wait: bool) -> None:
        """Whether more rows wait to be read than are applied next: upkeep makes room then."""
        self._merge_on_write.upkeep.rows_wait(rows_wait)

    def check_shape(self, name: TableName, target: Target) -> None:
        """Raises TableAltered."""
        is_ours = self._choice.choose(str(name), None) == "merge-on-write"
        engine: Engine = self._merge_on_write if is_ours else self._spark_engine
        engine.check_shape(target)

    def write_of(
        self,
        target: Target,
        checkpoint: Ts,
        limit: Ts,
        rows: pa.Table,
        last: LastSeen | None,
    ) -> TableWrite:
        """The write of a table's changes in ``(checkpoint, limit]``. Right before its commit the
        permit is asked."""
        name = target.name
        signature = self._permit.signature(name)
        told = {**signature, "checkpoint": checkpoint, "limit": limit}

        def before_commit() -> None:
            self._permit.begin(name, limit)
            failpoint(Failpoint.AFTER_FENCE_CHECK)

        return TableWrite(
            target=target,
            checkpoint=checkpoint,
            limit=limit,
            changes=rows,
            user_metadata=json.dumps(told),  # for audits: who wrote, from which ts to which
            before_commit=before_commit,
            last=last,
        )

    def written(self, write: TableWrite) -> tuple[str, Applied | Skipped]:
        """Write the changes; returns the name of the engine that did, and its result."""
        name = str(write.target.name)
        if self._choice.choose(name, None) == "merge-on-write":
            try:
                return self._merge_on_write.name, self._tried(self._merge_on_write, write)
            except NotForThisEngine as refusal:
                if not write.target.is_plain:
                    raise TidelakeError(
                        f"table {name}: {write.target.form} is written by merge-on-write alone, "
                        f"which cannot write it: {refusal}; undo that"
                    ) from refusal
                self._choice.choose(name, str(refusal))  # raises if Spark may not write it
        spark = self._compiling()
        with tagged(spark, self._job_tag):
            # Without the schema Spark would take a DATETIME for a TIMESTAMP in the session's zone.
            schema = from_arrow_schema(write.changes.schema, prefer_timestamp_ntz=True)
            frame = spark.createDataFrame(write.changes, schema)
            return self._spark_engine.name, self._tried(
                self._spark_engine, replace(write, changes=frame)
            )

    def _tried(self, engine: Engine, write: TableWrite) -> Applied | Skipped:
        for attempt in range(MAX_TRIES):
            self._permit.check()
            try:
                return engine.apply(write)
            except StorageAway:
                raise  # the stream waits for the storage, longer than here
            except TryAgain:
                if attempt == MAX_TRIES - 1:
                    raise
                logger.info("another commit came first: again table=%s", write.target.name)
                time.sleep(0.05 * 2**attempt)
        raise AssertionError("unreachable")


@contextmanager
def tagged(spark: SparkSession, tag: str) -> Iterator[None]:
    """Inside, Spark jobs of this thread have the tag, by which they can be cancelled."""
    spark.sparkContext.addJobTag(tag)
    try:
        yield
    finally:
        spark.sparkContext.removeJobTag(tag)
