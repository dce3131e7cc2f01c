"""DROP TABLE empties a target in one commit, and its rows may be kept under another name; a later
CREATE TABLE makes it again in the same log."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from coordination.errors import TidelakeError
from coordination.model import Ts
from sinks.merge_on_write.alter.dropped_rows import kept_uri
from sinks.merge_on_write.alter.table_ddl import TableDdl
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.upkeep.clean_up import clean_files
from sinks.merge_on_write.upkeep.fold import fold
from sinks.storage.local_storage import LocalStorage
from sinks.target.engine_port import Applied, Skipped, Target
from sinks.target.table_properties import DdlIdentity, ownership
from sinks.target.target_table import state_of
from sinks.types.table_schema import TableSchema
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.altering import column
from tests.sinks.merge_on_write.ddls import ADD_N, C, ddl, names_of, rows
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage, failing, once
from tests.sinks.merge_on_write.orders import UPSERTED, changed, made, rows_of, target, write

DAY_MS = 24 * 3600 * 1000


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(tmp_path_factory.mktemp("drop") / "table", origin(5))


def origin(commit_ts: int) -> dict[str, str]:
    made_by = DdlIdentity(commit_ts=Ts(commit_ts), order=0, query="CREATE TABLE …")
    return ownership(changefeed_id="shop", incarnation=1, ddl=made_by)


def drop(uri: str, commit_ts: int = C, on_drop: Any = "keep") -> TableDdl:
    return ddl(uri, None, commit_ts, on_drop=on_drop)


def kept(uri: str) -> str:
    return kept_uri(uri, drop(uri).ddl)


def cleaned(uri: str) -> int:
    """As long after as one likes."""
    storage = LocalStorage(uri)
    state = read_log(storage)
    assert state is not None
    later = int(time.time() * 1000) + 9999 * DAY_MS
    return clean_files(storage, state, now_ms=later, retention_ms=0)


class TestDrop:
    def test_the_rows_are_kept_under_a_name_with_its_ts(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        before = rows_of(uri)
        assert engine.alter(drop(uri)) == Applied(13)
        assert rows_of(uri) == {}
        assert state_of(DeltaTable(uri)).is_dropped
        assert kept(uri) == f"{uri}~dropped-100"
        assert rows_of(kept(uri)) == before
        cleaned(uri)
        assert rows_of(kept(uri)) == before

    def test_or_they_go_when_nobody_needs_them(self, engine: MergeOnWriteEngine, uri: str) -> None:
        assert engine.alter(drop(uri, on_drop="drop")) == Applied(13)
        assert rows_of(uri) == {}
        assert not Path(kept(uri)).exists()
        cleaned(uri)
        assert not list(Path(uri).glob("*.parquet"))

    def test_a_table_without_files_leaves_its_shape(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        engine.alter(ddl(uri, None, C - 1, empties=True))
        assert engine.alter(drop(uri)) == Applied(14)
        assert rows_of(kept(uri)) == {}
        assert names_of(kept(uri)) == ["id", "v"]

    @pytest.mark.parametrize("on_drop", ["keep", "drop"])
    def test_a_replay_changes_nothing(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, uri: str, on_drop: str
    ) -> None:
        engine.alter(drop(uri, on_drop=on_drop))
        for each in (engine, other):
            assert each.alter(drop(uri, on_drop=on_drop)) == Skipped(13, Ts(C - 1))
        assert isinstance(other.apply(write(uri, C - 1, UPSERTED)), Skipped)

    def test_what_came_while_it_was_tried_is_kept_too(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, uri: str
    ) -> None:
        """Rows of another writer, and a fold: the files of a first try are not all that count."""

        def meanwhile(_path: str) -> None:
            other.apply(write(uri, C - 1, UPSERTED))
            assert fold(other.table(uri), ("id",)) is not None

        before = rows_of(uri)
        faulty(engine, uri).before = once(meanwhile)
        assert isinstance(engine.alter(drop(uri)), Applied)
        cleaned(uri)
        assert rows_of(kept(uri)) == changed(before, UPSERTED)

    def test_a_zombie_wakes_at_its_put_of_the_kept_table(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, uri: str
    ) -> None:
        """Its successor has folded and dropped meanwhile: nothing of it counts."""
        before = rows_of(uri)

        def meanwhile(_path: str) -> None:
            assert fold(other.table(uri), ("id",)) is not None
            assert isinstance(other.alter(drop(uri)), Applied)

        located = engine.table(uri).located
        late = FaultyStorage(LocalStorage(kept(uri)))
        late.before = once(meanwhile)
        located.open_place = lambda _uri: late
        assert isinstance(engine.alter(drop(uri)), Skipped)
        cleaned(uri)
        assert rows_of(kept(uri)) == before

    def test_a_zombie_wakes_before_it_looks_at_the_kept_table(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, uri: str
    ) -> None:
        """What it has followed of the dropped one is old."""
        before = rows_of(uri)

        def opened(_uri: str) -> LocalStorage:
            if not state_of(DeltaTable(uri)).is_dropped:
                assert fold(other.table(uri), ("id",)) is not None
                assert isinstance(other.alter(drop(uri)), Applied)
            return LocalStorage(kept(uri))

        engine.table(uri).located.open_place = opened
        assert isinstance(engine.alter(drop(uri)), Skipped)
        cleaned(uri)
        assert rows_of(kept(uri)) == before

    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("put", [1, 2, 3])
    def test_it_dies_at_a_put(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, uri: str, put: int, when: str
    ) -> None:
        """Of the kept table's schema, of its files, of the dropped one's commit."""
        before = rows_of(uri)
        if put == 3:
            setattr(faulty(engine, uri), when, once(failing(KeyboardInterrupt())))
        else:
            late = FaultyStorage(LocalStorage(kept(uri)))
            hooks = iter([failing(KeyboardInterrupt())] if put == 1 else [lambda _path: None])
            setattr(late, when, lambda path: next(hooks, failing(KeyboardInterrupt()))(path))
            engine.table(uri).located.open_place = lambda _uri: late
        with pytest.raises(KeyboardInterrupt):
            engine.alter(drop(uri))
        is_made = (put, when) == (3, "after")
        assert isinstance(other.alter(drop(uri)), Skipped if is_made else Applied)
        assert rows_of(uri) == {}
        assert rows_of(kept(uri)) == before


class TestMadeAgain:
    def again(self, uri: str) -> Target:
        columns = (column("v", "datetime"), column("key", "varchar(9)"))
        return replace(target(uri), schema=TableSchema(columns=columns, key=("key",)))

    @pytest.mark.parametrize("on_drop", ["keep", "drop"])
    def test_in_another_shape_and_with_the_same_log(
        self, engine: MergeOnWriteEngine, uri: str, on_drop: str
    ) -> None:
        before, log_id = rows_of(uri), DeltaTable(uri).metadata().id
        engine.alter(drop(uri, on_drop=on_drop))
        again = self.again(uri)
        for _ in range(2):  # a replay too
            create(again, properties=origin(C + 2))
            assert DeltaTable(uri).version() == 14
        state = state_of(DeltaTable(uri))
        assert not state.is_dropped
        assert (state.schema, DeltaTable(uri).metadata().id) == (again.schema, log_id)
        assert state.ddl is not None
        assert state.ddl.commit_ts == C + 2
        engine.apply(rows(uri, C + 3, again.schema, {"key": "a"}))
        assert read_rows(uri) == [{"v": None, "key": "a"}]
        assert state.properties["delta.dataSkippingStatsColumns"] == "`key`,`v`"
        if on_drop == "keep":
            assert rows_of(kept(uri)) == before

    def test_the_ddls_of_its_first_life_come_too_late(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        engine.alter(drop(uri))
        create(self.again(uri), properties=origin(C + 2))
        create(target(uri), properties=origin(5))
        for late in (drop(uri), ddl(uri, ADD_N, C - 1), ddl(uri, None, C - 1, empties=True)):
            assert isinstance(engine.alter(late), Skipped)
        assert names_of(uri) == ["v", "key"]
        with pytest.raises(TidelakeError, match="created by another DDL"):
            create(self.again(uri), properties=origin(C + 3))

    def test_and_dropped_again(self, engine: MergeOnWriteEngine, uri: str) -> None:
        engine.alter(drop(uri))
        again = self.again(uri)
        create(again, properties=origin(C + 2))
        engine.apply(rows(uri, C + 3, again.schema, {"key": "a"}))
        second = replace(drop(uri, C + 5), target=again)
        assert isinstance(engine.alter(second), Applied)
        assert state_of(DeltaTable(uri)).is_dropped
        assert read_rows(kept_uri(uri, second.ddl)) == [{"v": None, "key": "a"}]
        assert len(rows_of(kept(uri))) == 44


def faulty(engine: MergeOnWriteEngine, uri: str) -> FaultyStorage:
    table = engine.table(uri)
    storage = FaultyStorage(table.storage)
    table.storage = storage
    return storage
