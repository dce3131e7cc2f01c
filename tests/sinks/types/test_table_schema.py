"""MySQL types from their text, and the schema that a row alone tells."""

from __future__ import annotations

import pytest

from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema, schema_from_mysql_types

PARSED = {
    "int(11) unsigned zerofill": MySQLType(name="int", unsigned=True, length=11),
    "int zerofill": MySQLType(name="int", unsigned=True),
    "INTEGER ( 10 ) UNSIGNED": MySQLType(name="int", unsigned=True, length=10),
    "bigint(20)": MySQLType(name="bigint", length=20),
    "int8": MySQLType(name="bigint"),
    "middleint": MySQLType(name="mediumint"),
    "decimal": MySQLType(name="decimal"),
    "decimal unsigned": MySQLType(name="decimal", unsigned=True),
    "decimal(10)": MySQLType(name="decimal", length=10, scale=0),
    "decimal(20,4) unsigned": MySQLType(name="decimal", unsigned=True, length=20, scale=4),
    "numeric(5, 2)": MySQLType(name="decimal", length=5, scale=2),
    "dec(5)": MySQLType(name="decimal", length=5, scale=0),
    "fixed": MySQLType(name="decimal"),
    "bool": MySQLType(name="tinyint", length=1),
    "boolean": MySQLType(name="tinyint", length=1),
    "serial": MySQLType(name="bigint", unsigned=True),
    "float(7,4)": MySQLType(name="float", length=7, scale=4),
    "float(24)": MySQLType(name="float", length=24),
    "float(25)": MySQLType(name="double"),
    "double precision": MySQLType(name="double"),
    "real": MySQLType(name="double"),
    "bit(64)": MySQLType(name="bit", length=64),
    "year(4)": MySQLType(name="year", length=4),
    "datetime(6)": MySQLType(name="datetime", length=6),
    "datetime(0)": MySQLType(name="datetime"),
    "datetime(?)": MySQLType(name="datetime", is_untold=True),
    "double(?) unsigned": MySQLType(name="double", unsigned=True, is_untold=True),
    "varchar(64)": MySQLType(name="varchar", length=64),
    "nvarchar(3)": MySQLType(name="varchar", length=3),
    "nchar(3)": MySQLType(name="char", length=3),
    "national character varying(3)": MySQLType(name="varchar", length=3),
    "char byte": MySQLType(name="binary"),
    "char(5) byte": MySQLType(name="binary", length=5),
    "char character set gbk": MySQLType(name="char"),
    "varchar(5) character set binary": MySQLType(name="varbinary", length=5),
    "varchar(5) collate binary": MySQLType(name="varbinary", length=5),
    "varchar(5) collate utf8mb4_bin": MySQLType(name="varchar", length=5),
    "text charset binary": MySQLType(name="blob"),
    "long varchar": MySQLType(name="mediumtext"),
    "long varbinary": MySQLType(name="mediumblob"),
    "long": MySQLType(name="mediumtext"),
    "vector(3)": MySQLType(name="vector", length=3),
    "vector<float>": MySQLType(name="vector"),
    "json": MySQLType(name="json"),
    "geometry": MySQLType(name="geometry"),
    "geomcollection": MySQLType(name="geometrycollection"),
    "enum": MySQLType(name="enum"),
    "enum('a','b,c','d''e','中文','')": MySQLType(
        name="enum", elements=("a", "b,c", "d'e", "中文", "")
    ),
    "ENUM('it''s unsigned)', 'B')": MySQLType(name="enum", elements=("it's unsigned)", "B")),
    r"set('x','back\','w v')": MySQLType(name="set", elements=("x", "back\\", "w v")),
}


@pytest.mark.parametrize(("text", "expected"), PARSED.items())
def test_a_type_is_read_from_its_text_and_writes_itself_back(
    text: str, expected: MySQLType
) -> None:
    assert MySQLType.parse(text) == expected
    assert MySQLType.parse(str(expected)) == expected


@pytest.mark.parametrize("text", ["", "  ", "(11)", "'a'", "11"])
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a MySQL type"):
        MySQLType.parse(text)


SCHEMA = TableSchema(
    columns=(
        Column(name="Id", type=MySQLType.parse("bigint unsigned"), nullable=False),
        Column(name="列`名", type=MySQLType.parse("enum('a''b','')")),
        Column(name="v", type=MySQLType.parse("int"), generated="virtual"),
        Column(name="s", type=MySQLType.parse("decimal(10,2)"), generated="stored"),
    ),
    key=("Id",),
    key_index="uk",
)


