"""The Spark engine: writes by one MERGE, in one commit, the tables that merge-on-write does not.

The MERGE's condition has the range of *all* keys of the batch as literals, those of inserts too,
since inserts are matched as well (rule 4). Files out of the range are not read (except for decimal
keys, which have no statistics).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name everybody gives it
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from coordination.errors import TidelakeError, TryAgain
from coordination.model import SEALED_TS
from sinks.merge_on_write.log.brought_back import LogNow, look
from sinks.spark.session_settings import COMPILED, SESSION_CONF
from sinks.storage.errors import is_storage_error, one_sentence, storage_error
from sinks.storage.open_storage import open_storage
from sinks.target.engine_port import (
    DELETE,
    OP_COLUMN,
    Applied,
    LastSeen,
    Skipped,
    TableAltered,
    TableBroughtBack,
    TableWrite,
    Target,
)
from sinks.target.table_properties import ALTERED
from sinks.target.target_table import TargetState, inspect
from sinks.types.delta_types import quoted

# In Java all others are subclasses of the first one, in Python none is.
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

# Long aliases: with a short one like "t", Spark would take it for a column of that name.
TARGET = "tidelake_target"
SOURCE = "tidelake_source"


class SparkEngine:
    """Commits a DataFrame of changes, in a new session made from the DataFrame's own."""

    name = "spark"

    def __init__(self, storage_options: Mapping[str, str]) -> None:
        self._storage_options = dict(storage_options)

    def apply(self, write: TableWrite) -> Applied | Skipped:
        write.target.refuse_for_spark()
        before = self._there(write.target)
        self._refuse_brought_back(write, before, write.last)
        if (there := _reached(write, before)) is not None:
            return there
        try:
            _merge(write, cast("DataFrame", write.changes))
        except CONFLICTS as error:
            raise TryAgain(f"another commit came first on {write.target.uri}") from error
        except (PySparkException, Py4JError) as error:
            if is_storage_error(error):
                raise storage_error("write to", write.target.uri, error) from error
            raise
        after = self._there(write.target)
        identity = after.identity(write.target.app_id)
        if after.version != before.version + 1 or identity != write.limit:  # not ours alone came
            self._refuse_brought_back(write, after, write.last and LastSeen(before.version, None))
        reached = _reached(write, after)
        if reached is None:
            raise TryAgain(f"the commit of {write.limit} is not in the log of {write.target.uri}")
        return Applied(reached.version) if reached.identity == write.limit else reached

    def check_shape(self, target: Target) -> None:
        _refuse_altered(target, self._there(target))

    def _there(self, target: Target) -> TargetState:
        """The table as a new handle shows it. Raises TidelakeError where it is gone."""
        state = inspect(target.uri, self._storage_options)
        if state is None:
            raise TidelakeError(f"table {target.name} is gone from {target.uri}; restore it")
        return state

    def _refuse_brought_back(
        self, write: TableWrite, state: TargetState, last: LastSeen | None
    ) -> None:
        identity = state.identity(write.target.app_id)
        if last is None or identity == SEALED_TS:
            return
        now = LogNow(version=state.version, identity=identity, properties=state.properties)
        with one_sentence("read the Delta log of", write.target.uri):
            found = look(open_storage(write.target.uri, self._storage_options), last, now)
        if found is not None:
            raise TableBroughtBack(found.sentence(write.target.name))


def _refuse_altered(target: Target, state: TargetState) -> None:
    if target.shaped_by not in (None, state.properties.get(ALTERED, "")):
        raise TableAltered(f"a DDL has run on {target.name}")


def _reached(write: TableWrite, state: TargetState) -> Skipped | None:
    """The table's identity where it is at the write's limit or above; else None. Raises
    TableAltered."""
    _refuse_altered(write.target, state)
    identity = state.identity(write.target.app_id)
    if identity is None or identity < write.limit:
        return None
    return Skipped(state.version, identity)


def _merge(write: TableWrite, changes: DataFrame) -> None:
    names = [quoted(name) for name in changes.columns if name != OP_COLUMN]
    values: dict[str, str | Column] = {name: f"{SOURCE}.{name}" for name in names}
    is_delete = f"{SOURCE}.{quoted(OP_COLUMN)} = '{DELETE}'"
    merge = (
        DeltaTable.forPath(_session_for(write, changes.sparkSession), write.target.uri)
        .alias(TARGET)
        .merge(changes.alias(SOURCE), _same_key(changes, write.target.schema.key))
        .whenMatchedDelete(is_delete)
        .whenMatchedUpdate(set=values)
        .whenNotMatchedInsert(f"NOT ({is_delete})", values=values)
    )
    write.before_commit()
    merge.execute()


def _session_for(write: TableWrite, parent: SparkSession) -> SparkSession:
    """A session for this write alone, since MERGE takes its transaction identity from the
    session."""
    session = parent.newSession()
    identity = {
        "spark.databricks.delta.write.txnAppId": write.target.app_id,
        "spark.databricks.delta.write.txnVersion": str(write.limit),
        "spark.databricks.delta.commitInfo.userMetadata": write.user_metadata,
    }
    for name, value in {**SESSION_CONF, **COMPILED, **identity}.items():
        session.conf.set(name, value)
    return session


def _same_key(changes: DataFrame, key: Sequence[str]) -> str:
    """The MERGE's condition: equal keys, within the range of all keys of the batch. Finding that
    range takes one Spark job. A key that is a date may be NULL, which stands for 0000-00-00."""
    types = [changes.schema[name].dataType for name in key]
    wanted = [
        _written(bound(F.col(quoted(name))), of)
        for name, of in zip(key, types, strict=True)
        for bound in (F.min, F.max)
    ]
    nulls = [F.count_if(F.col(quoted(name)).isNull()) for name in key]
    found = changes.agg(*wanted, *nulls).collect()[0]
    parts = []
    for number, (name, of) in enumerate(zip(map(quoted, key), types, strict=True)):
        if found[len(wanted) + number]:
            parts.append(f"{TARGET}.{name} <=> {SOURCE}.{name}")
            continue
        low, high = (_literal(text, of) for text in found[2 * number : 2 * number + 2])
        parts.append(f"{TARGET}.{name} = {SOURCE}.{name}")
        parts.append(f"{TARGET}.{name} BETWEEN {low} AND {high}")
    return " AND ".join(parts)


def _written(key: Column, of: DataType) -> Column:
    """The key as text for ``_literal``, exactly: not rounded, not re-encoded, without a time zone's
    influence. Strings and bytes become hexadecimal digits."""
    match of:
        case StringType() | BinaryType():
            return F.hex(key.cast("binary"))
        case TimestampType():
            return F.unix_micros(key).cast("string")
        case DateType() | TimestampNTZType() | NumericType():
            return key.cast("string")
        case _:
            raise TidelakeError(f"a key column of type {of.simpleString()} cannot be matched")


def _literal(text: str, of: DataType) -> str:
    """A SQL literal of exactly the column's type. With another type Spark would cast the column,
    and read every file."""
    match of:
        case StringType():
            return f"CAST(X'{text}' AS STRING)"
        case BinaryType():
            return f"X'{text}'"
        case TimestampType():
            return f"timestamp_micros({text})"
        case TimestampNTZType() | DateType():
            return f"{of.typeName()}'{text}'"
        case _:
            return f"CAST('{text}' AS {of.simpleString()})"
