"""Why and where, as dead letters ask for it."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.model import TableName, Ts
from sinks.types.table_schema import TableSchema
from streaming.apply.letters.dead_letter_writer import REASONS, reasons
from streaming.apply.table_task import TableTask
from streaming.apply.values.row_errors import NO_KEY, NO_KEY_MESSAGE, NO_TABLE, keyless_errors
from tests.streaming.apply.blocks import A, Row, blocks_of
from tests.streaming.apply.resolved import numbered, resolved, row

B = TableName("shop", "b")


def keyless(rows: list[Row], limit: int = 100, **more: Any) -> Any:
    empty = TableSchema(columns=(), key=())
    task = TableTask(name=A, schema=empty, checkpoint=Ts(5), **more)
    return keyless_errors(task, blocks_of(rows), Ts(limit))


@pytest.mark.parametrize("is_keyless", [True, False])
def test_every_due_row_of_a_table_without_a_target_is_one(is_keyless: bool) -> None:
    rows = [
        row("INSERT", 5, {"a": "1"}),
        row("INSERT", 6, {"a": "1"}),
        row("UPDATE", 7, {"a": "1"}, error=("claim-check", "elsewhere")),
        row("DELETE", 8, {"a": "1"}),
        row("INSERT", 9, {"b": "1"}),
        row("INSERT", 101, {"a": "1"}),
    ]
    ignored = frozenset(("delete",))
    found = keyless(numbered(rows), is_keyless=is_keyless, ignored_events=ignored).to_pylist()
    classes = {each["position"]: each["error_class"] for each in found}
    reason = NO_KEY if is_keyless else NO_TABLE
    assert classes == {1: reason, 2: "claim-check", 4: reason}
    messages = {each["position"]: each["message"] for each in found}
    assert messages[2] == "elsewhere"
    assert (messages[1] == NO_KEY_MESSAGE) == is_keyless


def test_a_letter_per_row_in_the_order_of_the_topics() -> None:
    bad = [
        row("INSERT", 10, {"id": "x"}, part="shop/1", position=9, index=1),
        row("INSERT", 10, {"id": "y"}, part="shop/1", position=9, index=0),
        row("INSERT", 10, {"id": "z"}, part="shop/1", position=3),
        row("INSERT", 10, {"id": None}, part="shop/0", position=9),
        row("INSERT", 10, {"id": "w"}, part="more/1", position=9),
    ]
    errors = {B: keyless([]), A: resolved(bad).errors}
    found = reasons(errors)
    assert found.schema == REASONS
    assert [(each["part"], each["position"], each["index"]) for each in found.to_pylist()] == [
        ("more/1", 9, 0),
        ("shop/0", 9, 0),
        ("shop/1", 3, 0),
        ("shop/1", 9, 0),
        ("shop/1", 9, 1),
    ]
    last = found.to_pylist()[-2]
    assert (last["schema_name"], last["table_name"], last["commit_ts"]) == ("shop", "a", 10)
    assert last["message"] == "column id: cannot read 'y' as bigint"


def test_nothing_bad_makes_no_letter() -> None:
    assert reasons({}) == reasons({A: keyless([])}) == REASONS.empty_table()


def test_letters_of_two_tables_keep_their_names() -> None:
    one = resolved([row("INSERT", 10, {"id": "x"}, position=2)]).errors
    other = keyless([row("INSERT", 10, {"a": "x"}, position=1)])
    names = [each["table_name"] for each in reasons({A: one, B: other}).to_pylist()]
    assert names == ["b", "a"]