def test_a_schema_survives_the_properties_of_a_table() -> None:
    assert TableSchema.from_json(SCHEMA.to_json()) == SCHEMA
    keyless = TableSchema(columns=SCHEMA.columns, key=())
    assert TableSchema.from_json(keyless.to_json()) == keyless


def test_virtual_columns_are_not_delivered() -> None:
    assert [column.name for column in SCHEMA.delivered] == ["Id", "列`名", "s"]


def test_a_column_is_found_in_any_case() -> None:
    assert SCHEMA.column("iD").name == "Id"
    with pytest.raises(KeyError):
        SCHEMA.column("other")


def test_full_types_of_a_row_need_no_warning() -> None:
    types = {"a": "decimal(10,2)", "ID": "bigint(20)", "b": "varchar(64)", "c": "bit(3)"}
    schema, warnings = schema_from_mysql_types(types, ["id"])
    assert warnings == []
    assert [column.name for column in schema.columns] == ["a", "ID", "b", "c"]
    assert schema.key == ("ID",)
    assert schema.key_index is None
    assert [column.nullable for column in schema.columns] == [True, False, True, True]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("decimal", "precision of its decimal: kept as string"),
        ("decimal unsigned", "precision of its decimal: kept as string"),
        ("enum", "elements of its enum: the index is kept as text"),
        ("set", "elements of its set: the bitmask is kept as text"),
        ("bit", "width of its bit: kept as decimal(20,0)"),
        ("xmltype", "unknown type xmltype: kept as string"),
    ],
)
def test_what_a_row_does_not_tell_is_said(text: str, warning: str) -> None:
    _, warnings = schema_from_mysql_types({"id": "int", "c": text}, ["id"])
    assert len(warnings) == 1
    assert warnings[0].startswith("column c: ")
    assert warning in warnings[0]


@pytest.mark.parametrize("text", ["int", "varchar", "text", "datetime", "binary", "year", "vector"])
def test_bare_names_that_say_enough_pass_without_a_warning(text: str) -> None:
    assert schema_from_mysql_types({"id": text}, ["id"])[1] == []


def test_digits_that_a_row_does_not_tell_are_not_taken_for_none() -> None:
    types = {"id": "int", "d": "datetime", "s": "timestamp(0)", "t": "time(3)", "f": "float"}
    schema, _ = schema_from_mysql_types(types, ["id"])
    found = [str(column.type) for column in schema.columns]
    assert found == ["int", "datetime(?)", "timestamp", "time(3)", "float(?)"]
    assert [each.type.digits for each in schema.columns[1:4]] == [None, 0, 3]
    assert TableSchema.from_json(schema.to_json()) == schema
    full, _ = schema_from_mysql_types({**types, "id": "int(11)"}, ["id"])
    assert [str(column.type) for column in full.columns] == [
        "int(11)", "datetime", "timestamp", "time(3)", "float",
    ]  # fmt: skip


def test_a_definition_completes_what_rows_did_not_tell() -> None:
    def made(types: dict[str, str]) -> TableSchema:
        columns = (Column(name=name, type=MySQLType.parse(text)) for name, text in types.items())
        return TableSchema(columns=tuple(columns), key=())

    told = made({"a": "datetime(?)", "b": "time(?)", "c": "float(?)", "d": "int", "e": "datetime"})
    file = {"A": "datetime(3)", "b": "datetime", "c": "float unsigned", "d": "bigint", "e": "date"}
    found = [str(column.type) for column in told.completed(made(file)).columns]
    assert found == ["datetime(3)", "time(?)", "float(?)", "int", "datetime"]
    names = made({"e": "enum", "s": "set"}).completed(made({"e": "enum('a')", "s": "enum('a')"}))
    assert names.column("e").type == MySQLType(name="enum", elements=("a",), is_untold=True)
    assert names.column("s").type == MySQLType(name="set")


def test_rows_without_a_primary_key_are_warned_about() -> None:
    schema, warnings = schema_from_mysql_types({"a": "int"}, [])
    assert schema.key == ()
    assert "primary key" in warnings[0]


def test_a_key_that_is_no_column_is_refused() -> None:
    with pytest.raises(ValueError, match="pkNames has other"):
        schema_from_mysql_types({"a": "int"}, ["other"])
