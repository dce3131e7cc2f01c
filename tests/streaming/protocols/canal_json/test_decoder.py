"""Chunks: which messages are read at once, which block each is in, and what TiCDC recorded."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from coordination.model import TableName
from streaming.protocols.canal_json import decoder
from streaming.protocols.canal_json.decoder import decode
from streaming.protocols.contract import OP_DELETE, OP_INSERT, OP_UPDATE, Kind, Messages, wire_types
from streaming.protocols.rows import alike
from tests.services import wire
from tests.shop.canal_json import Change, Column, Table, encode_change, encode_watermark
from tests.streaming.protocols.canal_json.reading import (
    FIRST_OFFSET,
    NAME,
    accounted,
    cells,
    chunk,
    in_order,
    message,
    one_by_one,
    plain,
    read,
    rows_like,
    wanted,
)

RECORDED = (
    "canal-json",
    "canal-json-interleaved",
    "canal-json-claim-check",
    "canal-json-content-compatible",
    "canal-json-delete-handle-key",
    "canal-json-handle-key-only",
    "canal-json-noext",
)
OPS = {"DELETE": OP_DELETE, "INSERT": OP_INSERT, "UPDATE": OP_UPDATE}
MANY = 4 * alike.FEW


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """The messages that are read one by one."""
    found: list[bytes | None] = []

    def reading(value: bytes | None) -> Any:
        found.append(value)
        return slow(value)

    slow = decoder.read
    monkeypatch.setattr(decoder, "read", reading)
    return found


@pytest.mark.parametrize("few", [1, alike.FEW])
@pytest.mark.parametrize("variant", RECORDED)
def test_recorded_messages(variant: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against what Python's JSON finds in them."""
    monkeypatch.setattr(alike, "FEW", few)
    values = [recorded.value for recorded in wire.messages(variant)]
    parsed = [json.loads(value or b"") for value in values]
    names = {TableName(each["database"], each["table"]) for each in parsed if each["table"]}
    tables = wanted(*names, key=None)
    blocks = read(values, tables)
    assert accounted(blocks, len(values))
    assert plain(blocks) == plain(one_by_one(values, tables))
    found = cells(blocks)
    for place, each in enumerate(parsed):
        row = found.get(FIRST_OFFSET + 3 * place)
        if each["type"] == "TIDB_WATERMARK":
            assert row is None
            continue
        assert row is not None
        assert row["name"] == TableName(each["database"], each["table"])
        if "_tidb" not in each:
            assert (row["kind"], row["error_class"]) == (Kind.BAD, "no-commit-ts")
        elif each["isDdl"]:
            ddl = (row["kind"], row["ddl_type"], row["query"], row["commit_ts"])
            assert ddl == (Kind.DDL, each["type"], each["sql"], each["_tidb"]["commitTs"])
        else:
            check_row(row, each)
    types = {name: text for each in parsed for name, text in (each["mysqlType"] or {}).items()}
    for block in blocks:
        if block.kind == Kind.ROW:
            schema = block.table().schema
            columns = [field.name for field in schema.field("data").type]
            assert list(wire_types(schema)) == columns
            assert set(columns) <= set(types)


def check_row(row: dict[str, Any], each: dict[str, Any]) -> None:
    assert (row["kind"], row["op"], row["index"]) == (Kind.ROW, OPS[each["type"]], 0)
    assert (row["data"], row["commit_ts"]) == (each["data"][0], each["_tidb"]["commitTs"])
    old = row.get("old")
    if each["type"] == "UPDATE":
        assert {name: old[name] for name in each["old"][0]} == each["old"][0]
    else:
        assert old is None
    is_cut = "onlyHandleKey" in each["_tidb"] or "claimCheckLocation" in each["_tidb"]
    assert bool(row.get("error_class")) == is_cut


def test_rows_of_a_table_are_read_at_once(slowly: list[bytes | None]) -> None:
    table = Table(
        schema="shop",
        name="t",
        columns=(Column("id", "bigint unsigned"), Column("v", "varchar(9)"), Column("n", "int")),
        primary_key=("id",),
        handle_key=("id",),
    )
    values = []
    for n in range(MANY):  # of an unsigned key the width of sqlType depends on the value
        row = {"id": n if n % 3 else 2**63 + n, "v": None if n % 2 else 'a"\\":null', "n": n}
        old = {**row, "v": "b"} if n % 5 == 0 else None
        change = Change(table=table, op="UPDATE" if old else "INSERT", row=row, old=old)
        values.append(encode_change(change, (n + 1) << 18, n))
    blocks = read(values, wanted(NAME))
    assert [block.rows for block in blocks] == [MANY]
    assert plain(blocks) == plain(one_by_one(values, wanted(NAME)))
    del slowly[-MANY:]
    assert len(slowly) < alike.FEW


