"""What becomes of old values when a column's type changes. Without Spark.

What is expected stands in TiDB's ``pkg/types`` (``ConvertTo``) and in MySQL's manual, 12.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from sinks.types.delta_types import arrow_type
from sinks.types.mysql_type import MySQLType
from sinks.types.type_changes import (
    CannotConvert,
    converted,
    keeps_apart,
    needs_conversion,
    needs_untold,
)


def parse(text: str) -> MySQLType:
    """``datetime(?)``: digits that a row's message does not tell."""
    return MySQLType.parse(text)


def one(value: Any, old: str, new: str, time_zone: str = "UTC") -> Any:
    """Through an array with NULL, and the same value twice."""
    before = pa.array([None, value, value], arrow_type(parse(old)))
    found = converted(before, parse(old), parse(new), time_zone)
    assert found.type == arrow_type(parse(new))
    assert found.null_count == 1
    nothing, first, second = found.to_pylist()
    assert nothing is None
    assert first == second
    assert needs_conversion(parse(old), parse(new)) or first == value
    return first


def at(text: str, zone: Any = None) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone)


@pytest.mark.parametrize(
    ("value", "old", "new", "wanted"),
    [
        (-128, "tinyint", "bigint", -128),
        (200, "int", "tinyint unsigned", 200),
        (2**31, "bigint", "int unsigned", 2**31),
        (7, "int", "bigint unsigned", Decimal(7)),
        (Decimal(2**63 - 1), "bigint unsigned", "bigint", 2**63 - 1),
        (5, "int", "year", 2005),
        (70, "int", "year", 1970),
        (2155, "int", "year", 2155),
        (2024, "year", "int", 2024),
        (2024, "year", "varchar(4)", "2024"),
        (0, "year", "varchar(4)", "0000"),
        (5, "int", "bit(3)", 5),
        (5, "bit(3)", "int", 5),
        (7, "int", "decimal(5,2)", Decimal("7.00")),
        (7, "int", "double", 7.0),
        (16777217, "int", "float", 16777216.0),
        (-7, "int", "varchar(9)", "-7"),
        (Decimal(2**64 - 1), "bigint unsigned", "char(20)", "18446744073709551615"),
        (7, "int", "varbinary(9)", b"7"),
        (Decimal("2.50"), "decimal(5,2)", "int", 3),
        (Decimal("-2.50"), "decimal(5,2)", "int", -3),
        (Decimal("1.25"), "decimal(5,2)", "decimal(5,1)", Decimal("1.3")),
        (Decimal("-1.25"), "decimal(5,2)", "decimal(5,1)", Decimal("-1.3")),
        (Decimal("1.20"), "decimal(5,2)", "varchar(9)", "1.20"),
        (Decimal("1.20"), "decimal(5,2)", "decimal(50,3)", "1.200"),
        ("1.20", "decimal(50,2)", "decimal(50,3)", "1.200"),
        ("1.20", "decimal(50,2)", "decimal(5,1)", Decimal("1.2")),
        ("1.20", "decimal(50,2)", "varchar(9)", "1.20"),
        (Decimal("0.1"), "decimal(5,1)", "double", 0.1),
        (2.5, "double", "int", 2),
        (3.5, "double", "int", 4),
        (0.125, "double", "decimal(5,2)", Decimal("0.13")),
        (1.005, "double(9,3)", "double(9,2)", 1.0),  # 1.005 * 100 is 100.49999999999999
        (0.125, "double(9,3)", "double(9,2)", 0.12),  # to the even one
        (1.2345, "double", "double(10,2)", 1.23),
        (1.25, "float", "double(22,1)", 1.2),
        (1.25, "double", "float(20,1)", 1.2000000476837158),
        (7, "int", "double(30,1)", 7.0),
        (0.5, "float", "double", 0.5),
        (1e20, "double", "varchar(30)", "100000000000000000000"),
        (1.5e-7, "double", "varchar(30)", "0.00000015"),
        (1.0, "double", "varchar(30)", "1"),
        (0.1, "float", "varchar(30)", "0.1"),
        ("12", "varchar(9)", "int", 12),
        (" -12 ", "varchar(9)", "int", -12),
        ("1.5", "varchar(9)", "int", 2),
        ("1e2", "varchar(9)", "int", 100),
        ("1.005", "varchar(9)", "decimal(5,2)", Decimal("1.01")),
        ("1e-1", "varchar(9)", "double", 0.1),
        ("ü", "varchar(9)", "varbinary(9)", "ü".encode()),
        ("ü", "varchar(9)", "binary(4)", "ü".encode() + b"\0\0"),
        ("ü".encode(), "varbinary(9)", "text", "ü"),
        (b"a", "varbinary(9)", "binary(3)", b"a\0\0"),
        (b"a", "binary(1)", "binary(3)", b"a\0\0"),
        ("a  ", "varchar(9)", "char(9)", "a"),
        ("a  ", "char(9)", "varchar(9)", "a  "),
        ("B", "varchar(9)", "enum('a','b')", "b"),
        ("", "enum('a','b')", "enum('b','c','a')", ""),
        ("b", "enum('a','b')", "int", 2),
        ("b,a", "varchar(9)", "set('a','b')", "a,b"),
        ("a,c", "set('a','b','c')", "int", 5),
        ("a,b", "set('a','b')", "varchar(9)", "a,b"),
        ("a,b", "set('a','b')", "set('b','c','a')", "b,a"),
        ("b", "enum('a','b')", "decimal(50,2)", "2.00"),
        ('{"a": 1}', "json", "text", '{"a": 1}'),
        (date(2024, 2, 29), "date", "datetime(3)", at("2024-02-29")),
        (date(2024, 2, 29), "date", "varchar(10)", "2024-02-29"),
        (at("2024-02-29T23:59:59.9"), "datetime(1)", "date", date(2024, 2, 29)),
        (at("2024-01-01T00:00:00.5"), "datetime(6)", "datetime(0)", at("2024-01-01T00:00:01")),
        (at("2024-01-01T00:00:00.1235"), "datetime(6)", "datetime(3)",
         at("2024-01-01T00:00:00.124")),
        (at("2024-01-01T00:00:00.12"), "datetime(2)", "varchar(30)", "2024-01-01 00:00:00.12"),
        (at("2024-01-01T00:00:00"), "datetime(0)", "varchar(30)", "2024-01-01 00:00:00"),
        ("2024-01-01", "varchar(30)", "datetime", at("2024-01-01")),
        ("2024-01-01 01:02:03.45", "varchar(30)", "datetime(1)", at("2024-01-01T01:02:03.5")),
        ("2024-01-01 01:02:03", "varchar(30)", "date", date(2024, 1, 1)),
        ("2024-01-01 23:59:59.5", "varchar(30)", "date", date(2024, 1, 2)),
        ("01:02:03.5", "time(1)", "time(0)", "01:02:04"),
        ("-838:59:58.5", "time(1)", "time(0)", "-838:59:58"),  # Go's Time.Round: half up
        ("-838:59:58.51", "time(2)", "time(0)", "-838:59:59"),
        ("-00:00:00.5", "time(1)", "time(0)", "00:00:00"),  # without a sign
        ("-00:00:00.05", "time(2)", "time(1)", "00:00:00.0"),
        ("-00:00:00.15", "time(2)", "time(1)", "-00:00:00.1"),
        ("08:00:00", "time(0)", "time(3)", "08:00:00.000"),
        ("-08:00:00.5", "time(1)", "time(6)", "-08:00:00.500000"),
        ("08:00:00.5", "time(?)", "time(3)", "08:00:00.500"),
        ("08:00:00.123456", "time(?)", "time(6)", "08:00:00.123456"),
        ("08:00:00.9996", "time(?)", "time(3)", "08:00:01.000"),
        ("1:59:59.99", "varchar(30)", "time(1)", "02:00:00.0"),
        ("-1:59:59.25", "varchar(30)", "time(1)", "-01:59:59.3"),  # a text is rounded away from 0
        ("-00:00:00.4", "varchar(30)", "time(0)", "00:00:00"),
        ("1.5", "varchar(9)", "decimal(50,0)", "2"),
        ("-0.004", "decimal(50,3)", "decimal(50,2)", "0.00"),
        ("01:02:03", "time", "varchar(30)", "01:02:03"),
        # What was known from messages alone, until the DDL says it.
        ("12.50", "decimal", "decimal(9,2)", Decimal("12.50")),
        ("12.5", "decimal", "decimal(50,2)", "12.50"),
        ("12.50", "decimal", "varchar(9)", "12.50"),
        (Decimal(5), "bit", "bit(3)", 5),
        (at("2024-01-01T00:00:00.999999"), "datetime(?)", "datetime(3)", at("2024-01-01T00:00:01")),
        (at("2024-01-01T00:00:00.6"), "datetime(?)", "datetime(0)", at("2024-01-01T00:00:01")),
        (at("2024-01-01T00:00:00.123456"), "datetime(?)", "datetime(6)",
         at("2024-01-01T00:00:00.123456")),
        (at("2024-01-01T12:00:00.6"), "datetime(?)", "date", date(2024, 1, 1)),
        ("10:11:12.9", "time(?)", "varchar(30)", "10:11:12.9"),
        (1.25, "double(?)", "double(22,2)", 1.25),  # it looks the same, rounded or not
        (1.2345, "double(?)", "double(21,2)", 1.23),
        (1.2345, "float(?)", "float(11,2)", 1.2300000190734863),
        (b"ab", "binary", "binary(4)", b"ab\0\0"),
        ("2", "enum", "enum('a','b')", "b"),
        ("0", "enum", "enum('a','b')", ""),
        ("2", "enum", "int", 2),
        ("5", "set", "set('a','b','c')", "a,c"),
        ("0", "set", "set('a')", ""),
    ],
)  # fmt: skip
def test_a_value_becomes_what_tidb_makes_of_it(value: Any, old: str, new: str, wanted: Any) -> None:
    found = one(value, old, new)
    assert (type(found), found) == (type(wanted), wanted)


