"""A table that an operator has to himself: the pause is a property in the table's own log."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordination.errors import TidelakeError, TryAgain
from sinks.merge_on_write.log import pause
from sinks.merge_on_write.log.pause import PAUSED, is_paused, set_paused
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.log.state import LogState
from sinks.storage.local_storage import LocalStorage
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage, once
from tests.sinks.merge_on_write.log_tables import add_files
from tests.sinks.merge_on_write.orders import made


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return made(tmp_path / "table")


def state_of(uri: str) -> LogState:
    state = read_log(LocalStorage(uri))
    assert state is not None
    return state


def test_it_is_set_once_and_taken_back_once(uri: str):
    before = state_of(uri)
    assert not is_paused(before.metadata)
    assert set_paused(uri, {}, paused=True)
    assert not set_paused(uri, {}, paused=True)
    paused = state_of(uri)
    assert is_paused(paused.metadata)
    assert paused.version == before.version + 1
    assert set_paused(uri, {}, paused=False)
    assert not set_paused(uri, {}, paused=False)
    after = state_of(uri)
    assert after.metadata == before.metadata
    assert after.files == before.files
    assert after.transactions == before.transactions


def test_a_commit_that_comes_between_is_no_hindrance(uri: str, monkeypatch: pytest.MonkeyPatch):
    def between(_path: str) -> None:
        add_files(LocalStorage(uri), state_of(uri), "theirs.parquet")

    faulty = FaultyStorage(LocalStorage(uri))
    faulty.before = once(between)
    monkeypatch.setattr(pause, "open_storage", lambda *_: faulty)
    assert set_paused(uri, {}, paused=True)
    state = state_of(uri)
    assert is_paused(state.metadata)
    assert "theirs.parquet" in state.files


def test_of_too_many_it_says_so(uri: str, monkeypatch: pytest.MonkeyPatch):
    faulty = FaultyStorage(LocalStorage(uri))
    faulty.before = lambda _path: void(add_files(LocalStorage(uri), state_of(uri), "x.parquet"))
    monkeypatch.setattr(pause, "open_storage", lambda *_: faulty)
    with pytest.raises(TryAgain, match="other commits came first"):
        set_paused(uri, {}, paused=True)


def void(_found: object) -> None: ...


def test_where_there_is_no_table(tmp_path: Path):
    with pytest.raises(TidelakeError, match="no Delta table"):
        set_paused(str(tmp_path / "none"), {}, paused=True)


def test_what_pauses(uri: str):
    assert not is_paused(None)
    metadata = state_of(uri).metadata
    assert metadata is not None
    for text, expected in (("true", True), ("false", False), ("", False)):
        settings = {**metadata.configuration, PAUSED: text}
        given = type(metadata)(fields={**metadata.fields, "configuration": settings})
        assert is_paused(given) == expected
