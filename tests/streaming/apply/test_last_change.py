"""Every version of every row, from whatever order and however often its changes came."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from coordination.model import Ts
from sinks.target.write_mode import IS_CURRENT, VALID_FROM_TS, VALID_TO_TS, WriteMode
from streaming.apply.changes import TableChanges, changes
from streaming.apply.row_block import RowBlock
from streaming.apply.table_task import TableTask
from tests.streaming.apply.blocks import A
from tests.streaming.apply.resolved import RULES, errors, numbered, resolved, row
from tests.streaming.apply.slow_model import SlowModel
from tests.streaming.apply.test_changes_by_chance import TABLES, History, check_errors

HISTORY = WriteMode(mode="history")
Version = tuple[Any, ...]


def told(found: TableChanges) -> list[Version]:
    """Of each version: id, v, from, to. Of an end: id, from."""
    rows = found.rows.to_pylist()
    assert all(each[IS_CURRENT] == (each[VALID_TO_TS] is None) for each in rows)
    versions = [
        (each["id"], each["v"], each[VALID_FROM_TS], each[VALID_TO_TS])
        for each in rows
        if each["_op "] == "U"
    ]
    ends = [(each["id"], each[VALID_FROM_TS]) for each in rows if each["_op "] == "D"]
    return sorted([*versions, *ends], key=lambda each: (each[0], each[2 if len(each) == 4 else 1]))


def cells(id: int, v: str) -> dict[str, str | None]:
    return {"id": str(id), "v": v}


def test_several_changes_of_one_key_are_as_many_versions() -> None:
    steps = [
        row("INSERT", 10, cells(1, "a")),
        row("UPDATE", 20, cells(1, "b")),
        row("DELETE", 30, cells(1, "b")),
        row("DELETE", 40, cells(1, "c")),  # and an INSERT: replaced within one transaction
        row("INSERT", 40, cells(1, "d")),
    ]
    for order in permutations(steps):
        assert told(resolved(numbered([*order, order[0]]), form=HISTORY)) == [
            (1, "a", 10, 20), (1, "b", 20, 30), (1, 30), (1, "d", 40, None),
        ]  # fmt: skip


def test_a_change_of_the_key_closes_one_row_and_opens_another() -> None:
    rows = [
        row("INSERT", 10, cells(1, "a")),
        row("INSERT", 10, cells(2, "b")),
        row("UPDATE", 20, cells(2, "a"), cells(1, "a")),  # they swap
        row("UPDATE", 20, cells(1, "b"), cells(2, "b")),
        row("UPDATE", 30, cells(3, "a"), cells(2, "a")),
        row("UPDATE", 40, cells(4, "a"), cells(3, "a"), error=("claim-check", "elsewhere")),
    ]
    found = resolved(numbered(rows), form=HISTORY)
    assert told(found) == [
        (1, "a", 10, 20), (1, "b", 20, None),
        (2, "b", 10, 20), (2, "a", 20, 30), (2, 30),
        (3, "a", 30, None),  # the UPDATE is an error: the row stays what it was
    ]  # fmt: skip
    assert set(errors(found)) == {5}


def test_moments_are_the_commit_times() -> None:
    first = (1_700_000_000_123 << 18) + 7
    rows = [row("INSERT", first, cells(1, "a")), row("UPDATE", first + 1, cells(1, "b"))]
    found = resolved(numbered(rows), limit=2**62, form=HISTORY).rows.to_pylist()
    moment = "2023-11-14 22:13:20.123000+00:00"
    assert [str(each["_valid_from"]) for each in found] == [moment, moment]
    assert [str(each["_valid_to"]) for each in found] == [moment, "None"]
    assert [each[VALID_TO_TS] for each in found] == [first + 1, None]


@pytest.mark.parametrize("table", TABLES)
def test_as_row_by_row(table: str) -> None:
    """The last change of each key at each commit-ts is a version, or an end."""
    of, casts, ids = TABLES[table]
    for seed in range(20):
        history = History(seed, of.key, ids)
        rows = history.rows()
        low, _, high = history.limits()
        drops, ignored = history.drops(), history.ignored()
        model = SlowModel(casts=casts, key=of.key, drops=drops, ignored=ignored)
        at = {ts: model.run(rows, ts - 1, ts).last for ts in range(low + 1, high + 1)}
        task = TableTask(
            name=A, schema=of, checkpoint=Ts(low), ignored_events=ignored, form=HISTORY
        )
        blocks = [RowBlock.of(block) for block in history.blocks(rows)]
        rules = replace(RULES, unknown_column="drop" if drops else "dead-letter")
        found = changes(task, blocks, Ts(high), rules)
        check_errors(found.errors, model.run(rows, low, high))
        seen = set()
        for each in found.rows.to_pylist():
            key, ts = tuple(each[name] for name in of.key), each[VALID_FROM_TS]
            later = [other for other in range(ts + 1, high + 1) if key in at[other]]
            assert each[VALID_TO_TS] == min(later, default=None)
            values = {name: each[name] for name in casts} if each["_op "] == "U" else None
            assert at[ts][key] == values, f"seed {seed}"
            assert (key, ts) not in seen
            seen.add((key, ts))
        assert seen == {(key, ts) for ts in at for key in at[ts]}
