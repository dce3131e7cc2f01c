"""Every type of design 6 at its extremes, and what is not a value of it; one Spark job a table."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from sinks.delta_types import delta_type
from sinks.schema import Column, MySQLType
from sinks.sql_casts import cast_column, cast_failure
from streaming.session import MANY_ROWS, configure, expect_rows
from tests.sinks.cast_cases import DATES, FAIL, NUMBERS, TEXTS, ZERO

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


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
