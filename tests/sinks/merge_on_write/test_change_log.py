"""A change log holds every event once, whoever writes, whoever dies, and whoever wakes up late."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from deltalake import DeltaTable

from coordination.errors import ConfigError, TidelakeError
from coordination.model import SEALED_TS, TableName, Ts
from sinks.ddl.evolve import evolved
from sinks.ddl.schema_change import SchemaChange
from sinks.ddl.statements import read_ddl
from sinks.merge_on_write.alter.dropped_rows import kept_uri
from sinks.merge_on_write.alter.table_ddl import TableDdl
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.merge_on_write.lifecycle.rename import TableRename, rename
from sinks.merge_on_write.upkeep import fold_choice
from sinks.merge_on_write.upkeep.fold import fold
from sinks.spark.merge_engine import SparkEngine
from sinks.target.engine_port import Applied, Skipped, Target, app_id
from sinks.target.table_properties import DdlIdentity
from sinks.target.target_table import inspect, seal, state_of
from sinks.target.write_mode import COMMIT_TS, LOG_COLUMNS, WriteMode
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.event_logs import (
    NAME,
    ORIGIN,
    Capture,
    Event,
    events_of,
    log_target,
    log_write,
    made_log,
)
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage, once
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl


class Killed(Exception):
    """The process is gone between its last check and its commit."""


def killed() -> None:
    raise Killed


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "log")


class Race:
    """Random events, captures that race for them, rewinds, folds and kills; and the model."""

    def __init__(self, seed: int, uri: str) -> None:
        self.dice = random.Random(seed)
        self.uri = uri
        stamps = sorted(self.dice.choices(range(6, 200), k=120))  # several at one commit-ts
        self.events: list[Event] = [(ts, n, f"v{n}") for n, ts in enumerate(stamps)]
        target = made_log(uri)
        self.engines = [MergeOnWriteEngine({}, keeps_up=False) for _ in range(2)]
        self.captures = [Capture(target=target, checkpoint=5) for _ in range(2)]
        self.zombies: list[Capture] = []
        self.incarnation = 1
        self.reached = 5
        self.rows: dict[int, str] = {}  # what the log must hold: id -> value

    def close(self) -> None:
        for engine in self.engines:
            engine.close()

    def step(self) -> None:
        steps: list[Callable[[], None]] = [self.write, self.killed, self.raced, self.fold]
        steps += [self.zombie, self.rewind, self.reopen]
        self.dice.choices(steps, (8, 2, 3, 2, 1, 0.5, 1))[0]()
        wanted = Counter((self.events[n][0], n, v) for n, v in self.rows.items())
        assert events_of(self.uri) == wanted

    def write(self) -> None:
        at = self.dice.randrange(2)
        capture = self.captures[at]
        limit = capture.checkpoint + self.dice.randint(1, 30)
        self.wrote(capture, limit, self.engines[at].apply(capture.write(limit, self.events)))

    def wrote(self, capture: Capture, limit: int, outcome: Applied | Skipped) -> None:
        if isinstance(outcome, Applied):
            assert limit > self.reached
            for ts, n, v in self.events:
                if self.reached < ts <= limit:
                    self.rows[n] = f"{v}{capture.version}"
            self.reached = limit
        else:
            assert outcome.identity == self.reached >= limit
        capture.checkpoint = max(limit, self.reached if isinstance(outcome, Skipped) else 0)

    def killed(self) -> None:
        """Its files are there, its commit is not."""
        capture = self.captures[0]
        limit = max(self.reached, capture.checkpoint) + 5
        with pytest.raises(Killed):
            self.engines[0].apply(capture.write(limit, self.events, before_commit=killed))

    def raced(self) -> None:
        """Right before its put the other one commits, less than it or more."""
        first, second = self.captures
        limit = max(self.reached, first.checkpoint) + self.dice.randint(1, 20)
        other = max(self.reached, second.checkpoint) + self.dice.randint(1, 20)

        def meanwhile() -> None:
            write = second.write(other, self.events)
            self.wrote(second, other, self.engines[1].apply(write))

        table = self.engines[0].table(self.uri)
        plain = table.storage
        faulty = FaultyStorage(plain)
        faulty.before = once(lambda _path: meanwhile())
        table.storage = faulty
        try:
            self.wrote(first, limit, self.engines[0].apply(first.write(limit, self.events)))
        finally:
            table.storage = plain

    def fold(self) -> None:
        with patch.multiple(fold_choice, FAN_OUT=2):
            fold(self.dice.choice(self.engines).table(self.uri), (COMMIT_TS,))

    def zombie(self) -> None:
        """Of an incarnation that is sealed: it can do nothing any more."""
        for capture in self.zombies:
            write = capture.write(10_000, self.events)
            outcome = self.dice.choice(self.engines).apply(write)
            assert isinstance(outcome, Skipped)
            assert outcome.identity == SEALED_TS

    def rewind(self) -> None:
        """And with another configuration: what comes again looks otherwise. What the log shows
        beyond stays until then."""
        start = self.dice.randint(5, self.reached)
        old = self.captures[0].target.app_id
        self.zombies.append(self.captures[0])
        self.incarnation += 1
        self.captures = [each.of(self.incarnation, start) for each in self.captures]
        seal(self.uri, [old], self.captures[0].target.app_id, lambda _: Ts(start), {})
        self.reached = start

    def reopen(self) -> None:
        at = self.dice.randrange(2)
        self.engines[at].close()
        self.engines[at] = MergeOnWriteEngine({}, keeps_up=False)
        self.captures[at] = replace(self.captures[at], checkpoint=self.reached)


@pytest.mark.seeds(8)
def test_every_event_is_there_once(seed: int, uri: str) -> None:
    race = Race(seed, uri)
    for _ in range(30):
        race.step()
    race.close()


def test_a_new_log_has_its_columns_behind_the_tables_own(uri: str) -> None:
    made_log(uri)
    table = DeltaTable(uri)
    assert [field.name for field in table.schema().fields] == ["id", "v", *LOG_COLUMNS]
    properties = table.metadata().configuration
    assert properties["tidelake.write-mode"] == "append"
    assert properties["delta.dataSkippingStatsColumns"].startswith("`_commit_ts`,`_commit_time`")
    state = inspect(uri, {})
    assert state is not None
    assert state.schema == log_target(uri).schema


def test_files_are_sorted_by_commit_ts_and_say_from_where_to_where(
    engine: MergeOnWriteEngine, uri: str
) -> None:
    target = made_log(uri)
    events: list[Event] = [(100 + n % 7, n, "v") for n in range(70)]
    for limit in (103, 110):
        engine.apply(log_write(target, limit - 7, limit, events))
    table = engine.table(uri)
    name = table.shape.column(COMMIT_TS).physical
    told = [json.loads(each.file.stats or "{}") for each in table.files.values()]
    assert [(each["minValues"][name], each["maxValues"][name]) for each in told] == [
        (100, 103),
        (104, 106),
    ]
    with patch.multiple(fold_choice, FAN_OUT=2):
        fold(engine.table(uri), target.sorted_by)
    assert events_of(uri) == Counter(events)
    assert len(DeltaTable(uri).file_uris()) == 1


def test_a_normal_commit_takes_nothing_out_and_reads_no_file(
    engine: MergeOnWriteEngine, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a streaming reader goes on."""
    target = made_log(uri)
    events: list[Event] = [(ts, ts, "v") for ts in range(6, 60)]
    monkeypatch.setattr("sinks.merge_on_write.table_handle.data_files.read_columns", None)
    for limit in range(10, 60, 10):
        engine.apply(log_write(target, limit - 10, limit, events))
    actions = [
        json.loads(line)
        for path in sorted(Path(uri, "_delta_log").glob("*.json"))[1:]
        for line in path.read_text().splitlines()
    ]
    assert not [each for each in actions if "remove" in each]
    assert sum("add" in each for each in actions) == 5


