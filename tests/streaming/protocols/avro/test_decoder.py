"""What a message of avro means by its schema, and what becomes of one that means nothing."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from coordination.model import TableName
from streaming.protocols.avro.decoder import decode
from streaming.protocols.contract import (
    CHECKSUM,
    DAMAGED,
    UNTIMED,
    Block,
    Cells,
    ChunkState,
    Kind,
    Messages,
    WantedTable,
    cells_of,
    key_names,
    wire_types,
    with_key,
)
from streaming.protocols.rows.safe_names import safe_name
from tests.services import avro_checksums, wire
from tests.services.avro_writer import boolean, branch, long, octets, text
from tests.streaming.protocols.avro.reading import (
    EXTENSION,
    ID,
    KEY,
    SCHEMAS,
    TS,
    VALUE,
    V,
    chunk,
    ddl,
    deleted,
    extension,
    field,
    framed,
    message,
    read,
    row,
    schema,
    watermark,
)
from tests.streaming.protocols.canal_json.reading import EveryTable

NAME = TableName("shop", "t")


GLUE = b"\x03\x00" + bytes(range(16))


def of_kind(blocks: list[Block], kind: Kind) -> list[Block]:
    return [block for block in blocks if block.kind is kind]


def state_of(blocks: list[Block]) -> ChunkState:
    (block,) = of_kind(blocks, Kind.STATE)
    return ChunkState.of(block)


def rows_of(values: list[bytes | None]) -> list[dict[str, Any]]:
    rows = of_kind(read(values, EveryTable(None)), Kind.ROW)
    return sorted((r for b in rows for r in b.table().to_pylist()), key=lambda r: r["position"])


def test_rows_and_their_key():
    (block, state) = read([row(), row(2, None, op="u", ts=TS + 1)], EveryTable(None))
    found = block.table()
    assert (block.name, block.min_ts, block.max_ts) == (NAME, TS, TS + 1)
    assert (cells_of(found.schema), key_names(found.schema)) == (Cells.AVRO, ("id",))
    assert wire_types(found.schema) == {"id": "bigint", "v": "text"}
    assert found["data"].to_pylist() == [{"id": 1, "v": "a"}, {"id": 2, "v": None}]
    assert found["op"].to_pylist() == [1, 2]
    assert ChunkState.of(state).tables == (("shop", "t", TS + 1),)


def test_schemas_that_are_not_known_are_asked_for():
    blocks = read([row(), watermark(TS + 5), deleted(1)], EveryTable(None), {})
    assert {block.kind for block in blocks} == {Kind.WATERMARK, Kind.STATE}
    assert state_of(blocks).lacks == (KEY, VALUE)
    assert state_of(read([row()], {}, {VALUE: SCHEMAS[VALUE]})).lacks == (KEY,)
    (bad,) = of_kind(read([row()], {}, {**SCHEMAS, VALUE: None}), Kind.BAD)
    assert bad.table()["error_class"].to_pylist() == ["unknown-schema"]
    (bad,) = of_kind(read([row()], {}, {**SCHEMAS, VALUE: '{"type":"int"}'}), Kind.BAD)
    assert bad.table()["error_message"].to_pylist() == [
        "the schema of the id 2 is not used: it is no record"
    ]


@pytest.mark.parametrize(("of_key", "why"), [(None, "unknown-schema"), ("{}", "unusable-schema")])
def test_a_row_whose_key_is_not_known_is_no_row_without_a_key(of_key: str | None, why: str) -> None:
    (bad,) = read([row()], {NAME: WantedTable(above_ts=TS - 1, key=None)}, {**SCHEMAS, KEY: of_key})
    assert bad.table()["error_class"].to_pylist() == [why]


def test_a_delete_may_have_a_commit_ts():
    (found,) = rows_of([deleted(7, TS)])
    assert (found["op"], found["commit_ts"], found["data"]) == (0, TS, {"id": 7})


def test_a_delete_without_one_is_right_behind_the_row_before_it():
    values = [row(1, ts=TS), deleted(1), row(1, "b", ts=TS + 900), watermark(TS + 999), deleted(1)]
    found = rows_of(values)
    assert [each["commit_ts"] for each in found] == [TS, TS + 1, TS + 900, TS + 1000]


def test_a_delete_that_was_sent_again_is_before_the_row_behind_it():
    """TiCDC has begun again: what comes is from before the last row."""
    found = rows_of([row(1, ts=TS + 100), deleted(1), row(1, ts=TS + 50)])
    assert [each["commit_ts"] for each in found] == [TS + 100, TS + 50, TS + 50]


def test_a_delete_before_all_rows_of_its_chunk_waits_for_its_time():
    blocks = read([watermark(TS), deleted(1), row(2, ts=TS + 9)], EveryTable(None))
    (later,) = [block for block in blocks if block.token == UNTIMED]
    assert later.table()["commit_ts"].to_pylist() == [TS]
    assert state_of(blocks) == ChunkState(watermark=TS, tables=(("shop", "t", TS + 9),))
    (counted, _) = [
        b for b in read([watermark(TS), deleted(1)], {}) if b.kind is not Kind.WATERMARK
    ]
    assert (counted.kind, counted.min_ts, counted.body) == (Kind.ROW, TS + 1, None)


def test_types_at_their_extremes():
    fields = [
        field("u", "BIGINT UNSIGNED"),
        field("b", "BIT", nullable=True),
        field("d", "DECIMAL", nullable=True),
        field("w", "DECIMAL", precision=65, scale=30),
        field("n", "DECIMAL", nullable=True, type="string", logicalType=None),
        field("e", "ENUM", allowed="a,b\\,c,d'e,"),
        field("x", "BLOB"),
    ]
    data = b"".join(
        (
            *(long(1), long(-1), branch(1, octets(b"\xff" * 8)), branch(1, octets(b"\x85"))),
            *(octets((10**65 - 1).to_bytes(28, "big")), branch(1, text("-0.5")), text("b,c")),
            *(octets(b"\xff\x00"), extension("c", TS)),
        )
    )
    nulls = b"".join(
        (
            *(long(2), long(1), branch(0), branch(0), octets(b"\x00"), branch(0), text("")),
            *(octets(b""), extension("c", TS)),
        )
    )
    schemas = {**SCHEMAS, 9: schema([ID, *fields])}
    values = [message(framed(KEY, long(1)), framed(9, each)) for each in (data, nulls)]
    (block,) = of_kind(read(values, EveryTable(None), schemas), Kind.ROW)
    first, second = block.table()["data"].to_pylist()
    assert first == {
        "id": 1,
        "u": 2**64 - 1,
        "b": 2**64 - 1,
        "d": Decimal("-1.23"),
        "w": Decimal("9" * 35 + "." + "9" * 30),
        "n": "-0.5",
        "e": "b,c",
        "x": b"\xff\x00",
    }
    assert second == {
        "id": 2,
        "u": 1,
        "w": Decimal(0).scaleb(-30),
        "e": "",
        "x": b"",
        **dict.fromkeys(("b", "d", "n")),
    }
    types = wire_types(block.table().schema)
    assert types["e"] == "enum('a','b,c','d''e','')"
    assert (types["d"], types["b"], types["w"]) == ("decimal(38,2)", "bit(64)", "decimal(65,30)")


def test_the_old_row_of_ticdc_s_new_architecture():
    before = {"name": "t_before", "type": "record", "fields": [ID, field("v", "TEXT")]}
    old = {"name": "_ticdc_before", "type": ["null", before]}
    schemas = {**SCHEMAS, 9: schema([ID, field("v", "TEXT"), old])}

    def of(op: str, before: bytes) -> bytes:
        data = long(1) + text("new") + before + extension(op, TS)
        return message(framed(KEY, long(1)), framed(9, data))

    was = branch(1, long(0) + text("old"))
    blocks = read([of("c", branch(0)), of("u", was), of("d", was)], EveryTable(None), schemas)
    (found,) = of_kind(blocks, Kind.ROW)
    assert found.table()["op"].to_pylist() == [1, 2, 0]
    assert found.table()["old"].to_pylist() == [None, {"id": 0, "v": "old"}, None]


def checked(number: int, checksum: str, *, is_corrupted: bool = False) -> bytes:
    told = text(checksum) + boolean(is_corrupted) + long(1)
    value = branch(1, text("a")) + long(number) + extension("c", TS) + told
    return message(framed(KEY, long(number)), framed(5, value))


def test_checksums_and_rows_without_them_in_another_order():
    """An empty text is none."""
    fields = [V, ID, *EXTENSION, *avro_checksums.EXTENSION]
    of = json.dumps({"type": "record", "name": "t", "namespace": "default.shop", "fields": fields})
    values = [
        row(1),
        checked(2, "4294967295"),
        checked(3, ""),
        checked(4, "7", is_corrupted=True),
        *(checked(5, wrong) for wrong in ("-1", "x", "4294967296", "1" * 300, "1 ")),
        row(6),
    ]
    blocks = read(values, EveryTable(None), {**SCHEMAS, 5: of})
    plain, sums = of_kind(blocks, Kind.ROW)
    assert plain.table()["data"].to_pylist() == [{"id": 1, "v": "a"}, {"id": 6, "v": "a"}]
    assert CHECKSUM not in plain.table().column_names
    assert [*sums.table()["data"].to_pylist()[0]] == ["v", "id"]
    assert sums.table()[CHECKSUM].to_pylist() == [4294967295, 0, DAMAGED]
    (bad,) = of_kind(blocks, Kind.BAD)
    assert bad.table()["error_class"].to_pylist() == ["malformed"] * 5


def test_ddls():
    made, base = read(
        [
            ddl(TS, "CREATE TABLE t (id INT)", kind=3),
            ddl(TS, "CREATE DATABASE `x-y`", table="", base="x-y", kind=1),
        ],
        {},
    )
    assert (made.kind, made.name, made.table()["ddl_type"].to_pylist()) == (
        Kind.DDL,
        NAME,
        ["CREATE"],
    )
    assert (base.kind, base.name) == (Kind.DDL, TableName("x_y", ""))


@pytest.mark.parametrize(
    ("table", "query", "safe"),
    [
        ("a-b", "CREATE TABLE `x-y`.`a-b` (`c-d` INT)", "CREATE TABLE `x_y`.`a_b` (`c-d` INT)"),
        ("a-b", "CREATE TABLE `a-b` (`id` INT)", "CREATE TABLE `a-b` (`id` INT)"),
        ("订单", "ALTER TABLE `s`.`订单` ADD `n` INT", "ALTER TABLE `s`.`__` ADD `n` INT"),
        (
            "9",
            "ALTER TABLE `s`.`9` COMMENT = 'of `s`.`a-b` it''s'",
            "ALTER TABLE `s`.`_9` COMMENT = 'of `s`.`a-b` it''s'",
        ),
        ("b", "RENAME TABLE `s`.`a-b` TO `s`.`b`", "RENAME TABLE `s`.`a_b` TO `s`.`b`"),
        ("b-", "CREATE TABLE `s`.`b-` LIKE `s`.`a``b`", "CREATE TABLE `s`.`b_` LIKE `s`.`a_b`"),
        (
            "a-b",
            "CREATE TABLE `s`.`a-b` (`d` INT,`.` INT,`x``.``y` INT COMMENT '`', `p`.`q-r` INT)",
            "CREATE TABLE `s`.`a_b` (`d` INT,`.` INT,`x``.``y` INT COMMENT '`', `p`.`q_r` INT)",
        ),
        (
            "a-b",
            "/* it`s */ TRUNCATE TABLE /*T! `s` */.`a-b`",
            "/* it`s */ TRUNCATE TABLE /*T! `s` */.`a-b`",
        ),
        ("", "DROP DATABASE IF EXISTS `x-y`", "DROP DATABASE IF EXISTS `x_y`"),
    ],
)
def test_ddls_are_told_by_safe_names(table: str, query: str, safe: str):
    (made,) = read([ddl(TS, query, table=table, base="x-y")], {})
    assert made.kind is Kind.DDL, made.table()["error_message"]
    assert made.name == TableName("x_y", safe_name(table))
    assert made.table()["query"].to_pylist() == [safe]


@pytest.mark.parametrize(
    ("table", "query", "why"),
    [
        ("b-", "RENAME TABLE a TO 订单", "with its database, in backquotes"),
        ("b-", "CREATE TABLE `s`.`b-` LIKE `订单`", "with its database, in backquotes"),
        ("a-b", "RENAME TABLE `s`.`a_b` TO `s`.`a-b`", "both names are s.a_b in the rows"),
    ],
)
def test_ddls_whose_names_cannot_be_told(table: str, query: str, why: str):
    (bad,) = read([ddl(TS, query, table=table)], {})
    assert bad.table()["error_class"].to_pylist() == ["unsafe-name"]
    assert why in bad.table()["error_message"][0].as_py()
    assert query in bad.table()["error_message"][0].as_py()


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, "delete-without-key"),
        (b"", "malformed"),
        (b"\xff\xff\xff\xff", "malformed"),
        (message(b"x", None), "malformed"),
        (message(None, b"\x02" + bytes(7)), "malformed"),
        (message(None, b"\x02" + b"\xff" * 8), "malformed"),
        (message(None, b"\x01{}"), "malformed"),
        (message(None, b"\x03\x00" + bytes(20)), "glue-schema"),
        (message(GLUE + long(1), GLUE + long(1)), "glue-schema"),
        (message(GLUE + long(1), b"\x03\x05" + bytes(16)), "glue-schema"),
        (message(GLUE + long(1), None), "glue-schema"),
        (message(GLUE + long(1), b"\x03" + TS.to_bytes(8)), "glue-schema"),
        (message(GLUE[:17], GLUE[:17]), "malformed"),
        (row(ts=0), "no-commit-ts"),
        (row(op="x"), "malformed"),
        (row()[:-1], "malformed"),
        (row() + b"\0", "malformed"),
        (row().replace(text("a"), octets(b"\xff")), "malformed"),
        (row().replace(text("a"), long(2**40) + b"a"), "malformed"),
    ],
)
def test_garbage_is_bad(value: bytes | None, error: str):
    (block,) = read([value], EveryTable(None))
    assert (block.kind, block.table()["error_class"].to_pylist()) == (Kind.BAD, [error])
    assert block.table()["value"].to_pylist() == [value]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{", "null", '{"type":"record"}', schema([])),
        schema([ID], is_key=True).replace("default.shop", "shop"),
        schema([ID, ID]),
        schema([field("d", "DECIMAL", precision=77)]),
        schema([field("d", "DECIMAL", precision="x")]),
        schema([field("d", "DECIMAL", scale=-1)]),
        schema([field("b", "BIT", length="65")]),
        schema([field("x", "WHAT")]),
        schema([{"name": "x", "type": "int"}]),
        schema([{"name": "x", "type": ["null", "int", "long"]}]),
        schema([{"name": "x", "type": {"type": {}, "connect.parameters": {"tidb_type": []}}}]),
        schema([{**EXTENSION[1], "type": "string"}, ID], is_key=True),
        "[" * 100_000,
    ],
)
def test_what_is_no_schema_of_ticdc(text: str):
    (bad,) = read([row()], EveryTable(None), {**SCHEMAS, VALUE: text})
    assert bad.table()["error_class"].to_pylist() == ["unusable-schema"]


@pytest.mark.parametrize("variant", ["avro-watermark"])
def test_every_recorded_message_is_understood(variant: str):
    kinds: dict[Kind, int] = {}
    parts: dict[str, list[Any]] = {}
    for number, each in enumerate(wire.messages(variant)):
        made = with_key(each.key, each.value)
        parts.setdefault(f"{each.topic}/{each.partition}", []).append((number, made))
    for part, sent in parts.items():
        messages = Messages(
            part=part,
            positions=pa.array([number for number, _ in sent], pa.int64()),
            values=pa.array([value for _, value in sent], pa.binary()),
        )
        for block in decode(messages, EveryTable(None), schemas=wire.schemas(variant)):
            kinds[block.kind] = kinds.get(block.kind, 0) + block.rows
    counts = wire.config(variant)["counts"]
    assert kinds == {
        Kind.ROW: counts["row"] - 2,
        Kind.BAD: 2,  # DELETEs of the table without a key
        Kind.DDL: counts["ddl"],
        Kind.WATERMARK: counts["watermark"],
        Kind.STATE: 0,
    }


def test_key_and_value_of_two_tables():
    other = {**SCHEMAS, 7: schema([ID], is_key=True, name="other")}
    value = row().replace(framed(KEY, long(1)), framed(7, long(1)), 1)
    (bad,) = read([value], EveryTable(None), other)
    assert "two tables" in bad.table()["error_message"].to_pylist()[0]


def test_a_chunk_of_large_values():
    assert decode(chunk([]), {}) is not None
    wide = chunk([row()])
    large = Messages(
        part=wide.part, positions=wide.positions, values=wide.values.cast(pa.large_binary())
    )
    assert next(b.kind for b in decode(large, EveryTable(None), schemas=SCHEMAS)) is Kind.ROW
