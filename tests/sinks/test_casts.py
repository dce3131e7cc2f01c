"""Every type of design 6 at its extremes, and what is not a value of it; one Spark job a table."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from sinks.casts import cast_column, cast_failure, delta_type
from sinks.schema import Column, MySQLType
from streaming.session import MANY_ROWS, configure, expect_rows

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

FAIL = "FAIL"  # NULL, and counted as a failure
ZERO = "ZERO"  # NULL by `zero-date`

DELTA_TYPES = {
    "tinyint(4)": "tinyint",
    "tinyint(1)": "tinyint",
    "tinyint unsigned": "smallint",
    "bool": "tinyint",
    "smallint": "smallint",
    "smallint unsigned": "int",
    "mediumint": "int",
    "mediumint unsigned": "int",
    "int(11)": "int",
    "int unsigned": "bigint",
    "int(8) unsigned zerofill": "bigint",
    "bigint": "bigint",
    "bigint unsigned": "decimal(20,0)",
    "serial": "decimal(20,0)",
    "bit(1)": "bigint",
    "bit(63)": "bigint",
    "bit(64)": "decimal(20,0)",
    "bit": "decimal(20,0)",
    "year(4)": "smallint",
    "float": "float",
    "float(53)": "double",
    "double unsigned": "double",
    "decimal(38,10)": "decimal(38,10)",
    "decimal(39,0)": "string",
    "decimal(65,30)": "string",
    "decimal": "string",
    "decimal(20) unsigned": "decimal(20,0)",
    "char(16)": "string",
    "varchar": "string",
    "longtext": "string",
    "binary(16)": "binary",
    "varbinary": "binary",
    "tinyblob": "binary",
    "longblob": "binary",
    "varchar(9) character set binary": "binary",
    "date": "date",
    "datetime(6)": "timestamp_ntz",
    "timestamp": "timestamp",
    "time(6)": "string",
    "enum('a')": "string",
    "enum": "string",
    "set": "string",
    "json": "string",
    "vector(3)": "array<float>",
    "geometry": "string",
}

NUMBERS: dict[str, list[tuple[str | None, Any]]] = {
    "tinyint": [("-128", -128), ("127", 127), ("128", FAIL), ("-129", FAIL), ("", FAIL)],
    "tinyint unsigned": [("0", 0), ("255", 255), ("256", FAIL), ("-1", FAIL)],
    "smallint": [("-32768", -32768), ("32767", 32767), ("32768", FAIL)],
    "smallint unsigned": [("65535", 65535), ("65536", FAIL), ("-1", FAIL)],
    "mediumint": [("-8388608", -8388608), ("8388607", 8388607), ("8388608", FAIL)],
    "mediumint unsigned": [("16777215", 16777215), ("16777216", FAIL)],
    "int": [
        ("-2147483648", -2147483648),
        ("2147483647", 2147483647),
        ("2147483648", FAIL),
        ("1.5", FAIL),
        ("1.0", FAIL),
        (" 1", FAIL),
        ("1 ", FAIL),
        ("\n1", FAIL),
        ("+1", FAIL),
        ("1e2", FAIL),
        ("0x10", FAIL),
        ("", FAIL),
        ("-", FAIL),
        ("abc", FAIL),
        ("null", FAIL),
        ("中", FAIL),
    ],
    "int(8) unsigned zerofill": [
        ("4294967295", 4294967295),
        ("00000042", 42),
        ("4294967296", FAIL),
    ],
    "bigint": [
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", FAIL),
    ],
    "bigint unsigned": [
        ("0", Decimal(0)),
        ("18446744073709551615", Decimal(2**64 - 1)),
        ("18446744073709551616", FAIL),
        ("99999999999999999999", FAIL),
        ("018446744073709551615", FAIL),
        ("-1", FAIL),
        ("1.5", FAIL),
        ("1e3", FAIL),
        (" 1", FAIL),
        ("1 ", FAIL),
    ],
    "bit(1)": [("0", 0), ("1", 1), ("2", FAIL), ("-1", FAIL)],
    "bit(10)": [("1023", 1023), ("1024", FAIL), ("\x01", FAIL)],
    "bit(63)": [("9223372036854775807", 2**63 - 1), ("9223372036854775808", FAIL), ("-1", FAIL)],
    "bit(64)": [("18446744073709551615", Decimal(2**64 - 1)), ("18446744073709551616", FAIL)],
    "bit": [("5", Decimal(5)), ("-5", FAIL)],
    "year(4)": [
        ("0", 0),
        ("0000", 0),
        ("1901", 1901),
        ("2155", 2155),
        ("2156", FAIL),
        ("99", FAIL),
    ],
    "decimal(10,2)": [
        ("-99999999.99", Decimal("-99999999.99")),
        ("1", Decimal("1.00")),
        ("1.2", Decimal("1.20")),
        ("0.00", Decimal("0.00")),
        ("1.239", FAIL),
        ("1.230", FAIL),
        ("100000000.00", FAIL),
        ("1e1", FAIL),
        ("1E-5", FAIL),
        ("NaN", FAIL),
        ("1.2.3", FAIL),
        (" 1.00", FAIL),
    ],
    "decimal(38,0)": [("9" * 38, Decimal("9" * 38)), ("9" * 39, FAIL), ("1.5", FAIL)],
    "decimal(38,38)": [("-0." + "9" * 38, Decimal("-0." + "9" * 38)), ("1", FAIL)],
    "decimal(65,30)": [("9" * 35 + "." + "9" * 30, "9" * 35 + "." + "9" * 30)],
    "decimal": [("1.50", "1.50")],
    "float": [
        ("-340282300000000000000000000000000000000", -3.402823e38),
        ("0.1", 0.1),
        ("0", 0.0),
        ("1" + "0" * 39, FAIL),
        ("NaN", FAIL),
        ("-Infinity", FAIL),
        ("1.5f", FAIL),
    ],
    "double unsigned": [
        ("17976931348623157" + "0" * 292, 1.7976931348623157e308),
        ("-17976931348623157" + "0" * 292, -1.7976931348623157e308),
        ("0." + "0" * 323 + "5", 5e-324),
        ("0.1", 0.1),
        ("1" + "0" * 309, FAIL),
        ("Infinity", FAIL),
        ("-Infinity", FAIL),
        ("1e999", FAIL),
        ("-1e-5", -1e-5),
        ("1d", FAIL),
        ("0x1p3", FAIL),
        ("1 ", FAIL),
        ("", FAIL),
    ],
}

TEXTS: dict[str, list[tuple[str | None, Any]]] = {
    "varchar(64)": [("", ""), ("a\u0000b\u2028𝄞中 ", "a\u0000b\u2028𝄞中 "), ("null", "null")],
    "longtext": [("x" * 70000, "x" * 70000)],
    "time(6)": [("-838:59:59.000000", "-838:59:59.000000"), ("00:00:00", "00:00:00")],
    "json": [("null", "null"), ('{"a": [1, "b"]}', '{"a": [1, "b"]}')],
    "binary(4)": [
        ("", b""),
        ("\u0000\u0001\u007f\u0080\u00ff", b"\x00\x01\x7f\x80\xff"),
        ("\n\r?", b"\n\r?"),
        ("".join(map(chr, range(256))), bytes(range(256))),
        ("\u0100", FAIL),
        ("abc\u20ac", FAIL),
        ("𝄞", FAIL),
    ],
    "blob": [("\u00ff" * 70000, b"\xff" * 70000)],
    "enum('a','b,c','d''e','中文','')": [
        ("0", ""),
        ("1", "a"),
        ("2", "b,c"),
        ("3", "d'e"),
        ("4", "中文"),
        ("5", ""),
        ("6", FAIL),
        ("-1", FAIL),
        ("a", FAIL),
        ("1.5", FAIL),
        ("", FAIL),
    ],
    "enum": [("3", "3")],
    "set('x','y','z','w v')": [
        ("0", ""),
        ("1", "x"),
        ("10", "y,w v"),
        ("15", "x,y,z,w v"),
        ("16", FAIL),
        ("-1", FAIL),
        ("x", FAIL),
    ],
    "set(" + ",".join(f"'{n}'" for n in range(64)) + ")": [
        (str(2**64 - 1), ",".join(map(str, range(64)))),
        (str(2**63), "63"),
        (str(2**63 - 1), ",".join(map(str, range(63)))),
        ("0", ""),
        (str(2**64), FAIL),
    ],
    "set": [("5", "5")],
    "vector(3)": [
        ("[1,2,3]", [1.0, 2.0, 3.0]),
        (
            "[0.5,-2e3, 3.402823e+38]",
            [0.5, -2000.0, struct.unpack("f", struct.pack("f", 3.402823e38))[0]],
        ),
        ("[]", []),
        ("[1,null]", FAIL),
        ('[1,"2"]', FAIL),
        ("[1,,2]", FAIL),
        ("[1", FAIL),
        ("1,2", FAIL),
        ("", FAIL),
    ],
}

DATES: dict[str, list[tuple[str | None, Any]]] = {
    "date": [
        ("0001-01-01", date(1, 1, 1)),
        ("1582-10-10", date(1582, 10, 10)),
        ("9999-12-31", date(9999, 12, 31)),
        ("2020-02-29", date(2020, 2, 29)),
        ("0000-00-00", ZERO),
        ("0000-01-01", ZERO),
        ("2020-00-10", ZERO),
        ("2020-10-00", ZERO),
        ("2021-02-29", FAIL),
        ("2020-13-01", FAIL),
        ("2020-1-2", FAIL),
        ("2020", FAIL),
        (" 2020-01-01", FAIL),
        ("2020-01-01 00:00:00", FAIL),
        ("epoch", FAIL),
        ("", FAIL),
    ],
    "datetime(6)": [
        ("0001-01-01 00:00:00.000001", datetime(1, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
        ("1582-10-10 12:00:00", datetime(1582, 10, 10, 12)),  # noqa: DTZ001
        ("9999-12-31 23:59:59.999999", datetime(9999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
        ("2020-03-08 02:30:00.5", datetime(2020, 3, 8, 2, 30, 0, 500000)),  # noqa: DTZ001
        ("0000-00-00 00:00:00", ZERO),
        ("0000-00-00 00:00:00.000000", ZERO),
        ("2020-00-01 10:00:00", ZERO),
        ("2020-01-01", FAIL),
        ("2020-01-01 00:00+08", FAIL),
        ("2020-01-01 00:00:00-0800", FAIL),
        ("2020-01-01 00:00:00 UTC", FAIL),
        ("2020-01-01 24:00:00", FAIL),
        ("2020-01-01 00:00:60", FAIL),
        ("2020-01-01 00:00:00Z", FAIL),
        ("2020-01-01 00:00:00+08:00", FAIL),
        ("2020-01-01 00:00:00.1234567", FAIL),
        ("0000-00-00 garbage", FAIL),
        ("garbage", FAIL),
    ],
    "timestamp(6)": [
        ("1970-01-01 00:00:01", datetime(1970, 1, 1, 0, 0, 1)),  # noqa: DTZ001
        ("2038-01-19 03:14:07.999999", datetime(2038, 1, 19, 3, 14, 7, 999999)),  # noqa: DTZ001
        ("0000-00-00 00:00:00", ZERO),
        ("2020-02-30 00:00:00", FAIL),
        ("2020-01-01 00:00:00Z", FAIL),
    ],
}


@pytest.mark.parametrize(("text", "expected"), DELTA_TYPES.items())
def test_delta_type_holds_the_range_of_the_mysql_type(text: str, expected: str) -> None:
    assert delta_type(MySQLType.parse(text)) == expected


def _column(mysql_type: str) -> Column:
    return Column(name="c", type=MySQLType.parse(mysql_type))


def _cast_all(
    spark: SparkSession, table: dict[str, list[tuple[str | None, Any]]], time_zone: str
) -> tuple[list[str], Sequence[Row]]:
    """One row a case, four columns a type (value, failure with null, failure with fail, text)."""
    from pyspark.sql import functions as F  # noqa: N812

    height = max(map(len, table.values())) + 1  # the last row is NULL everywhere
    texts = [
        [cases[row][0] if row < len(cases) else None for cases in table.values()]
        for row in range(height)
    ]
    schema = ", ".join(f"t{n} string" for n in range(len(table)))
    source = spark.createDataFrame(texts, schema).repartition(1)  # or the optimizer evaluates it
    typed = {n: cast_column(source[f"t{n}"], _column(t), time_zone) for n, t in enumerate(table)}
    shown = source.select(
        "*", *(value.alias(f"v{n}") for n, value in typed.items())
    ).localCheckpoint(eager=False)
    chosen = []
    for n, mysql_type in enumerate(table):
        column, text, value = _column(mysql_type), shown[f"t{n}"], shown[f"v{n}"]
        assert shown.schema[f"v{n}"].dataType.simpleString() == delta_type(column.type)
        chosen += [
            (F.unix_micros(value) if column.type.name == "timestamp" else value).alias(f"v{n}"),
            cast_failure(text, value, column, "null").alias(f"n{n}"),
            cast_failure(text, value, column, "fail").alias(f"f{n}"),
            text,
        ]
    return list(table), shown.select(*chosen).collect()


@pytest.mark.spark
@pytest.mark.parametrize("rows", [1, pytest.param(MANY_ROWS + 1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("table", [NUMBERS, TEXTS, DATES], ids=["numbers", "texts", "dates"])
def test_a_text_becomes_its_exact_value_or_a_failure(
    spark: SparkSession, table: dict[str, list[tuple[str | None, Any]]], rows: int
) -> None:
    """Interpreted, as few rows are, and compiled."""
    spark = spark.newSession()
    configure(spark)
    expect_rows(spark, rows)
    types, found = _cast_all(spark, table, "UTC")
    wrong = []
    for n, mysql_type in enumerate(types):
        expected = {
            text: (value, value == FAIL, value in (FAIL, ZERO)) for text, value in table[mysql_type]
        }
        for row in found:
            text = row[f"t{n}"]
            value, fails, fails_strictly = expected.get(text, (None, False, False))
            value = None if value in (FAIL, ZERO) else _as_shown(mysql_type, value)
            got = (row[f"v{n}"], row[f"n{n}"], row[f"f{n}"])
            if not (_equal(got[0], value) and got[1:] == (fails, fails_strictly)):
                wrong.append((mysql_type, text, got, value))
    assert wrong == []


def _as_shown(mysql_type: str, value: Any) -> Any:
    if mysql_type.startswith("timestamp") and value is not None:
        return int(value.replace(tzinfo=UTC).timestamp()) * 1_000_000 + value.microsecond
    if mysql_type == "float" and value is not None:
        return struct.unpack("f", struct.pack("f", value))[0]
    return value


def _equal(got: Any, expected: Any) -> bool:
    if isinstance(got, bytearray):
        return bytes(got) == expected
    return bool(got == expected) and (type(got) is type(expected))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("time_zone", "text", "instant"),
    [
        ("UTC", "2020-07-01 00:00:00.000001", "2020-07-01T00:00:00.000001+00:00"),
        ("Asia/Shanghai", "2020-07-01 08:00:00", "2020-07-01T00:00:00+00:00"),
        ("+08:00", "2020-07-01 08:00:00", "2020-07-01T00:00:00+00:00"),
        ("PRC", "2020-07-01 08:00:00", "2020-07-01T00:00:00+00:00"),
        ("America/New_York", "2020-07-01 00:00:00", "2020-07-01T04:00:00+00:00"),
        ("America/New_York", "2020-11-01 01:30:00", "2020-11-01T05:30:00+00:00"),
    ],
)
def test_a_timestamp_is_read_in_the_source_zone_whatever_the_session_zone(
    spark: SparkSession, time_zone: str, text: str, instant: str
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        _, rows = _cast_all(spark, {"timestamp(6)": [(text, None)]}, time_zone)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert rows[0]["v0"] == _as_shown("timestamp", datetime.fromisoformat(instant))