@pytest.mark.parametrize("name", ["_op", "_COMMIT_TS", "_commit_time"])
def test_a_column_with_a_name_of_the_log_is_refused(
    engine: MergeOnWriteEngine, uri: str, name: str
) -> None:
    target = made_log(uri)
    step = altered(target, f"ADD COLUMN `{name}` INT")
    with pytest.raises(TidelakeError, match=f"column {name} has the name of a column that write-"):
        engine.alter(step)
    assert step.change is not None
    new = replace(target, uri=f"{uri}-2", schema=step.change.after)
    with pytest.raises(ConfigError, match=r"shop\.orders: its column"):
        create(new, properties=ORIGIN)


def altered(target: Target, clause: str, ts: int = 50) -> TableDdl:
    query = f"ALTER TABLE `shop`.`orders` {clause}"
    (effect,) = read_ddl(query, "ALTER", NAME.schema, NAME.table).effects
    change: SchemaChange = evolved(target.schema, effect.changes)  # type: ignore[union-attr]
    ddl = DdlIdentity(commit_ts=Ts(ts), order=0, query=query)
    return table_ddl(target=target, ddl=ddl, change=change, on_add_default="null")


@pytest.mark.parametrize(
    ("clause", "rewrites"),
    [
        ("ADD COLUMN n INT NOT NULL DEFAULT 7", False),
        ("DROP COLUMN v", False),
        ("RENAME COLUMN id TO number", False),
        ("DROP PRIMARY KEY", False),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", False),
        ("MODIFY COLUMN id VARCHAR(30)", True),
    ],
)
def test_its_shape_changes_and_its_events_stay(
    engine: MergeOnWriteEngine, uri: str, clause: str, rewrites: bool
) -> None:
    """A key is no key of the log: nothing is looked for in it."""
    target = made_log(uri)
    events: list[Event] = [(10, 1, "a"), (20, 1, "b"), (20, 2, None), (60, 3, "c")]  # type: ignore[list-item]
    engine.apply(log_write(target, 5, 40, events))
    files = set(DeltaTable(uri).file_uris())
    order = altered(target, clause)
    assert isinstance(engine.alter(order), Applied)
    assert isinstance(engine.alter(order), Skipped)
    assert (set(DeltaTable(uri).file_uris()) != files) is rewrites
    found = sorted(read_rows(uri), key=lambda row: row[COMMIT_TS])
    assert [row[COMMIT_TS] for row in found] == [10, 20, 20]
    assert all(row["_op"] == "insert" for row in found)
    assert not {row.get("n") for row in found} - {None}
    rekeyed_ts = state_of(DeltaTable(uri)).rekeyed_ts  # what a key tells apart another may not
    assert rekeyed_ts == (50 if "ADD PRIMARY" in clause or "VARCHAR" in clause else 0)
    with patch.multiple(fold_choice, FAN_OUT=2):
        fold(engine.table(uri), order.sorted_by)