@pytest.mark.parametrize(
    ("value", "name", "new", "wanted"),
    [
        ("1", "enum", "enum('b','a','c')", "a"),
        ("0", "enum", "enum('b')", ""),
        ("2", "enum", "varchar(9)", "b"),
        ("2", "enum", "set('b')", "b"),
        ("2", "enum", "int", 2),
        ("2", "enum", "varbinary(9)", b"b"),
        ("3", "set", "set('b','a')", "b,a"),
        ("3", "set", "text", "a,b"),
        ("3", "set", "bigint", 3),
    ],
)
def test_numbers_become_the_names_that_the_schema_file_tells(
    value: str, name: str, new: str, wanted: Any
) -> None:
    old = MySQLType(name=name, elements=("a", "b"), is_untold=True)
    assert needs_conversion(old, parse(new))
    assert converted(pa.array([value]), old, parse(new), "UTC").to_pylist() == [wanted]


def test_a_timestamp_and_a_datetime_meet_in_the_servers_zone() -> None:
    instant, local = at("2024-07-01T00:00:00", UTC), at("2024-07-01T02:00:00")
    zone = "Europe/Berlin"
    assert one(instant, "timestamp", "datetime", zone) == local
    assert one(local, "datetime", "timestamp", zone) == instant
    assert one(instant, "timestamp(0)", "varchar(20)", zone) == "2024-07-01 02:00:00"
    assert one("2024-07-01 02:00:00", "varchar(20)", "timestamp", zone) == instant
    fine = at("2024-07-01T00:00:00.6", UTC)
    assert one(fine, "timestamp(?)", "timestamp(0)", zone) == at("2024-07-01T00:00:01", UTC)
    assert one(fine, "timestamp(1)", "timestamp(0)", zone) == at("2024-07-01T00:00:01", UTC)


