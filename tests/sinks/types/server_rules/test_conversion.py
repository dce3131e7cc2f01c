"""Old values by a server's own rules. What is right was seen on MariaDB 10.11 and MySQL 9.7."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from sinks.ddl.defaults import fill
from sinks.ddl.statements import read_ddl
from sinks.types.delta_types import arrow_type
from sinks.types.mysql_type import MySQLType
from sinks.types.server_rules.conversion import ServerChange
from sinks.types.server_rules.session import ServerSession
from sinks.types.table_schema import Column
from sinks.types.type_changes import CannotConvert

STRICT, TRUNCATES, ROUNDS = 1 << 21, 1 << 32, 1 << 34
MARIADB = ServerSession(is_mariadb=True, sql_mode=STRICT)
MYSQL = ServerSession(is_mariadb=False, sql_mode=STRICT)
MARIADB_ROUNDS = ServerSession(is_mariadb=True, sql_mode=STRICT | ROUNDS)
MYSQL_TRUNCATES = ServerSession(is_mariadb=False, sql_mode=STRICT | TRUNCATES)
PADS = ServerSession(is_mariadb=False, sql_mode=STRICT | 1 << 31)
LAX = ServerSession(is_mariadb=True, sql_mode=0)


def column(text: str, *, nullable: bool = True) -> Column:
    """``text``: a type, with ``zerofill`` or its character set behind it."""
    kind, _, charset = text.partition(" in ")
    return Column(
        name="c",
        type=MySQLType.parse(kind),
        nullable=nullable,
        charset=charset,
        zerofill="zerofill" in kind,
    )


def change(old: str, new: str, session: ServerSession, *, nullable: bool = True) -> ServerChange:
    return ServerChange(old=column(old), new=column(new, nullable=nullable), session=session)


def one(of: ServerChange, value: Any, zone: str = "UTC") -> Any:
    return of.values(pa.array([value], arrow_type(of.old.type)), zone)[0].as_py()


NIGHT = datetime(2026, 1, 1, 23, 59, 59, 600_000)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("old", "new", "session", "value", "wanted"),
    [
        ("datetime(3)", "datetime", MARIADB, NIGHT, datetime(2026, 1, 1, 23, 59, 59)),  # noqa: DTZ001
        ("datetime(3)", "datetime", MARIADB_ROUNDS, NIGHT, datetime(2026, 1, 2)),  # noqa: DTZ001
        ("datetime(3)", "datetime", MYSQL, NIGHT, datetime(2026, 1, 2)),  # noqa: DTZ001
        ("datetime(3)", "datetime", MYSQL_TRUNCATES, NIGHT, datetime(2026, 1, 1, 23, 59, 59)),  # noqa: DTZ001
        ("datetime(3)", "date", MARIADB, NIGHT, date(2026, 1, 1)),
        ("datetime(3)", "date", MYSQL, NIGHT, date(2026, 1, 2)),
        ("time(1)", "time", MARIADB, "-00:00:01.5", "-00:00:01"),
        ("time(1)", "time", MYSQL, "-00:00:01.5", "-00:00:02"),
        ("time(1)", "time(3)", MARIADB, "10:00:00.5", "10:00:00.500"),
        ("varchar(9) in latin1", "varbinary(9)", MARIADB, "é", b"\xe9"),
        ("varchar(9) in gbk", "blob", MYSQL, "中文", b"\xd6\xd0\xce\xc4"),
        ("char(4) in ucs2", "binary(4)", MYSQL, "é", b"\0\xe9\0\0"),
        ("varbinary(9)", "varchar(9) in utf8mb4", MYSQL, b"\xc3\xa9", "é"),
        ("varchar(9) in utf8mb4", "varchar(9) in latin1", LAX, "naïve 😀", "naïve ?"),
        ("varchar(9) in utf8mb4", "varchar(9) in utf8mb3", LAX, "é😀", "é?"),
        ("varchar(9) in utf8mb4", "varchar(3) in utf8mb4", LAX, "longer", "lon"),
        ("varchar(9) in utf8mb4", "varchar(3) in utf8mb4", MYSQL, "abc  ", "abc"),
        ("int(5) unsigned zerofill", "varchar(9) in utf8mb4", MYSQL, 7, "00007"),
        ("float", "varchar(20) in utf8mb4", MYSQL, 16777217.0, "16777200"),
        ("double", "varchar(20) in utf8mb4", MYSQL, 1e-30, "1e-30"),
        ("double", "varchar(20) in utf8mb4", MYSQL, 123456789.5, "123456789.5"),
        ("double(7,2)", "varchar(20) in utf8mb4", MYSQL, 1.5, "1.50"),
        ("varchar(9) in utf8mb4", "int", LAX, "12abc", 12),
        ("varchar(9) in utf8mb4", "int", LAX, "abc", 0),
        ("int", "tinyint unsigned", LAX, -5, 0),
        ("int", "tinyint unsigned", LAX, 300, 255),
        ("decimal(5,2)", "int", MYSQL, Decimal("-2.50"), -3),
        ("double", "int", MYSQL, 2.5, 2),
        ("char(4) in utf8mb4", "binary(6)", PADS, "a", b"a   \0\0"),
        ("char(4) in utf8mb4", "varchar(6) in utf8mb4", PADS, "a", "a   "),
        ("date", "varchar(4) in utf8mb4", LAX, date(2026, 1, 2), "2026"),
    ],
)
def test_values(old: str, new: str, session: ServerSession, value: Any, wanted: Any) -> None:
    made = change(old, new, session)
    assert made.is_other
    assert one(made, value) == wanted


def test_a_wider_number() -> None:
    assert one(change("int", "bigint", MYSQL), -5) == -5
    assert one(change("int unsigned", "bigint unsigned", MYSQL), 5) == 5
    assert one(change("float", "double", MYSQL), 0.5) == 0.5


def test_a_zone_is_the_sessions() -> None:
    moment = datetime(2026, 1, 1, 10, tzinfo=UTC)
    assert one(change("timestamp", "datetime", MYSQL), moment, "-07:00") == datetime(2026, 1, 1, 3)  # noqa: DTZ001
    plain = datetime(2026, 1, 1, 10)  # noqa: DTZ001
    back = one(change("datetime", "timestamp", MYSQL), plain, "-07:00")
    assert back == datetime(2026, 1, 1, 17, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("int", 0),
        ("varchar(9) in utf8mb4", ""),
        ("time(2)", "00:00:00.00"),
        ("date", None),
        ("varbinary(4) in vector", b"\0\0\0\0"),
    ],
)
def test_null_in_a_lax_session(kind: str, wanted: Any) -> None:
    lax = change(kind, kind, LAX, nullable=False)
    assert lax.is_other
    assert one(lax, None) == wanted
    assert not change(kind, kind, MYSQL, nullable=False).is_other


@pytest.mark.parametrize(
    ("default", "is_expression"), [("5", False), ("2020-01-02", False), ("now()", True)]
)
def test_null_where_the_column_had_a_default(default: str, is_expression: bool) -> None:
    """MariaDB fills with it in place, and with zero by a copy."""
    kind = "datetime(6)" if default != "5" else "int"
    lax = change(kind, kind, LAX, nullable=False)
    old = replace(lax.old, default=default, default_is_expression=is_expression)
    with pytest.raises(CannotConvert, match="default"):
        one(replace(lax, old=old), None)
    mysql = replace(lax, old=old, session=replace(LAX, is_mariadb=False))
    assert one(mysql, None) == (0 if kind == "int" else None)
    if kind == "int":
        copied = replace(lax, old=old, new=replace(lax.new, type=MySQLType.parse("varchar(30)")))
        assert one(copied, None) == ""


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("int", "datetime", 20200102),
        ("int", "enum('a','b')", 1),
        ("bit(8)", "varchar(9) in utf8mb4", 65),
        ("varchar(9)", "varbinary(9)", "a"),  # of a set that nobody has told
        ("varchar(9) in big5", "varbinary(9)", "中"),
        ("varchar(20) in utf8mb4", "date", "20200102"),
        ("enum('a') in utf8mb4", "enum('A') in utf8mb4", "a"),
        ("set('','x') in utf8mb4", "varchar(9) in utf8mb4", "x"),
        ("set('a','b') in latin1", "set('a','b') in ucs2", "b"),  # MySQL makes '' of it
        ("enum('a','b') in utf32", "enum('a','b') in utf8mb4", "b"),
        ("enum('ab') in binary", "text in ucs2", "ab"),  # one character of two bytes
        ("enum('é') in binary", "text in utf8mb4", "é"),
        ("vector(3)", "vector(2)", [1.0, 2.0]),
        ("vector(3)", "json", [1.0, 2.0]),
        ("float(10,3)", "float(5,0)", 1.5),
        ("varchar(9) in utf8mb4", "int", "2.5"),
        ("longtext in utf8mb4", "int", "1e5"),
        ("bit(64)", "double(9,4)", (1 << 64) - 1),  # -1 in a MariaDB
        ("set('a','é') in latin1", "set('a','é') in utf8mb4", "a,é"),
        ("binary(20)", "varbinary(12) in vector", b"\0" * 20),  # MariaDB's VECTOR(3)
        ("varbinary(8) in vector", "varbinary(4) in vector", b"\0" * 8),
        ("int", "varbinary(4) in vector", 1),
    ],
)
def test_what_is_not_sure_is_refused(old: str, new: str, value: Any) -> None:
    with pytest.raises(CannotConvert):
        one(change(old, new, LAX), value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int", "int"),
        ("varchar(9) in latin1", "varchar(20) in latin1"),
        ("varchar(9) in latin1", "text in utf8mb4"),
        ("datetime(3)", "datetime(6)"),
        ("enum('a')", "enum('a','b')"),
        ("varbinary(9)", "blob"),
        ("vector(2)", "vector(3)"),
    ],
)
def test_rows_are_not_written_anew_where_no_value_changes(old: str, new: str) -> None:
    assert not change(old, new, MYSQL).is_other


@pytest.mark.parametrize(
    ("kind", "default", "says"),
    [
        ("double(10,3) unsigned", "-2.345", "does not fit"),
        ("float(5,0)", "0.5", "does not fit"),
        ("decimal(5,2) unsigned", "-1", "does not fit"),
        ("decimal(5,2)", "1234.5", "does not fit"),
        ("tinyint", "300", "does not fit"),
        ("char(3)", "abcd", "does not fit"),
        ("enum('2','1')", "1", "which of its names"),  # by number, or in quotes
        ("set('1','2')", "1", "which of its names"),
    ],
)
def test_a_default_that_is_not_sure_is_refused(kind: str, default: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fill(replace(column(kind), default=default), LAX)


def test_a_mysql_forgets_the_empty_default_of_a_blob() -> None:
    """In a lax session, and where no parentheses are around it, which nothing tells here."""
    empty = replace(column("blob"), default="")
    with pytest.raises(ValueError, match="parentheses"):
        fill(empty, replace(LAX, is_mariadb=False))
    assert fill(empty, LAX) == fill(empty, MYSQL) == ""
    assert fill(replace(empty, nullable=False), replace(LAX, is_mariadb=False)) == ""


def test_a_default_that_fits() -> None:
    fits = {"float(5,2)": "1.25", "decimal(5,2)": "12.34", "tinyint": "3", "char(3)": "abc"}
    for kind, default in fits.items():
        assert fill(replace(column(kind), default=default), LAX) == default
    assert fill(replace(column("enum('a','b')"), default="1"), LAX) == "1"
    assert fill(replace(column("double(9,4)"), default="-2.345"), LAX) == "-2.3449999999999998"


def test_ascii_is_a_character_set_and_a_short_word_for_latin1() -> None:
    found = {}
    for said in ("CHARACTER SET ascii", "ASCII", "UNICODE", "CHARACTER SET ucs2"):
        (alter,) = read_ddl(f"ALTER TABLE t MODIFY c TEXT {said}", "ALTER", "s", "t").effects
        found[said] = alter.changes[0].column.charset  # type: ignore[union-attr]
    assert [*found.values()] == ["ascii", "latin1", "ucs2", "ucs2"]


@pytest.mark.parametrize(
    ("old", "new", "session", "loses"),
    [
        ("latin1", "utf8mb4", LAX, True),
        ("latin1", "utf8mb4", MARIADB, False),
        ("latin1", "utf8mb4", replace(LAX, is_mariadb=False), False),
        ("utf8mb3", "utf8mb4", LAX, False),
        ("gbk", "gbk", LAX, False),
    ],
)
def test_names_of_an_enum_in_another_set(
    old: str, new: str, session: ServerSession, loses: bool
) -> None:
    """A lax MariaDB loses those whose bytes change in CONVERT TO."""
    kind = "enum('b','é')"
    found = change(f"{kind} in {old}", f"{kind} in {new}", session)
    assert found.is_other == loses
    if loses:
        assert one(found, "b") == "b"
        with pytest.raises(CannotConvert, match="names"):
            one(found, "é")


def test_ascii_names_of_an_enum_in_a_wider_set() -> None:
    found = change("enum('b') in utf16", "enum('b') in utf32", LAX)
    with pytest.raises(CannotConvert, match="names"):
        one(found, "b")
    assert not change("enum('b') in latin1", "enum('b') in utf8mb4", LAX).is_other


def test_a_float_beyond_bigint() -> None:
    """A lax MySQL made -128 of 1e30, a MariaDB makes the greatest number."""
    mysql = change("float", "tinyint", replace(LAX, is_mariadb=False))
    with pytest.raises(CannotConvert, match="beyond BIGINT"):
        one(mysql, 1e30)
    assert one(mysql, 1e15) == 127
    assert one(change("float", "tinyint", LAX), 1e30) == 127
