"""The Spark engine: ``replaceOn`` in one commit, for large batches and tables.

replaceOn deletes the target rows that some source row meets and writes all source rows. A deleted
key must not be written, so it rides in the condition: it is mapped on one upserted key, the anchor.
A batch without upserts is a ``replaceWhere`` with an empty frame. Both list the deleted keys as
literals, so a batch with many deletes is a MERGE. The range of *all* keys of the batch goes into
the condition: inserts are matched too (rule 4). Of files out of the range replaceOn reads
the footers only (their row groups are pruned); MERGE does not open them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from delta.tables import DeltaTable
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name everybody gives it
from pyspark.sql.types import DataType

from coordination.errors import TidelakeError, TryAgain
from coordination.model import Ts
from sinks.apply import DELETE, OP_COLUMN, UPSERT, Applied, Skipped, TableWrite
from sinks.key_literals import literal, quoted, written
from sinks.storage_errors import is_storage_error, storage_error
from sinks.tables import TargetState, inspect

# In Java all of them are the first one's subclasses, in Python none is.
CONFLICTS = (
    DeltaConcurrentModificationException,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)

# A column may be called t: an alias of that name is then taken for the column.
TARGET = "tidelake_target"
SOURCE = "tidelake_source"

MAX_DELETE_LITERALS = 10_000  # above, MERGE: a list is parsed and planned item by item

# What the engine wants from every session it runs in; bootstrap applies it.
SESSION_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",  # near the core count
    "spark.sql.autoBroadcastJoinThreshold": str(64 * 1024 * 1024),
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 cannot be pruned
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false",
    "spark.databricks.delta.insertReplaceOnOrUsing.materializeSource": "none",  # persisted
    "spark.databricks.delta.delete.deletionVectors.persistent": "true",
    "spark.databricks.delta.merge.deletionVectors.persistent": "true",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyColumn:
    """One key column of a batch, and the batch's bounds of it as SQL literals."""

    name: str  # quoted
    type: DataType
    low: str
    high: str
    anchor: str | None  # of the upsert that deletes are mapped on

    @property
    def in_range(self) -> str:
        return f"{TARGET}.{self.name} BETWEEN {self.low} AND {self.high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchKeys:
    upserts: int
    deletes: int
    columns: tuple[KeyColumn, ...]

    @property
    def in_range(self) -> str:
        return " AND ".join(column.in_range for column in self.columns)


class SparkEngine:
    """Commits a DataFrame of changes, in the session that the frame belongs to.

    A commit reads its changes several times: they are kept for as long.
    """

    name = "spark"

    def __init__(self, storage_options: Mapping[str, str]) -> None:
        self._storage_options = dict(storage_options)

    def apply(self, write: TableWrite) -> Applied | Skipped:
        before = self._look(write)
        if isinstance(before, Skipped):
            return before
        changes = cast("DataFrame", write.changes)
        persisted = changes.storageLevel == StorageLevel.NONE
        if persisted:
            changes.persist()
        try:
            self._commit(write, changes)
        except CONFLICTS as error:
            raise TryAgain(f"another commit came first on {write.target.uri}") from error
        except (PySparkException, Py4JError) as error:
            if is_storage_error(error):
                raise storage_error("write to", write.target.uri, error) from error
            raise
        finally:
            if persisted:
                changes.unpersist()
        after = self._look(write)
        if isinstance(after, Skipped) and after.identity == write.limit:
            return Applied(after.version)
        if isinstance(after, Skipped):
            return after
        raise TryAgain(f"the commit of {write.limit} is not in the log of {write.target.uri}")

    def _look(self, write: TableWrite) -> Skipped | TargetState:
        """``Skipped`` when the table is at the limit or above; from one fresh handle."""
        state = inspect(write.target.uri, self._storage_options)
        if state is None:
            name = write.target.name
            raise TidelakeError(f"table {name} is gone from {write.target.uri}; restore it")
        identity = state.identity(write.target.app_id)
        if identity is not None and identity >= write.limit:
            return Skipped(state.version, Ts(identity))
        return state

    def _commit(self, write: TableWrite, changes: DataFrame) -> None:
        keys = read_keys(changes, write.target.schema.key)
        if keys.deletes > MAX_DELETE_LITERALS:
            _merge(write, changes, keys)
            return
        side = f"{TARGET}." if keys.upserts else ""  # replaceWhere knows no alias
        deleted = read_deleted(changes, keys, side) if keys.deletes else ""
        upserts = changes.where(F.col(OP_COLUMN) == UPSERT).drop(OP_COLUMN)
        if keys.upserts:
            condition = {"targetAlias": TARGET, "replaceOn": replace_condition(keys, deleted)}
        else:
            upserts = upserts.limit(0)
            condition = {"replaceWhere": deleted}
        writer = upserts.alias(SOURCE).write.format("delta").mode("overwrite").options(**condition)
        writer = writer.option("txnAppId", write.target.app_id).option("txnVersion", write.limit)
        writer = writer.option("userMetadata", write.user_metadata)
        write.before_commit()
        writer.save(write.target.uri)