@pytest.mark.parametrize(
    ("value", "old", "new", "why"),
    [
        (128, "int", "tinyint", "out of range"),
        (-1, "int", "int unsigned", "out of range|below zero"),
        (100, "int", "year", "out of range"),
        (8, "int", "bit(3)", "out of range"),
        (Decimal("999.99"), "decimal(5,2)", "decimal(5,3)", "out of range"),
        (Decimal("99.95"), "decimal(5,2)", "decimal(3,1)", "out of range"),
        (Decimal(-1), "decimal(5,2)", "decimal(6,2) unsigned", "below zero"),
        (1e300, "double", "float", "out of range"),
        ("12a", "varchar(9)", "int", "no number"),
        ("", "varchar(9)", "int", "no number"),
        ("0x1f", "varchar(9)", "double", "no number"),
        ("nan", "varchar(9)", "double", "no number"),
        (b"\xff", "varbinary(9)", "text", "utf-8"),
        ("c", "varchar(9)", "enum('a','b')", "not among its names"),
        ("a", "varchar(9)", "enum", "not known"),
        ("2024-02-30", "varchar(30)", "date", "day is out of range|day 30"),
        ("20240101", "varchar(30)", "date", "no date or time"),
        ("0000-00-00", "varchar(30)", "date", "year 0 is out of range|year must be"),
        ("x", "varchar(30)", "time", "no time"),
        ("{}", "text", "json", "not clear"),
        (5, "bit(3)", "varchar(9)", "not clear"),
        ("5", "varchar(9)", "bit(3)", "not clear"),
        (20240101, "int", "date", "not clear"),
        (date(2024, 1, 1), "date", "int", "not clear"),
        ("01:02:03", "time", "decimal(50,0)", "not clear"),
        ("1", "json", "decimal(50,0)", "not clear"),
        (at("9999-12-31T23:59:59.9"), "datetime(1)", "datetime(0)", "out of range"),
        ("839:00:00", "varchar(30)", "time(0)", "out of range"),
        (at("2024-01-01T00:00:00"), "datetime(?)", "varchar(30)", "number of digits .* not known"),
        (at("2024-01-01T00:00:00", UTC), "timestamp(?)", "text", "number of digits .* not known"),
        (
            at("2024-01-01T00:00:00"),
            "datetime(?)",
            "varbinary(30)",
            "number of digits .* not known",
        ),
        (1.2345, "double(?)", "double(22,2)", "number of digits .* not known"),
        (1.2345, "double(?)", "double(30,0)", "number of digits .* not known"),
        ("3", "enum", "enum('a','b')", "beyond the names"),
        ("4", "set", "set('a','b')", "beyond the names"),
        ("1", "enum", "varchar(9)", "not known"),
        ("1", "enum", "set('a')", "not known"),
    ],
)
def test_a_value_without_a_place_is_named(value: Any, old: str, new: str, why: str) -> None:
    with pytest.raises(CannotConvert, match=f"(?s)its value .*{old[:3]}.*: .*(?:{why})"):
        one(value, old, new)


