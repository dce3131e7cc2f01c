"""What the decoder makes of every kind of message, and of bytes that are none: two Spark jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from coordination.model import TableName
from streaming.events import ENVELOPE_COLUMNS, EVENT_COLUMNS
from streaming.protocols.canal_json_sql import decode, envelope
from tests.shop.canal_json import Change, Column, Table, encode_change, encode_ddl, encode_watermark
from tests.shop.canal_json import Ddl as ShopDdl

pytestmark = pytest.mark.spark

NAME = TableName("shop", "t")
TABLE = Table(
    schema="shop",
    name="t",
    columns=(Column("id", "bigint"), Column("v", "varchar(20)")),
    primary_key=("id",),
    handle_key=("id",),
)
ODD = 'it\'s "x" \\ \x00\x1f <&> 中文 😀 \u2028'
OLD, NEW = {"id": 1, "v": "a"}, {"id": 1, "v": ODD}
MOVED = {"id": 2, "v": None}


def message(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "database": "shop",
        "table": "t",
        "pkNames": ["id"],
        "isDdl": False,
        "type": "INSERT",
        "mysqlType": {"id": "bigint", "v": "varchar"},
        "old": None,
        "data": [{"id": "1", "v": "a"}],
        "_tidb": {"commitTs": 10},
        **changes,
    }
    return json.dumps(fields).encode()


GOOD: dict[str, bytes] = {
    "insert": encode_change(Change(table=TABLE, op="INSERT", row=NEW), 10, 0),
    "update": encode_change(Change(table=TABLE, op="UPDATE", row=NEW, old=OLD), 11, 0),
    "moved": encode_change(Change(table=TABLE, op="UPDATE", row=MOVED, old=OLD), 12, 0),
    "delete": encode_change(Change(table=TABLE, op="DELETE", row=OLD), 13, 0),
    "ddl": encode_ddl(ShopDdl("shop", "t", "ALTER", "ALTER TABLE t ADD c INT"), 14, 0),
    "schema ddl": encode_ddl(ShopDdl("shop", "", "QUERY", "CREATE DATABASE shop"), 15, 0),
    "watermark": encode_watermark(16, 0),
    "handle key": message(_tidb={"commitTs": 17, "onlyHandleKey": True}),
    "claim check": message(_tidb={"commitTs": 18, "claimCheckLocation": "s3://x/y"}),
    "greatest ts": message(_tidb={"commitTs": 2**62}),
    "short old": message(type="UPDATE", old=[{"v": "b"}], _tidb={"commitTs": 19}),
}
BAD: dict[str, tuple[bytes | None, str]] = {
    "null": (None, "empty"),
    "empty": (b"", "malformed"),
    "garbage": (b"\xff\xfe\x00 nothing", "malformed"),
    "half a message": (GOOD["insert"][:-30], "malformed"),
    "a number": (b"17", "malformed"),
    "an array": (b"[1]", "malformed"),
    "no type": (message(type=None), "malformed"),
    "another type": (message(type="REPLACE"), "unknown-type"),
    "no extension": (message(_tidb=None), "no-commit-ts"),
    "a ddl without a ts": (message(type="ALTER", isDdl=True, _tidb={}), "no-commit-ts"),
    "a watermark without a ts": (message(type="TIDB_WATERMARK", _tidb={}), "malformed"),
    "no data": (message(data=None), "malformed"),
    "two rows": (message(data=[{"id": "1"}, {"id": "2"}]), "malformed"),
    "no table": (message(table=""), "malformed"),
    "a ts that is text": (message(_tidb={"commitTs": "soon"}), "malformed"),
}


def decoded(
    spark: SparkSession,
    values: Mapping[str, bytes | None],
    settled: Mapping[TableName, Sequence[str]],
) -> dict[str, Row]:
    rows = [("shop", 1, number, value) for number, value in enumerate(values.values())]
    frame = spark.createDataFrame(rows, "topic string, partition int, offset bigint, value binary")
    events = decode(frame, settled)
    assert tuple(events.columns) == EVENT_COLUMNS
    by_offset = {row["offset"]: row for row in events.collect()}
    assert len(by_offset) == len(rows)
    return {name: by_offset[number] for number, name in enumerate(values)}


@pytest.fixture(scope="module")
def settled(spark: SparkSession) -> dict[str, Row]:
    """All messages, of a table that is known."""
    values = {**GOOD, **{name: value for name, (value, _) in BAD.items()}}
    return decoded(spark, values, {NAME: ("id",)})


@pytest.fixture(scope="module")
def unsettled(spark: SparkSession) -> dict[str, Row]:
    """The good ones, of a table that is not known yet, beside one that is."""
    return decoded(spark, GOOD, {TableName("shop", "other"): ("k",)})


def test_a_row_is_a_map_of_text(settled: dict[str, Row]) -> None:
    row = settled["insert"]
    assert (row.kind, row.op, row.commit_ts, row.watermark_ts) == ("row", "INSERT", 10, None)
    assert (row.schema_name, row.table_name, row.partition) == ("shop", "t", 1)
    assert row.data == {"id": "1", "v": ODD}
    assert (row.value, row.error_class) == (None, None)
    assert settled["delete"].data == {"id": "1", "v": "a"}
    assert settled["greatest ts"].commit_ts == 2**62


def test_a_null_cell_is_null_and_not_missing(settled: dict[str, Row]) -> None:
    assert settled["moved"].data == {"id": "2", "v": None}


def test_old_is_there_only_where_a_key_column_changed(settled: dict[str, Row]) -> None:
    found = {name: settled[name].old for name in ("insert", "update", "delete", "short old")}
    assert set(found.values()) == {None}
    assert settled["moved"].old == {"id": "1"}


def test_of_an_unknown_table_types_and_the_whole_old_row_are_read(
    settled: dict[str, Row], unsettled: dict[str, Row]
) -> None:
    row = unsettled["update"]
    assert row.mysql_types == {"id": "bigint", "v": "varchar"}
    assert row.pk_names == ["id"]
    assert row.old == {"id": "1", "v": "a"}
    assert unsettled["insert"].old is None
    assert (settled["update"].mysql_types, settled["update"].pk_names) == (None, None)


def test_ddls_and_watermarks(settled: dict[str, Row]) -> None:
    ddl = settled["ddl"]
    assert (ddl.kind, ddl.ddl_type, ddl.commit_ts) == ("ddl", "ALTER", 14)
    assert (ddl.table_name, ddl.query) == ("t", "ALTER TABLE t ADD c INT")
    assert (settled["schema ddl"].schema_name, settled["schema ddl"].table_name) == ("shop", "")
    mark = settled["watermark"]
    assert (mark.kind, mark.watermark_ts, mark.commit_ts) == ("watermark", 16, None)
    assert (mark.schema_name, mark.table_name, mark.op) == ("", "", None)


def test_rows_that_were_cut_to_their_key_wait_like_rows(settled: dict[str, Row]) -> None:
    for name, ts, error in (
        ("handle key", 17, "handle-key-only"),
        ("claim check", 18, "claim-check"),
    ):
        row = settled[name]
        assert (row.kind, row.commit_ts, row.error_class) == ("row", ts, error)


@pytest.mark.parametrize("name", BAD)
def test_what_means_nothing_is_bad_and_keeps_its_bytes(settled: dict[str, Row], name: str) -> None:
    value, error_class = BAD[name]
    row = settled[name]
    assert (row.kind, row.error_class) == ("bad", error_class)
    assert row.error_message
    assert (None if row.value is None else bytes(row.value)) == value
    assert row.commit_ts is None


def test_the_envelope_says_what_the_whole_message_says(
    spark: SparkSession, settled: dict[str, Row]
) -> None:
    """But for rows whose data is wrong: whoever has the table finds that out."""
    values = {**GOOD, **{name: value for name, (value, _) in BAD.items()}}
    rows = [("shop", 1, number, value) for number, value in enumerate(values.values())]
    frame = spark.createDataFrame(rows, "topic string, partition int, offset bigint, value binary")
    read = envelope(frame)
    assert tuple(read.columns) == ENVELOPE_COLUMNS
    found = {row["offset"]: row for row in read.collect()}
    named = ("kind", "schema_name", "table_name", "commit_ts", "watermark_ts")
    differ = set()
    for number, (name, value) in enumerate(values.items()):
        if any(found[number][column] != settled[name][column] for column in named):
            differ.add(name)
            assert (found[number].kind, settled[name].kind) == ("row", "bad")
        assert found[number].value == value
    assert differ == {"no data", "two rows"}
