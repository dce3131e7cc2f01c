"""What a message of simple means, and what becomes of one that means nothing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from coordination.model import TableName
from streaming.protocols.contract import (
    Cells,
    Kind,
    Messages,
    cells_of,
    key_names,
    tables_told,
    version_of,
)
from streaming.protocols.simple.decoder import decode
from tests.services import wire
from tests.streaming.protocols.canal_json.reading import EveryTable
from tests.streaming.protocols.simple.reading import (
    bootstrap,
    ddl,
    read,
    row,
    table,
    text_of,
    watermark,
)

NAME = TableName("shop", "t")
VARIANTS = (
    "simple-json",
    "simple-json-interleaved",
    "simple-json-claim-check",
    "simple-json-handle-key-only",
)
LOCATED = {"location": "Asia/Shanghai", "value": "2020-01-02 03:04:05"}


def test_rows_name_a_version_and_no_types():
    (block,) = read([row(), row("UPDATE", 11), row("DELETE", 12)], EveryTable(None))
    found = block.table()
    assert (version_of(found.schema), cells_of(found.schema)) == (7, Cells.ENCODED)
    assert key_names(found.schema) is None
    assert [each["op"] for each in found.to_pylist()] == [1, 2, 0]
    assert found["old"].to_pylist() == [None, {"id": "2", "v": "b"}, None]
    assert found["data"].to_pylist()[2] == {"id": "2", "v": "b"}


def test_each_version_is_a_block():
    blocks = read([row(), row(schemaVersion=8)], EveryTable(None))
    assert sorted(version_of(block.table().schema) or 0 for block in blocks) == [7, 8]


@pytest.mark.parametrize("count", [1, 100])
def test_a_timestamp_keeps_its_zone(count: int):
    data = [{"id": str(n), "t": LOCATED if n % 2 else None} for n in range(1, count + 1)]
    (block,) = read([row(data=each) for each in data], EveryTable(None))
    text = '{"location":"Asia/Shanghai","value":"2020-01-02 03:04:05"}'
    assert block.table()["data"].to_pylist() == [
        {"id": each["id"], "t": text if each["t"] else None} for each in data
    ]


def test_schemas_come_with_bootstraps_and_ddls():
    told = ddl(9, "ALTER", tableSchema=table(8), preTableSchema=table(7, "before"))
    schema, altered, made = read([bootstrap(), told, ddl(5, "CREATE DATABASE d")], {})
    assert (schema.kind, schema.name, schema.max_ts) == (Kind.SCHEMA, NAME, None)
    assert [(each.name.table, each.version) for each in tables_told(schema)] == [("t", 7)]
    found = [(each.name.table, each.version) for each in tables_told(altered)]
    assert (altered.name, found) == (NAME, [("t", 8), ("before", 7)])
    assert (made.name, made.max_ts, tables_told(made)) == (TableName("d", ""), 5, [])


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("CREATE DATABASE `shop`", "shop"),
        ("drop schema if exists a$1", "a$1"),
        ("/* a */ DROP DATABASE `a``b`", "a`b"),
        ("ALTER DATABASE `中文` CHARACTER SET utf8", "中文"),
        ("CREATE USER u", ""),
    ],
)
def test_a_ddl_of_a_database_names_it(query: str, name: str):
    (block,) = read([ddl(5, query)], {})
    assert block.name == TableName(name, "")


def test_watermarks():
    (block,) = read([watermark(5), watermark(9), watermark(7)], {})
    assert (block.kind, block.max_ts, block.last) == (Kind.WATERMARK, 9, 103)


@pytest.mark.parametrize(
    ("member", "error"),
    [
        ({"handleKeyOnly": True}, "handle-key-only"),
        ({"handleKeyOnly": True, "claimCheckLocation": "file:///x/y.json"}, "claim-check"),
    ],
)
def test_rows_that_were_cut(member: dict[str, Any], error: str):
    block, gone = (
        read([row(kind, **member)], EveryTable(None))[0] for kind in ("INSERT", "DELETE")
    )
    assert block.table()["error_class"].to_pylist() == [error]
    assert "error_class" not in gone.table().column_names


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{}",
        row(commitTs=0),
        row(type="MERGE"),
        row(schemaVersion=None),
        row(table=""),
        row(data={}),
        row(data=[]),
        row(data={"id": {"location": "Nowhere/Land", "value": "x"}}),
        row(data={"id": {"location": "UTC"}}),
        row(data={"id": ["1"]}),
        row()[:-1],
        row() + b"}",
        bootstrap(tableSchema=None),
        ddl(0, "ALTER"),
        ddl(5, "ALTER", tableSchema={}),
        text_of({"version": 1, "type": "WATERMARK"}),
    ],
)
def test_garbage_is_bad(value: bytes | None):
    (block,) = read([value], EveryTable(None))
    assert block.kind is Kind.BAD
    (found,) = block.table().to_pylist()
    assert (found["position"], found["value"]) == (100, value)


def test_a_bad_row_names_its_table():
    (block,) = read([row(data={})], EveryTable(None))
    assert (block.name, block.has_only_rows) == (NAME, True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_recorded_message_is_understood(variant: str):
    kinds: dict[Kind, int] = {}
    for partition, sent in wire.partitions(variant).items():
        messages = Messages(
            part=f"wire/{partition}",
            positions=pa.array([each.offset for each in sent], pa.int64()),
            values=pa.array([each.value for each in sent], pa.binary()),
        )
        for block in decode(messages, EveryTable(None)):
            kinds[block.kind] = kinds.get(block.kind, 0) + block.rows
    counts = wire.config(variant)["counts"]
    assert kinds == {
        Kind.ROW: counts["row"],
        Kind.DDL: counts["ddl"],
        Kind.WATERMARK: counts["watermark"],
        Kind.SCHEMA: counts["bootstrap"],
    }
