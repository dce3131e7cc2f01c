"""When files are folded, into what, and that it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.files import data_files, sorted_files
from sinks.merge_on_write.upkeep import fold as folds
from sinks.merge_on_write.upkeep import fold_choice, upkeep
from sinks.merge_on_write.upkeep.fold import fold, paths_to_fold
from sinks.target.retention_properties import FILE_RETENTION
from tests.sinks.merge_on_write.ddls import ddl
from tests.sinks.merge_on_write.orders import changed, made, rows_of, write


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return made(tmp_path / "t")


@pytest.fixture
def keeping() -> Iterator[MergeOnWriteEngine]:
    engine = MergeOnWriteEngine({})
    yield engine
    engine.close()


def files_of(engine: MergeOnWriteEngine, uri: str) -> int:
    table = engine.table(uri)
    with table.lock:
        table.refresh()
        return len(table.files)


def settled(engine: MergeOnWriteEngine) -> None:
    assert engine.upkeep.settle(30)


class TestRowsWait:
    """Folds that only readers gain by are put off, and are made up for."""

    def test_no_file_is_folded_until_no_row_waits(
        self, keeping: MergeOnWriteEngine, uri: str
    ) -> None:
        before = rows_of(uri)
        keeping.upkeep.rows_wait(True)
        for limit in range(100, 110):
            keeping.apply(write(uri, limit, {1000 + limit: "new"}))
        settled(keeping)
        assert files_of(keeping, uri) == 22
        keeping.upkeep.rows_wait(False)
        settled(keeping)
        assert files_of(keeping, uri) < fold_choice.FAN_OUT
        new: dict[int, str | None] = {1000 + limit: "new" for limit in range(100, 110)}
        assert rows_of(uri) == changed(before, new)

    def test_there_are_not_more_and_more_files(
        self, keeping: MergeOnWriteEngine, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fold_choice, "PRESSED_FAN_OUT", 15)
        keeping.upkeep.rows_wait(True)
        for limit in range(100, 140):
            keeping.apply(write(uri, limit, {1000 + limit: "new"}))
            settled(keeping)
            assert files_of(keeping, uri) < 15 + fold_choice.FAN_OUT


class TestFiles:
    def test_files_as_full_as_can_be_stay_as_they_are(
        self, engine: MergeOnWriteEngine, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (folds, fold_choice):
            monkeypatch.setattr(module, "FULL_ROWS", 14)
        monkeypatch.setattr(sorted_files, "MAX_FILE_ROWS", 14)
        before = rows_of(uri)
        folded = 0
        while fold(engine.table(uri), ("id",)) is not None:
            folded += 1
        assert 1 <= folded < 20
        assert rows_of(uri) == before

    def test_rows_that_take_much_memory_are_folded_as_far_as_it_reaches(
        self, engine: MergeOnWriteEngine, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """How much they take is known when they have been read; after that they are not read for
        nothing again."""
        for module, name in ((folds, "FULL_MEMORY_BYTES"), (fold_choice, "FULL_MEMORY_BYTES")):
            monkeypatch.setattr(module, name, 150)
        before, table = rows_of(uri), engine.table(uri)
        for _ in range(40):
            fold(table, ("id",))
        with table.lock:
            table.refresh()
            assert not paths_to_fold(table)
        assert files_of(engine, uri) > 4
        assert rows_of(uri) == before

    def test_a_file_of_any_size_is_written_anew_in_portions(
        self, engine: MergeOnWriteEngine, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And what is deleted meanwhile stays deleted in each of them."""
        monkeypatch.setattr(fold_choice, "MIN_DEAD_BYTES", 1)
        monkeypatch.setattr(data_files, "ROW_GROUP_ROWS", 10)
        large: dict[int, str | None] = {key: "large" for key in range(1000, 1100)}
        engine.apply(write(uri, 100, large))
        engine.apply(write(uri, 101, {key: None for key in range(1000, 1100, 2)}))
        before = rows_of(uri)
        with engine.table(uri).lock:
            (path,) = (p for p, each in engine.table(uri).files.items() if each.rows == 100)
        monkeypatch.setattr(folds, "paths_to_fold", lambda *_, **__: [path])
        monkeypatch.setattr(folds, "FULL_ROWS", 20)
        late: dict[int, str | None] = {1001: None, 1055: "late", 1099: None}
        genuine, times = folds.write_sorted, []

        def slow(*arguments: object) -> object:
            times.append(None)
            if len(times) == 3:
                engine.apply(write(uri, 102, late))
            return genuine(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(folds, "write_sorted", slow)
        assert fold(engine.table(uri), ("id",)) is not None
        assert len(times) == 5
        assert rows_of(uri) == changed(before, late)
        more: dict[int, str | None] = {1003: None, 1057: "more", 1097: None, 1000: "again"}
        engine.apply(write(uri, 103, more))
        assert rows_of(uri) == changed(before, late, more)


def test_what_a_dropped_table_had_goes_when_its_retention_is_over(
    tmp_path: Path, engine: MergeOnWriteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody commits to it any more: the owner has dropped it, by an engine without upkeep."""
    monkeypatch.setattr(upkeep, "CLEAN_EVERY_S", 0.0)
    monkeypatch.setattr(upkeep, "QUIET_EVERY_S", 0.1)
    uri = made(tmp_path / "t", {FILE_RETENTION: "interval 0 hours"})
    keeping = MergeOnWriteEngine({})
    keeping.apply(write(uri, 13, {1: "new"}))
    settled(keeping)
    engine.alter(ddl(uri, None, on_drop="drop"))
    deadline = time.monotonic() + 30
    while list(Path(uri).glob("*.parquet")):
        assert time.monotonic() < deadline, "they stay"
        time.sleep(0.01)
    keeping.close()
