"""Chunks by every kind of key, in the order that the server has."""

from __future__ import annotations

from pathlib import Path

import pytest

from sinks.types.mysql_type import MySQLType
from streaming.source.dump.source_table import SourceColumn, key_of
from tests.services.database_server import DatabaseServer
from tests.streaming.source.dump.copied import one_copy, rows_of, table_of
from tests.streaming.source.dump.keyed_table import DIGITS, KEYS, ROWS, make

pytestmark = pytest.mark.mariadb


@pytest.mark.parametrize("name", KEYS)
def test_every_row_is_copied_once(server: DatabaseServer, schema: str, tmp_path: Path, name: str):
    make(server, *KEYS[name])
    table = table_of(server, schema, "t")
    copied = one_copy(server, table, tmp_path, rows_per_chunk=250)
    rows = rows_of(copied)
    keys = rows.select(list(table.key)).to_pylist()
    assert len(keys) == ROWS
    assert len({tuple(each.values()) for each in keys}) == ROWS
    assert copied.rows == ROWS
    assert set(rows.column("v").to_pylist()) == {7}
    assert 6 <= len(copied.files) <= 40
    assert copied.position is None


def test_the_first_unique_key_without_nulls_orders_a_table(
    server: DatabaseServer, schema: str, tmp_path: Path
):
    server.execute(
        "CREATE TABLE t (a INT NULL, b INT NOT NULL, c VARCHAR(9) NOT NULL, UNIQUE by_a (a),"
        " UNIQUE by_part (c(2)), UNIQUE by_b (b))",
        f"INSERT INTO t SELECT NULL, n, n + 10 FROM ({DIGITS.replace('2999', '88')}"
        " SELECT n FROM d) each_n",
        database=schema,
    )
    table = table_of(server, schema, "t")
    assert (table.key, table.index) == (("b",), "by_b")
    copied = one_copy(server, table, tmp_path, rows_per_chunk=10)
    assert sorted(rows_of(copied).column("b").to_pylist()) == list(range(89))


@pytest.mark.parametrize("told", [None, "NULL"])  # by MySQL and by TiDB
def test_an_index_by_an_expression_is_passed_by(told: str | None):
    number = SourceColumn(name="id", type=MySQLType.parse("int"), nullable=False)
    odd = SourceColumn(name="NULL", type=MySQLType.parse("int"), nullable=False)
    by_expression = [("by_sum", told, None), ("by_sum", "id", None)]
    assert key_of(by_expression, [number, odd]) == ("", ())
    assert key_of([*by_expression, ("z", "id", None)], [number]) == ("z", ("id",))
    assert key_of([("PRIMARY", "NULL", None)], [odd]) == ("PRIMARY", ("NULL",))