def read_keys(changes: DataFrame, key: Sequence[str]) -> BatchKeys:
    """Counts, bounds and the anchor in one aggregate: one Spark job."""
    upsert = F.col(OP_COLUMN) == UPSERT
    fields = [F.col(quoted(name)).alias(f"k{number}") for number, name in enumerate(key)]
    anchor = F.min(F.when(upsert, F.struct(*fields)))
    types = [changes.schema[name].dataType for name in key]
    wanted: list[Column] = [F.count_if(upsert), F.count_if(~upsert)]
    for number, (name, of) in enumerate(zip(key, types, strict=True)):
        column = F.col(quoted(name))
        values = (F.min(column), F.max(column), anchor.getField(f"k{number}"))
        wanted += [written(value, of) for value in values]
    upserts, deletes, *found = changes.agg(*wanted).collect()[0]
    columns = (
        KeyColumn(
            name=quoted(name),
            type=of,
            low=literal(found[3 * number], of),
            high=literal(found[3 * number + 1], of),
            anchor=literal(found[3 * number + 2], of) if upserts else None,
        )
        for number, (name, of) in enumerate(zip(key, types, strict=True))
    )
    return BatchKeys(upserts=upserts, deletes=deletes, columns=tuple(columns))


def read_deleted(changes: DataFrame, keys: BatchKeys, side: str) -> str:
    """The predicate that the batch's deleted keys meet, as literals: one Spark job."""
    values = [written(F.col(column.name), column.type) for column in keys.columns]
    rows = changes.where(F.col(OP_COLUMN) == DELETE).select(*values).collect()
    types = [column.type for column in keys.columns]
    tuples = [", ".join(map(literal, row, types)) for row in rows]
    if len(types) == 1:
        return f"{side}{keys.columns[0].name} IN ({', '.join(tuples)})"
    names = ", ".join(f"{side}{column.name}" for column in keys.columns)
    return f"({names}) IN ({', '.join(f'({values})' for values in tuples)})"


def replace_condition(keys: BatchKeys, deleted: str) -> str:
    """Which target rows are replaced: those of an upserted key, and those of a deleted one."""
    equal = (
        f"CASE WHEN {deleted} THEN {column.anchor} ELSE {TARGET}.{column.name} END"
        f" = {SOURCE}.{column.name}"
        if deleted
        else f"{TARGET}.{column.name} = {SOURCE}.{column.name}"
        for column in keys.columns
    )
    return f"{' AND '.join(equal)} AND {keys.in_range}"


def _merge(write: TableWrite, changes: DataFrame, keys: BatchKeys) -> None:
    """Through a session of its own: MERGE reads its transaction identity from the session."""
    session = _session_for(write, changes.sparkSession)
    equal = replace_condition(keys, deleted="")
    names = [quoted(name) for name in changes.columns if name != OP_COLUMN]
    values: dict[str, str | Column] = {name: f"{SOURCE}.{name}" for name in names}
    is_delete = f"{SOURCE}.{quoted(OP_COLUMN)} = '{DELETE}'"
    merge = (
        DeltaTable.forPath(session, write.target.uri)
        .alias(TARGET)
        .merge(changes.alias(SOURCE), equal)
        .whenMatchedDelete(is_delete)
        .whenMatchedUpdate(set=values)
        .whenNotMatchedInsert(f"NOT ({is_delete})", values=values)
    )
    write.before_commit()
    merge.execute()


def _session_for(write: TableWrite, parent: SparkSession) -> SparkSession:
    session = parent.newSession()
    identity = {
        "spark.databricks.delta.write.txnAppId": write.target.app_id,
        "spark.databricks.delta.write.txnVersion": str(write.limit),
        "spark.databricks.delta.commitInfo.userMetadata": write.user_metadata,
    }
    for name, value in {**SESSION_CONF, **identity}.items():
        session.conf.set(name, value)
    return session
