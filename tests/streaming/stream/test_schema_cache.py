"""A table that is rewound to below ALTER TABLEs: when all has come again it is what it was."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import pytest

from conf.settings import Changefeed, DeltaSink, TableRule
from conf.sources.kafka_uri import KafkaSettings
from coordination.errors import TidelakeError
from coordination.model import Ts
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.schemas import SchemaRow
from sinks.ddl.statements import read_ddl
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.version_reader import open_version
from sinks.target.engine_port import Applied, TableWrite
from sinks.target.table_properties import DdlIdentity
from sinks.types.table_schema import TableSchema
from streaming.apply.change_log import change_log_rows
from streaming.apply.changes import changes
from streaming.apply.table_task import ChangeRules, TableTask
from streaming.changefeed.replicated_table import schema_row
from streaming.changefeed.table_registry import TableRegistry
from streaming.changefeed.target_forms import WriteModes
from streaming.owner.ddl.steps import DdlEvent, DdlStep, step_of
from streaming.owner.progress_rows import first_progress
from streaming.stream.schema_cache import PastSchemaCache
from tests.own_lines import own_records
from tests.seeds import hunted_seeds
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl
from tests.streaming.apply.blocks import A, Row, blocks_of
from tests.streaming.apply.resolved import schema
from tests.streaming.spans.reshaping import RULES, TSO, Reshaping, Step

SOURCE = KafkaSettings(
    brokers=("b:1",), topic="shop", topics=("shop",), protocol="canal-json", partition_num=1
)
CHANGE_RULES = ChangeRules(
    time_zone=RULES.time_zone, zero_date=RULES.zero_date, protocol="canal-json"
)


class Life:
    """What an owner and a capture do to the table, from a checkpoint on. ``shapes`` outlives it, as
    ``_tidelake/schemas`` does."""

    def __init__(self, warehouse: Path, changefeed: Changefeed, shapes: list[SchemaRow]) -> None:
        self._changefeed = changefeed
        self.shapes = shapes
        self._warehouse = warehouse
        self._engine = MergeOnWriteEngine({}, keeps_up=False)
        self.row = ChangefeedRow(
            changefeed_id=changefeed.id, start_ts=1, checkpoint_ts=1, resolved_ts=1
        )
        self._begin()

    def _begin(self) -> None:
        sink = self._changefeed.sink
        self.spans = TableRegistry(sink, self.row, WriteModes(sink.tables))
        self.older = PastSchemaCache(self._changefeed, lambda *_: self.shapes)
        self.problems: list[Any] = []

    def make(self, of: TableSchema, ts: int) -> None:
        query = "CREATE TABLE a …"
        ddl = DdlEvent(commit_ts=Ts(ts), place=0, name=A, ddl_type="", query=query)
        self.spans.create(A, of, ddl.identity, Ts(ts))
        self._note()

    def rewind(self, ts: int) -> None:
        progress = first_progress(self.spans[A], self.row, {})
        self.row = replace(
            self.row, incarnation=self.row.incarnation + 1, state="rewinding", checkpoint_ts=ts
        )
        self._begin()
        self.spans.resume({A: progress})
        assert self.spans[A].checkpoint == ts

    def run(self, steps: Iterable[Step], dice: random.Random) -> None:
        """In batches of any size; a DDL comes when all below it is in the table."""
        for is_row, group in groupby(steps, lambda step: isinstance(step, Row)):
            for each in _batches([*group], dice) if is_row else group:
                self._write(each) if is_row else self._alter(*each)  # type: ignore[misc,arg-type]

    def _write(self, rows: Sequence[Row], limit: int | None = None) -> None:
        span, limit = self.spans[A], limit or rows[-1].ts
        assert span.target is not None
        task = TableTask(
            name=A,
            schema=span.target.schema,
            checkpoint=span.checkpoint,
            form=span.target.form,
            older=self.older.of(span),
        )
        choose = change_log_rows if span.target.is_log else changes
        found = choose(task, blocks_of(rows), Ts(limit), CHANGE_RULES)
        self.problems += found.errors.to_pylist()
        write = TableWrite(
            target=span.target,
            checkpoint=span.checkpoint,
            limit=Ts(limit),
            changes=found.rows,
            user_metadata="{}",
            before_commit=lambda: None,
        )
        found.rows.validate(full=True)
        applied = self._engine.apply(write)
        assert isinstance(applied, Applied)
        self.spans.put(replace(span, checkpoint=Ts(limit), version=applied.version))

    def _alter(self, ts: int, sql: str) -> None:
        spans = self.spans
        spans.idle_to(Ts(ts - 1), [A])
        span = spans[A]
        assert span.target is not None
        event = DdlEvent(commit_ts=Ts(ts), place=0, name=A, ddl_type="", query=sql)
        known, seen, shaped = spans.schemas(), spans.last_ddls(), {A: span.shape_ts}
        step = step_of(
            event,
            read_ddl(sql, "", A.schema, A.table),
            known,
            seen,
            shaped,
            form=span.target.form,
        )
        assert isinstance(step, DdlStep), (sql, step)
        order = table_ddl(
            target=span.target,
            ddl=DdlIdentity(commit_ts=Ts(ts), order=0, query=sql),
            change=step.change,
            empties=step.empties and not span.target.is_log,
            on_add_default="null" if span.target.is_log else self._changefeed.on_add_default,
            rules=RULES,
        )
        self._engine.alter(order)
        spans.put(spans.look_again(A))
        self._note()

    def _note(self) -> None:
        row = schema_row(self.spans[A], self._changefeed.id)
        assert row is not None
        if row.commit_ts not in [each.commit_ts for each in self.shapes]:
            self.shapes.append(row)

    def table(self) -> tuple[dict[str, str], list[Any]]:
        target = self.spans[A].target
        assert target is not None
        state = self._engine.table(target.uri)
        state.refresh()
        found = open_version(target.uri, state.state.version, {})
        return dict(found.types), sorted(found.to_table().to_pylist(), key=repr)

    def close(self) -> None:
        self._engine.close()


def _batches(rows: Sequence[Row], dice: random.Random) -> Iterator[list[Row]]:
    """Some together; those of one commit-ts always."""
    batch: list[Row] = []
    for _, group in groupby(rows, lambda row: row.ts):
        batch += group
        if dice.random() < 0.4:
            yield batch
            batch = []
    if batch:
        yield batch


WHOLE = TableRule(
    matcher=("*.*",), extra_columns=("_tidelake_commit_ts", "_tidelake_op"), soft_delete=True
)
MODES: dict[str, tuple[Literal["rewrite", "null"], TableRule]] = {
    "rewrite": ("rewrite", TableRule(matcher=("*.*",))),
    "null": ("null", TableRule(matcher=("*.*",))),
    "log": ("rewrite", TableRule(matcher=("*.*",), write_mode="append")),
    "deleted rows stay": ("rewrite", WHOLE),
    "history": ("rewrite", TableRule(matcher=("*.*",), write_mode="history")),
    "history, null": ("null", TableRule(matcher=("*.*",), write_mode="history")),
}


def changefeed(warehouse: Path, mode: str = "rewrite") -> Changefeed:
    on_add_default, rule = MODES[mode]
    sink = DeltaSink(warehouse=str(warehouse), tables=(rule,))
    return Changefeed(id="shop", source=SOURCE, sink=sink, on_add_default=on_add_default)


def live(seed: int, folder: Path, mode: str) -> None:
    rule = MODES[mode][1]
    keeps_all = rule.write_mode != "upsert" or rule.soft_delete
    history, dice = Reshaping(seed, keeps_all=keeps_all), random.Random(seed)
    life = Life(folder, changefeed(folder, mode), [])
    try:
        life.make(history.schema, history.made_ts)
        try:
            life.run(history.steps, dice)
        except TidelakeError as refused:  # it waits for an operator: there is no table to compare
            if "A wrong value could never be mended" not in str(refused):
                raise
            return
        whole = life.table()
        is_emptied = "TRUNCATE TABLE a" in history.ddls
        for with_ddls in (True, is_emptied):  # that were run once: their shapes are known anyhow
            back_to = dice.choice(history.moments())
            life.rewind(back_to)
            again = [step for step in history.steps if _ts(step) > back_to]
            life.run([each for each in again if with_ddls or isinstance(each, Row)], dice)
            assert not life.problems, (life.problems[:3], seed, back_to, history.ddls)
            assert life.table() == whole, (seed, back_to, history.ddls)
    finally:
        life.close()


def _ts(step: Step) -> int:
    return step.ts if isinstance(step, Row) else step[0]


@pytest.mark.parametrize("mode", MODES)
def test_a_table_is_what_it_was(mode: str, tmp_path: Path) -> None:
    for seed in range(2):
        live(seed, tmp_path / str(seed), mode)


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_many_tables_are_what_they_were(mode: str, tmp_path: Path) -> None:
    for seed in hunted_seeds(250):
        live(seed, tmp_path / str(seed), mode)


def text(number: int, **values: str | None) -> Row:
    """Each a millisecond after the one before."""
    at = TSO * (1_000 + number)
    op = "INSERT" if len(values) > 1 else "DELETE"
    return Row(op=op, ts=at, data=values, position=number)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    life = Life(tmp_path, changefeed(tmp_path), [])
    life.make(schema(id="int", v="varchar(20)", gone="varchar(20)"), 1_000 * TSO)
    yield life
    life.close()


STEPS: list[Step] = [
    text(1, id="1", v="5", gone="x"),
    text(2, id="300", v="6", gone="x"),
    text(3, id="2", v="none", gone="x"),
    text(4, id="300"),
    text(5, id="2", v="8", gone="x"),
    (1_006 * TSO, "ALTER TABLE a MODIFY id TINYINT NOT NULL, DROP gone, RENAME COLUMN v TO w"),
    (1_007 * TSO, "ALTER TABLE a MODIFY w INT, ADD z VARCHAR(9) NOT NULL DEFAULT 'z'"),
    (1_008 * TSO, "ALTER TABLE a ADD t DATETIME DEFAULT CURRENT_TIMESTAMP"),
    text(9, id="3", w="9", z="y", t=None),
]
AT = datetime(1970, 1, 1, 9, 0, 1)  # noqa: DTZ001 - the second of that DDL in Tokyo
ROWS = [
    {"id": 1, "w": 5, "z": "z", "t": AT},
    {"id": 2, "w": 8, "z": "z", "t": AT},
    {"id": 3, "w": 9, "z": "y", "t": None},
]


def test_a_value_without_a_place_waits_for_its_next_change(life: Life) -> None:
    dice = random.Random(0)
    life.run(STEPS, dice)
    assert life.table()[1] == ROWS
    life.rewind(1_000 * TSO)
    for step in STEPS[:3]:
        life.run([step], dice)
    assert life.table()[1][1] == {**ROWS[1], "w": None}  # 'none' is no whole number
    life.run(STEPS[3:], dice)
    assert life.table()[1] == ROWS
    assert not life.problems


def test_rows_of_a_shape_that_is_not_known_are_as_before_and_that_is_said_once(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    dice = random.Random(0)
    life.run(STEPS, dice)
    life.shapes.clear()
    life.rewind(1_000 * TSO)
    caplog.clear()
    life.run(STEPS[:1], dice)
    life.run(STEPS[1:3], dice)
    assert {each["error_class"] for each in life.problems} == {"cast", "unknown-column"}
    (line,) = [each.getMessage() for each in own_records(caplog) if each.levelno >= logging.WARNING]
    assert f"at or below commit-ts {1_008 * TSO - 1} are cast by the columns" in line
