"""Others come between: a writer that sleeps, a fold that is overtaken, a table that changes."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coordination.errors import Fenced, TryAgain
from coordination.trust.clock import SystemClock
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.merge_on_write.log import commit as commits
from sinks.merge_on_write.log.checkpoint_writer import write_checkpoint
from sinks.merge_on_write.log.paths import commit_path
from sinks.merge_on_write.log.pause import set_paused
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.upkeep import fold as folds
from sinks.merge_on_write.upkeep.clean_up import clean_files, clean_log
from sinks.merge_on_write.upkeep.fold import fold
from sinks.storage.local_storage import LocalStorage
from sinks.target.engine_port import OP_COLUMN, Applied, Skipped, TableWrite
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage, once
from tests.sinks.merge_on_write.orders import UPSERTED, changed, made, rows_of, target, write

DAY_MS = 24 * 3600 * 1000


def frozen(engine: MergeOnWriteEngine, uri: str, when: str, meanwhile: Callable[[], None]) -> None:
    """It sleeps ``before`` or ``after`` its next put, while others are at work."""
    table = engine.table(uri)
    faulty = FaultyStorage(table.storage)
    setattr(faulty, when, once(lambda _path: meanwhile()))
    table.storage = faulty


def cleaned(uri: str) -> None:
    """All goes that the newest version does not need."""
    storage = LocalStorage(uri)
    state = read_log(storage)
    assert state is not None
    write_checkpoint(storage, state, now_ms=0)
    later = int(time.time() * 1000) + DAY_MS
    clean_log(storage, state, now_ms=later, retention_ms=0)
    clean_files(storage, state, now_ms=later, retention_ms=0)
    assert storage.size(commit_path(state.version - 1)) is None


class TestSleeper:
    """A writer that sleeps right before its put; its successor has the same identity."""

    @pytest.mark.parametrize("clean", [False, True])
    def test_nothing_of_it_counts_when_its_successor_went_further(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, uri: str, clean: bool
    ) -> None:
        before = rows_of(uri)
        first, second = {1: "theirs", 50: None}, {1: None, 60: "theirs"}

        def meanwhile() -> None:
            other.apply(write(uri, 101, first))
            other.apply(write(uri, 102, second))
            if clean:
                cleaned(uri)

        frozen(engine, uri, "before", meanwhile)
        found = engine.apply(write(uri, 100, UPSERTED))
        assert isinstance(found, Skipped)
        assert found.identity == 102
        assert rows_of(uri) == changed(before, first, second)

    def test_where_it_is_the_first_it_finds_the_rows_anew(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, uri: str
    ) -> None:
        """Another writer's rows of the same keys are there when it comes."""
        before = rows_of(uri)
        theirs = {99: "theirs", 1: None, 12: "theirs"}
        frozen(engine, uri, "before", lambda: apply_foreign(other, uri, theirs))
        assert isinstance(engine.apply(write(uri, 100, UPSERTED)), Applied)
        assert rows_of(uri) == changed(before, theirs, UPSERTED)

    def test_it_wakes_after_a_put_that_counted_and_was_cleaned_up(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, uri: str
    ) -> None:
        before = rows_of(uri)
        theirs = {99: "theirs"}

        def meanwhile() -> None:
            other.apply(write(uri, 101, theirs))
            cleaned(uri)

        frozen(engine, uri, "after", meanwhile)
        assert isinstance(engine.apply(write(uri, 100, UPSERTED)), Skipped)
        assert rows_of(uri) == changed(before, UPSERTED, theirs)

    @pytest.mark.parametrize("as_far", [False, True])
    def test_nothing_of_it_counts_when_the_table_was_made_again(
        self, engine: MergeOnWriteEngine, uri: str, as_far: bool
    ) -> None:
        def meanwhile() -> None:
            shutil.rmtree(uri)
            if as_far:
                made(uri)
            else:
                create(target(uri), properties={})

        frozen(engine, uri, "before", meanwhile)
        with pytest.raises(TryAgain, match="made again"):
            engine.apply(write(uri, 100, UPSERTED))
        found = rows_of(uri)
        assert 99 not in found
        assert bool(found) == as_far
        assert isinstance(engine.apply(write(uri, 100, UPSERTED)), Applied)
        assert rows_of(uri) == changed(found, UPSERTED)

    def test_the_fence_is_asked_again_after_a_lost_race(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, uri: str
    ) -> None:
        before = rows_of(uri)
        theirs = {2: "theirs"}
        asked: list[int] = []

        def fence() -> None:
            asked.append(1)
            if len(asked) > 1:
                raise Fenced("trust has lapsed")

        frozen(engine, uri, "before", lambda: apply_foreign(other, uri, theirs))
        with pytest.raises(Fenced):
            engine.apply(write(uri, 100, UPSERTED, fence))
        assert rows_of(uri) == changed(before, theirs)


