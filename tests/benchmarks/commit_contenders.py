"""The engines whose single commits are compared: ours, delta-rs' merge, and Spark's MERGE."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties

from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.spark.merge_engine import SparkEngine
from sinks.target.engine_port import OP_COLUMN, Target
from tests.benchmarks.commit_workload import Batch, write_of
from tests.benchmarks.measure import REPOSITORY

INDEX_MEMORY_BYTES = 4 << 30  # so that nothing is read twice: what it takes is told


class CommitContender(Protocol):
    """Commits batches to one table."""

    def prepare(self, batch: Batch) -> Any:
        """The batch in the form that the contender takes; not timed."""

    def commit(self, batch: Batch, prepared: Any) -> None: ...

    def close(self) -> None: ...


class MergeOnWrite:
    """The engine alone, without its upkeep."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.engine = MergeOnWriteEngine({}, index_memory_bytes=INDEX_MEMORY_BYTES, keeps_up=False)

    def prepare(self, batch: Batch) -> pa.Table:
        return batch.changes

    def commit(self, batch: Batch, prepared: pa.Table) -> None:
        self.engine.apply(write_of(self._target, batch, prepared))

    @property
    def index_mb_per_million_keys(self) -> float:
        """Of all keys that are in files, deleted ones too: bytes a key."""
        keys = sum(map(len, self.engine._memory._indexes.values()))
        return self.engine._memory.size_bytes / keys

    def close(self) -> None:
        self.engine.close()


class DeltaRsMerge:
    """``DeltaTable.merge`` with key bounds, on a handle that is kept."""

    def __init__(self, target: Target) -> None:
        self._key = target.schema.key
        self._handle = DeltaTable(target.uri)

    def prepare(self, batch: Batch) -> pa.Table:
        return batch.changes.rename_columns({OP_COLUMN: "op"})

    def commit(self, batch: Batch, prepared: pa.Table) -> None:
        first = self._key[0]
        bounds = pc.min_max(prepared[first]).as_py()
        low, high = (f"'{v}'" if isinstance(v, str) else v for v in bounds.values())
        equal = " AND ".join(f't."{name}" = s."{name}"' for name in self._key)
        names = [name for name in prepared.column_names if name != "op"]
        values = {f'"{name}"': f's."{name}"' for name in names}
        (
            self._handle.merge(
                prepared,
                f't."{first}" BETWEEN {low} AND {high} AND {equal}',
                source_alias="s",
                target_alias="t",
                streamed_exec=True,
                writer_properties=WriterProperties(compression="ZSTD", compression_level=1),
                commit_properties=CommitProperties(
                    app_transactions=[Transaction("bench", batch.number)], max_commit_retries=0
                ),
            )
            .when_matched_delete("s.op = 'D'")
            .when_matched_update(values)
            .when_not_matched_insert(values, "s.op <> 'D'")
            .execute()
        )

    def close(self) -> None:
        del self._handle


class SparkMerge:
    """The Spark engine; a batch is a Parquet file, as cheap to read as Spark has it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._engine = SparkEngine({})
        self._folder = Path(f"{target.uri}-batches")
        self._folder.mkdir()

    def prepare(self, batch: Batch) -> Any:
        path = self._folder / f"{batch.number}.parquet"
        pq.write_table(batch.changes, path)
        return spark_session().read.parquet(str(path))

    def commit(self, batch: Batch, prepared: Any) -> None:
        self._engine.apply(write_of(self._target, batch, prepared))

    def close(self) -> None:
        pass


CONTENDERS = {
    "merge-on-write": MergeOnWrite,
    "delta-rs": DeltaRsMerge,
    "spark": SparkMerge,
}


@cache
def spark_session() -> Any:
    """The program's own session, in this process; started once, and warm after its first commit."""
    from pyspark.sql import SparkSession

    from streaming.spark.spark_conf import CHECKPOINT_CONF, RUNTIME_CONF, STATIC_CONF, jvm_conf

    jars = sorted(map(str, (REPOSITORY / ".jars" / "spark").glob("*.jar")))
    conf = {**jvm_conf(jars), **STATIC_CONF, **RUNTIME_CONF, **CHECKPOINT_CONF}
    builder = SparkSession.builder.master("local[2]").appName("tidelake-commits")
    for name, value in {**conf, "spark.driver.memory": "4g"}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # it tells of filters that it does not push down
    return session


def seconds_of(contender: CommitContender, batch: Batch) -> float:
    """One commit."""
    prepared = contender.prepare(batch)
    begun = time.perf_counter()
    contender.commit(batch, prepared)
    return time.perf_counter() - begun
