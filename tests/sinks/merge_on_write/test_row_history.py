"""A history shows every version of every row, whoever writes, whoever dies, and whoever is late."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from deltalake import DeltaTable

from coordination.errors import TidelakeError
from coordination.model import SEALED_TS, TableName, Ts
from sinks.ddl.effects import CreateTable
from sinks.ddl.statements import read_ddl
from sinks.merge_on_write.alter import ddl_commit as alters
from sinks.merge_on_write.alter.dropped_rows import kept_uri
from sinks.merge_on_write.alter.table_ddl import TableDdl
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.merge_on_write.lifecycle.rename import TableRename, rename
from sinks.merge_on_write.log import commit as commits
from sinks.merge_on_write.upkeep import fold_choice
from sinks.merge_on_write.upkeep.fold import fold
from sinks.target.engine_port import Applied, Skipped, TableWrite, Target, app_id
from sinks.target.table_properties import DdlIdentity
from sinks.target.target_table import inspect, seal
from sinks.target.write_mode import HISTORY_COLUMNS, VALID_FROM_TS, VALID_TO_TS
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.ddls import action
from tests.sinks.merge_on_write.event_logs import NAME, ORIGIN
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage, once
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl
from tests.sinks.merge_on_write.row_histories import (
    Change,
    expected,
    history_of,
    history_target,
    history_write,
    made_history,
    truncate,
)
from tests.sinks.merge_on_write.test_change_log import Killed, altered, killed


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "PAUSE_S", 0.0)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "history")


@pytest.fixture
def engine() -> Iterator[MergeOnWriteEngine]:
    engine = MergeOnWriteEngine({}, keeps_up=False)
    yield engine
    engine.close()


@dataclass(kw_only=True)
class Capture:
    """What one process believes of the table."""

    target: Target
    checkpoint: int

    def write(
        self, limit: int, changes: list[Change], before_commit: Callable[[], None] = lambda: None
    ) -> TableWrite:
        return history_write(self.target, self.checkpoint, limit, changes, before_commit)


class Race:
    """Random changes, captures that race for them, rewinds, TRUNCATEs of the table and of
    partitions, folds and kills; and the model."""

    def __init__(self, seed: int, uri: str) -> None:
        self.dice = random.Random(seed)
        self.uri = uri
        places = [(ts, id) for ts in range(6, 200) for id in range(6)]
        self.changes: list[Change] = [
            (*place, None if self.dice.random() < 0.25 else f"v{n}")
            for n, place in enumerate(sorted(set(self.dice.choices(places, k=150))))
        ]
        target = made_in_partitions(uri)
        self.engines = [MergeOnWriteEngine({}, keeps_up=False) for _ in range(2)]
        self.captures = [Capture(target=target, checkpoint=5) for _ in range(2)]
        self.zombies: list[Capture] = []
        self.incarnation = 1
        self.reached = 5
        self.truncated_at = 0  # by this incarnation
        self.applied: list[Change] = []  # what the table must show

    def close(self) -> None:
        for engine in self.engines:
            engine.close()

    def step(self) -> None:
        steps: list[Callable[[], None]] = [self.write, self.killed, self.raced, self.fold]
        steps += [self.zombie, self.rewind, self.reopen, self.truncate, self.remove]
        self.dice.choices(steps, (8, 2, 3, 2, 1, 0.7, 1, 0.7, 1))[0]()
        assert history_of(self.uri) == expected(self.applied)

    def write(self) -> None:
        at = self.dice.randrange(2)
        capture = self.captures[at]
        limit = capture.checkpoint + self.dice.randint(1, 30)
        self.wrote(capture, limit, self.engines[at].apply(capture.write(limit, self.changes)))

    def wrote(self, capture: Capture, limit: int, outcome: Applied | Skipped) -> None:
        if isinstance(outcome, Applied):
            assert limit > self.reached
            self.take_back()
            self.applied += [each for each in self.changes if self.reached < each[0] <= limit]
            self.reached = limit
        else:
            assert outcome.identity == self.reached >= limit
        capture.checkpoint = max(limit, self.reached if isinstance(outcome, Skipped) else 0)

    def killed(self) -> None:
        """Its files are there, its commit is not."""
        capture = self.captures[0]
        limit = max(self.reached, capture.checkpoint) + 5
        with pytest.raises(Killed):
            self.engines[0].apply(capture.write(limit, self.changes, killed))

    def raced(self) -> None:
        """Right before its put the other one commits, less than it or more."""
        first, second = self.captures
        limit = max(self.reached, first.checkpoint) + self.dice.randint(1, 20)
        other = max(self.reached, second.checkpoint) + self.dice.randint(1, 20)

        def meanwhile() -> None:
            write = second.write(other, self.changes)
            self.wrote(second, other, self.engines[1].apply(write))

        table = self.engines[0].table(self.uri)
        plain = table.storage
        faulty = FaultyStorage(plain)
        faulty.before = once(lambda _path: meanwhile())
        table.storage = faulty
        try:
            self.wrote(first, limit, self.engines[0].apply(first.write(limit, self.changes)))
        finally:
            table.storage = plain

    def truncate(self) -> None:
        self._run(lambda target, ts: truncate(target, ts), range(6))

    def remove(self) -> None:
        """One partition or two."""
        names = self.dice.sample(list(PARTITIONS), self.dice.choice((1, 2)))
        gone = [id for name in names for id in PARTITIONS[name]]
        self._run(lambda target, ts: removal(target, ts, *names), gone)

    def _run(self, ddl: Callable[[Target, int], TableDdl], gone: Iterable[int]) -> None:
        """At a ts of its own: the changes of the feed have none between."""
        at = self.dice.randrange(2)
        capture, ts = self.captures[at], self.reached + 1
        if ts == self.truncated_at:
            return
        self.captures = [replace(each, checkpoint=self.reached) for each in self.captures]
        self.changes = [each for each in self.changes if each[0] != ts]
        assert isinstance(self.engines[at].alter(ddl(capture.target, ts)), Applied)
        assert isinstance(self.engines[1 - at].alter(ddl(capture.target, ts)), Skipped)
        self.take_back()
        self.applied += [(ts, id, None) for id in gone]
        self.truncated_at = ts

    def take_back(self) -> None:
        reached = max(self.reached, self.truncated_at)
        self.applied = [each for each in self.applied if each[0] <= reached]

    def fold(self) -> None:
        with patch.multiple(fold_choice, FAN_OUT=2):
            fold(self.dice.choice(self.engines).table(self.uri), self.captures[0].target.sorted_by)

    def zombie(self) -> None:
        """Of an incarnation that is sealed: it can do nothing any more."""
        for capture in self.zombies:
            outcome = self.dice.choice(self.engines).apply(capture.write(10_000, self.changes))
            assert isinstance(outcome, Skipped)
            assert outcome.identity == SEALED_TS

    def rewind(self) -> None:
        """What the table shows beyond stays until the first write."""
        start = self.dice.randint(5, self.reached)
        old = self.captures[0].target.app_id
        self.zombies.append(self.captures[0])
        self.incarnation += 1
        target = replace(self.captures[0].target, app_id=app_id("shop", self.incarnation, NAME))
        self.captures = [Capture(target=target, checkpoint=start) for _ in range(2)]
        seal(self.uri, [old], target.app_id, lambda _: Ts(start), {})
        self.reached = start
        self.truncated_at = 0

    def reopen(self) -> None:
        at = self.dice.randrange(2)
        self.engines[at].close()
        self.engines[at] = MergeOnWriteEngine({}, keeps_up=False)
        self.captures[at] = replace(self.captures[at], checkpoint=self.reached)


@pytest.mark.seeds(8)
def test_every_version_is_there_once(seed: int, uri: str) -> None:
    race = Race(seed, uri)
    for _ in range(30):
        race.step()
    race.close()


def test_a_normal_commit_reads_the_files_of_its_keys_alone(
    engine: MergeOnWriteEngine, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = made_history(uri)
    changes: list[Change] = [(ts, ts, "v") for ts in range(6, 60)]
    for limit in range(10, 60, 10):
        engine.apply(history_write(target, limit - 10, limit, changes))
    opened: list[str] = []
    plain = engine.table(uri).located.open_input
    monkeypatch.setattr(
        engine.table(uri).located, "open_input", lambda path: opened.append(path) or plain(path)
    )
    engine.apply(history_write(target, 60, 70, [(65, 7, "w"), (66, 80, "x")]))
    assert len(set(opened)) == 1
    assert history_of(uri)[(7, "v", 7, 65)] == 1


@pytest.mark.parametrize("key", [("v",), ("v", "id")])
def test_keys_of_text_and_of_several_columns(
    engine: MergeOnWriteEngine, uri: str, key: tuple[str, ...]
) -> None:
    target = history_target(uri)
    target = replace(target, schema=replace(target.schema, key=key))
    create(target, properties=ORIGIN)
    changes: list[Change] = [(ts, 7, f"k{ts % 5}") for ts in range(6, 40)]
    for limit in (12, 13, 40):
        engine.apply(history_write(target, 5, limit, changes))
    found = Counter((row["v"], row[VALID_FROM_TS], row[VALID_TO_TS]) for row in read_rows(uri))
    assert found == Counter((v, ts, ts + 5 if ts < 35 else None) for ts, _, v in changes)


def test_ddls_of_columns_keep_every_version(engine: MergeOnWriteEngine, uri: str) -> None:
    target = made_history(uri)
    engine.apply(history_write(target, 5, 40, [(10, 1, "a"), (20, 1, "b"), (30, 2, "c")]))
    for ts, clause in (
        (50, "ADD COLUMN n INT"), (55, "RENAME COLUMN id TO number"),
        (60, "MODIFY COLUMN number BIGINT NOT NULL"), (65, "DROP COLUMN v"),
    ):  # fmt: skip
        state = inspect(uri, {})
        assert state is not None
        assert state.schema is not None
        order = altered(replace(target, schema=state.schema), clause, ts)
        assert isinstance(engine.alter(order), Applied)
        assert isinstance(engine.alter(order), Skipped)
    found = sorted(read_rows(uri), key=lambda row: row[VALID_FROM_TS])
    assert list(found[0]) == ["number", "n", *HISTORY_COLUMNS]
    assert [(row["number"], row["_is_current"]) for row in found] == [
        (1, False), (1, True), (2, True),
    ]  # fmt: skip


PARTITIONS = {"p0": range(2), "p1": range(2, 4), "p2": range(4, 6)}  # ids
LISTS = ",".join(
    f"PARTITION {name} VALUES IN ({ids[0]},{ids[1]})" for name, ids in PARTITIONS.items()
)


def made_in_partitions(uri: str) -> Target:
    query = (
        f"CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(20)) PARTITION BY LIST (`id`) ({LISTS})"
    )
    (effect,) = read_ddl(query, "CREATE", "shop", "t").effects
    assert isinstance(effect, CreateTable)
    target = replace(history_target(uri), schema=effect.schema)
    create(target, properties=ORIGIN)
    return target


def test_what_a_ddl_takes_out_is_kept_from_its_end_on(
    engine: MergeOnWriteEngine, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To write a large table anew takes hours, and readers go on in the version before."""
    target, now_s, genuine = made_history(uri), [1_800_000_000.0], alters.write_ended
    engine.apply(history_write(target, 5, 40, [(10, 1, "a"), (20, 2, "b")]))

    def slow(*arguments: Any) -> Any:
        now_s[0] += 3600
        return genuine(*arguments)

    monkeypatch.setattr(alters, "write_ended", slow)
    monkeypatch.setattr(alters, "time", SimpleNamespace(time=lambda: now_s[0]))
    engine.alter(truncate(target, 50))
    assert action(uri, "remove")["deletionTimestamp"] == now_s[0] * 1000


