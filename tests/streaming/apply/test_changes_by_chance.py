"""Random histories, cut into random blocks: the same as row by row, whatever the order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordination.model import Ts
from sinks.target.write_mode import ROW_OP, ROW_TS, UPSERT, WriteMode
from sinks.types.table_schema import TableSchema
from streaming.apply import rows_to_apply
from streaming.apply.carry import Carry
from streaming.apply.changes import TableChanges, changes
from streaming.apply.row_block import RowBlock
from streaming.apply.table_task import TableTask
from streaming.protocols.contract import Block
from tests.streaming.apply.blocks import A, Row, block_of
from tests.streaming.apply.resolved import RULES, schema
from tests.streaming.apply.slow_model import Expected, Key, Place, SlowModel, Values

HISTORIES = 25
MAX_TS = 8
FORMS = (
    UPSERT,
    WriteMode(extra_columns=(ROW_TS,)),
    WriteMode(extra_columns=(ROW_TS, ROW_OP)),
    WriteMode(soft_delete=True),
    WriteMode(extra_columns=(ROW_OP,), soft_delete=True),
)


def whole(text: str) -> int:
    if not text.removeprefix("-").isdigit():
        raise ValueError(text)
    return int(text)


TABLES: dict[str, tuple[TableSchema, dict[str, Callable[[str], Any]], list[str]]] = {
    "number": (
        schema(("id",), v="int", id="bigint", w="varchar(9)"),
        {"v": whole, "id": whole, "w": str},
        ["1", "2", "3", "4", "5"],
    ),
    "spellings": (
        schema(("id",), id="double", v="int", w="varchar(9)"),
        {"id": lambda text: float(whole(text.removesuffix(".0"))) + 0.0, "v": whole, "w": str},
        ["0", "-0", "0.0", "1", "1.0", "-1"],
    ),
    "two columns": (
        schema(("w", "id"), id="smallint", v="int", w="varchar(9)"),
        {"id": whole, "v": whole, "w": str},
        ["1", "2", "3"],
    ),
}


class History:
    """Rows of one table, as sources may send them and as they must not but do."""

    def __init__(self, seed: int, key: Sequence[str], ids: Sequence[str]) -> None:
        self._random = random.Random(seed)
        self._key = key
        self._ids = ids
        self._badness = self._random.choice([0.0, 0.0, 0.05, 0.4])
        self._oddness = self._random.choice([0.0, 0.2])
        self._next = [0, 0, 0]

    def rows(self) -> list[Row]:
        rows = [self._row() for _ in range(self._random.randrange(40))]
        replays = [self._placed(row) for row in self._random.sample(rows, len(rows) // 4)]
        again = self._random.sample(rows, len(rows) // 8)  # read twice
        return [*rows, *replays, *again]

    def blocks(self, rows: Sequence[Row]) -> list[Block]:
        groups: dict[Any, list[Row]] = {}
        for row in rows:
            at = self._random.randrange(3)
            shape = (at, row.part, tuple(row.data))
            groups.setdefault(shape, []).append(row)
        blocks = [block_of(group) for group in groups.values()]
        self._random.shuffle(blocks)
        return blocks

    def _row(self) -> Row:
        data = self._cells()
        op = self._random.choice(["INSERT", "UPDATE", "UPDATE", "DELETE"])
        old = None
        if op == "UPDATE" and self._random.random() < 0.5:
            old = self._cells()
            if self._random.random() < 0.5:  # changed columns alone
                old = {name: text for name, text in old.items() if self._random.random() < 0.5}
        error = None
        if self._chance(self._badness / 2) and op != "DELETE":
            error = ("claim-check", "elsewhere")
        ts = self._random.randint(1, MAX_TS)
        return self._placed(Row(op=op, ts=ts, data=data, old=old, error=error))

    def _cells(self) -> dict[str, str | None]:
        cells: dict[str, str | None] = {
            "id": "x" if self._chance(self._badness) else self._random.choice(self._ids),
            "v": "many" if self._chance(self._badness) else str(self._random.randrange(99)),
            "w": None if self._chance(self._badness) else self._random.choice("abc"),
        }
        if self._chance(self._oddness):
            del cells[self._random.choice(["v", "w"])]
        if self._chance(self._oddness):
            cells["more"] = self._random.choice(["m", None])
        names = list(cells)
        if self._chance(self._oddness):
            self._random.shuffle(names)
        return {name: cells[name] for name in names}

    def _placed(self, row: Row) -> Row:
        partition = self._random.randrange(len(self._next))
        if self._chance(0.2) and self._next[partition]:  # another row of the last message
            offset, index = self._next[partition] - 1, self._random.randrange(1, 1 << 20)
        else:
            offset, index = self._next[partition], 0
            self._next[partition] += 1
        return replace(row, part=f"shop/{partition}", position=offset, index=index)

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def limits(self) -> tuple[int, int, int]:
        low, middle, high = sorted(self._random.choices(range(MAX_TS + 1), k=3))
        return low, middle, high

    def ignored(self) -> frozenset[str]:
        events = ["insert", "update", "delete"]
        return frozenset(event for event in events if self._chance(0.1))

    def drops(self) -> bool:
        return self._chance(0.3)


def read(found: TableChanges, key: Sequence[str]) -> dict[Key, Values]:
    found.rows.validate(full=True)
    result: dict[Key, Values] = {}
    for row in found.rows.to_pylist():
        op = row.pop("_op ")
        at = tuple(row[name] for name in key)
        assert at not in result
        assert not any(repr(part) == "-0.0" for part in at)
        result[at] = row if op == "U" else None
    return result


def check_errors(found: pa.Table, expected: Expected) -> None:
    told: dict[Place, str] = {}
    for row in found.to_pylist():
        place = row["part"], row["position"], row["index"]
        assert told.setdefault(place, row["error_class"]) == row["error_class"]
        assert row["message"]
    left_out = expected.errors.keys() - told.keys()
    assert told == {place: told[place] for place in expected.errors if place in told}
    assert {place: expected.errors[place] for place in told} == told
    assert left_out <= expected.of_cells  # of rows that a later one replaces
    assert not left_out or not expected.of_cells & told.keys()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("is_tight", [False, True], ids=["in memory", "read again"])
def test_as_row_by_row(table: str, is_tight: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, in two steps, and from blocks that are cut otherwise and come in another order."""
    if is_tight:
        monkeypatch.setattr(rows_to_apply, "HELD_BYTES", 500)
        monkeypatch.setattr(rows_to_apply, "PIECE_BYTES", 700)
    of, casts, ids = TABLES[table]
    for seed in range(HISTORIES):
        history = History(seed, of.key, ids)
        rows = history.rows()
        low, middle, high = history.limits()
        model = SlowModel(
            casts=casts,
            key=of.key,
            drops=history.drops(),
            ignored=history.ignored(),
            form=FORMS[seed % len(FORMS)],
        )
        case = Case(of=of, model=model, rows=rows, seed=seed)
        blocks = [RowBlock.of(block) for block in history.blocks(rows)]
        at_once = case.step(blocks, low, high)
        in_two = {**case.step(blocks, low, middle), **case.step(blocks, middle, high)}
        assert in_two == at_once, f"seed {seed}"
        again = [RowBlock.of(block) for block in history.blocks(rows)]
        assert case.step(again, low, high) == at_once


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table and all the rows that come of it."""

    of: TableSchema
    model: SlowModel
    rows: Sequence[Row]
    seed: int

    def step(self, blocks: Sequence[RowBlock], checkpoint: int, limit: int) -> dict[Key, Values]:
        """What ``changes`` says, which is what the model says."""
        model = self.model
        task = TableTask(
            name=A,
            schema=self.of,
            checkpoint=Ts(checkpoint),
            ignored_events=model.ignored,
            form=model.form,
        )
        rules = replace(RULES, unknown_column="drop" if model.drops else "dead-letter")
        result = changes(task, blocks, Ts(limit), rules)
        expected = model.run(self.rows, checkpoint, limit)
        check_errors(result.errors, expected)
        got = read(result, self.of.key)
        assert got == expected.last, f"seed {self.seed}"
        return got


def test_through_a_carry_that_spills_and_joins(tmp_path: Path) -> None:
    of, casts, ids = TABLES["two columns"]
    model = SlowModel(casts=casts, key=of.key)
    for seed in range(10):
        history = History(seed, of.key, ids)
        rows = [row for _ in range(12) for row in history.rows()]
        carry = Carry(tmp_path, memory_bytes=50_000)
        for block in history.blocks(rows):
            carry.add(block)
        for row in rows[:100]:
            carry.add(block_of([row]))
        target: dict[Key, Values] = {}
        for checkpoint in range(MAX_TS):
            limit = checkpoint + 1
            task = TableTask(name=A, schema=of, checkpoint=Ts(checkpoint))
            result = changes(task, carry.due(A, checkpoint, limit), Ts(limit), RULES)
            target |= read(result, of.key)
            carry.drop_applied(A, limit)
        assert target == model.run(rows, 0, MAX_TS).last
        assert (carry.bytes, carry.low_water(A)) == (0, {})
        carry.close()
