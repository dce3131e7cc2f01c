"""A table without a key that has each row as often as its upstream table (key = 'rows')."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from coordination.errors import TidelakeError
from coordination.model import TableName, Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.merge_on_write.load import TableLoad
from sinks.merge_on_write.upkeep import fold_choice
from sinks.merge_on_write.upkeep.fold import fold
from sinks.target.engine_port import (
    OP_COLUMN,
    TS_COLUMN,
    Applied,
    Skipped,
    TableWrite,
    Target,
    app_id,
)
from sinks.target.table_properties import DdlIdentity
from sinks.target.target_table import inspect, refuse_another_key
from sinks.types.delta_types import arrow_type
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.histories import POOLS

NAME = TableName("shop", "bag")
Cells = tuple[Any, ...]
Change = tuple[int, str, Cells]  # commit-ts, "U" for one more or "D" for one less, the row


class Bag:
    def __init__(self, uri: Path, **types: str) -> None:
        columns = [Column(name=n, type=MySQLType.parse(kind)) for n, kind in types.items()]
        schema = TableSchema(columns=tuple(columns), key=()).by_all_columns(counts_rows=True)
        self.target = Target(name=NAME, uri=str(uri), schema=schema, app_id=app_id("shop", 1, NAME))
        made = DdlIdentity(commit_ts=Ts(1), order=0, query="CREATE TABLE …").to_json()
        create(self.target, properties={"tidelake.ddl": made})
        self.engine = MergeOnWriteEngine({}, keeps_up=False)

    def reopened(self) -> None:
        self.engine.close()
        self.engine = MergeOnWriteEngine({}, keeps_up=False)

    def changes(self, changes: Sequence[Change]) -> pa.Table:
        found: dict[str, Any] = {
            column.name: pa.array([row[at] for _, _, row in changes], arrow_type(column.type))
            for at, column in enumerate(self.target.schema.delivered)
        }
        found[OP_COLUMN] = pa.array([op for _, op, _ in changes], pa.string())
        found[TS_COLUMN] = pa.array([ts for ts, _, _ in changes], pa.int64())
        return pa.table(found)

    def write(
        self, changes: Sequence[Change], limit: int, checkpoint: int = 10, incarnation: int = 1
    ) -> Applied | Skipped:
        target = replace(self.target, app_id=app_id("shop", incarnation, NAME))
        return self.engine.apply(
            TableWrite(
                target=target,
                checkpoint=Ts(checkpoint),
                limit=Ts(limit),
                changes=self.changes(changes),
                user_metadata="{}",
                before_commit=lambda: None,
            )
        )

    def load(self, rows: Sequence[Cells], limit: int) -> None:
        piece = self.changes([(limit, "U", row) for row in rows])
        pieces = [lambda: piece]
        self.engine.load(
            TableLoad(target=self.target, limit=Ts(limit), pieces=pieces, user_metadata="{}")
        )

    def rows(self) -> Counter[Cells]:
        return Counter(tuple(row.values()) for row in read_rows(self.target.uri))


@pytest.fixture
def bags(tmp_path: Path) -> Iterator[Any]:
    made: list[Bag] = []

    def make(**types: str) -> Bag:
        made.append(Bag(tmp_path / str(len(made)), **types))
        return made[-1]

    yield make
    for each in made:
        each.engine.close()


A, B = (1, "a"), (None, None)


def test_equal_rows_come_and_go_one_by_one(bags: Any) -> None:
    bag = bags(x="int", y="varchar(9)")
    bag.write([(11, "U", A), (11, "U", A), (11, "U", B), (12, "U", A)], 12)
    assert bag.rows() == {A: 3, B: 1}
    bag.write([(13, "D", A), (13, "U", B), (14, "D", A)], 14)
    assert bag.rows() == {A: 1, B: 2}
    bag.write([(15, "U", A), (15, "D", A)], 15)
    assert bag.rows() == {A: 1, B: 2}


def test_a_change_counts_once_whoever_brings_it(bags: Any) -> None:
    """Another incarnation goes on from a checkpoint that lies below what the table has."""
    bag = bags(x="int", y="varchar(9)")
    bag.load([A, A, B], 10)
    changes = [(11, "U", A), (12, "D", B), (13, "U", B)]
    bag.write(changes, 13)
    assert isinstance(bag.write(changes, 13), Skipped)
    later = [*changes, (14, "U", A), (15, "D", A), (15, "U", B)]
    bag.write(later, 15, incarnation=2)
    bag.write([(ts, op, row) for ts, op, row in later if ts > 10], 16, incarnation=3)
    assert bag.rows() == {A: 3, B: 2}


def test_a_copy_has_each_row_as_often_and_says_from_where_changes_count(bags: Any) -> None:
    bag = bags(x="int", y="varchar(9)")
    bag.load([A] * 5 + [B] * 3, 20)
    bag.write([(19, "U", A), (20, "D", B), (21, "D", A)], 21, incarnation=2)
    assert bag.rows() == {A: 4, B: 3}


def test_a_table_that_lacks_a_row_is_refused_and_stays(bags: Any) -> None:
    bag = bags(x="int", y="varchar(9)")
    bag.write([(11, "U", A)], 11)
    with pytest.raises(
        TidelakeError, match=r"shop\.bag lacks 2 rows .* `tidelake table reload shop\.bag`"
    ):
        bag.write([(12, "D", A), (12, "D", A), (12, "D", B), (12, "U", (5, "e"))], 12)
    assert bag.rows() == {A: 1}


def test_no_rewind_takes_it_below_what_it_holds(bags: Any) -> None:
    bag = bags(x="int", y="varchar(9)")
    bag.write([(11, "U", A)], 15)
    state = inspect(bag.target.uri, {})
    assert state is not None
    refuse_another_key(NAME, state, 15)
    with pytest.raises(TidelakeError, match="--overwrite-checkpoint-ts 15 at least"):
        refuse_another_key(NAME, state, 14)


@pytest.mark.parametrize("kind", sorted(POOLS))
def test_every_type_alone_and_beside_another(bags: Any, kind: str) -> None:
    """Through cold indexes, files without NULL and with, a fold, and changes that come again."""
    dice, pool = random.Random(kind), POOLS[kind]
    for types in ({"x": kind}, {"x": kind, "y": "int"}):
        bag = bags(**types)
        rows: Counter[Cells] = Counter()
        all_changes: list[Change] = []
        for turn in range(8):
            for n in range(12):
                ts = 11 + turn * 12 + n
                there = [row for row, count in rows.items() if count]
                is_gone = bool(there) and dice.random() < 0.45
                cells = {"x": dice.choice([None, *pool]), "y": dice.choice((None, 0))}
                row = dice.choice(there) if is_gone else tuple(cells[name] for name in types)
                rows[row] += -1 if is_gone else 1
                all_changes.append((ts, "D" if is_gone else "U", row))
            again = all_changes[-dice.randrange(12, 30) :]
            bag.write(again, 22 + turn * 12, incarnation=1 + turn // 3)
            if turn % 3 == 1:
                bag.reopened()
            if turn == 4:
                with patch.multiple(fold_choice, FAN_OUT=2, MIN_DEAD_BYTES=1):
                    table = bag.engine.table(bag.target.uri)
                    table.refresh()
                    fold(table, bag.target.sorted_by)
            assert bag.rows() == +rows, (types, turn)
