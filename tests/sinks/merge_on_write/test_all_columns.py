"""A table whose rows are told apart by all columns, as its files and its log have it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coordination.model import TableName, Ts
from sinks.ddl.evolve import evolved
from sinks.ddl.schema_change import SchemaChange
from sinks.ddl.statements import read_ddl
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.merge_on_write.upkeep import fold_choice
from sinks.merge_on_write.upkeep.fold import fold
from sinks.target.engine_port import OP_COLUMN, TableWrite, Target, app_id
from sinks.target.table_properties import DdlIdentity
from sinks.target.target_table import inspect
from sinks.target.write_mode import UPSERT, WriteMode
from sinks.types.delta_types import arrow_type
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.alter.test_rewrite import scattered
from tests.sinks.merge_on_write.histories import POOLS
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl

NAME = TableName("shop", "bag")
Cells = tuple[Any, ...]


class Bag:
    """One table, and the engine that writes it."""

    def __init__(self, uri: Path, form: WriteMode = UPSERT, **types: str) -> None:
        columns = [Column(name=n, type=MySQLType.parse(kind)) for n, kind in types.items()]
        schema = TableSchema(columns=tuple(columns), key=()).by_all_columns()
        app = app_id("shop", 1, NAME)
        self.target = Target(name=NAME, uri=str(uri), schema=schema, app_id=app, form=form)
        self.ts = 10
        made = DdlIdentity(commit_ts=Ts(1), order=0, query="CREATE TABLE …").to_json()
        create(self.target, properties={"tidelake.ddl": made})
        self.engine = MergeOnWriteEngine({}, keeps_up=False)

    def reopened(self) -> None:
        """All that is known of files is read again."""
        self.engine.close()
        self.engine = MergeOnWriteEngine({}, keeps_up=False)

    def write(
        self,
        upserted: Sequence[Cells] = (),
        deleted: Sequence[Cells] = (),
        marks: Mapping[str, Any] | None = None,
    ) -> None:
        rows = [*upserted, *deleted]
        types = {each.name: arrow_type(each.type) for each in self._columns}
        found = {
            name: pa.array([row[at] for row in rows], kind)
            for at, (name, kind) in enumerate(types.items())
        }
        found |= {name: pa.array([value] * len(rows)) for name, value in (marks or {}).items()}
        ops = ["U"] * len(upserted) + ["D"] * len(deleted)
        self.ts += 1
        write = TableWrite(
            target=self.target,
            checkpoint=Ts(self.ts - 1),
            limit=Ts(self.ts),
            changes=pa.table({**found, OP_COLUMN: ops}),
            user_metadata="{}",
            before_commit=lambda: None,
        )
        self.engine.apply(write)

    def alter(self, clause: str, *, rewrites: bool) -> SchemaChange:
        (effect,) = read_ddl(f"ALTER TABLE `bag` {clause}", "ALTER", "shop", "bag").effects
        change = evolved(self.target.schema, effect.changes)  # type: ignore[union-attr]
        form = replace(self.target.form, all_columns=True)
        change = replace(change, after=form.keyed(change.after))
        before, self.ts = self.paths(), self.ts + 2
        ddl = DdlIdentity(commit_ts=Ts(self.ts), order=0, query=clause)
        order = table_ddl(target=self.target, ddl=ddl, change=change)
        self.engine.alter(replace(order, map_parts=scattered(random.Random(self.ts))))
        self.target = replace(self.target, schema=change.after)
        assert (self.paths() != before) == rewrites
        return change

    @property
    def _columns(self) -> Sequence[Column]:
        return self.target.schema.delivered

    def paths(self) -> set[str]:
        return set(DeltaTable(self.target.uri).file_uris())

    def rows(self) -> list[Cells]:
        found = [tuple(row.values()) for row in read_rows(self.target.uri)]
        assert len(set(map(repr, found))) == len(found), "a row stands twice"
        return sorted(found, key=repr)

    @property
    def rekeyed_ts(self) -> int:
        state = inspect(self.target.uri, {})
        assert state is not None
        return state.rekeyed_ts


@pytest.fixture
def bags(tmp_path: Path) -> Iterator[Any]:
    made: list[Bag] = []

    def make(form: WriteMode = UPSERT, **types: str) -> Bag:
        made.append(Bag(tmp_path / str(len(made)), form, **types))
        return made[-1]

    yield make
    for each in made:
        each.engine.close()


def test_an_added_column_is_in_the_key_and_nothing_is_written_anew(bags: Any) -> None:
    bag = bags(x="int", y="varchar(9)")
    bag.write([(1, "a"), (None, None)])
    assert bag.alter("ADD COLUMN z INT", rewrites=False).after.key == ("x", "y", "z")
    bag.write([(1, "a", 5)], [(None, None, None)])
    assert bag.rows() == [(1, "a", 5), (1, "a", None)]
    bag.alter("ADD COLUMN w INT DEFAULT 7 FIRST", rewrites=True)
    bag.write([], [(7, 1, "a", None)])
    assert bag.rows() == [(7, 1, "a", 5)]
    assert bag.rekeyed_ts == 0  # a rewind goes below both


def test_a_wider_whole_number_keeps_rows_apart(bags: Any) -> None:
    bag = bags(x="int", y="varchar(9)")
    bag.write([(1, "a"), (2, None)])
    bag.alter("MODIFY COLUMN x BIGINT", rewrites=True)
    assert bag.rekeyed_ts == 0
    bag.reopened()
    bag.write([(2**40, None)], [(2, None)])
    assert bag.rows() == [(1, "a"), (2**40, None)]


def at(row: Cells) -> Cells:
    """By value, as Python compares them."""
    return tuple(tuple(cell) if isinstance(cell, list) else cell for cell in row)


@pytest.mark.parametrize("kind", [*sorted(POOLS), "vector"])
def test_every_type_alone_and_beside_another(bags: Any, kind: str) -> None:
    """Through cold indexes, files without NULL and with, and a fold."""
    dice = random.Random(kind)
    pool = [[1.0], [1.0, 2.0], []] if kind == "vector" else POOLS[kind]
    for types in ({"x": kind}, {"x": kind, "y": "int"}, {"y": "int", "x": kind}):
        bag = bags(**types)
        rows: dict[Cells, Cells] = {}
        for turn in range(8):
            chosen: dict[Cells, Cells] = {}
            for _ in range(4):
                cells = {"x": dice.choice([None, *pool]), "y": dice.choice((None, 0, 1))}
                row = tuple(cells[name] for name in types)
                chosen[at(row)] = row
            gone = {key: row for key, row in chosen.items() if dice.random() < 0.4}
            come = {key: row for key, row in chosen.items() if key not in gone}
            bag.write([*come.values()], [*gone.values()])
            rows = {key: row for key, row in rows.items() if key not in gone} | come
            if turn % 3 == 1:
                bag.reopened()
            if turn == 4:
                with patch.multiple(fold_choice, FAN_OUT=2, MIN_DEAD_BYTES=1):
                    table = bag.engine.table(bag.target.uri)
                    table.refresh()
                    fold(table, bag.target.sorted_by)
            assert {*map(at, bag.rows())} == {*rows}, (types, turn)
