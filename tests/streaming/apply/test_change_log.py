"""Every event of a change log once, in commit order, however often and from wherever it came."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from coordination.model import Ts
from sinks.target.write_mode import LOG_COLUMNS, WriteMode
from sinks.types.delta_types import arrow_of, arrow_type
from sinks.types.table_schema import TableSchema
from streaming.apply.change_log import change_log_rows
from streaming.apply.changes import TableChanges
from streaming.apply.table_task import ChangeRules, TableTask
from streaming.apply.values.row_errors import ERRORS
from tests.streaming.apply.blocks import A, Row, Text, blocks_of
from tests.streaming.apply.resolved import PLAIN, RULES, errors, numbered, row, schema

LOG = WriteMode(mode="append")
KEYLESS = schema(key=(), id="bigint", v="varchar(20)")


def logged(
    rows: Iterable[Row],
    of: TableSchema = PLAIN,
    limit: int = 1000,
    rules: ChangeRules = RULES,
    **more: Any,
) -> TableChanges:
    checkpoint = Ts(more.pop("checkpoint", 0))
    task = TableTask(name=A, schema=of, checkpoint=checkpoint, form=LOG, **more)
    found = change_log_rows(task, blocks_of(rows), Ts(limit), rules)
    wanted = {each.name: arrow_type(each.type) for each in of.delivered}
    wanted |= {name: arrow_of(kind) for name, kind in LOG_COLUMNS.items()}  # type: ignore[misc]
    assert dict(zip(found.rows.schema.names, found.rows.schema.types, strict=True)) == wanted
    assert found.errors.schema == ERRORS
    found.rows.validate(full=True)
    return found


def told(found: TableChanges) -> list[tuple[Any, ...]]:
    """Of each row of the log: commit-ts, what it is, id, v."""
    return [(e["_commit_ts"], e["_op"], e["id"], e["v"]) for e in found.rows.to_pylist()]


def one(id: str | None, v: str | None) -> Text:
    return {"id": id, "v": v}


def test_every_event_is_a_row_and_an_update_two() -> None:
    rows = [
        row("INSERT", 10, one("1", "a")),
        row("UPDATE", 20, one("1", "b"), one("1", "a")),
        row("UPDATE", 25, one("1", None)),  # the message has no old values
        row("DELETE", 30, one("1", "b")),
        row("INSERT", 30, one("2", "x")),
    ]
    assert told(logged(numbered(rows))) == [
        (10, "insert", 1, "a"),
        (20, "update_preimage", 1, "a"),
        (20, "update_postimage", 1, "b"),
        (25, "update_postimage", 1, None),
        (30, "delete", 1, "b"),
        (30, "insert", 2, "x"),
    ]
    orders = logged(numbered(rows)).rows["_commit_order"].to_pylist()
    assert orders == [1, 1, 1, 1, 0, 1]


def test_the_commit_time_is_the_tso_s() -> None:
    ts = (1_700_000_000_123 << 18) + 7
    (found,) = logged([row("INSERT", ts, one("1", "a"))], limit=2**62).rows.to_pylist()
    assert (found["_commit_ts"], str(found["_commit_time"])) == (
        ts,
        "2023-11-14 22:13:20.123000+00:00",
    )


def test_only_what_is_due_and_not_ignored_is_in_it() -> None:
    rows = numbered(
        row(op, ts, one("1", "a")) for ts in (10, 20, 30) for op in ("INSERT", "DELETE")
    )
    found = logged(rows, checkpoint=10, limit=20, ignored_events=frozenset(("delete",)))
    assert told(found) == [(20, "insert", 1, "a")]


def test_an_event_that_came_again_is_one() -> None:
    """In another order, from another partition, in a block of another shape."""
    rows = [
        row("INSERT", 10, one("1", "a")),
        row("DELETE", 20, one("1", "a")),
        row("INSERT", 20, one("1", "b")),
        row("UPDATE", 30, one("2", "b"), one("1", "b")),
    ]
    again = [replace(each, part="shop/1") for each in reversed(rows)]
    turned = [replace(each, data=dict(reversed(each.data.items())), part="shop/2") for each in rows]
    assert told(logged([*numbered(rows), *numbered(again), *numbered(turned)])) == [
        (10, "insert", 1, "a"),
        (20, "delete", 1, "a"),
        (20, "insert", 1, "b"),
        (30, "update_preimage", 1, "b"),
        (30, "update_postimage", 2, "b"),
    ]


def test_without_a_key_an_event_is_what_it_says() -> None:
    rows = [
        row("INSERT", 10, one("1", "a"), key=()),
        row("INSERT", 10, one("1", "a"), key=()),  # cannot be told from a replay
        row("INSERT", 10, one("1", None), key=()),
        row("INSERT", 10, one("1", ""), key=()),
        row("INSERT", 11, one("1", "a"), key=()),
        row("UPDATE", 12, one("1", "b"), one("1", "a"), key=()),
        row("UPDATE", 12, one("1", "b"), one("1", ""), key=()),
        row("DELETE", 13, one(None, None), key=()),
    ]
    again = [replace(each, part="shop/1") for each in rows]
    found = told(logged([*numbered(rows), *numbered(again)], KEYLESS))
    assert sorted(map(repr, found)) == sorted(
        map(
            repr,
            [
                (10, "insert", 1, "a"),
                (10, "insert", 1, None),
                (10, "insert", 1, ""),
                (11, "insert", 1, "a"),
                *[(12, "update_preimage", 1, v) for v in ("a", "")],
                *[(12, "update_postimage", 1, "b")] * 2,
                (13, "delete", None, None),
            ],
        )
    )


NUMBERS = schema(id="bigint", v="varchar(20)", n="int")


def test_a_bad_row_is_a_dead_letter_whole() -> None:
    def cells(id: str | None, n: str | None) -> Text:
        return {"id": id, "v": "x", "n": n}

    rows = [
        row("INSERT", 10, cells("1", "1")),
        row("INSERT", 11, cells("2", "one")),
        row("UPDATE", 12, cells("1", "2"), cells("1", "old")),
        row("DELETE", 13, cells("1", "two")),
        row("DELETE", 14, cells(None, "1")),
        row("UPDATE", 15, cells("1", "1"), error=("handle-key-only", "cut")),
        row("INSERT", 16, {**cells("3", "1"), "new": "1"}),
        row("DELETE", 17, {**cells("3", "1"), "new": "1"}),
        row("DELETE", 18, cells("1", "2")),
    ]
    found = logged(numbered(rows), NUMBERS)
    assert [each["_commit_ts"] for each in found.rows.to_pylist()] == [10, 18]
    assert {at: why[0] for at, why in errors(found).items()} == {
        1: "cast",
        2: "cast",
        3: "cast",
        4: "cast",
        5: "handle-key-only",
        6: "unknown-column",
        7: "unknown-column",
    }
    assert errors(found)[2][1] == "column n: cannot read 'old' as int"
    drop = logged(numbered(rows), NUMBERS, rules=replace(RULES, unknown_column="drop"))
    assert [each["_commit_ts"] for each in drop.rows.to_pylist()] == [10, 16, 17, 18]
    assert drop.dropped == {"new": 2}


def test_a_delete_has_what_the_message_has() -> None:
    rows = numbered([row("INSERT", 10, one("1", "a")), row("DELETE", 20, {"id": "1"})])
    assert told(logged(rows)) == [(10, "insert", 1, "a"), (20, "delete", 1, None)]


def test_a_row_of_which_nothing_is_told_is_a_dead_letter() -> None:
    rows = numbered([row("DELETE", 20, {}, key=()), row("DELETE", 20, one("1", None), key=())])
    found = logged(rows, KEYLESS)
    assert told(found) == [(20, "delete", 1, None)]
    assert {at: why[0] for at, why in errors(found).items()} == {0: "no-key"}


def test_nothing_is_a_table_of_nothing() -> None:
    assert not logged([]).rows.num_rows


@pytest.mark.parametrize("of", [PLAIN, KEYLESS], ids=["key", "keyless"])
@pytest.mark.seeds(20)
def test_random_streams_against_a_model(of: TableSchema, seed: int) -> None:
    """A history, sent with replays to any partition, cut anywhere: the cuts are the history."""
    dice = random.Random(seed)
    history, expected = _history(dice)
    sent: list[Row] = []
    for each in history:
        copies = dice.choice((1, 1, 2, 3))
        sent += [replace(each, part=f"shop/{dice.randrange(3)}") for _ in range(copies)]
    window = dice.choice((1, 5, len(sent)))
    sent.sort(key=lambda each: each.ts + dice.randrange(window))
    sent = [replace(each, position=offset) for offset, each in enumerate(sent)]
    cuts = sorted({0, 1000, *(dice.randrange(1000) for _ in range(dice.randrange(5)))})
    found: list[tuple[Any, ...]] = []
    for low, high in itertools.pairwise(cuts):
        part = logged(sent, of, checkpoint=low, limit=high)
        assert not part.errors.num_rows
        stamps = part.rows["_commit_ts"].to_pylist()
        assert stamps == sorted(stamps)
        found += told(part)
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def _history(dice: random.Random) -> tuple[list[Row], list[tuple[Any, ...]]]:
    rows: list[Row] = []
    expected: list[tuple[Any, ...]] = []
    table: dict[int, str] = {}
    for number in range(dice.choice((5, 60, 300))):
        ts = dice.randrange(3) + 1 + (rows[-1].ts if rows else 0)
        id, v = dice.randrange(9), f"v{number}"
        data = one(str(id), v)
        if id not in table:
            rows.append(row("INSERT", ts, data))
            expected.append((ts, "insert", id, v))
            table[id] = v
        elif dice.random() < 0.6:
            old = one(str(id), table[id])
            rows.append(row("UPDATE", ts, data, old))
            expected += [(ts, "update_preimage", id, table[id]), (ts, "update_postimage", id, v)]
            table[id] = v
        else:  # and in the same transaction another key takes its place
            gone = table.pop(id)
            rows.append(row("DELETE", ts, one(str(id), gone)))
            expected.append((ts, "delete", id, gone))
            if dice.random() < 0.5:
                rows.append(row("INSERT", ts, data))
                expected.append((ts, "insert", id, v))
                table[id] = v
    kept = [each for each in rows if each.ts <= 1000]
    return kept, [each for each in expected if each[0] <= 1000]


def test_many_rows_stay_with_their_values() -> None:
    """Columns come from several pieces, and each is sorted."""
    rows: Sequence[Row] = [
        row("UPDATE", 1 + n * 7919 % 5000, one(str(n), f"v{n}"), one(str(n), f"o{n}"))
        for n in range(5000)
    ]
    found = logged(numbered(rows), limit=5001).rows
    assert found.num_rows == 10_000
    assert pa.compute.min(found["_commit_ts"]).as_py() >= 1
    for each in found.to_pylist():
        side = "o" if each["_op"] == "update_preimage" else "v"
        assert each["v"] == f"{side}{each['id']}"
        assert each["_commit_ts"] == 1 + each["id"] * 7919 % 5000
