"""Into which target each upstream table goes, and what of it a decoder and a table get."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest

from conf.route_rules import Extract, RouteRule
from conf.settings import FilterSettings
from coordination.errors import ConfigError
from coordination.model import TableName, Ts
from sinks.ddl.effects import CreateTable
from sinks.ddl.evolve import evolved
from sinks.ddl.statements import read_ddl
from sinks.types.table_schema import TableSchema
from streaming.apply.row_block import RowBlock, with_columns
from streaming.changefeed.routes import RoutedWanted, Routes, Shards, routed_blocks
from streaming.protocols.contract import (
    DDL_BODY,
    LETTER_HEAD,
    NO_TABLE,
    SCHEMA_BODY,
    VERSION,
    Block,
    Kind,
    WantedTable,
    ipc,
    key_names,
    tables_told,
    version_of,
    wire_types,
)
from tests.streaming.apply.blocks import Row, block_of

TARGET = TableName("shop", "orders")
SHARDS = RouteRule(
    matcher=("shop_*.orders_*", "!shop_*.orders_tmp"),
    target_schema="shop",
    target_table="orders",
    source_id="db-01",
    extract_table=Extract(regexp=r"orders_(\d+)(?:_(\w+))?", target_column="t"),
    extract_schema=Extract(regexp="shop_(.*)", target_column="s"),
    extract_source=Extract(regexp="db-(.*)", target_column="c"),
)
RENAMED = RouteRule(matcher=("old.*",), target_schema="new")


def routes(*rules: RouteRule, filter_rules: tuple[str, ...] = ("*.*",)) -> Routes:
    return Routes(rules, FilterSettings(rules=filter_rules))


def schema(query: str) -> TableSchema:
    (made,) = read_ddl(f"CREATE TABLE a ({query})", "CREATE", "d", "a").effects
    assert isinstance(made, CreateTable)
    return made.schema


@pytest.mark.parametrize(
    ("origin", "target", "columns"),
    [
        (("shop_1", "orders_2"), TARGET, {"t": "2", "s": "1", "c": "01"}),
        (("SHOP_1", "Orders_2_eu"), TARGET, {"t": "", "s": "", "c": "01"}),  # case as written
        (("shop_1", "orders_3_eu"), TARGET, {"t": "3eu", "s": "1", "c": "01"}),
        (("shop_1", "orders_x"), TARGET, {"t": "", "s": "1", "c": "01"}),
        (("shop_1", "orders_tmp"), TableName("shop_1", "orders_tmp"), {}),
        (("old", "a"), TableName("new", "a"), {}),
        (("other", "a"), TableName("other", "a"), {}),
        (("shop_1", ""), TableName("shop_1", ""), {}),
    ],
)
def test_where_a_table_goes(
    origin: tuple[str, str], target: TableName, columns: dict[str, str]
) -> None:
    found = routes(SHARDS, RENAMED).of(TableName(*origin))
    assert (found.target, dict(found.columns)) == (target, columns)
    assert found.is_merging == bool(columns)


def test_a_table_that_matches_two_routes_is_refused_and_not_decoded() -> None:
    both = routes(RENAMED, RouteRule(matcher=("*.a",), target_schema="all"))
    name = TableName("old", "a")
    with pytest.raises(ConfigError, match=r"table old\.a matches two of them"):
        both.of(name)
    assert name not in RoutedWanted(
        both, {TableName("new", "a"): WantedTable(above_ts=Ts(0), key=None)}
    )
    with pytest.raises(ConfigError, match="matches two of them"):
        list(routed_blocks([Block(kind=Kind.ROW, part="p", name=name)], both))


def test_a_decoder_asks_for_upstream_tables_after_a_pickle_too() -> None:
    wanted = {TARGET: WantedTable(above_ts=Ts(7), key=("id", "t", "s", "c"))}
    asked = RoutedWanted(routes(SHARDS, filter_rules=("*.*", "!shop_3.*")), wanted)
    for each in (asked, pickle.loads(pickle.dumps(asked))):
        assert each[TableName("shop_1", "orders_2")] == WantedTable(above_ts=Ts(7), key=("id",))
        assert TableName("shop_3", "orders_2") not in each
        assert TARGET not in each or each.routes.of(TARGET).target == TARGET
        assert each.get(TableName("other", "a")) is None


def test_blocks_go_by_targets_and_rows_get_the_columns() -> None:
    types = {"id": "int", "v": "text"}
    rows = [
        Row(op="INSERT", ts=5, data={"id": "1", "v": "a"}, types=types),
        Row(op="UPDATE", ts=6, data={"id": "2", "v": "a"}, old={"id": "1"}, types=types),
    ]
    origin = TableName("shop_1", "orders_2")
    given = [
        block_of(rows, origin),
        Block(kind=Kind.ROW, part="p", name=TableName("left", "out")),
        Block(kind=Kind.DDL, part="p", name=origin),
    ]
    found = list(routed_blocks(given, routes(SHARDS, filter_rules=("shop_*.*",))))
    assert [(each.kind, each.name, each.origin) for each in found] == [
        (Kind.ROW, TARGET, origin),
        (Kind.DDL, origin, NO_TABLE),
    ]
    (batch,) = RowBlock.of(found[0]).batches()
    told = {"t": "2", "s": "1", "c": "01"}
    assert batch.column("data").to_pylist() == [
        {"id": "1", "v": "a", **told},
        {"id": "2", "v": "a", **told},
    ]
    assert batch.column("old").to_pylist() == [None, {"id": "1", **told}]
    assert wire_types(batch.schema)["t"] == "varchar(255)"
    assert key_names(batch.schema) == ("id", "t", "s", "c")


def test_what_a_block_tells_besides_stays() -> None:
    """The version of a schema (simple), and what the letters of a binlog begin with."""
    row = Row(op="INSERT", ts=5, data={"id": "1"}, types={"id": "int"})
    (plain,) = RowBlock.of(block_of([row], TARGET)).plain_batches()
    told = {**plain.schema.metadata, VERSION: b"7", LETTER_HEAD: b"head"}
    batch = with_columns(plain.replace_schema_metadata(told), [("t", "2")])
    assert version_of(batch.schema) == 7
    assert batch.schema.metadata[LETTER_HEAD] == b"head"


@pytest.mark.parametrize("kind", [Kind.SCHEMA, Kind.DDL])
def test_tables_that_messages_tell_are_targets(kind: Kind) -> None:
    origins = [TableName("shop_1", "orders_2"), TableName("left", "out")]
    made = schema("id INT PRIMARY KEY, v INT").to_json()
    of = [(each.schema, each.table, 7, made) for each in origins]
    if kind is Kind.SCHEMA:
        names = ("schema_name", "table_name", "version", "definition")
        rows = [dict(zip(names, each, strict=True)) for each in of]
    else:
        rows = [{"query": "ALTER", "tables": json.dumps(of)}, {"query": "DROP"}]
    body = pa.Table.from_pylist(rows, SCHEMA_BODY if kind is Kind.SCHEMA else DDL_BODY)
    block = Block(kind=kind, part="p", name=origins[0], body=ipc(body))
    (found,) = routed_blocks([block], routes(SHARDS, filter_rules=("shop_*.*",)))
    (told,) = tables_told(found)
    assert (told.name, told.version) == (TARGET, 7)
    assert TableSchema.from_json(told.definition).key == ("id", "t", "s", "c")
    if kind is Kind.DDL:
        assert [each["query"] for each in found.table().to_pylist()] == ["ALTER", "DROP"]


def test_the_columns_belong_to_each_key_also_after_a_ddl() -> None:
    found = routes(SHARDS).extended(
        TableName("shop_1", "orders_2"),
        schema("id INT, u INT NOT NULL, v INT, PRIMARY KEY (id), UNIQUE uk (u), KEY k (v)"),
    )
    assert found.key == ("id", "t", "s", "c")
    assert {each.name: each.columns for each in found.indexes} == {
        "PRIMARY": ("id", "t", "s", "c"),
        "uk": ("u", "t", "s", "c"),
        "k": ("v",),
    }
    assert [each.name for each in found.columns] == ["id", "u", "v", "t", "s", "c"]
    (effect,) = read_ddl("ALTER TABLE a DROP v, ADD w INT", "ALTER", "d", "a").effects
    changes: Any = effect
    assert evolved(found, changes.changes).after.key == found.key


def test_a_column_of_that_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="has a column t itself: give target-column another name"):
        routes(SHARDS).extended(
            TableName("shop_1", "orders_2"), schema("id INT PRIMARY KEY, T INT")
        )


@pytest.mark.parametrize(
    ("rules", "origins", "says"),
    [
        ((RENAMED,), [("old", "a"), ("new", "a")], "no column tells their rows apart"),
        ((SHARDS,), [("shop_1", "orders_x"), ("shop_1", "orders_y")], "no column tells"),
        ((SHARDS,), [("shop_1", "orders_1"), ("shop", "orders")], "give it other columns"),
    ],
)
def test_tables_whose_rows_could_clash_do_not_go_together(
    rules: tuple[RouteRule, ...], origins: list[tuple[str, str]], says: str
) -> None:
    one, other = (TableName(*each) for each in origins)
    assert says in routes(*rules).clash(one, [other])
    with pytest.raises(ConfigError, match=says):
        routes(*rules).by_target([one, other])


def test_disjoint_keys_may_go_together() -> None:
    rule = RouteRule(matcher=("a*.t",), target_schema="d", target_table="t", disjoint_keys=True)
    names = [TableName("a1", "t"), TableName("a2", "t")]
    assert routes(rule).by_target(names) == {TableName("d", "t"): names}


def test_shards_as_a_property_say_the_same() -> None:
    names = [TableName("d", "ä.b"), TableName("d", "c")]
    found = Shards().joined(*names)
    behind = Shards({**found.behind, names[0]: ((Ts(5), "ALTER TABLE x"),)})
    for each in (Shards(), found, behind, behind.left(names[0])):
        assert Shards.of_text(each.to_text()) == each
    assert Shards.of_text("") == Shards()
    assert behind.joined(names[0]) == behind
