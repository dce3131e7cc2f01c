"""New target tables: one commit that has schema, features and properties (design 3, rule 5).

Delta Kernel makes it, without a Spark job: a tenth of the time of Spark's CREATE TABLE, which is
what counts when a changefeed begins with hundreds of tables. It comes with delta-spark and uses the
same log stores; where a platform has a Delta of its own and no Kernel (Databricks), Spark does it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass

from coordination.errors import TidelakeError
from sinks.apply import Target
from sinks.casts import delta_type
from sinks.jvm_errors import line
from sinks.schema import TableSchema
from sinks.storage_errors import is_storage_error, storage_error
from sinks.tables import CHANGEFEED, DDL, INCARNATION, KEY, SCHEMA, DdlIdentity, TableState, inspect

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

TABLE_FEATURES = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
INDEXED_COLUMNS = 32  # as many as Delta gives statistics by default
# Delta refuses binary and array in dataSkippingStatsColumns. delta-rs rounds the statistics of
# decimals to doubles (bigint unsigned is one), and a reader that trusts them loses rows: none then.
NO_STATISTICS = ("binary", "array", "decimal")

ENGINE_INFO = "tidelake"
LOG_FOLDER = "_delta_log"
# Kernel's names of types are those of Delta's log, not of SQL.
KERNEL_NAMES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}


def create(
    spark: SparkSession,
    target: Target,
    *,
    properties: Mapping[str, str],
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Create the table in one commit. A table that this very DDL has made already is left as it is.

    ``properties`` come from ``tables.ownership``; schema and key are added here.
    """
    options = storage_options or {}
    present = inspect(target.uri, options)
    if present is None:
        make = through_kernel if has_kernel(spark) else through_spark
        try:
            make(spark, target, table_properties(target.schema, properties))
        except Exception as error:
            present = inspect(target.uri, options)
            if present is None:  # not another process that was faster: a real failure
                raise _cannot_create(target, error) from error
    if present is not None:
        _check_ours(target, properties, present)


def has_kernel(spark: SparkSession) -> bool:
    """Whether the JVM has Delta Kernel with its default engine."""
    kernel = _jvm(spark).io.delta.kernel
    classes = (kernel.TableManager, kernel.defaults.engine.DefaultEngine)
    return all(isinstance(each, JavaClass) for each in classes)


def through_kernel(spark: SparkSession, target: Target, properties: Mapping[str, str]) -> None:
    """By Delta Kernel, with the Hadoop settings of the session."""
    jvm = _jvm(spark)
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    path = jvm.org.apache.hadoop.fs.Path(target.uri)
    files = path.getFileSystem(conf)
    if files.exists(path):
        names = {each.getPath().getName() for each in files.listStatus(path)}
        if names - {LOG_FOLDER}:
            raise TidelakeError(f"the folder holds {min(names - {LOG_FOLDER})}, which is no table")
    kernel = jvm.io.delta.kernel
    columns = kernel.types.StructType()
    for column in target.schema.delivered:
        columns = columns.add(column.name, _kernel_type(kernel.types, delta_type(column.type)))
    builder = kernel.TableManager.buildCreateTableTransaction(target.uri, columns, ENGINE_INFO)
    builder = builder.withTableProperties(dict(properties)).withMaxRetries(0)
    engine = kernel.defaults.engine.DefaultEngine.create(conf)
    builder.build(engine).commit(engine, kernel.utils.CloseableIterable.emptyIterable())


def through_spark(spark: SparkSession, target: Target, properties: Mapping[str, str]) -> None:
    """By Spark's CREATE TABLE."""
    from delta.tables import DeltaTable  # slow to import

    builder = DeltaTable.create(spark).location(target.uri)
    for column in target.schema.delivered:
        builder = builder.addColumn(column.name, delta_type(column.type))
    for name, value in properties.items():
        builder = builder.property(name, value)
    builder.execute()


def table_properties(schema: TableSchema, properties: Mapping[str, str]) -> dict[str, str]:
    """All properties of a new table: features, statistics for the key, ownership, schema."""
    found = {
        **TABLE_FEATURES,
        **properties,
        KEY: json.dumps(list(schema.key), ensure_ascii=False),
        SCHEMA: schema.to_json(),
    }
    statistics = _statistics_columns(schema)
    if statistics:
        found["delta.dataSkippingStatsColumns"] = ",".join(statistics)
    else:
        found["delta.dataSkippingNumIndexedCols"] = "0"
    return found


def _statistics_columns(schema: TableSchema) -> list[str]:
    """Key columns first, then the table's first ones; only those whose statistics can be trusted.

    Always a list, never Delta's default of "the first 32": a decimal that is added later must not
    get statistics by itself.
    """
    types = {column.name: delta_type(column.type) for column in schema.delivered}
    names = dict.fromkeys([*schema.key, *types])
    able = [name for name in names if not types[name].startswith(NO_STATISTICS)]
    return ["`" + name.replace("`", "``") + "`" for name in able[:INDEXED_COLUMNS]]


def _kernel_type(types: Any, spark_type: str) -> JavaObject:
    """Kernel's type of a Spark SQL type as ``casts.delta_type`` writes it."""
    if decimal := re.fullmatch(r"decimal\((\d+),(\d+)\)", spark_type):
        return types.DecimalType(*map(int, decimal.groups()))
    if array := re.fullmatch(r"array<(\w+)>", spark_type):
        return types.ArrayType(_kernel_type(types, array[1]), True)
    return types.BasePrimitiveType.createPrimitive(KERNEL_NAMES.get(spark_type, spark_type))


def _jvm(spark: SparkSession) -> Any:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return jvm


def _check_ours(target: Target, wanted: Mapping[str, str], present: TableState) -> None:
    where = f"table {target.name} at {target.uri}"
    if present.changefeed_id is None:
        raise TidelakeError(
            f"{where} was not made by Tidelake; move it away, or choose another sink-uri"
        )
    if present.changefeed_id != wanted[CHANGEFEED]:
        raise TidelakeError(
            f"{where} belongs to changefeed {present.changefeed_id!r}, not to"
            f" {wanted[CHANGEFEED]!r}; move it away, or choose another sink-uri"
        )
    if (present.incarnation or 0) > int(wanted[INCARNATION]):
        raise TidelakeError(
            f"{where} belongs to incarnation {present.incarnation} of {present.changefeed_id!r},"
            f" newer than {wanted[INCARNATION]}: another run has rewound it; end this one"
        )
    ddl = DdlIdentity.from_json(wanted[DDL])
    if not ddl.same_as(present.ddl):
        made = "an unknown statement" if present.ddl is None else f"ts {present.ddl.commit_ts}"
        raise TidelakeError(
            f"{where} was created by another DDL ({made}) than the one at"
            f" commit-ts {ddl.commit_ts}; move it away and replay from before that DDL"
        )


def _cannot_create(target: Target, error: Exception) -> TidelakeError:
    if is_storage_error(error):
        return storage_error(f"create table {target.name} at", target.uri, error)
    return TidelakeError(
        f"cannot create table {target.name} at {target.uri}: {line(error)}"
        " (the folder must be empty and writable)"
    )
