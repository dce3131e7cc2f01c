"""RECOVER TABLE: what a DROP TABLE has kept is in the table again, once, whoever tries it, late, or
dies at it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable

from coordination.errors import TidelakeError
from coordination.model import Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.merge_on_write.lifecycle.recover import is_recovered
from sinks.merge_on_write.lifecycle.rename import rename
from sinks.merge_on_write.log import commit as commits
from sinks.merge_on_write.log.pause import set_paused
from sinks.merge_on_write.upkeep.fold import fold
from sinks.target.engine_port import Applied, Skipped, TableHeld
from sinks.target.table_properties import DdlIdentity
from sinks.target.target_table import inspect, seal, state_of
from tests.sinks.merge_on_write.ddls import C, assert_in_memory
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage, failing, once
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl
from tests.sinks.merge_on_write.lifecycle.test_rename import tidied
from tests.sinks.merge_on_write.orders import Changes, changed
from tests.sinks.merge_on_write.recoveries import drop, identity, recovered
from tests.sinks.merge_on_write.renames import (
    ORDERS,
    contents,
    named,
    order,
    origin,
    put,
    two_tables,
    versions,
)

MORE: Changes = {0: "new", 12: None, 23: "new", 99: "new"}
KEPT = f"a~dropped-{C}"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "PAUSE_S", 0.0)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    return two_tables(tmp_path_factory.mktemp("recover") / "shop")


@pytest.fixture
def folder(template: str, tmp_path: Path) -> str:
    return str(shutil.copytree(template, tmp_path / "a shop~41 é"))


def new_engine() -> Iterator[MergeOnWriteEngine]:
    engine = MergeOnWriteEngine({}, keeps_up=False)
    yield engine
    engine.close()


engine = pytest.fixture(new_engine, name="engine")
other = pytest.fixture(new_engine, name="other")


class TestRecover:
    @pytest.mark.parametrize("name", ["a", "c"])
    def test_the_rows_are_back_and_go_on(
        self, engine: MergeOnWriteEngine, folder: str, name: str
    ) -> None:
        before = contents(folder)
        drop(engine, folder)
        recovered(engine, folder, name)
        wanted = {"b": before["b"], KEPT: before["a"]}
        assert contents(folder) == {name: before["a"], **wanted}
        uri = f"{folder}/{name}"
        state = state_of(DeltaTable(uri))
        assert not state.is_dropped
        assert (state.schema, state.identity(named(uri).app_id)) == (ORDERS, Ts(C + 9))
        assert state.begun_ts == C + 10
        assert isinstance(put(engine, uri, C + 10, MORE), Applied)
        assert_in_memory(engine, uri)
        after = changed(before["a"], MORE)
        assert contents(folder) == {name: after, **wanted}
        tidied(folder)
        assert contents(folder) == {name: after, **wanted}

    def test_again_and_again(self, engine: MergeOnWriteEngine, folder: str) -> None:
        """Each DROP TABLE keeps what the table had then."""
        wanted = contents(folder)["a"]
        for number in range(4):
            at = C + 20 * number
            drop(engine, folder, at)
            recovered(engine, folder, commit_ts=at + 10)
            changes: Changes = {number: None, 10: f"{number}", 100 + number: "new"}
            assert isinstance(put(engine, f"{folder}/a", at + 11, changes), Applied)
            while fold(engine.table(f"{folder}/a"), ("id",)) is not None:
                pass
            tidied(folder)
            found = contents(folder)
            assert found[f"a~dropped-{at}"] == wanted
            wanted = changed(wanted, changes)
            assert found["a"] == wanted

    def test_under_another_name_while_the_old_one_was_made_again(
        self, engine: MergeOnWriteEngine, folder: str
    ) -> None:
        before = contents(folder)["a"]
        drop(engine, folder)
        create(named(f"{folder}/a"), properties=origin(C + 2))
        put(engine, f"{folder}/a", C + 3, {7: "second life"})
        recovered(engine, folder, "c")
        found = contents(folder)
        assert (found["a"], found["c"]) == ({7: "second life"}, before)

    def test_an_empty_one_has_its_shape(self, engine: MergeOnWriteEngine, folder: str) -> None:
        shutil.rmtree(f"{folder}/a")
        create(named(f"{folder}/a"), properties=origin(5))
        drop(engine, folder)
        recovered(engine, folder)
        put(engine, f"{folder}/a", C + 11, {1: "x"})
        assert contents(folder)["a"] == {1: "x"}

    @pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.more)])
    def test_it_equals_a_model(self, engine: MergeOnWriteEngine, folder: str, seed: int) -> None:
        model = Model(engine, folder, Random(seed))
        deeds = (model.put, model.put, model.drop, model.create, model.truncate, model.recover)
        for _ in range(30):
            model.dice.choice(deeds)()
            assert model.found() == model.wanted()
        tidied(folder)
        assert model.found() == model.wanted()


class Model:
    """Of table a, which is dropped and comes back as a or c; every DDL is tried twice."""

    def __init__(self, engine: MergeOnWriteEngine, folder: str, dice: Random) -> None:
        self.dice = dice
        self._engine, self._folder, self._ts = engine, folder, C
        self._rows: dict[str, dict[int, str]] = {"a": contents(folder)["a"]}
        self._kept: dict[int, str] | None = None  # None: what was taken away last is not kept

    def found(self) -> dict[str, dict[int, str]]:
        return {name: rows for name, rows in contents(self._folder).items() if name in "ac"}

    def wanted(self) -> dict[str, dict[int, str]]:
        return {name: rows for name, rows in self._rows.items() if rows}

    def put(self) -> None:
        changes: Changes = {
            self.dice.randrange(40): f"v{self._tick()}",
            self.dice.randrange(40): None,
        }
        for name, rows in self._rows.items():
            put(self._engine, f"{self._folder}/{name}", self._ts, changes)
            self._rows[name] = changed(rows, changes)

    def drop(self) -> None:
        if "a" in self._rows:
            self._kept = self._rows.pop("a")
            self._twice(partial(drop, self._engine, self._folder, self._tick()))

    def create(self) -> None:
        if "a" not in self._rows:
            self._rows["a"] = {}
            create(named(f"{self._folder}/a"), properties=origin(self._tick()))

    def truncate(self) -> None:
        if "a" in self._rows:
            self._rows["a"], self._kept = {}, None
            ddl = replace(identity(self._tick()), query="TRUNCATE TABLE a")
            order = table_ddl(target=named(f"{self._folder}/a"), ddl=ddl, empties=True)
            self._twice(partial(self._engine.alter, order))

    def recover(self) -> None:
        name = self.dice.choice("ac")
        deed = partial(recovered, self._engine, self._folder, name, self._tick())
        if self._kept is None or name in self._rows:
            with pytest.raises(TidelakeError):
                deed()
            return
        self._rows[name] = self._kept
        self._twice(deed)

    def _tick(self) -> int:
        self._ts += 10
        return self._ts

    def _twice(self, deed: Callable[[], object]) -> None:
        deed()
        deed()


class TestOnce:
    @pytest.mark.parametrize("name", ["a", "c"])
    def test_a_replay_changes_nothing(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, folder: str, name: str
    ) -> None:
        drop(engine, folder)
        recovered(engine, folder, name)
        put(engine, f"{folder}/{name}", C + 11, MORE)
        before, at = contents(folder), versions(folder)
        for each in (engine, other):
            assert isinstance(recovered(each, folder, name), Skipped)
            assert isinstance(put(each, f"{folder}/{name}", C + 9, {1: "late"}), Skipped)
            drop(each, folder)
        assert (contents(folder), versions(folder)) == (before, at)
        assert is_recovered(inspect(f"{folder}/{name}", {}), identity())
        assert not is_recovered(inspect(f"{folder}/b", {}), identity())

    @pytest.mark.parametrize("name", ["a", "c"])
    def test_a_zombie_wakes_when_its_successor_went_on(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, folder: str, name: str
    ) -> None:
        before = contents(folder)["a"]
        drop(engine, folder)
        uri = f"{folder}/{name}"

        def meanwhile(_path: str) -> None:
            recovered(other, folder, name)
            put(other, uri, C + 15, MORE)

        faulty(engine, uri).before = once(meanwhile)
        assert isinstance(recovered(engine, folder, name), Skipped)
        assert contents(folder)[name] == changed(before, MORE)

    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("name", ["a", "c"])
    def test_it_dies_at_its_put(
        self,
        engine: MergeOnWriteEngine,
        other: MergeOnWriteEngine,
        folder: str,
        name: str,
        when: str,
    ) -> None:
        before = contents(folder)["a"]
        drop(engine, folder)
        setattr(faulty(engine, f"{folder}/{name}"), when, once(failing(KeyboardInterrupt())))
        with pytest.raises(KeyboardInterrupt):
            recovered(engine, folder, name)
        tidied(folder)
        recovered(other, folder, name)
        put(other, f"{folder}/{name}", C + 11, MORE)
        assert isinstance(recovered(engine, folder, name), Skipped)
        assert contents(folder)[name] == changed(before, MORE)

    def test_a_new_incarnation_begins_at_the_ddl(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, folder: str
    ) -> None:
        """It was rewound to below the DROP TABLE, which comes again."""
        before = contents(folder)["a"]
        drop(engine, folder)
        recovered(engine, folder)
        old, new = named(f"{folder}/a"), named(f"{folder}/a", incarnation=2)
        seal(old.uri, [old.app_id], new.app_id, lambda _: Ts(4), {})
        assert state_of(DeltaTable(old.uri)).begun_ts == C + 10
        assert isinstance(recovered(other, folder, incarnation=2), Skipped)
        assert contents(folder)["a"] == before


class TestRefused:
    def refused(self, engine: MergeOnWriteEngine, folder: str, why: str, name: str = "c") -> None:
        before = versions(folder)
        with pytest.raises(TidelakeError, match=why) as refusal:
            recovered(engine, folder, name)
        assert "\n" not in str(refusal.value)
        assert versions(folder) == before

    def test_a_table_that_was_never_dropped(self, engine: MergeOnWriteEngine, folder: str) -> None:
        self.refused(engine, folder, "no DROP TABLE of shop.a was carried out here")
        shutil.rmtree(f"{folder}/a")
        self.refused(engine, folder, "CREATE TABLE makes it without the rows")

    def test_rows_that_were_not_kept(self, engine: MergeOnWriteEngine, folder: str) -> None:
        drop(engine, folder, on_drop="drop")
        self.refused(engine, folder, "were not kept .*there is no table .*a~dropped-100")

    def test_kept_rows_that_somebody_has_deleted(
        self, engine: MergeOnWriteEngine, folder: str
    ) -> None:
        drop(engine, folder)
        next(Path(folder, "a").glob("*.parquet")).unlink()
        self.refused(engine, folder, "the rows of shop.c are gone: .*parquet, which was kept")

    def test_vectors_that_somebody_has_deleted(
        self, engine: MergeOnWriteEngine, folder: str
    ) -> None:
        drop(engine, folder)
        for path in Path(folder, "a").glob("*.bin"):
            path.unlink()
        self.refused(engine, folder, "the rows of shop.c are gone: .*bin, which was kept")

    @pytest.mark.parametrize("empties", [True, False])
    def test_rows_that_a_later_ddl_took_away(
        self, engine: MergeOnWriteEngine, folder: str, empties: bool
    ) -> None:
        """Or one that was skipped: it may have dropped the table."""
        drop(engine, folder)
        create(named(f"{folder}/a"), properties=origin(C + 2))
        late = DdlIdentity(commit_ts=Ts(C + 4), order=0, query="…")
        engine.alter(table_ddl(target=named(f"{folder}/a"), ddl=late, empties=empties))
        self.refused(engine, folder, "at commit-ts 104 truncated shop.a, or was skipped")

    def test_a_table_that_has_left_its_name(self, engine: MergeOnWriteEngine, folder: str) -> None:
        rename(engine, order(folder, {"a": "d"}))
        self.refused(engine, folder, "was no DROP TABLE but RENAME TABLE")

    def test_a_name_that_is_taken(self, engine: MergeOnWriteEngine, folder: str) -> None:
        drop(engine, folder)
        self.refused(engine, folder, "no DROP TABLE of shop.b was carried out", "b")

    def test_a_table_that_is_paused_waits(self, engine: MergeOnWriteEngine, folder: str) -> None:
        before = contents(folder)["a"]
        drop(engine, folder)
        set_paused(f"{folder}/a", {}, paused=True)
        with pytest.raises(TableHeld):
            recovered(engine, folder)
        set_paused(f"{folder}/a", {}, paused=False)
        recovered(engine, folder)
        assert contents(folder)["a"] == before


def faulty(engine: MergeOnWriteEngine, uri: str) -> FaultyStorage:
    table = engine.table(uri)
    storage = FaultyStorage(table.storage)
    table.storage = storage
    return storage
