"""Each MySQL type at its extremes, in each protocol: values in, values in Delta, read back."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pytest

from coordination.model import TableName, Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.target.engine_port import OP_COLUMN, UPSERT, TableWrite, Target, app_id
from sinks.types.delta_types import arrow_type
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from tests.services import wire
from tests.services.delta_rows import first_difference, read_rows
from tests.streaming.apply.type_matrix.extremes import with_extremes
from tests.streaming.apply.type_matrix.matrix import (
    LOST,
    PAGE,
    PROTOCOLS,
    ROWS,
    cells_of,
    unexplained,
    with_table,
)
from tests.streaming.apply.type_matrix.readings import DEAD, LOAD, NAME, schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = TableName("types", "values")
KEY = ("recording", "state", "id")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_cell_is_the_databases_or_lost_as_it_is_said(protocol: str) -> None:
    assert unexplained(protocol) == []


@pytest.mark.parametrize(("protocol", "row"), LOST)
def test_what_is_said_to_be_lost_is_lost(protocol: str, row: str) -> None:
    assert {cell.column for cell in cells_of(protocol)} & set(ROWS[row].split())


def test_the_page_has_what_was_found() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page) == page, "python -m tests.streaming.apply.type_matrix.matrix"


def test_each_column_is_in_one_row() -> None:
    named = [column for columns in ROWS.values() for column in columns.split()]
    assert sorted(named) == sorted(wire.expected(LOAD)[NAME.table].columns)


def test_extremes_are_exchanged_for_others() -> None:
    before = wire.expected(LOAD)[NAME.table]
    pairs = zip(before.rows, with_extremes(before).rows, strict=True)
    found = {(name, row[name]) for old, row in pairs for name in row if row[name] != old[name]}
    assert found == {
        *(("c_float", sign * (2 - 2.0**-23) * 2.0**127) for sign in (-1, 1)),
        ("c_ufloat", 2.0**-149),
        *(("c_double", sign * 2.0**-1022) for sign in (-1, 1)),
        ("c_udouble", 2.0**-1074),
        ("c_timestamp", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ("c_timestamp6", datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)),
    }


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Of all recordings, as they are to be in one table. A cell of a dead letter is NULL."""
    return [
        {"recording": recording.name, "state": label}
        | {column: None if value is DEAD else value for column, value in row.items()}
        for recordings in PROTOCOLS.values()
        for recording in recordings
        for label in recording.labels
        for row in recording.values(label).values()
    ]


@pytest.fixture(scope="module")
def delta(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows in a Delta table, as the product makes and writes one."""
    uri = tmp_path_factory.mktemp("types") / "values"
    named = [Column(name=each, type=MySQLType.parse("varchar(80)")) for each in KEY[:2]]
    of = TableSchema(columns=(*named, *schema().columns), key=KEY)
    target = Target(name=ALL, uri=str(uri), schema=of, app_id=app_id("types", 1, ALL))
    create(target, properties={})
    columns = {
        each.name: pa.array([row[each.name] for row in rows], arrow_type(each.type))
        for each in of.delivered
    }
    engine = MergeOnWriteEngine({}, keeps_up=False)
    engine.apply(
        TableWrite(
            target=target,
            checkpoint=Ts(0),
            limit=Ts(1),
            changes=pa.table({**columns, OP_COLUMN: [UPSERT] * len(rows)}),
            user_metadata="{}",
            before_commit=lambda: None,
        )
    )
    engine.close()
    return uri


def test_delta_rs_reads_what_was_written(rows: list[dict[str, Any]], delta: Path) -> None:
    assert first_difference(rows, read_rows(delta), KEY) is None


def test_duckdb_reads_what_was_written(rows: list[dict[str, Any]], delta: Path) -> None:
    (folder,) = duckdb_extension_delta.__path__
    (extension,) = Path(folder).rglob("*.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(f"SELECT * FROM delta_scan('{delta}')").to_arrow_table()
    assert first_difference(rows, found.to_pylist(), KEY) is None


@pytest.mark.spark
def test_spark_reads_what_was_written(
    rows: list[dict[str, Any]], delta: Path, spark: SparkSession
) -> None:
    found = spark.read.format("delta").load(str(delta)).toArrow()
    assert first_difference(rows, found.to_pylist(), KEY) is None