def test_only_changed_columns_in_old_are_read_at_once(slowly: list[bytes | None]) -> None:
    values = [
        message(
            type="UPDATE", old=[{"v": None if n % 2 else "x"}], data=[{"id": f"{n}", "v": None}]
        )
        for n in range(MANY)
    ]
    assert plain(read(values, wanted(NAME))) == plain(one_by_one(values, wanted(NAME)))
    del slowly[-MANY:]
    assert slowly == []


def test_a_missing_column_is_not_a_null(slowly: list[bytes | None]) -> None:
    full = [message(data=[{"id": f"{n}", "v": None}]) for n in range(MANY)]
    short = message(data=[{"id": "1"}])
    sly = message(type="UPDATE", data=[{"id": "1"}], old=[{"id": "1", "v": None}])
    text = message(data=[{"id": '":null'}])
    values = [*full, short, sly, text]
    whole, cut, _ = read(values, wanted(NAME))
    assert slowly == [short, sly, text]
    assert (whole.rows, cut.rows) == (MANY, 2)
    assert cut.table().column("data").type == pa.struct([("id", pa.string())])
    assert plain(read(values, wanted(NAME))) == plain(one_by_one(values, wanted(NAME)))


def test_other_columns_or_types_make_other_blocks(slowly: list[bytes | None]) -> None:
    """A DDL within the chunk, the same width or not: each part is read at once."""
    kinds: list[dict[str, Any]] = [
        {},
        {"mysqlType": {"v": "varchar", "id": "bigint"}},
        {"mysqlType": {"id": "bigint", "v": "decimal"}},
        {"mysqlType": {"id": "bigint", "w": "varchar"}, "data": [{"id": "1", "w": "2"}]},
        {"data": [{"v": "1", "id": "2"}]},
        {"pkNames": ["v"]},
        {"data": [{"id": "1"}], "type": "DELETE"},
    ]
    values = [message(**kind) for kind in kinds for _ in range(MANY)]
    blocks = read(values, wanted(NAME))
    assert [block.rows for block in blocks] == [3 * MANY, *[MANY] * 4]
    assert len(slowly) < len(values) / 2  # for a handful of messages more calls do not pay
    assert plain(blocks) == plain(one_by_one(values, wanted(NAME)))