def test_a_table_that_is_made_again_is_a_log_again(engine: MergeOnWriteEngine, uri: str) -> None:
    target = made_log(uri)
    engine.apply(log_write(target, 5, 40, [(10, 1, "a")]))
    dropped = DdlIdentity(commit_ts=Ts(50), order=0, query="DROP TABLE …")
    engine.alter(table_ddl(target=target, ddl=dropped, on_drop="keep"))
    again = DdlIdentity(commit_ts=Ts(60), order=0, query="CREATE TABLE …")
    properties = {**ORIGIN, "tidelake.ddl": again.to_json()}
    with pytest.raises(ConfigError, match=r"was made with write-mode = 'append', and"):
        create(replace(target, form=WriteMode()), properties=properties)
    create(target, properties=properties)
    engine.apply(log_write(target, 60, 80, [(70, 2, "b")]))
    assert events_of(uri) == Counter([(70, 2, "b")])
    assert events_of(f"{uri}~dropped-50") == Counter([(10, 1, "a")])
    assert [field.name for field in DeltaTable(uri).schema().fields] == ["id", "v", *LOG_COLUMNS]


def test_the_spark_engine_refuses_it(uri: str) -> None:
    with pytest.raises(ConfigError, match="is written by merge-on-write alone"):
        SparkEngine({}).apply(log_write(made_log(uri), 5, 40, []))


def test_a_dropped_log_is_made_again_as_a_log(engine: MergeOnWriteEngine, uri: str) -> None:
    target = made_log(uri)
    events: list[Event] = [(10, 1, "a"), (20, 2, "b"), (110, 3, "c")]
    engine.apply(log_write(target, 5, 20, events))
    dropped = DdlIdentity(commit_ts=Ts(50), order=0, query="DROP TABLE …")
    engine.alter(table_ddl(target=target, ddl=dropped, on_drop="keep"))
    assert not events_of(uri)
    assert len(events_of(kept_uri(uri, dropped))) == 2

    again = DdlIdentity(commit_ts=Ts(100), order=0, query="CREATE TABLE …")
    create(target, properties={**ORIGIN, "tidelake.ddl": again.to_json()})
    engine.apply(log_write(target, 100, 110, events))
    assert events_of(uri) == Counter([(110, 3, "c")])
    assert list(read_rows(uri)[0]) == ["id", "v", *LOG_COLUMNS]


def test_a_renamed_log_goes_on_as_a_log(engine: MergeOnWriteEngine, uri: str) -> None:
    source = made_log(uri)
    events: list[Event] = [(10, 1, "a"), (20, 2, "b"), (50, 4, "d"), (60, 3, "c")]
    engine.apply(log_write(source, 5, 20, events))
    name = TableName("shop", "moved")
    target = replace(source, name=name, uri=f"{uri}-moved", app_id=app_id("shop", 1, name))
    ddl = DdlIdentity(commit_ts=Ts(50), order=0, query="RENAME TABLE …")
    order = TableRename(moves=[(source, target)], ddl=ddl, properties=ORIGIN)
    rename(engine, order)
    rename(engine, order)
    for limit in (55, 60, 60):
        engine.apply(log_write(target, 49, limit, events))
    assert events_of(target.uri) == Counter(events)
    assert not events_of(uri)
    state = inspect(target.uri, {})
    assert state is not None
    assert state.form.is_log
