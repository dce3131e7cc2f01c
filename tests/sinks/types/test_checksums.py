"""Checksums of rows are those that TiDB computes."""

from __future__ import annotations

import base64
import json
import random
import zlib
from typing import Any

import pyarrow as pa
import pytest

from sinks.types.casts.checksums import is_countable, row_checksums
from sinks.types.mysql_type import MySQLType
from sinks.types.text_arrays import CastRules
from tests.services.row_checksum import checksum_of

RULES = CastRules(time_zone="Asia/Tokyo", zero_date="null")
ZONES = ("UTC", "Asia/Shanghai", "America/New_York")
TYPES: dict[str, tuple[str, ...]] = {
    "tinyint": ("0", "-1", "-128", "127"),
    "int": ("7", "-2147483648", "4294967295"),
    "bigint": ("0", "-9223372036854775808", "9223372036854775807"),
    "bigint unsigned": ("0", "18446744073709551615", "9223372036854775808"),
    "year": ("0", "1901", "2155"),
    "bit(64)": ("0", "1", "18446744073709551615"),
    "enum('a','b')": ("0", "1", "2"),
    "set('a','b')": ("0", "3"),
    "float": ("0", "-0", "1.1", "3.4028235", "-16777216", "0.000001"),
    "double": ("0", "1.1", "-1234567890.123456", "1" + "0" * 300),
    "decimal(65,30)": ("0.000000000000000000000000000000", "-12.5", "9" * 35),
    "varchar(9)": ("", "a", "中文", "\x00", '"\\'),
    "text": ("x" * 300, ""),
    "blob": (b"\x00\xff", b"", b"a" * 99),
    "binary(4)": (b"\x00\x00\x00\x00",),
    "json": ('{"a": 1}', "null"),
    "date": ("2020-01-02", "0000-00-00"),
    "datetime(3)": ("2020-01-02 03:04:05.600", "0000-00-00 00:00:00.000"),
    "time": ("-838:59:59", "00:00:00"),
    "timestamp": ("2020-01-02 03:04:05", "1970-01-02 00:00:01", "0000-00-00 00:00:00"),
    "timestamp(3)": ("2020-07-02 03:04:05.060", "2038-01-01 00:00:00.999"),
    "vector(3)": ("[1,2,3]", "[]", "[0.1,-2.5,1e10]"),
}


def told(value: Any, kind: str, zone: str) -> Any:
    if value is None:
        return None
    if kind.startswith("timestamp"):
        return {"location": zone, "value": value}
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def cell(value: Any) -> str | None:
    return json.dumps(value, separators=(",", ":")) if isinstance(value, dict) else value


@pytest.mark.parametrize("zone", ZONES)
def test_rows_of_all_types(zone: str) -> None:
    dice = random.Random(zone)
    rows = [
        {kind: told(dice.choice((*values, None)), kind, zone) for kind, values in TYPES.items()}
        for _ in range(200)
    ]
    columns = [
        {"name": kind, "dataType": {"mysqlType": MySQLType.parse(kind).name}} for kind in TYPES
    ]
    cells = [
        (MySQLType.parse(kind), pa.array([cell(row[kind]) for row in rows], pa.string()))
        for kind in TYPES
    ]
    assert row_checksums(cells, RULES).tolist() == [checksum_of(row, columns) for row in rows]


def test_moments_of_avro_are_texts_in_the_zone_of_ticdc() -> None:
    kind = MySQLType.parse("timestamp")
    for local, utc in (
        ("2020-01-02 12:00:00", "2020-01-02 03:00:00"),
        ("2020-01-02 08:59:59.500", "2020-01-01 23:59:59.500"),
        ("1970-01-01 09:00:01", "1970-01-01 00:00:01"),
        ("0000-00-00 00:00:00", "0000-00-00 00:00:00"),
    ):
        found = row_checksums([(kind, pa.array([local]))], RULES)
        assert found[0] == zlib.crc32(len(utc).to_bytes(4, "little") + utc.encode())


def test_zones_may_differ_and_may_have_no_name() -> None:
    """Nor need the digits be told."""
    kind = MySQLType.parse("timestamp")
    local = [told("2020-01-02 12:00:00.50", "timestamp", zone) for zone in (*ZONES, "Local")]
    found = row_checksums([(kind, pa.array(map(cell, local), pa.string()))], RULES)
    hours = ("12", "04", "17", "03")
    texts = [f"2020-01-02 {hour}:00:00.50".encode() for hour in hours]
    assert found.tolist() == [zlib.crc32(b"\x16\0\0\0" + text) for text in texts]


def test_nulls_have_no_bytes_and_the_order_counts() -> None:
    ints, texts = MySQLType.parse("int"), MySQLType.parse("varchar(3)")
    numbers = pa.array(["1", None, None], pa.string())
    names = pa.array(["a", "a", None], pa.string())
    one, a = b"\1" + bytes(7), b"\1\0\0\0a"
    expected = [zlib.crc32(one + a), zlib.crc32(a), 0]
    assert row_checksums([(ints, numbers), (texts, names)], RULES).tolist() == expected
    turned = row_checksums([(texts, names), (ints, numbers)], RULES).tolist()
    assert turned == [zlib.crc32(a + one), zlib.crc32(a), 0]


def test_parts_of_arrays_are_as_good() -> None:
    kinds = [MySQLType.parse(each) for each in ("int", "float", "varchar(3)", "blob")]
    cells = [pa.array([x, None, x, x], pa.string()) for x in ("1", "2.5", "ab", "YWI=")]
    whole = row_checksums(list(zip(kinds, cells, strict=True)), RULES)
    parts = row_checksums([(k, c.slice(1, 2)) for k, c in zip(kinds, cells, strict=True)], RULES)
    assert parts.tolist() == whole.tolist()[1:3]


@pytest.mark.parametrize("kind", ["int", "double", "timestamp", "blob", "vector(3)"])
@pytest.mark.parametrize(
    "text", ["x", "", "1e", "0x1f", "9" * 40, "[" * 9_999, '{"location":"UTC"}']
)
def test_what_is_no_value_has_some_checksum(kind: str, text: str) -> None:
    cells = pa.array([text, "1", None], pa.string())
    assert len(row_checksums([(MySQLType.parse(kind), cells)], RULES)) == 3


def test_typed_cells_count_as_their_texts() -> None:
    cases: list[tuple[str, pa.DataType, list[str | None]]] = [
        ("int", pa.int64(), ["-1", None, "7"]),
        ("bigint unsigned", pa.uint64(), ["18446744073709551615", "0", None]),
        ("bit(64)", pa.int64(), ["5", "0", None]),
        ("float", pa.float32(), ["1.1", "-0", None]),
        ("double", pa.float64(), ["1.1", None, "1e300"]),
    ]
    for kind, of, texts in cases:
        cells = pa.array(texts, pa.string())
        assert is_countable(MySQLType.parse(kind), of)
        by_text = row_checksums([(MySQLType.parse(kind), cells)], RULES)
        assert row_checksums([(MySQLType.parse(kind), cells.cast(of))], RULES).tolist() == [
            *by_text
        ]
    blob = MySQLType.parse("blob")
    both = pa.array(["AP8=", None], pa.string()), pa.array([b"\x00\xff", None], pa.binary())
    assert len({tuple(row_checksums([(blob, each)], RULES)) for each in both}) == 1
    for kind, of in (("varchar(3)", pa.binary()), ("date", pa.date32()), ("int", pa.float64())):
        assert not is_countable(MySQLType.parse(kind), of)
