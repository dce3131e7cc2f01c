"""A flat message with several rows, cut to each of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from streaming.protocols.canal_json.flat_parser import one_row_each, read

NUMBER = "__a number that keeps its digits__"
TYPES = {"id": "bigint", "d": "decimal(20,10)", "v": "varchar(9)"}


def message(kind: str, data: Any, old: Any = None) -> bytes:
    fields = {
        "id": 5, "database": "shop", "table": "t", "pkNames": ["id"], "isDdl": False, "type": kind,
        "es": 1_700_000_000_123, "ts": 1, "sql": "", "sqlType": {"id": -5}, "mysqlType": TYPES,
        "old": old, "data": data,
    }  # fmt: skip
    text = json.dumps(fields, ensure_ascii=False)
    return text.replace(f'"{NUMBER}"', "12345678901.10").encode()


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": str(n), "d": NUMBER, "v": None if n % 2 else "ß\\"} for n in range(count)]


@pytest.mark.parametrize(
    ("kind", "old"),
    [
        ("INSERT", None),
        ("DELETE", None),
        ("UPDATE", [{"v": "x"}, {"id": "7"}, {}, {"d": None}]),
        ("UPDATE", None),
    ],
)
def test_each_row_says_what_it_said_in_the_whole(kind: str, old: Sequence[Any] | None) -> None:
    whole = message(kind, rows(4), old)
    expected = read(whole, 77)
    assert len(expected) == 4
    made = one_row_each(whole, [2, 0, 3, 1])
    assert [read(each, 77) for each in made] == [[expected[n]] for n in (2, 0, 3, 1)]


@pytest.mark.parametrize(
    "value", [message("INSERT", rows(1)), b"\xff", b"[]", b"{}", b'{"data":1}']
)
def test_what_has_one_row_or_none_stays_as_it_is(value: bytes) -> None:
    assert one_row_each(value, [0, 0]) == [value, value]
