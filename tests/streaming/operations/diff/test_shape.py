"""Which columns are compared."""

from __future__ import annotations

import pytest

from coordination.model import TableName
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from streaming.operations.diff.shape import NotComparable, compared, compared_together


def column(name: str, of: str, **more: object) -> Column:
    return Column(name=name, type=MySQLType.parse(of), **more)  # type: ignore[arg-type]


SCHEMA = TableSchema(
    columns=(
        column("Id", "bigint"),
        column("v", "varchar(20)"),
        column("twice", "int", generated="virtual"),
    ),
    key=("Id",),
)
THERE = {"id": "bigint(20)", "v": "varchar(30)", "twice": "int"}


def types(texts: dict[str, str]) -> dict[str, MySQLType]:
    return {name: MySQLType.parse(text) for name, text in texts.items()}


def test_names_are_equal_in_any_case_and_virtual_columns_are_left_out() -> None:
    shape = compared(SCHEMA, {"Id", "v"}, types(THERE))
    assert [each.name for each in shape.key] == ["Id"]
    assert [each.name for each in shape.cells] == ["v"]
    assert shape.differences == ()
    assert shape.not_here == ("twice (virtual)",)


def test_a_virtual_column_that_the_table_has_is_compared() -> None:
    shape = compared(SCHEMA, {"Id", "v", "twice"}, types(THERE))
    assert [each.name for each in shape.cells] == ["v", "twice"]
    assert shape.not_here == ()


def test_other_types_are_told() -> None:
    shape = compared(SCHEMA, {"Id", "v"}, types({**THERE, "v": "datetime"}))
    assert shape.differences == (
        "column v is datetime in the database, and varchar(20) (string) in the table",
    )


@pytest.mark.parametrize(
    ("schema", "there", "says"),
    [
        (TableSchema(columns=SCHEMA.columns, key=()), THERE, "it has no key"),
        (SCHEMA, {"v": "int"}, "its key has the column Id, which the database lacks"),
    ],
)
def test_what_cannot_be_compared(schema: TableSchema, there: dict[str, str], says: str) -> None:
    with pytest.raises(NotComparable, match=says):
        compared(schema, {"Id", "v"}, types(there))


def test_of_several_tables_the_columns_that_all_have_are_compared() -> None:
    schema = TableSchema(
        columns=(*SCHEMA.columns, column("w", "int"), column("z", "int")), key=("Id",)
    )
    full = types({**THERE, "w": "int"})
    tables = {TableName("shop", f"t{at}"): full for at in range(6)}
    tables[TableName("shop", "t1")] = types(THERE)
    shape = compared_together(schema, {"Id", "v", "w", "z"}, tables)
    assert [each.name for each in shape.cells] == ["v"]
    assert shape.differences == (
        "column z is in the table alone",
        "column w is in the table alone (of shop.t1)",
    )
    tables = {name: types({**THERE, "more": "int"}) for name in tables}
    tables[TableName("shop", "last")] = types(THERE)
    (more,) = compared_together(SCHEMA, {"Id", "v"}, tables).differences
    assert (
        more == "column more is in the database alone (of shop.t0, shop.t1, shop.t2 and 3 others)"
    )
