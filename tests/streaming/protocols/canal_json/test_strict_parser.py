"""What each kind of message means, and bytes that are none; read one by one and in a chunk."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest

from coordination.model import TableName
from streaming.protocols.contract import (
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
    Kind,
    key_names,
    wire_types,
)
from streaming.protocols.rows import alike
from tests.shop.canal_json import Ddl as ShopDdl
from tests.shop.canal_json import encode_ddl, encode_watermark
from tests.streaming.protocols.canal_json.reading import (
    FIRST_OFFSET,
    NAME,
    in_order,
    message,
    one_by_one,
    plain,
    read,
    rows_like,
    wanted,
)

BAD: dict[str, tuple[bytes | None, str, TableName]] = {
    "null": (None, "empty", TableName("", "")),
    "empty": (b"", "malformed", TableName("", "")),
    "garbage": (b"\xff\xfe\x00 nothing", "malformed", TableName("", "")),
    "half a message": (message()[:-30], "malformed", NAME),
    "a number": (b"17", "malformed", TableName("", "")),
    "an array": (b"[1]", "malformed", TableName("", "")),
    "no type": (message(type=None), "malformed", NAME),
    "another type": (message(type="REPLACE"), "unknown-type", NAME),
    "no extension": (message(_tidb=None), "no-commit-ts", NAME),
    "a ddl without a ts": (message(type="ALTER", isDdl=True, _tidb={}), "no-commit-ts", NAME),
    "a watermark without a ts": (message(type="TIDB_WATERMARK", _tidb={}), "malformed", NAME),
    "no data": (message(data=None), "malformed", NAME),
    "two rows": (message(data=[{"id": "1"}, {"id": "2"}]), "malformed", NAME),
    "a null row": (message(data=[None]), "malformed", NAME),
    "no table": (message(table=""), "malformed", TableName("shop", "")),
    "a ts of zero": (message(_tidb={"commitTs": 0}), "no-commit-ts", NAME),
    "a ts below zero": (message(_tidb={"commitTs": -5}), "no-commit-ts", NAME),
    "a ddl of zero": (message(isDdl=True, _tidb={"commitTs": 0}), "no-commit-ts", NAME),
    "a ts that is text": (message(_tidb={"commitTs": "soon"}), "malformed", NAME),
    "a ts with a fraction": (message(_tidb={"commitTs": 1.5}), "malformed", NAME),
    "a ts that is too great": (message(_tidb={"commitTs": 2**63}), "malformed", NAME),
    "two messages": (message() + message(), "malformed", NAME),
    "two messages, two lines": (message() + b"\n" + message(), "malformed", NAME),
    "invalid UTF-8": (message().replace(b'"a"', b'"\xc3"'), "malformed", NAME),
    "NaN": (message().replace(b'"a"', b"NaN"), "malformed", NAME),
    "NaN where nobody looks": (message().replace(b'"es":1', b'"es":NaN,"x":1'), "malformed", NAME),
    "a leading zero": (message().replace(b'"es":1', b'"es":01'), "malformed", NAME),
    "a raw control character": (message().replace(b'"a"', b'"\x01"'), "malformed", NAME),
    "half a pair": (message().replace(b'"a"', b'"\\ud83d"'), "malformed", NAME),
    "the other half": (message().replace(b'"a"', b'"\\ude00"'), "malformed", NAME),
    "a cell twice": (message().replace(b'"v":"a"', b'"v":"a","v":"b"'), "malformed", NAME),
    "a name twice": (message().replace(b'"_tidb"', b'"data":null,"_tidb"'), "malformed", NAME),
    "a type twice": (message().replace(b'"v":"var', b'"id":"x","v":"var'), "malformed", NAME),
    "a ts twice": (message().replace(b'"commitTs"', b'"commitTs":1,"commitTs"'), "malformed", NAME),
    "an object in a cell": (message(data=[{"id": "1", "v": {}}]), "malformed", NAME),
    "single quotes": (message().replace(b'"', b"'"), "malformed", TableName("", "")),
    "a comma too many": (message().replace(b'"a"}', b'"a",}'), "malformed", NAME),
    "too deep": (message().replace(b'"es":1', b'"x":' + b"[" * 5000), "malformed", NAME),
    "closed and too deep": (
        message().replace(b'"es":1', b'"x":' + b"[" * 200 + b"]" * 200 + b',"es":1'),
        "malformed",
        NAME,
    ),
    "a byte order mark": (b"\xef\xbb\xbf" + message(), "malformed", TableName("", "")),
    "a zero byte": (message() + b"\x00", "malformed", NAME),
    "no DDL flag but text": (message(isDdl="no"), "malformed", NAME),
    "types that are none": (message(mysqlType=["id"]), "malformed", NAME),
    "key names that are none": (message(pkNames=[1]), "malformed", NAME),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("beside", [0, alike.FEW + 8])
def test_what_means_nothing_is_bad_and_keeps_its_bytes(name: str, beside: int) -> None:
    value, error_class, table = BAD[name]
    values = [*rows_like(beside), value, *rows_like(beside)]
    tables = wanted(NAME)
    found = in_order(values, tables)
    bad = found[beside]
    assert (bad["kind"], bad["error_class"], bad["name"]) == (Kind.BAD, error_class, table)
    assert bad["error_message"]
    assert bad["value"] == value
    assert [row["kind"] for row in found].count(Kind.BAD) == 1
    assert plain(read(values, tables)) == plain(one_by_one(values, tables))


def test_a_long_text_without_an_end_takes_no_longer_than_others() -> None:
    value = b'{"id":0,"x":' + b"[]" * 200 + b'"' + b'\\"' * 50_000
    begin_s = time.process_time()
    (bad,) = in_order([value], wanted(NAME))
    assert (bad["kind"], bad["value"]) == (Kind.BAD, value)
    assert time.process_time() - begin_s < 5  # not a minute, and four for one twice as long


@pytest.mark.parametrize("text", [b"x" * 1_000_000, b'\\"' * 500_000], ids=["long", "escaped"])
def test_a_name_without_an_end_takes_no_memory_by_its_length(text: bytes) -> None:
    value = b'{"id":0,"database":"' + text
    tracemalloc.start()
    try:
        (bad,) = in_order([value], wanted(NAME))
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (bad["kind"], bad["value"]) == (Kind.BAD, value)
    assert most_bytes < 10 * len(value)


ODD = 'it\'s "x" \\ \x00\x1f <&> 中文 😀 \u2028 \uffff'
WHOLE: dict[str, bytes] = {
    "plain": message(data=[{"id": "1", "v": ODD}]),
    "escaped": message(data=[{"id": "1", "v": ODD}]).replace("😀".encode(), b"\\uD83D\\ude00"),
    "spaces": message(data=[{"id": "1", "v": ODD}]).replace(b'":', b'" : ', 5) + b" \r",
    "a line feed between names": message(data=[{"id": "1", "v": ODD}]).replace(b',"', b',\n"', 3),
    "an escaped table": message(data=[{"id": "1", "v": ODD}]).replace(
        b'"table":"t"', b'"table":"\\u0074"'
    ),
    "an escaped name": message(data=[{"id": "1", "v": ODD}]).replace(b'"data"', b'"d\\u0061ta"'),
    "an escaped column": message(data=[{"id": "1", "v": ODD}]).replace(
        b'"v":"it', b'"\\u0076":"it'
    ),
    "names in another order": json.dumps(
        dict(reversed(json.loads(message(data=[{"id": "1", "v": ODD}])).items()))
    ).encode(),
    "an unknown name": message(data=[{"id": "1", "v": ODD}], rowkey="dA=="),
    "an unknown object": message(data=[{"id": "1", "v": ODD}], x={"a": [1.5, True, None]}),
    "an unknown name twice": message(data=[{"id": "1", "v": ODD}]).replace(
        b'"es":1', b'"es":1,"es":1'
    ),
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("beside", [0, alike.FEW + 8])
def test_a_row_is_the_same_however_it_is_written(name: str, beside: int) -> None:
    values = [*rows_like(beside), WHOLE[name], *rows_like(beside)]
    (row,) = (row for row in in_order(values, wanted(NAME)) if row["data"]["v"] == ODD)
    assert (row["kind"], row["name"], row["op"], row["commit_ts"]) == (
        Kind.ROW,
        NAME,
        OP_INSERT,
        10,
    )
    assert row["data"] == {"id": "1", "v": ODD}
    assert plain(read(values, wanted(NAME))) == plain(one_by_one(values, wanted(NAME)))


@pytest.mark.parametrize("key", [("id",), None])
def test_rows_without_an_old_one_beside_an_update(key: tuple[str, ...] | None) -> None:
    whole = [*rows_like(alike.FEW + 8), message(old=[{"id": "0", "v": "a"}], type="UPDATE")]
    values = [value.replace(b'"old":null,', b"") for value in whole]
    found = in_order(values, wanted(NAME, key=key))
    assert [row.get("old") for row in found[:-1]] == [None] * (len(values) - 1)
    assert found[-1]["old"]["id"] == "0"
    assert plain(read(values, wanted(NAME))) == plain(one_by_one(values, wanted(NAME)))


def test_numbers_and_truth_values_in_cells_are_their_text() -> None:
    data = {"a": 1, "b": 1.50, "c": True, "d": False, "e": None, "f": "x"}
    value = message(data=[data]).replace(b"1.5", b"1.50e0")
    (row,) = in_order([value], wanted(NAME))
    assert row["data"] == {"a": "1", "b": "1.50e0", "c": "true", "d": "false", "e": None, "f": "x"}


def test_types_are_told_in_the_order_of_the_row_and_keys_as_the_message_says() -> None:
    value = message(data=[{"v": "a", "id": "1", "w": "2"}], pkNames=["id", "v"])
    (block,) = read([value], wanted(NAME))
    schema = block.table().schema
    assert list(wire_types(schema).items()) == [("v", "varchar"), ("id", "bigint")]
    assert key_names(schema) == ("id", "v")
    (block,) = read([message(pkNames=None, mysqlType=None)], wanted(NAME))
    schema = block.table().schema
    assert (wire_types(schema), key_names(schema)) == ({}, None)


def test_ddls_and_watermarks() -> None:
    values = [
        encode_ddl(ShopDdl("shop", "t", "ALTER", "ALTER TABLE t ADD c INT"), 14, 0),
        encode_watermark(18, 0),
        encode_ddl(ShopDdl("shop", "", "QUERY", "CREATE DATABASE shop"), 15, 0),
        encode_watermark(16, 0),
        message(type="INSERT", isDdl=True, data=None),
    ]
    alter, mark, schema = blocks = read(values, {})
    assert [block.kind for block in blocks] == [Kind.DDL, Kind.WATERMARK, Kind.DDL]
    (first, strange) = alter.table().to_pylist()
    assert (alter.name, alter.rows, alter.min_ts, alter.max_ts) == (NAME, 2, 10, 14)
    assert (first["ddl_type"], first["query"]) == ("ALTER", "ALTER TABLE t ADD c INT")
    assert (first["commit_ts"], first["position"], first["index"]) == (14, FIRST_OFFSET, 0)
    assert strange["ddl_type"] == "INSERT"
    assert (mark.min_ts, mark.max_ts, mark.rows, mark.body) == (16, 18, 2, None)
    assert (mark.first, mark.last) == (FIRST_OFFSET + 3, FIRST_OFFSET + 3)
    assert schema.name == TableName("shop", "")


def test_rows_that_were_cut_to_their_key_say_so() -> None:
    tidb: dict[str, Any] = {"commitTs": 17}
    values = [
        message(_tidb={**tidb, "onlyHandleKey": True}),
        message(_tidb={**tidb, "claimCheckLocation": "s3://x/y"}),
        message(_tidb={**tidb, "onlyHandleKey": False}),
        message(_tidb={**tidb, "onlyHandleKey": True}, type="DELETE"),
    ]
    rows = in_order(values, wanted(NAME))
    expected = ["handle-key-only", "claim-check", None, None]
    assert [row["error_class"] for row in rows] == expected
    assert [bool(row["error_message"]) for row in rows] == [True, True, False, False]
    assert rows[3]["op"] == OP_DELETE
    (row,) = in_order([message()], wanted(NAME))
    assert "error_class" not in row


@pytest.mark.parametrize("beside", [0, alike.FEW + 8])
def test_old_is_there_only_where_a_key_column_changed(beside: int) -> None:
    def update(old: Any, new: Any) -> bytes:
        return message(type="UPDATE", old=old, data=[new])

    a, b = {"id": "1", "v": "a"}, {"id": "1", "v": "b"}
    moved = {"id": "2", "v": None}
    values = [
        update([a], b),
        update([a], moved),
        update([{"v": "x"}], b),
        update([{"id": "1"}], moved),
        update(None, b),
        update([], b),
        update([a], {"id": None, "v": "a"}),
        update([{"id": None, "v": "a"}], a),
        message(type="INSERT", old=[a], data=[moved]),
        update([a, b], moved),
    ]
    full = [*values, *(update([a], b) for _ in range(beside))]
    none, key = None, {"id": "1"}
    found = [row["old"] for row in in_order(full, wanted(NAME))][: len(values)]
    assert found == [none, key, none, key, none, none, key, none, none, key]
    assert {block.key_changes for block in read(full, wanted(NAME))} == {4}
    unknown = [row["old"] for row in in_order(full, wanted(NAME, key=None))][: len(values)]
    short = [{"id": "1", "v": "x"}, {"id": "1", "v": None}]  # the rest is as in the new row
    null_key = {"id": None, "v": "a"}
    assert unknown == [a, a, *short, none, none, a, null_key, none, a]
    for key_columns in (("id",), None, (), ("id", "v"), ("gone",)):
        tables = wanted(NAME, key=key_columns)
        assert plain(read(full, tables)) == plain(one_by_one(full, tables))
    assert "old" not in in_order([update([a], b)], wanted(NAME))[0]
    assert in_order([update([a], b)], wanted(NAME))[0]["op"] == OP_UPDATE


@pytest.mark.parametrize("beside", [0, alike.FEW + 8])
@pytest.mark.parametrize("told", [["id", "v"], ["v"], [], None])
def test_old_values_are_all_there_where_a_message_names_another_key(
    beside: int, told: list[str] | None
) -> None:
    """Of rows beyond a DDL that changes the key, and of a key that messages do not name."""
    a, b = {"id": "1", "v": "a"}, {"id": "1", "v": "b"}
    before = message(type="UPDATE", old=[a], data=[b])
    beyond = message(type="UPDATE", old=[a], data=[b], pkNames=told)
    values = [before, *[beyond] * (beside + 2)]
    first, *others = in_order(values, wanted(NAME))
    assert first.get("old") is None
    assert [row["old"] for row in others] == [a] * (beside + 2)
    same = message(type="UPDATE", old=[a], data=[b], pkNames=["v", "id"])
    assert in_order([same], wanted(NAME, key=("id", "v")))[0]["old"] == a


def test_a_column_that_only_the_old_row_has_makes_a_block_of_its_own() -> None:
    values = [
        message(type="UPDATE", old=[{"gone": "x"}]),
        message(type="UPDATE", old=[{"id": "1", "v": "x"}]),
    ]
    first, second = read(values, wanted(NAME, key=None))
    assert first.table().column("old").to_pylist() == [{"id": "1", "v": "a", "gone": "x"}]
    assert second.table().column("old").to_pylist() == [{"id": "1", "v": "x"}]


@pytest.mark.parametrize("beside", [0, 100])
def test_an_old_row_is_whole_and_null_where_it_was_null(beside: int) -> None:
    """``content-compatible`` sends the changed columns alone, as NULL where they were NULL."""
    columns = ("id", "v", "w", "a&b")
    new = dict.fromkeys(columns, "n")
    sent: list[dict[str, str | None]] = [
        {"v": None},
        {"v": None, "w": "o"},
        {"w": "o", "a&b": None},
        {"v": None, "w": None},
        dict.fromkeys(columns),
        {"id": "1"},
        {},
    ]
    values = [
        message(
            type="UPDATE",
            sqlType=dict.fromkeys(columns, 12),
            mysqlType=dict.fromkeys(columns, "varchar"),
            old=[old],
            data=[new],
        ).replace(b'"a&b"', b'"a\\u0026b"' if number % 2 else b'"a&b"')
        for number in range(2)
        for old in (*sent, *({"v": None, "w": "o"} for _ in range(beside)))
    ]
    tables = wanted(NAME, key=None)
    found = [row["old"] for row in in_order(values, tables)]
    whole = [{**new, **old} for old in (*sent, *({"v": None, "w": "o"} for _ in range(beside)))]
    assert found == [*whole, *whole]
    assert plain(read(values, tables)) == plain(one_by_one(values, tables))


def test_a_delete_of_a_table_without_a_key_may_name_no_column() -> None:
    """As TiCDC writes it with ``delete-only-output-handle-key-columns``."""
    value = message(type="DELETE", sqlType=None, mysqlType={}, data=[{}], pkNames=[])
    (block,) = read([value, value], wanted(NAME, key=None))
    assert (block.rows, block.table().column("data").to_pylist()) == (2, [{}, {}])
