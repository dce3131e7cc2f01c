"""Rows of a table of which the target has some columns, and others masked."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from sinks.types.column_choice import ColumnChoice
from tests.streaming.apply.blocks import Row
from tests.streaming.apply.resolved import RULES, errors, numbered, resolved, row, schema

MASKS: dict[str, Any] = {"id": "sha256", "name": "sha256", "phone": "null"}
CHOICE = ColumnChoice(lambda name: name != "x", lambda name: MASKS.get(name, ""), is_all=False)
OF = CHOICE.chosen(schema(id="bigint", x="int", name="int", phone="date", v="varchar(20)"))
SALTED = replace(RULES, mask_salt=b"s")


def digest(text: str) -> str:
    return hashlib.sha256(f"s{text}".encode()).hexdigest()


def put(op: str, ts: int, id: int, old: int | None = None, **values: str | None) -> Row:
    data = {"id": str(id), "x": "no int", "name": "7", "phone": "0000-00-00", "v": "w", **values}
    return row(op, ts, data, None if old is None else {"id": str(old)})


def test_keys_and_values_are_masked_and_what_is_left_out_is_not_read() -> None:
    rows = [
        put("INSERT", 10, 1),
        put("UPDATE", 20, 2, old=1, name=None),
        put("INSERT", 20, 3),
        put("DELETE", 30, 3),
    ]
    found = resolved(numbered(rows), OF, rules=SALTED)
    shown = {each["id"]: each for each in found.rows.to_pylist()}
    assert set(shown) == {digest("1"), digest("2"), digest("3")}
    assert found.rows.column_names == ["id", "name", "phone", "v", "_op "]
    assert [shown[digest(key)]["_op "] for key in "123"] == ["D", "U", "D"]
    assert shown[digest("2")] == {
        "id": digest("2"), "name": None, "phone": None, "v": "w", "_op ": "U",
    }  # fmt: skip
    assert found.nulled == {}
    assert not found.errors.num_rows


def test_equal_values_have_one_hash_in_every_read() -> None:
    found = resolved(numbered([put("INSERT", 10, 1, name="42")]), OF, rules=SALTED)
    (shown,) = found.rows.to_pylist()
    assert shown["name"] == digest("42")


@pytest.mark.parametrize(("column", "value"), [("name", "secret text"), ("id", "4111")])
def test_an_error_does_not_show_a_masked_value(column: str, value: str) -> None:
    bad = row("INSERT", 10, {"id": "1", "name": "7", "v": "w", column: value + "x"})
    (told,) = errors(resolved([bad], OF, rules=SALTED)).values()
    assert value not in told[1]
    assert f"column {column}: cannot read '***' as bigint" in told[1] or "as int" in told[1]


def test_a_message_may_lack_what_is_left_out() -> None:
    """As TiCDC with the same selectors sends it."""
    found = resolved([row("INSERT", 10, {"id": "1", "name": "7", "phone": None, "v": "w"})], OF)
    assert (found.rows.num_rows, found.errors.num_rows) == (1, 0)
