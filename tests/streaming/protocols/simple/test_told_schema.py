"""The schemas that TiCDC tells beside its DDLs are those that our parser reads in the DDLs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sinks.ddl.effects import AddIndex, AlterTable, CreateTable, DropIndex
from sinks.ddl.evolve import evolved
from sinks.ddl.statements import read_ddl
from sinks.types.mysql_type import INTEGER_TYPES, MySQLType
from sinks.types.table_schema import Column, TableSchema
from streaming.protocols.contract import ToldTable
from streaming.protocols.json_text.strict_json import Malformed, parse
from streaming.protocols.rows.parsed_message import Ddl, SchemaEvent
from streaming.protocols.simple import avro_reader
from streaming.protocols.simple.strict_parser import read
from streaming.protocols.simple.told_schema import told_table
from tests.services import wire
from tests.streaming.protocols.simple.reading import bootstrap, column, table, text_of


def told(found: dict[str, Any]) -> ToldTable:
    return told_table(parse(text_of(found)))


def comparable(schema: TableSchema) -> dict[str, Any]:
    """Without what the messages do not tell, such as the place of a column that was added AFTER
    another, and without the width that numbers are shown in."""
    columns = {each.name: plain(each) for each in schema.columns}
    indexes = {(each.name.lower(), each.columns, each.kind) for each in schema.indexes}
    return {
        "columns": columns,
        "key": schema.key,
        "key_index": schema.key_index,
        "indexes": {each for each in indexes if each[2] != "primary"},
    }


def plain(each: Column) -> Column:
    kind = each.type
    if kind.name in (*INTEGER_TYPES, "year", "vector", "tinytext", "text", "blob"):
        kind = replace(kind, length=None)
    return replace(each, type=kind, generated="", nullable=each.nullable)


def test_every_recorded_ddl_leads_to_the_schema_that_was_told():
    known: dict[str, TableSchema] = {}
    compared = 0
    for message in wire.partitions("simple-json")[0]:
        event = read(message.value)
        if not isinstance(event, Ddl) or not event.tables or "replay" in message.note:
            continue
        after = TableSchema.from_json(event.tables[0].definition)
        name = event.name.table
        if len(event.tables) > 1:
            before = TableSchema.from_json(event.tables[1].definition)
            assert comparable(before) == comparable(known[event.tables[1].name.table])
        for effect in read_ddl(event.query or "", event.ddl_type, "shop", name).effects:
            if isinstance(effect, CreateTable):
                known[name] = effect.schema
            elif isinstance(effect, AlterTable):
                known[name] = evolved(known[name], effect.changes).after
            elif isinstance(effect, AddIndex | DropIndex):
                pytest.fail(str(effect))
            elif event.ddl_type == "RENAME":
                known[name] = known.pop(event.tables[1].name.table)
            elif " LIKE " in (event.query or ""):
                known[name] = known["tmp_one"]
        assert comparable(after) == comparable(known[name]), event.query
        compared += 1
    assert compared > 25


def test_types_that_numbers_do_not_tell():
    types = {
        "float(12)": ("float", {"length": 12}),
        "float(7,3)": ("float", {"length": 7, "decimal": 3}),
        "double(9,0)": ("double", {"length": 9}),
        "decimal(20,0) unsigned": ("decimal", {"length": 20, "unsigned": True}),
        "bit(10)": ("bit", {"length": 10, "unsigned": True}),
        "timestamp(3)": ("timestamp", {"length": 23, "decimal": 3}),
        "year": ("year", {"length": 4, "unsigned": True, "zerofill": True}),
        "enum('a,b','it''s')": ("enum", {"elements": ["a,b", "it's"]}),
    }
    columns = [column(f"c{n}", kind, **more) for n, (kind, more) in enumerate(types.values())]
    found = TableSchema.from_json(told(table(columns=columns, indexes=[])).definition)
    expected = [MySQLType.parse("float"), *map(MySQLType.parse, [*types][1:])]
    assert [each.type for each in found.columns] == expected
    assert found.key == ()


def test_the_width_tells_the_fraction_of_a_second_where_digits_are_not_told():
    """So it is in TiCDC's Avro encoding. D of a FLOAT or DOUBLE with M is not known there."""
    schemas = {
        encoding: {
            (event.table.name.table, event.table.version): event.table.definition
            for message in wire.messages(f"simple-{encoding}")
            if isinstance(event := read_it(message.value or b""), SchemaEvent)
        }
        for encoding, read_it in (("json", read), ("avro", avro_reader.read))
    }
    assert len(schemas["json"]) > 5
    assert schemas["avro"] == schemas["json"]
    columns = [column("a", "double", length=9, decimal=None), column("b", "float", length=12)]
    found = TableSchema.from_json(told(table(columns=columns, indexes=[])).definition)
    assert [str(each.type) for each in found.columns] == ["double(?)", "float"]


def test_a_unique_key_is_told_as_the_key_and_as_itself():
    index = {"unique": True, "nullable": False, "columns": ["id"]}
    indexes = [
        {**index, "name": "uk", "primary": False},
        {**index, "name": "primary", "primary": True},
    ]
    found = TableSchema.from_json(told(table(indexes=indexes)).definition)
    assert (found.key, found.key_index, len(found.indexes)) == (("id",), "uk", 1)


def test_a_time_is_no_value_as_a_default():
    now = {**column("c", "timestamp"), "default": "CURRENT_TIMESTAMP"}
    found = TableSchema.from_json(told(table(columns=[now], indexes=[])).definition)
    assert found.columns[0].default_is_expression


@pytest.mark.parametrize(
    "change",
    [
        {"columns": []},
        {"columns": [{"name": "a"}]},
        {"columns": [column("a", "")]},
        {"columns": 3},
        {"version": None},
        {"version": "7"},
        {"table": ""},
        {"indexes": [{"name": "i", "columns": ["missing"]}]},
    ],
)
def test_what_is_no_schema(change: dict[str, Any]):
    with pytest.raises(Malformed):
        told(table(**change))
    event = read(bootstrap(tableSchema=table(**change)))
    assert not isinstance(event, SchemaEvent)


def test_a_definition_is_stored_as_any_other():
    definition = told(table()).definition
    assert TableSchema.from_json(definition).to_json() == json.dumps(
        json.loads(definition), ensure_ascii=False
    )