def removal(target: Target, ts: int, *names: str) -> TableDdl:
    return table_ddl(target=target, ddl=truncate(target, ts).ddl, partitions=names)


def test_a_partition_that_goes_closes_its_rows(engine: MergeOnWriteEngine, uri: str) -> None:
    """A second time nothing is current there."""
    target = made_in_partitions(uri)
    changes: list[Change] = [(10, 1, "a"), (20, 1, "b"), (30, 2, "c")]
    engine.apply(history_write(target, 5, 40, changes))
    for ts in (50, 60):
        assert isinstance(engine.alter(removal(target, ts, "p0")), Applied)
        assert history_of(uri) == expected([*changes, (50, 1, None)])


def test_a_partition_that_goes_again_after_a_rewind_takes_back_what_is_beyond(
    engine: MergeOnWriteEngine, uri: str
) -> None:
    target = made_in_partitions(uri)
    changes: list[Change] = [(10, 1, "a"), (10, 2, "b"), (10, 4, "c"), (60, 2, "d"), (60, 4, None)]
    engine.apply(history_write(target, 5, 40, changes))
    engine.alter(removal(target, 50, "p0"))
    engine.apply(history_write(target, 50, 70, changes))
    later = replace(target, app_id=app_id("shop", 2, NAME))
    seal(uri, [target.app_id], later.app_id, lambda _: Ts(20), {})
    assert isinstance(engine.alter(removal(later, 50, "p0")), Applied)
    assert history_of(uri) == expected([*changes[:3], (50, 1, None)])
    engine.apply(history_write(later, 50, 70, changes))
    assert history_of(uri) == expected([*changes, (50, 1, None)])


