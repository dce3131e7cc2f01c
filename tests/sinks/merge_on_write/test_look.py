"""What a batch asks of a table before it prepares its rows: one look at the log."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sinks.apply import Applied, Skipped, TableHeld
from sinks.merge_on_write import engine as engines
from sinks.merge_on_write.engine import MergeOnWriteEngine, TableLook
from sinks.merge_on_write.log_paths import commit_path
from sinks.merge_on_write.log_reader import read_log
from sinks.merge_on_write.pause import set_paused
from sinks.merge_on_write.storage import LocalStorage
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage
from tests.sinks.merge_on_write.orders import UPSERTED, changed, made, rows_of, write

VERSION = 12  # of the template


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(tmp_path_factory.mktemp("look") / "table")


@pytest.fixture
def uri(template: str, tmp_path: Path) -> str:
    return str(shutil.copytree(template, tmp_path / "table"))


@pytest.fixture
def engine() -> Iterator[MergeOnWriteEngine]:
    engine = MergeOnWriteEngine({}, keeps_up=False)
    yield engine
    engine.close()


def reads(engine: MergeOnWriteEngine, uri: str) -> list[str]:
    """The files of the log that are read from now on."""
    found: list[str] = []
    table = engine.table(uri)
    faulty = FaultyStorage(table.storage)
    faulty.before_read = lambda path: found.append(path) if "_delta_log" in path else None
    table.storage = faulty
    return found


def test_it_says_all_that_a_batch_has_to_know(engine: MergeOnWriteEngine, uri: str) -> None:
    assert engine.look(uri) == TableLook(version=VERSION, is_paused=False, refusal=None)
    set_paused(uri, {}, paused=True)
    assert engine.look(uri) == TableLook(version=VERSION + 1, is_paused=True, refusal=None)
    shutil.rmtree(uri)
    assert engine.look(uri) == TableLook(version=None, is_paused=False, refusal=None)


def test_a_write_right_after_it_does_not_follow_the_log_again(
    engine: MergeOnWriteEngine, uri: str
) -> None:
    engine.look(uri)
    log = reads(engine, uri)
    assert engine.apply(write(uri, 20, UPSERTED)) == Applied(VERSION + 1)
    assert log == [commit_path(VERSION)] * 2, "the head alone, before the put and after it"
    engine.apply(write(uri, 21, UPSERTED))
    assert commit_path(VERSION + 2) in log, "a look is good for one write"


def test_an_old_one_is_not_trusted(
    engine: MergeOnWriteEngine, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "LOOK_S", 0.0)
    engine.look(uri)
    log = reads(engine, uri)
    engine.apply(write(uri, 20, UPSERTED))
    assert commit_path(VERSION + 1) in log


def test_what_happens_between_it_and_the_write_counts(engine: MergeOnWriteEngine, uri: str) -> None:
    before = rows_of(uri)
    other = MergeOnWriteEngine({}, keeps_up=False)
    engine.look(uri)
    other.apply(write(uri, 20, {1: "theirs"}))
    assert engine.apply(write(uri, 20, UPSERTED)) == Skipped(VERSION + 1, 20)
    engine.look(uri)
    other.apply(write(uri, 21, {1: "theirs", 2: "theirs"}))
    assert engine.apply(write(uri, 22, UPSERTED)) == Applied(VERSION + 3)
    engine.look(uri)
    set_paused(uri, {}, paused=True)
    with pytest.raises(TableHeld):
        engine.apply(write(uri, 23, {1: "never"}))
    assert rows_of(uri) == changed(before, {2: "theirs"}, UPSERTED)
    state = read_log(LocalStorage(uri))
    assert state is not None
    assert state.differences(engine.table(uri).state, tombstones=False) == []
    other.close()
