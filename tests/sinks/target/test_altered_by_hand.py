"""A target's columns after somebody has altered it by hand. Without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import ArrayType, PrimitiveType

from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.target.altered_by_hand import DeltaColumn, delta_columns, schema_as_it_is
from sinks.types.delta_types import delta_type
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema

NAME = TableName("shop", "orders")
MADE = [
    Column(name="id", type=MySQLType.parse("bigint"), nullable=False),
    Column(name="state", type=MySQLType.parse("enum('new','paid')")),
    Column(name="sum", type=MySQLType.parse("int"), generated="virtual"),
]
STORED = TableSchema(columns=tuple(MADE), key=("id",))
ID, STATE = DeltaColumn("id", "bigint"), DeltaColumn("state", "string")


def read_as(*columns: DeltaColumn) -> dict[str, str]:
    found = schema_as_it_is(NAME, STORED, columns)
    assert found.key == STORED.key
    return {column.name: str(column.type) for column in found.delivered}


def test_a_table_as_it_was_made_keeps_its_schema() -> None:
    assert schema_as_it_is(NAME, STORED, [ID, STATE]) is STORED
    assert schema_as_it_is(NAME, STORED, [STATE, ID]) is STORED


def test_what_was_added_is_read_by_its_type_or_by_the_type_in_its_comment() -> None:
    types = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(12,3)", "string")
    types += ("binary", "date", "timestamp", "timestamp_ntz", "array<float>")
    added = [DeltaColumn(f"c{number}", of) for number, of in enumerate(types)]
    found = schema_as_it_is(NAME, STORED, [ID, STATE, *added])
    assert tuple(delta_type(column.type) for column in found.delivered[2:]) == types
    assert "sum" not in {column.name for column in found.delivered}

    enum = "enum('a','it''s')"
    assert read_as(ID, STATE, DeltaColumn("kind", "string", enum))["kind"] == enum
    assert read_as(ID, STATE, DeltaColumn("n", "bigint", "int unsigned"))["n"] == "int unsigned"
    for comment in ("a note", "int", "", "("):
        assert read_as(ID, STATE, DeltaColumn("note", "string", comment))["note"] == "text"


def test_what_no_value_is_cast_to_is_left_and_what_was_dropped_or_widened_is_followed() -> None:
    assert read_as(ID, STATE, DeltaColumn("flag", "boolean")) == read_as(ID, STATE)
    assert read_as(ID) == {"id": "bigint"}
    assert read_as(ID, DeltaColumn("state", "int")) == {"id": "bigint", "state": "int"}
    assert list(read_as(ID, DeltaColumn("status", "string"))) == ["id", "status"]


def test_a_table_without_its_key_is_refused() -> None:
    for columns in ([STATE], [DeltaColumn("id", "boolean"), STATE]):
        with pytest.raises(TidelakeError, match=r"shop\.orders has no key column id any more"):
            read_as(*columns)


def test_where_all_columns_are_the_key_one_that_was_added_is_in_it() -> None:
    by_all = replace(STORED, key=()).by_all_columns()
    found = schema_as_it_is(NAME, by_all, [ID, STATE, DeltaColumn("n", "int")])
    assert (found.key, found.key_is_row) == (("id", "state", "n"), True)
    with pytest.raises(TidelakeError, match="has no key column state any more"):
        schema_as_it_is(NAME, by_all, [ID])


def test_columns_are_read_from_the_log(tmp_path: Path) -> None:
    fields = [
        Field("id", PrimitiveType("long")),
        Field("kind", PrimitiveType("string"), metadata={"comment": "enum('a')"}),
        Field("price", PrimitiveType("decimal(10,2)")),
        Field("at", PrimitiveType("timestamp_ntz")),
        Field("near", ArrayType(PrimitiveType("float"), contains_null=True)),
        Field("deep", ArrayType(ArrayType(PrimitiveType("float"), contains_null=True), True)),
    ]
    handle = DeltaTable.create(str(tmp_path / "t"), Schema(fields))
    assert delta_columns(handle) == [
        DeltaColumn("id", "bigint"),
        DeltaColumn("kind", "string", "enum('a')"),
        DeltaColumn("price", "decimal(10,2)"),
        DeltaColumn("at", "timestamp_ntz"),
        DeltaColumn("near", "array<float>"),
        DeltaColumn("deep", "other"),
    ]