def test_of_nothing_nothing_is_asked() -> None:
    found = converted(pa.nulls(3, pa.string()), parse("text"), parse("json"), "UTC")
    assert found.null_count == 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int", "int"),
        ("int", "mediumint"),
        ("int(5) zerofill", "int unsigned"),
        ("varchar(9)", "varchar(90)"),
        ("varchar(9)", "longtext"),
        ("char(9)", "varchar(9)"),
        ("enum('a')", "enum('b','a')"),
        ("set('a','b')", "set('c','a','d','b')"),
        ("enum('a')", "varchar(9)"),
        ("datetime", "datetime(6)"),
        ("datetime(?)", "datetime(6)"),
        ("timestamp(3)", "timestamp(4)"),
        ("time(3)", "time(3)"),
        ("time", "varchar(20)"),
        ("json", "text"),
        ("blob", "longblob"),
        ("binary(3)", "varbinary(3)"),
        ("decimal(50,2)", "decimal(60,2)"),
        ("year", "smallint"),
        ("bit(3)", "bit(9)"),
        ("double", "double unsigned"),
    ],
)
def test_what_keeps_every_value_is_no_conversion(old: str, new: str) -> None:
    assert not needs_conversion(parse(old), parse(new))


FLOATS = ("double", "double(10,2)", "double(10,4)", "double(22,2)", "double(30,0)", "double(30,2)",
          "double(30,5)", "float", "float(7)", "float(25)", "float(10,2)", "float(12,2)",
          "float(20,0)", "float(20,2)", "float(20,5)")  # fmt: skip


