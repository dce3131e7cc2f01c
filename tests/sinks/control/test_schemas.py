"""The shapes of tables as rows: each once, whoever says it again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from coordination.model import TableName, time_tso
from sinks.control.schemas import SCHEMA, SchemaRow, Schemas, columns_of
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
TS = time_tso(AT)
OF = TableSchema(
    columns=(
        Column(name="id", type=MySQLType.parse("bigint unsigned"), nullable=False),
        Column(name="v", type=MySQLType.parse("varchar(20)"), default="it's"),
        Column(name="n", type=MySQLType.parse("int"), generated="stored"),
        Column(name="m", type=MySQLType.parse("int"), generated="virtual"),
    ),
    key=("id",),
)
ROW = SchemaRow(
    changefeed_id="shop",
    schema_name="shop",
    table_name="orders",
    generation=1,
    commit_ts=TS,
    statement="CREATE TABLE …",
    columns=columns_of(OF),
    key=OF.key,
    delta_version=0,
)


def stored(warehouse: Path) -> list[dict[str, Any]]:
    rows = DeltaTable(str(warehouse / "_tidelake" / "schemas")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["table_name"], row["commit_ts"]))


def test_the_rows_of_a_table_come_back(tmp_path: Path) -> None:
    schemas, name = Schemas(str(tmp_path)), TableName("shop", "orders")
    assert schemas.of_table("shop", name) == []
    others = [replace(ROW, table_name="o"), replace(ROW, generation=2), replace(ROW, statement="")]
    schemas.add([ROW, *others[:2], replace(others[2], commit_ts=0)])
    found = schemas.of_table("shop", name)
    assert [row.statement for row in sorted(found, key=lambda row: row.commit_ts)] == [
        "",
        "CREATE TABLE …",
    ]
    assert replace(ROW, key=["id"]) in found


def test_a_row_says_all_of_a_shape(tmp_path: Path) -> None:
    Schemas(str(tmp_path)).add([ROW])
    (row,) = stored(tmp_path)
    assert list(row) == SCHEMA.names
    assert (row["commit_time"], row["statement"], row["key"]) == (AT, "CREATE TABLE …", ["id"])
    columns = [list(column.values()) for column in row["columns"]]
    assert columns == [
        ["id", "bigint unsigned", "decimal(20,0)", False, None, None],
        ["v", "varchar(20)", "string", True, "it's", None],
        ["n", "int", "int", True, None, "stored"],
        ["m", "int", None, True, None, "virtual"],
    ]


def test_what_is_said_again_changes_nothing(tmp_path: Path) -> None:
    schemas = Schemas(str(tmp_path))
    schemas.add([ROW, ROW])
    later = replace(ROW, commit_ts=TS + 1, statement="ALTER TABLE …", delta_version=7)
    Schemas(str(tmp_path)).add([ROW, later, replace(ROW, generation=2)])
    version = DeltaTable(str(tmp_path / "_tidelake" / "schemas")).version()
    schemas.add([later, replace(ROW, statement="CREATE TABLE again", delta_version=9)])
    assert DeltaTable(str(tmp_path / "_tidelake" / "schemas")).version() == version
    found = [
        (row["commit_ts"] - TS, row["generation"], row["statement"]) for row in stored(tmp_path)
    ]
    assert sorted(found) == [
        (0, 1, "CREATE TABLE …"),
        (0, 2, "CREATE TABLE …"),
        (1, 1, "ALTER TABLE …"),
    ]


def test_two_owners_at_once_add_each_row_once(tmp_path: Path) -> None:
    rows = [replace(ROW, commit_ts=TS + n) for n in range(12)]
    with ThreadPoolExecutor(2) as pool:
        for _ in pool.map(lambda _: [Schemas(str(tmp_path)).add([row]) for row in rows], range(2)):
            pass
    assert [row["commit_ts"] for row in stored(tmp_path)] == [TS + n for n in range(12)]


def test_a_table_without_a_statement_has_no_time(tmp_path: Path) -> None:
    Schemas(str(tmp_path)).add([replace(ROW, commit_ts=0, statement="")])
    (row,) = stored(tmp_path)
    assert (row["commit_time"], row["commit_ts"]) == (None, 0)


@pytest.mark.spark
def test_spark_reads_it_with_plain_sql(tmp_path: Path, spark: SparkSession) -> None:
    Schemas(str(tmp_path)).add([ROW])
    table = f"delta.`{tmp_path}/_tidelake/schemas`"
    columns = spark.sql(f"SELECT inline(columns) FROM {table}").select("name", "delta_type")
    assert columns.collect()[:2] == [("id", "decimal(20,0)"), ("v", "string")]
    assert spark.sql(f"SELECT key[0], delta_version FROM {table}").collect() == [("id", 0)]
    assert all(item.comment for item in spark.sql(f"DESCRIBE {table}").collect())