def test_types_in_any_order_are_read_at_once(slowly: list[bytes | None]) -> None:
    """Go writes a map in an order of its own; a type may hold what stands between two types."""
    types = {"id": "bigint", "v": "enum('a','\",\"')", "w": "decimal(9,2)", "x": "enum(',')"}
    data = [dict.fromkeys(types, "1")]
    orders = [dict(order) for order in permutations(types.items())]
    values = [message(mysqlType=order, data=data) for order in orders] * (MANY // len(orders) + 1)
    blocks = read(values, wanted(NAME))
    assert [block.rows for block in blocks] == [len(values)]
    assert slowly == []
    assert plain(blocks) == plain(one_by_one(values, wanted(NAME)))


@pytest.mark.parametrize(
    "text",
    [
        '{"id":"bigint","id":"bigint","vv":"ab"}',  # a name twice
        '{"id":"ab","v":"bigint","vv":"bigint"}',  # types of other columns
        '{"id":"bigint","v":"ab","vw":"bigint"}',  # another name
        '{"id":"bigint","v":"ab";"vv":"bigint"}',
        '{"id":"bigint","v":"ab","vv":"bigin\\"}',
        '{"id":"bigint","v":",","vv":"bigint" }',  # a type that is a comma
        '{"id":"bigint","v":null,"vv":"bigint"}',
        '{"id":"bigint","v":"ab", "vv":"bigin"}',
    ],
)
def test_odd_types_among_plain_ones(text: str, slowly: list[bytes | None]) -> None:
    usual = '{"id":"bigint","v":"ab","vv":"bigint"}'
    types = json.loads(usual)
    plain_one = message(mysqlType=types, data=[dict.fromkeys(types, "1")])
    odd = plain_one.replace(usual.encode(), text.encode())
    assert odd != plain_one
    values = [*[plain_one] * MANY, odd, *[plain_one] * MANY]
    blocks = read(values, wanted(NAME))
    assert accounted(blocks, len(values))
    assert slowly == [odd]
    assert plain(blocks) == plain(one_by_one(values, wanted(NAME)))


@pytest.mark.parametrize("name", ["data", "old", "_tidb"])
def test_another_order_of_names_in_all(name: str) -> None:
    fields = json.loads(message(type="UPDATE", old=[{"id": "2", "v": "b"}]))
    moved = fields.pop(name)
    at = list(fields).index("sqlType")
    ordered = {**dict(list(fields.items())[:at]), name: moved, **dict(list(fields.items())[at:])}
    values = [json.dumps(ordered, separators=(",", ":")).encode()] * MANY
    blocks = read(values, wanted(NAME))
    assert accounted(blocks, MANY)
    assert plain(blocks) == plain(one_by_one(values, wanted(NAME)))


@pytest.mark.parametrize("place", [b'"mysqlType":', b'"data":', b'"sqlType":', b'{"commitTs":'])
@pytest.mark.parametrize("text", [b" ", b"\t ", b"null,", b'{},"mysqlType":'])
def test_rows_that_all_are_odd_in_the_same_way(place: bytes, text: bytes) -> None:
    values = [value.replace(place, place + text) for value in rows_like(MANY)]
    blocks = read(values, wanted(NAME))
    assert accounted(blocks, MANY)
    assert plain(blocks) == plain(one_by_one(values, wanted(NAME)))


@pytest.mark.parametrize("share", [0.01, 0.5])
def test_garbage_among_rows_costs_no_row(share: float, slowly: list[bytes | None]) -> None:
    values: list[bytes | None] = list(rows_like(1000))
    step = round(1 / share)
    for n in range(0, 1000, step):
        broken = values[n] or b""
        values[n] = [broken.replace(b'"v":', b'"v"'), broken.replace(b'"10', b"10"), broken[:-9]][
            n // step % 3
        ]
    blocks = read(values, wanted(NAME))
    assert accounted(blocks, 1000)
    if share < 0.1:
        assert len(slowly) < 200
    assert plain(blocks) == plain(one_by_one(values, wanted(NAME)))


def test_rows_of_tables_that_nobody_wants_are_counted(slowly: list[bytes | None]) -> None:
    values = rows_like(3)
    (block,) = read(values, {})
    assert (block.kind, block.name, block.rows, block.body) == (Kind.ROW, NAME, 3, None)
    assert (block.min_ts, block.max_ts) == (10, 12)
    assert (block.first, block.last) == (FIRST_OFFSET, FIRST_OFFSET + 6)
    assert block.message_bytes == sum(map(len, values))
    assert slowly == []
    odd = json.dumps(json.loads(values[0])).encode()
    (block,) = read([*values, odd], {})
    assert (block.rows, block.message_bytes) == (4, sum(map(len, [*values, odd])))
    assert slowly == [odd]


def test_rows_that_were_applied_before_are_left_out() -> None:
    values = rows_like(MANY)
    (block,) = read(values, wanted(NAME, above=20))
    assert (block.rows, block.min_ts) == (MANY - 11, 21)
    assert block.first == FIRST_OFFSET + 33
    assert block.message_bytes == sum(map(len, values[11:]))
    assert block.table().column("commit_ts").to_pylist() == list(range(21, 10 + MANY))
    assert read(values, wanted(NAME, above=10 + MANY)) == []


def test_any_array_of_messages_will_do() -> None:
    values = [encode_watermark(5, 0), None, *rows_like(MANY), b"x"]
    expected = plain(read(values, wanted(NAME)))
    whole = chunk(values)
    longer = pa.array([b"\xff\n", *values, b"y"], pa.binary()).slice(1, len(values))
    for array in (whole.values.cast(pa.large_binary()), longer, longer.cast(pa.large_binary())):
        messages = Messages(part="shop/1", positions=whole.positions, values=array)
        assert plain(list(decode(messages, wanted(NAME)))) == expected
    assert list(decode(chunk([]), wanted(NAME))) == []
    (block,) = read([None, None], {})
    assert (block.kind, block.rows, block.message_bytes) == (Kind.BAD, 2, 0)


def test_many_tables_in_a_chunk() -> None:
    names = [TableName("shop", f"t{n}") for n in range(300)]
    values = [message(table=names[n % 300].table, _tidb={"commitTs": 1 + n}) for n in range(1200)]
    blocks = read(values, wanted(*names[:200]))
    assert [block.rows for block in blocks] == [4] * 300
    assert [block.body is None for block in blocks] == [False] * 200 + [True] * 100
    assert blocks[7].table().column("position").to_pylist() == [
        FIRST_OFFSET + 3 * n for n in range(7, 1200, 300)
    ]


def test_a_table_of_a_thousand_columns(slowly: list[bytes | None]) -> None:
    columns = [f"c{n}" for n in range(1000)]
    values = [
        message(
            sqlType=dict.fromkeys(columns, 12),
            mysqlType=dict.fromkeys(columns, "varchar"),
            data=[{column: f"{row}" for column in columns}],
        )
        for row in range(alike.FEW + 8)
    ]
    (block,) = read(values, wanted(NAME, key=("c0",)))
    assert slowly == []
    assert block.table().column("data")[5].as_py() == dict.fromkeys(columns, "5")


@pytest.mark.parametrize("beside", [0, MANY])
def test_a_message_of_twenty_megabytes(beside: int) -> None:
    text = "[{" * 10_000_000
    values = [*rows_like(beside), message(data=[{"id": "1", "v": text}])]
    rows = in_order(values, wanted(NAME))
    assert rows[-1]["data"]["v"] == text
