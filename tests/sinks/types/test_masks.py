"""Masked values: hashes of the texts that MySQL has, or nothing."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest

from sinks.types.delta_types import arrow_type
from sinks.types.masks import target_values
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, Mask
from sinks.types.text_arrays import CastRules
from tests.services.database_server import DatabaseServer

SALT = b"pepper"
RULES = CastRules(time_zone="UTC", zero_date="null", mask_salt=SALT)
VALUES = {
    "int": "-7",
    "bigint unsigned": "18446744073709551615",
    "decimal(20,10)": "0.0000001000",
    "varchar(20)": "grüß ",
    "double": "1.5",
    "date": "2026-01-31",
    "datetime(3)": "2026-01-31 09:30:00.250",
    "timestamp": "2026-01-31 09:30:00",
    "year": "2026",
    "varbinary(5)": "ab",
    "enum('a','b')": "2",
    "bit(5)": "7",
}


def column(kind: str, mask: Mask) -> Column:
    return Column(name="c", type=MySQLType.parse(kind), mask=mask)


def hashes(kind: str, *texts: str | None, salt: bytes = SALT) -> list[str | None]:
    rules = CastRules(time_zone="UTC", zero_date="null", mask_salt=salt)
    found = target_values(pa.array(texts, pa.string()), column(kind, "sha256"), rules)
    assert (found.failed, found.values.type) == (None, pa.string())
    values: list[str | None] = found.values.to_pylist()
    return values


@pytest.mark.mariadb
def test_a_hash_is_what_the_server_makes_of_salt_and_value(mariadb: DatabaseServer) -> None:
    with (
        mariadb.database("masked", "CHARACTER SET utf8mb4") as schema,
        mariadb.connect(database=schema) as session,
        session.cursor() as cursor,
    ):
        cursor.execute("SET time_zone = '+00:00'")
        names = [f"c{n}" for n in range(len(VALUES))]
        kinds = ", ".join(f"{n} {kind}" for n, kind in zip(names, VALUES, strict=True))
        cursor.execute(f"CREATE TABLE t ({kinds})")
        told = {**VALUES, "enum('a','b')": "b", "bit(5)": 7}
        cursor.execute(
            f"INSERT INTO t VALUES ({', '.join(['%s'] * len(told))})", tuple(told.values())
        )
        bits = {"c11": "c11+0"}
        asked = ", ".join(f"SHA2(CONCAT('pepper', {bits.get(n, n)}), 256)" for n in names)
        cursor.execute(f"SELECT {asked} FROM t")
        (wanted,) = cursor.fetchall()
    assert [hashes(kind, text)[0] for kind, text in VALUES.items()] == list(wanted)


def test_null_stays_null_and_equal_texts_are_equal() -> None:
    assert hashes("varchar(5)", "7", None, "7") == hashes("bigint", "7", None, "7")
    assert hashes("varchar(5)", "x", salt=b"") == [hashlib.sha256(b"x").hexdigest()]
    assert hashes("varchar(5)", "x") != hashes("varchar(5)", "x", salt=b"")
    assert hashes("int") == []


@pytest.mark.parametrize(
    ("kind", "text", "hashed"),
    [
        ("double", "1e15", "1000000000000000"),
        ("double", "1e-7", "0.0000001"),
        ("float", "1234567", "1234567"),
        ("int(5) unsigned zerofill", "00005", "5"),
        ("bit(5)", "7", "7"),
        ("vector", "[1,2.5]", "[1.0, 2.5]"),
        ("json", '{"a": 1}', '{"a": 1}'),
    ],
)
def test_numbers_have_a_plain_text(kind: str, text: str, hashed: str) -> None:
    assert hashes(kind, text, salt=b"") == [hashlib.sha256(hashed.encode()).hexdigest()]


@pytest.mark.parametrize("kind", ["datetime", "timestamp"])
def test_a_text_tells_the_digits_that_no_definition_has_told(kind: str) -> None:
    """The type is a row's ``mysqlType``."""
    texts = ["2026-01-31 09:30:00", "2026-01-31 09:30:00.250", None, "2026-01-31 09:30:00.000000"]
    told = MySQLType.parse(kind).as_untold()
    assert told.digits is None
    of = Column(name="c", type=told, mask="sha256")
    for given in (texts, texts[:1], []):
        found = target_values(pa.array(given, pa.string()), of, RULES).values
        wanted = [text and hashlib.sha256(SALT + text.encode()).hexdigest() for text in given]
        assert (found.type, found.to_pylist()) == (pa.string(), wanted)


def test_a_value_that_cannot_be_read_still_fails() -> None:
    found = target_values(pa.array(["1", "zwei"]), column("int", "sha256"), RULES)
    assert found.failed is not None
    assert found.failed.to_pylist() == [False, True]
    assert found.values.to_pylist()[1] is None


def test_null_is_of_the_columns_type_whatever_comes() -> None:
    found = target_values(pa.array(["zwei", None]), column("int", "null"), RULES)
    assert found.values.equals(pa.nulls(2, arrow_type(MySQLType.parse("int"))))
    assert found.failed is None
