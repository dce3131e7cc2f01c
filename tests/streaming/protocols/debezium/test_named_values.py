"""Values are what the names in Debezium's schemas say (``time.precision.mode``), whatever the
column's own type; and what no name tells is not read as a number."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pytest

from coordination.model import TableName
from sinks.types.casts.columns import CastRules, cast_column
from sinks.types.casts.connect_cells import canal_texts
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column
from streaming.protocols.contract import Block, Kind, wire_types
from tests.streaming.protocols.debezium.test_decoder import field, read, row, schema

TODAY_US = 1_764_178_030_123_456  # 2025-11-26 17:27:10.123456
POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")


def decoded(column: dict[str, Any], value: Any) -> Block:
    fields = field("id", "int32"), column
    after = {"id": 1, column["field"]: value}
    (block,) = read(({"id": 1}, {"schema": schema(*fields), "payload": row("c", after=after)}))
    return block


def cast_to(mysql_type: str, name: str, kind: str, value: Any) -> Any:
    """The value in a column of that type."""
    block = decoded(field("c", kind, name=name), value)
    (told,) = block.table()["data"].to_pylist()
    of = MySQLType.parse(mysql_type)
    rules = CastRules(time_zone="UTC", zero_date="null", ddl_time_zone="UTC", are_encoded=True)
    found = cast_column(
        canal_texts(pa.array([told["c"]]), of), Column(name="c", type=of, nullable=True), rules
    )
    assert found.failed is None
    return found.values[0].as_py()


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("io.debezium.time.Timestamp", "int64", TODAY_US // 1_000),
        ("org.apache.kafka.connect.data.Timestamp", "int64", TODAY_US // 1_000),
        ("io.debezium.time.MicroTimestamp", "int64", TODAY_US // 1_000 * 1_000),
        ("io.debezium.time.NanoTimestamp", "int64", TODAY_US // 1_000 * 1_000_000),
        ("io.debezium.time.IsoTimestamp", "string", "2025-11-26T17:27:10.123Z"),
    ],
)
def test_moments(name: str, kind: str, value: Any) -> None:
    for digits in (3, 6):
        at = cast_to(f"datetime({digits})", name, kind, value)
        assert str(at) == "2025-11-26 17:27:10.123000"
    whole = value[:-5] + "Z" if kind == "string" else value // 10 ** (len(str(value)) - 10)
    if kind != "string":
        whole *= 10 ** (len(str(value)) - 10)
    assert str(cast_to("datetime", name, kind, whole)) == "2025-11-26 17:27:10"


def test_moments_at_the_edges() -> None:
    micros = "io.debezium.time.MicroTimestamp"
    assert str(cast_to("datetime", micros, "int64", 7_776_000_000_000)) == "1970-04-01 00:00:00"
    assert str(cast_to("datetime(6)", micros, "int64", -1)) == "1969-12-31 23:59:59.999999"
    assert str(cast_to("datetime(6)", micros, "int64", 0)) == "1970-01-01 00:00:00"
    nanos = "io.debezium.time.NanoTimestamp"
    assert str(cast_to("datetime(6)", nanos, "int64", 2 * 10**17)) == "1976-05-03 19:33:20"
    assert str(cast_to("date", "io.debezium.time.IsoDate", "string", "2023-11-21Z")) == "2023-11-21"


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("io.debezium.time.Time", "int32", 600_000),
        ("io.debezium.time.MicroTime", "int64", 600_000_000),
        ("io.debezium.time.NanoTime", "int64", 600_000_000_000),
        ("io.debezium.time.IsoTime", "string", "00:10:00Z"),
    ],
)
def test_times(name: str, kind: str, value: Any) -> None:
    for of, shown in (("time", "00:10:00"), ("time(6)", "00:10:00.000000")):
        assert cast_to(of, name, kind, value) == shown


def test_times_beyond_a_day_and_below_zero() -> None:
    nanos = "io.debezium.time.NanoTime"
    assert cast_to("time(6)", nanos, "int64", -3_020_399_000_001_000) == "-838:59:59.000001"


def test_spatial_values_are_mysqls_bytes() -> None:
    wkb = base64.b64encode(POINT).decode()
    for name, more in (("Point", {"x": 1.0, "y": 2.0}), ("Geometry", {})):
        kind = f"io.debezium.data.geometry.{name}"
        found = cast_to("point", kind, "struct", {**more, "wkb": wkb, "srid": 4_326})
        assert found == (4_326).to_bytes(4, "little") + POINT
        none = cast_to("geometry", kind, "struct", {**more, "wkb": wkb, "srid": None})
        assert none == bytes(4) + POINT
        told = wire_types(decoded(field("g", "struct", name=kind), None).table().schema)
        assert told["g"] == name.lower()
    (plain,) = read(({"id": 1}, row("c", after={"id": 1, "g": {"wkb": wkb, "srid": 1}})))
    (values,) = plain.table()["data"].to_pylist()
    assert base64.b64decode(values["g"]) == (1).to_bytes(4, "little") + POINT


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (field("c", "int64", name="io.debezium.time.MicroDuration"), 5),
        (field("c", "int64", name="com.example.Ticks"), 5),
        (field("c", "int64", name="io.debezium.time.NanoTimestamp"), 5),
        (field("c", "int64", name="io.debezium.time.MicroTimestamp"), 1 << 63),
        (field("c", "int64", name="io.debezium.time.MicroTimestamp"), "5"),
        (field("c", "array", name="io.debezium.data.FloatVector"), [1.0, 2.0]),
        (field("c", "array"), [1]),
        (field("c", "struct"), {"scale": 1, "value": "AQ=="}),
        (field("c", "struct", name="io.debezium.data.geometry.Point"), {"wkb": "?", "srid": 1}),
    ],
)
def test_what_is_not_read_is_a_letter_that_names_its_column(
    column: dict[str, Any], value: Any
) -> None:
    """It is a row of its table, so a table that the filter leaves out is not reported."""
    block = decoded(column, value)
    assert (block.kind, block.name) == (Kind.ROW, TableName("inventory", "t"))
    (found,) = block.table().to_pylist()
    assert found["data"] == {"id": "1", "c": None}
    assert found["error_class"] == "malformed"
    assert found["error_message"].startswith("column c: ")
    assert "not read" in found["error_message"]
    assert "c" not in wire_types(block.table().schema) or column.get("name") in (
        *(f"io.debezium.time.{each}Timestamp" for each in ("Nano", "Micro")),
        "io.debezium.data.geometry.Point",
    )


def test_a_row_whose_values_are_broken_is_still_one_of_its_table() -> None:
    (bad,) = read(({"id": 1}, row("u", before=5, after={"id": 1})))
    assert (bad.kind, bad.has_only_rows) == (Kind.BAD, True)
