"""Keys as SQL. That servers find the rows by it is shown in test_compared_keys.py."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from sinks.types.mysql_type import MySQLType
from streaming.operations.diff.key_lookup import where_keys


def types(*texts: str) -> list[MySQLType]:
    return [MySQLType.parse(text) for text in texts]


@pytest.mark.parametrize(
    ("value", "of", "sql"),
    [
        (7, "int", "7"),
        (Decimal("1E-10"), "decimal(30,10)", "0.0000000001"),
        (0.1, "double", "0.1"),
        ("o'x\\", "varchar(9)", "_utf8mb4 0x6f27785c"),
        ("", "varchar(9)", "''"),
        (b"\0\xff", "varbinary(9)", "0x00ff"),
        (b"", "varbinary(9)", "''"),
        (date(1, 2, 3), "date", "'0001-02-03'"),
        (datetime(2020, 1, 2, 3, 4, 5, 6), "datetime(6)", "'2020-01-02 03:04:05.000006'"),  # noqa: DTZ001
        (datetime(2020, 1, 2, tzinfo=UTC), "timestamp", "'2020-01-02 00:00:00'"),
        (None, "date", "'0000-00-00'"),
    ],
)
def test_a_key_is_a_literal(value: Any, of: str, sql: str) -> None:
    assert where_keys(["k"], [(value,)], types(of)) == f" WHERE `k` IN ({sql})"


def test_keys_with_null_and_of_several_columns() -> None:
    key = types("int", "varchar(9)")
    assert where_keys(["a", "b"], [(1, None), (None, "x")], key) == (
        " WHERE (`a` <=> 1 AND `b` <=> NULL) OR (`a` <=> NULL AND `b` <=> _utf8mb4 0x78)"
    )
