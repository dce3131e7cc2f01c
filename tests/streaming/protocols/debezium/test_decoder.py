"""Debezium's messages, of TiCDC and of its own connectors."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest

from coordination.model import TableName
from sinks.types.casts.connect_cells import canal_texts
from sinks.types.mysql_type import MySQLType
from streaming.protocols.contract import (
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
    Block,
    Kind,
    Messages,
    Order,
    cells_of,
    key_names,
    order_of,
    wire_types,
    with_key,
)
from streaming.protocols.contract import Cells as CellKind
from streaming.protocols.debezium.columns import mysql_type
from streaming.protocols.debezium.decoder import are_ddls, own_ms
from streaming.protocols.decoders import decoder_of
from tests.services import wire
from tests.streaming.protocols.canal_json.reading import EveryTable, accounted

T = TableName("inventory", "t")
SOURCE = {
    "version": "3.0.0.Final", "connector": "mariadb", "name": "shop", "ts_ms": 1_700_000_000_123,
    "snapshot": "false", "db": "inventory", "sequence": None, "table": "t", "server_id": 1,
    "gtid": "0-1-7", "file": "binlog.000001", "pos": 4, "row": 0, "thread": 5, "query": None,
}  # fmt: skip


def field(column: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, "field": column, **more}


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    sides = [
        {"type": "struct", "fields": list(fields), "optional": True, "field": side}
        for side in ("before", "after")
    ]
    return {"type": "struct", "fields": sides, "optional": False, "name": "shop.t.Envelope"}


def row(op: str, *, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    told = {**SOURCE, **source}
    return {
        "before": before,
        "after": after,
        "source": told,
        "op": op,
        "ts_ms": 1,
        "transaction": None,
    }


def text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def read(*messages: tuple[Any, Any], numbered: bool = True) -> list[Block]:
    values = [
        with_key(None if key is None else text(key), None if value is None else text(value))
        for key, value in messages
    ]
    return decoded(values, numbered=numbered)


def decoded(values: list[bytes | None], *, numbered: bool) -> list[Block]:
    numbers = pa.array(range(100, 100 + len(values)), pa.int64())
    chunk = Messages(
        part="t/0",
        positions=pa.array(range(len(values)), pa.int64()),
        values=pa.array(values, pa.binary()),
        commit_ts=numbers if numbered else None,
    )
    return list(decoder_of("debezium")(chunk, EveryTable(None)))


def test_a_row_of_each_kind_in_the_order_of_its_topic() -> None:
    key = {"id": 1}
    blocks = read(
        (key, row("r", after={"id": 1, "v": "a"}, snapshot="first")),
        (key, row("u", before={"id": 1, "v": "a"}, after={"id": 1, "v": "b"})),
        (key, row("d", before={"id": 1, "v": "b"})),
        (key, None),
        (None, {"ts_ms": 5}),
        (key, row("c", after={"id": 1, "v": None})),
    )
    (block,) = blocks
    assert (block.name, block.rows) == (T, 4)
    body = block.table()
    assert order_of(body.schema) is Order.PLACE
    assert cells_of(body.schema) is CellKind.CONNECT
    assert key_names(body.schema) == ("id",)
    rows = [
        (each["op"], each["commit_ts"], each["position"], each["data"]) for each in body.to_pylist()
    ]
    assert rows == [
        (OP_INSERT, 100, 0, {"id": "1", "v": "a"}),
        (OP_UPDATE, 101, 1, {"id": "1", "v": "b"}),
        (OP_DELETE, 102, 2, {"id": "1", "v": "b"}),
        (OP_INSERT, 105, 5, {"id": "1", "v": None}),
    ]
    assert body["old"].to_pylist() == [None, {"id": "1", "v": "a"}, None, None]


def test_schemas_tell_types_and_how_values_are_read() -> None:
    fields = (
        field("d", "bytes", name="org.apache.kafka.connect.data.Decimal",
              parameters={"scale": "2", "connect.decimal.precision": "10"}),
        field("t", "int32", name="org.apache.kafka.connect.data.Time"),
        field("e", "string", name="io.debezium.data.Enum", parameters={"allowed": "x,it's"}),
        field("u", "int64", parameters={"__debezium.source.column.type": "INT UNSIGNED"}),
        field("c", "string", parameters={
            "__debezium.source.column.type": "VARCHAR", "__debezium.source.column.length": "20"}),
        field("b", "bytes"),
    )  # fmt: skip
    unscaled = base64.b64encode((-12_345).to_bytes(2, "big", signed=True)).decode()
    after = {"d": unscaled, "t": 3_600_000, "e": "it's", "u": 7, "c": "x", "b": "AAE="}
    value = {"schema": schema(*fields), "payload": row("c", after=after)}
    key = {"schema": {"type": "struct"}, "payload": {"u": 7}}
    (block,) = read((key, value))
    body = block.table()
    assert key_names(body.schema) == ("u",)
    assert wire_types(body.schema) == {
        "d": "decimal(10,2)", "t": "time(3)", "e": "enum('x','it''s')", "u": "int unsigned",
        "c": "varchar(20)", "b": "longblob",
    }  # fmt: skip
    (found,) = body["data"].to_pylist()
    assert found == {
        "d": "-123.45",
        "t": "3600000000",
        "e": "it's",
        "u": "7",
        "c": "x",
        "b": "AAE=",
    }


@pytest.mark.parametrize(
    ("of", "wanted"),
    [
        ({"tidb_type": "bigint unsigned"}, "bigint unsigned"),
        ({"tidb_type": "bit", "type": "boolean"}, "bit(1)"),
        ({"tidb_type": "bit", "name": "io.debezium.data.Bits", "parameters": {"length": "10"}},
         "bit(10)"),
        ({"tidb_type": "enum", "name": "io.debezium.data.Enum",
          "parameters": {"allowed": "a,b\\,c,d'e,"}}, "enum('a','b,c','d''e','')"),
        ({"tidb_type": "set", "name": "io.debezium.data.EnumSet", "parameters": {"allowed": "x,y"}},
         "set('x','y')"),
        # Values are names: as numbers they would be read when a DDL tells the names.
        ({"tidb_type": "enum", "name": "io.debezium.data.Enum"}, "longtext"),
        ({"parameters": {"__debezium.source.column.type": "ENUM", "allowed": "p,q"}},
         "enum('p','q')"),
        ({"parameters": {"__debezium.source.column.type": "SET"}}, "longtext"),
    ],
)  # fmt: skip
def test_types_of_tidb_and_of_columns_with_names(of: dict[str, Any], wanted: str) -> None:
    assert mysql_type({"type": "string", **of}) == wanted


@pytest.mark.parametrize(
    ("kind", "texts", "wanted"),
    [
        ("decimal", ["19.99", "-0.004", "1e2", "1.5E-7"], ["19.99", "-0.004", "100", "0.00000015"]),
        ("decimal(5,2)", ["19.99", "0.125"], ["19.99", "0.12"]),
        ("decimal(50,2)", ["19.9", None], ["19.90", None]),
        ("tinyint(1)", ["true", "false", "7", None], ["1", "0", "7", None]),
    ],
)
def test_numbers_as_the_database_has_them(
    kind: str, texts: list[str | None], wanted: list[str | None]
) -> None:
    assert canal_texts(pa.array(texts), MySQLType.parse(kind)).to_pylist() == wanted


def change(query: str, **source: Any) -> dict[str, Any]:
    told = {**SOURCE, "table": "t", **source}
    return {"source": told, "ts_ms": 1, "databaseName": "inventory", "schemaName": None,
            "ddl": query, "tableChanges": []}  # fmt: skip


def test_ddls_are_the_changes_of_schemas_but_for_those_of_a_snapshot() -> None:
    blocks = read(
        ({"databaseName": "inventory"}, change("DROP TABLE IF EXISTS t", snapshot="true")),
        ({"databaseName": "inventory"}, change("CREATE TABLE t (id INT)", snapshot="true")),
        ({"databaseName": "inventory"}, change("ALTER TABLE t ADD c INT")),
        ({"databaseName": "inventory"}, change("ALTER TABLE t DROP INDEX c")),
    )
    ddls = [each for block in blocks for each in block.table().to_pylist()]
    assert {block.kind for block in blocks} == {Kind.DDL}
    told = [(each["commit_ts"], each["ddl_type"], each["query"]) for each in ddls]
    assert told == [
        (101, "SNAPSHOT", "/* tidelake sent binlog.000001:4 */ CREATE TABLE t (id INT)"),
        (102, "ALTER", "/* tidelake sent binlog.000001:4 */ ALTER TABLE t ADD c INT"),
        (103, "ALTER", "/* tidelake sent binlog.000001:4 */ ALTER TABLE t DROP INDEX c"),
    ]


def test_what_has_no_commit_ts_is_bad_where_one_is_expected() -> None:
    (bad,) = read(({"id": 1}, row("c", after={"id": 1})), numbered=False)
    assert bad.kind is Kind.BAD
    assert bad.table()["error_class"].to_pylist() == ["no-commit-ts"]
    (mark,) = read(({}, row("m", commit_ts=470_620_744_121_057_280)), numbered=False)
    assert (mark.kind, mark.max_ts) == (Kind.WATERMARK, 470_620_744_121_057_280)


def test_its_own_time_is_when_it_was_read_from_the_log() -> None:
    with_schema = {
        "schema": schema(field("ts_ms", "int64")),
        "payload": row("c", after={"ts_ms": 9}),
    }
    values = [text(row("c", after={"ts_ms": 9})), text(with_schema), b"{}", None, b'{"ts_ms":7}']
    assert own_ms(pa.array(values, pa.binary())).to_pylist() == [1, 1, None, 0, None]
    tombstones = [with_key(b'{"id":1}', None), with_key(b'{"id":1}', b""), with_key(None, b"")]
    assert own_ms(pa.array([*tombstones, b"\1\0"], pa.binary())).to_pylist() == [0, 0, 0, None]
    of_columns = row("c", after={"op": "c", "ts_ms": 9}, query='a } " b')
    ticdcs = {name: of_columns[name] for name in ("source", "ts_ms", "op", "before", "after")}
    with_both = pa.array([text(of_columns), text(ticdcs)], pa.binary())
    assert own_ms(with_both).to_pylist() == [1, 1]
    source_alone = text({"source": SOURCE, "op": "c"})
    assert own_ms(pa.array([source_alone], pa.binary())).to_pylist() == [SOURCE["ts_ms"]]


def test_a_ddl_is_told_from_rows() -> None:
    """Numbers depend on it."""
    of_column = row("c", after={"id": 1, "ddl": '"ddl"', "v": '{"ddl":1}'})
    with_schema = {"schema": schema(field("ddl", "string")), "payload": of_column}
    ddls = [change("TRUNCATE TABLE t"), {"schema": schema(), "payload": change("DROP TABLE t")}]
    rows = [of_column, with_schema, {"payload": of_column}, row("d", before={"id": 1})]
    values = [with_key(b'{"ddl":"x"}', text(each)) for each in (*ddls, *rows)]
    values += [with_key(None, b'{"ddl":"' + b'x"}' * 2), b'{"ddl"', with_key(b'{"ddl":1}', b"")]
    told = [True] * len(ddls) + [False] * (len(rows) + 3)
    assert are_ddls(pa.array([*values, None], pa.binary())).tolist() == [*told, False]
    assert are_ddls(pa.array([], pa.binary())).tolist() == []


def test_the_recording_is_accounted_for() -> None:
    sent = wire.messages("debezium")
    blocks = decoded([with_key(each.key, each.value) for each in sent], numbered=False)
    assert accounted(blocks, len(sent))