def test_versions_that_have_ended_need_be_in_no_partition(
    engine: MergeOnWriteEngine, uri: str
) -> None:
    """Those of a partition that was dropped are in none that is known."""
    target = made_in_partitions(uri)
    changes: list[Change] = [(10, 1, "a"), (10, 2, "b"), (10, 4, "c")]
    engine.apply(history_write(target, 5, 40, changes))
    engine.alter(removal(target, 50, "p0"))
    partitioning = target.schema.partitioning
    assert partitioning is not None
    schema = replace(target.schema, partitioning=partitioning.without(["p0"]))
    engine.alter(removal(replace(target, schema=schema), 60, "p1"))
    assert history_of(uri) == expected([*changes, (50, 1, None), (60, 2, None)])


@pytest.mark.parametrize(
    "clause", ["DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", "MODIFY COLUMN id VARCHAR(30)"]
)
def test_another_key_is_refused_in_one_line(
    engine: MergeOnWriteEngine, uri: str, clause: str
) -> None:
    with pytest.raises(TidelakeError, match="its key changes, and a table of write-mode") as error:
        engine.alter(altered(made_history(uri), clause))
    assert "\n" not in str(error.value)


def test_a_dropped_history_is_kept_and_made_again_as_one(
    engine: MergeOnWriteEngine, uri: str
) -> None:
    target = made_history(uri)
    engine.apply(history_write(target, 5, 40, [(10, 1, "a"), (20, 1, "b")]))
    dropped = DdlIdentity(commit_ts=Ts(50), order=0, query="DROP TABLE …")
    engine.alter(table_ddl(target=target, ddl=dropped, on_drop="keep"))
    assert not history_of(uri)
    assert history_of(kept_uri(uri, dropped)) == expected([(10, 1, "a"), (20, 1, "b")])
    again = DdlIdentity(commit_ts=Ts(60), order=0, query="CREATE TABLE …")
    create(target, properties={**ORIGIN, "tidelake.ddl": again.to_json()})
    engine.apply(history_write(target, 60, 80, [(70, 1, "c")]))
    assert history_of(uri) == expected([(70, 1, "c")])
    assert [each.name for each in DeltaTable(uri).schema().fields] == ["id", "v", *HISTORY_COLUMNS]


def test_a_renamed_history_goes_on(engine: MergeOnWriteEngine, uri: str) -> None:
    source = made_history(uri)
    changes: list[Change] = [(10, 1, "a"), (20, 1, "b"), (60, 1, "c")]
    engine.apply(history_write(source, 5, 20, changes))
    name = TableName("shop", "moved")
    target = replace(source, name=name, uri=f"{uri}-moved", app_id=app_id("shop", 1, name))
    ddl = DdlIdentity(commit_ts=Ts(50), order=0, query="RENAME TABLE …")
    order = TableRename(moves=[(source, target)], ddl=ddl, properties=ORIGIN)
    for _ in range(2):
        rename(engine, order)
        engine.apply(history_write(target, 49, 60, changes))
    assert history_of(target.uri) == expected(changes)
    assert not history_of(uri)