def apply_foreign(engine: MergeOnWriteEngine, uri: str, changes: dict[int, str | None]) -> None:
    """Rows of a writer with another identity."""
    given = write(uri, 7, changes)
    engine.apply(replace(given, target=replace(given.target, app_id="another")))


class TestFold:
    """It reads and writes without the table's lock: others come meanwhile."""

    def test_of_a_fold_that_counted_and_was_cleaned_up_no_file_goes(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, uri: str
    ) -> None:
        before = rows_of(uri)
        theirs = {99: "theirs"}

        def meanwhile() -> None:
            other.apply(write(uri, 101, theirs))
            cleaned(uri)

        frozen(engine, uri, "after", meanwhile)
        fold(engine.table(uri), ("id",))
        assert rows_of(uri) == changed(before, theirs)

    def test_what_was_deleted_since_stays_deleted(
        self,
        engine: MergeOnWriteEngine,
        other: MergeOnWriteEngine,
        uri: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        before = rows_of(uri)
        overtaken(monkeypatch, lambda: other.apply(write(uri, 100, UPSERTED)))
        assert fold(engine.table(uri), ("id",)) is not None
        assert rows_of(uri) == changed(before, UPSERTED)
        assert isinstance(engine.apply(write(uri, 101, {12: None, 3: "x"})), Applied)
        assert rows_of(uri) == changed(before, UPSERTED, {12: None, 3: "x"})

    def test_rows_that_came_back_since_are_not_lost(
        self, engine: MergeOnWriteEngine, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """RESTORE brings files back as they were, with fewer rows deleted."""
        before = rows_of(uri)
        state = read_log(LocalStorage(uri))
        assert state is not None
        engine.apply(write(uri, 100, {12: None, 23: None}))  # no file of its own to miss

        def restore() -> None:
            DeltaTable(uri).restore(state.version, protocol_downgrade_allowed=True)

        overtaken(monkeypatch, restore)
        fold(engine.table(uri), ("id",))
        assert rows_of(uri) == before

    def test_a_paused_table_is_left_alone(
        self, engine: MergeOnWriteEngine, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        overtaken(monkeypatch, lambda: set_paused(uri, {}, paused=True))
        assert fold(engine.table(uri), ("id",)) is None
        set_paused(uri, {}, paused=False)
        assert fold(engine.table(uri), ("id",)) is not None

    def test_one_that_came_too_late_leaves_no_file(
        self,
        engine: MergeOnWriteEngine,
        other: MergeOnWriteEngine,
        uri: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        overtaken(monkeypatch, lambda: fold(other.table(uri), ("id",)))
        assert fold(engine.table(uri), ("id",)) is None
        state = read_log(LocalStorage(uri))
        assert state is not None
        cleaned(uri)
        left = {path.name for path in Path(uri).glob("*.parquet")}
        assert left == {file.path for file in state.files.values()}


def overtaken(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """The next fold has written its files when this happens."""
    genuine = folds.write_sorted

    def late(*arguments: object) -> object:
        found = genuine(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(folds, "write_sorted", genuine)
        meanwhile()
        return found

    monkeypatch.setattr(folds, "write_sorted", late)


class TestKey:
    """Bounds and indexes are of one key: another one must not be looked for by them."""

    def test_the_key_of_a_table_changes(self, engine: MergeOnWriteEngine, tmp_path: Path) -> None:
        uri = twins(tmp_path)
        engine.apply(by_key("a", uri, 1, [("U", 1, 50), ("U", 2, 60)]))
        engine.apply(by_key("a", uri, 2, [("U", 50, 70)]))
        engine.apply(by_key("b", uri, 3, [("D", 0, 50), ("U", 9, 60), ("U", 8, 1)]))
        assert pairs_of(uri) == {(9, 60), (50, 70), (8, 1)}
        engine.apply(by_key("a", uri, 4, [("D", 9, 0), ("D", 50, 0)]))
        assert pairs_of(uri) == {(8, 1)}

    def test_a_fold_by_the_old_key_ends_late(
        self, engine: MergeOnWriteEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        uri = twins(tmp_path)
        for at in range(1, 12):
            engine.apply(by_key("a", uri, at, [("U", at, 100 + at)]))
        overtaken(monkeypatch, lambda: engine.apply(by_key("b", uri, 12, [("U", 0, 200)])))
        assert fold(engine.table(uri), ("a",)) is not None
        engine.apply(by_key("b", uri, 13, [("D", 0, 103), ("D", 0, 4)]))
        assert pairs_of(uri) == {(at, 100 + at) for at in range(1, 12) if at != 3} | {(0, 200)}

    def test_columns_change_their_names(self, engine: MergeOnWriteEngine, tmp_path: Path) -> None:
        """As RENAME COLUMN does it, a and b for one another: what was written before is not put."""
        uri = twins(tmp_path)
        engine.apply(by_key("a", uri, 1, [("U", 1, 50), ("U", 2, 60)]))
        frozen(engine, uri, "before", lambda: swap_names(uri))
        engine.apply(by_key("a", uri, 2, [("U", 50, 5), ("U", 3, 30)]))
        assert pairs_of(uri) == {(50, 5), (60, 2), (3, 30)}


def twins(folder: Path) -> str:
    """A table of two columns of one type, a and b."""
    target = by_key("a", str(folder / "twins"), 1, []).target
    create(target, properties={})
    return target.uri


def by_key(key: str, uri: str, limit: int, changes: list[tuple[str, int, int]]) -> TableWrite:
    given = write(uri, limit, {})
    columns = tuple(Column(name=name, type=MySQLType.parse("bigint")) for name in "ab")
    rows = {
        "a": pa.array([a for _, a, _ in changes], pa.int64()),
        "b": pa.array([b for _, _, b in changes], pa.int64()),
        OP_COLUMN: pa.array([op for op, _, _ in changes], pa.string()),
    }
    target = replace(given.target, schema=TableSchema(columns=columns, key=(key,)))
    return replace(given, target=target, changes=pa.table(rows))


def pairs_of(uri: str) -> set[tuple[int, int]]:
    rows = [(row["a"], row["b"]) for row in read_rows(uri)]
    assert len(set(rows)) == len(rows)
    return set(rows)


def swap_names(uri: str) -> None:
    storage = LocalStorage(uri)
    state = read_log(storage)
    assert state is not None
    assert state.metadata is not None
    schema = state.metadata.schema
    for column in schema["fields"]:
        column["name"] = {"a": "b", "b": "a"}[column["name"]]
    metadata = {**state.metadata.fields, "schemaString": json.dumps(schema)}
    commits.commit(
        storage,
        state,
        [{"metaData": metadata}],
        operation="RENAME COLUMN",
        now_ms=int(time.time() * 1000),
        followed_at=SystemClock().monotonic(),
    )