def test_floats_are_rounded_where_tidb_writes_the_rows_anew() -> None:
    """By TiDB's ``noReorgDataStrict``, in its words: Flen is 22 and 12 by default, Decimal -1."""

    def flen(text: str) -> tuple[str, int, int]:
        of = parse(text)
        if of.scale is not None:
            return of.name, of.length or 0, of.scale
        return of.name, {"float": 12, "double": 22}[of.name], -1

    rounded = set()
    for old, new in product(FLOATS, FLOATS):
        (was, old_flen, old_decimal), (now, new_flen, new_decimal) = flen(old), flen(new)
        is_anew = was != now or new_flen < old_flen or new_decimal < old_decimal
        exact = 1.0078125  # of both types
        before = pa.array([exact], arrow_type(parse(old)))
        found = before
        if needs_conversion(parse(old), parse(new)):
            found = converted(before, parse(old), parse(new), "UTC")
        wanted = exact
        if is_anew and new_decimal >= 0:
            wanted = round(exact, new_decimal)
            rounded.add((old, new))
        wanted = pa.array([wanted], arrow_type(parse(new))).to_pylist()[0]
        assert found.to_pylist() == [wanted], (old, new)
    assert ("double", "double(10,2)") in rounded
    assert ("double(30,5)", "double(30,2)") in rounded
    assert rounded.isdisjoint({("double", "double(30,2)"), ("float", "float(12,2)")})
    signed = parse("double(30,2)"), parse("double(30,2) unsigned")
    assert needs_conversion(*signed)  # TiDB writes them anew, and so rounds them


def test_a_time_has_the_digits_of_its_definition() -> None:
    for was, now in product(range(7), range(7)):
        old, new = parse(f"time({was})"), parse(f"time({now})")
        assert needs_conversion(old, new) == (was != now)
        assert keeps_apart(old, new) == (was <= now)
        text = "-01:02:03" + ("." + "0" * was if was else "")
        assert (
            one(text, f"time({was})", f"time({now})") == "-01:02:03" + "." * bool(now) + "0" * now
        )
    assert not keeps_apart(parse("time(?)"), parse("time(5)"))
    assert keeps_apart(parse("time(?)"), parse("time(6)"))
    assert not keeps_apart(parse("time(1)"), parse("varchar(9)"))
    assert keeps_apart(parse("int"), parse("bigint"))


def test_a_change_waits_only_where_unknown_digits_count() -> None:
    pairs = product(("datetime(?)", "timestamp(?)", "time(?)", "double(?)", "datetime", "double"),
                    ("text", "varbinary(30)", "datetime(3)", "time(3)", "date", "double(30,2)",
                     "double(10,2)", "double", "float(9,2)", "enum('a')"))  # fmt: skip
    waiting = [(old, new) for old, new in pairs if needs_untold(parse(old), parse(new))]
    texts = ("text", "varbinary(30)", "enum('a')")
    assert waiting == [
        *product(("datetime(?)", "timestamp(?)"), texts), ("double(?)", "double(30,2)"),
    ]  # fmt: skip
