"""A table whose rows are told apart by all columns, as its files and its log have it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coordination.model import TableName, Ts
from sinks.ddl.evolve import SchemaChange, evolved
from sinks.ddl.statements import read_ddl
from sinks.merge_on_write.alter import duplicate_keys, rewrite
from sinks.merge_on_write.alter.ddl_commit import TableDdl
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.files import sorted_files
from sinks.merge_on_write.lifecycle.create import create
from sinks.merge_on_write.upkeep import fold_choice
from sinks.merge_on_write.upkeep.fold import fold
from sinks.target.engine_port import OP_COLUMN, TableWrite, Target, app_id
from sinks.target.table_properties import DdlIdentity
from sinks.target.target_table import inspect
from sinks.target.write_mode import ROW_DELETED, ROW_OP, ROW_TS, UPSERT, WriteMode
from sinks.types.delta_types import arrow_type
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.alter.test_rewrite import scattered
from tests.sinks.merge_on_write.histories import POOLS

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

    def alter(self, clause: str, *, all_columns: bool = True, rewrites: bool) -> SchemaChange:
        (effect,) = read_ddl(f"ALTER TABLE `bag` {clause}", "ALTER", "shop", "bag").effects
        change = evolved(self.target.schema, effect.changes)  # type: ignore[union-attr]
        form = replace(self.target.form, all_columns=all_columns)
        change = replace(change, after=form.keyed(change.after))
        before, self.ts = self.paths(), self.ts + 2
        ddl = DdlIdentity(commit_ts=Ts(self.ts), order=0, query=clause)
        order = TableDdl(target=self.target, ddl=ddl, change=change)
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


@pytest.mark.parametrize("is_alike", [False, True])
def test_rows_that_a_ddl_makes_equal_are_one(
    bags: Any, monkeypatch: pytest.MonkeyPatch, *, is_alike: bool
) -> None:
    """In however many files, slices and shares they are, and where halves of hashes are equal."""
    genuine = duplicate_keys.keys_of

    def alike(*arguments: Any) -> Any:
        keys = genuine(*arguments)
        return type(keys)(keys.first % 3, keys.second)

    if is_alike:
        monkeypatch.setattr(duplicate_keys, "keys_of", alike)
    bag = bags(x="int", y="varchar(9)", z="decimal(6,2)")
    for n in range(4):
        rows = [(each, None, Decimal(n)) for each in range(10)]
        bag.write([(each, "a" if n % 2 else None, number) for each, _, number in rows])
    with (
        patch.object(rewrite, "SLICE_ROWS", 7),
        patch.object(sorted_files, "MAX_FILE_ROWS", 5),
        patch.multiple(duplicate_keys, SHARE_KEYS=6, PIECE_ROWS=3),
    ):
        bag.alter("MODIFY COLUMN z INT", rewrites=True)
        assert len(bag.rows()) == 40
        bag.alter("DROP COLUMN z", rewrites=True)
    assert bag.rows() == sorted(((n, v) for n in range(10) for v in ("a", None)), key=repr)
    assert bag.rekeyed_ts == bag.ts
    bag.write([(99, None)], [(3, None), (4, "a")])
    left = {(n, v) for n in range(10) for v in ("a", None)} - {(3, None), (4, "a")}
    assert bag.rows() == sorted({*left, (99, None)}, key=repr)
    bag.alter("DROP COLUMN x", rewrites=True)
    assert bag.rows() == [("a",), (None,)]


def test_two_values_that_become_one_are_one_row(bags: Any) -> None:
    bag = bags(x="decimal(6,2)")
    bag.write([(Decimal(text),) for text in ("1.00", "1.20", "0.60", "2.00")] + [(None,)])
    bag.alter("MODIFY COLUMN x INT", rewrites=True)
    assert bag.rows() == [(1,), (2,), (None,)]
    assert bag.rekeyed_ts == bag.ts
    bag.alter("MODIFY COLUMN x BIGINT", rewrites=True)
    assert bag.rekeyed_ts < bag.ts
    bag.reopened()
    bag.write([], [(None,), (2,)])
    assert bag.rows() == [(1,)]


def test_a_table_gains_its_key_and_loses_it(bags: Any) -> None:
    bag = bags(x="int", y="varchar(9)")
    bag.write([(1, "a"), (2, None)])
    bag.alter("ADD PRIMARY KEY (x)", rewrites=True)
    assert (bag.target.schema.key, bag.target.schema.key_is_row) == (("x",), False)
    assert bag.rekeyed_ts == bag.ts
    bag.write([(2, "b"), (3, "c")])
    assert bag.rows() == [(1, "a"), (2, "b"), (3, "c")]
    bag.alter("DROP PRIMARY KEY", rewrites=False)
    assert (bag.target.schema.key, bag.target.schema.key_is_row) == (("x", "y"), True)
    assert bag.rekeyed_ts == bag.ts
    bag.write([(2, None)], [(1, "a"), (3, "not so")])
    assert bag.rows() == [(2, "b"), (2, None), (3, "c")]


def test_a_key_that_goes_with_its_column(bags: Any) -> None:
    bag = bags(x="int", y="varchar(9)")
    bag.write([(1, "a"), (2, "a"), (3, "b")])
    bag.alter("ADD PRIMARY KEY (x)", rewrites=True)
    bag.alter("DROP PRIMARY KEY, DROP COLUMN x", rewrites=True)
    assert bag.rows() == [("a",), ("b",)]


def test_of_rows_that_become_one_the_live_one_stays_and_then_the_last(bags: Any) -> None:
    form = WriteMode(soft_delete=True, extra_columns=(ROW_TS, ROW_OP), all_columns=True)
    bag = bags(form, x="int", y="int")
    for y, ts, is_deleted in ((1, 7, False), (2, 8, True), (3, 5, False), (4, 9, True)):
        op = "delete" if is_deleted else "insert"
        marks = {ROW_TS: ts, ROW_OP: op, ROW_DELETED: is_deleted}
        bag.write([(1, y)], marks=marks)
        if is_deleted:
            bag.write([(2, y)], marks=marks)
    bag.alter("DROP COLUMN y", rewrites=True)
    assert bag.rows() == [(1, 7, "insert", False), (2, 9, "delete", True)]


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
