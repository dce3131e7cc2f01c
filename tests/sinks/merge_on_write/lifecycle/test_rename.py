"""RENAME TABLE: the rows have the new name, once, whoever tries it again, late, or dies at it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from coordination.errors import TidelakeError
from coordination.model import Ts
from sinks.merge_on_write.alter.dropped_rows import kept_uri
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.merge_on_write.lifecycle.rename import rename
from sinks.merge_on_write.log.checkpoint_writer import write_checkpoint
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.upkeep.clean_up import clean_files, clean_log
from sinks.merge_on_write.upkeep.fold import fold
from sinks.storage.local_storage import LocalStorage
from sinks.target.engine_port import Applied, Skipped
from sinks.target.table_properties import DdlIdentity
from sinks.target.target_table import seal, state_of
from tests.services.delta_rows import read_rows
from tests.services.s3_server import S3Server
from tests.sinks.merge_on_write.ddls import C, assert_in_memory, set_property
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage, once
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl
from tests.sinks.merge_on_write.orders import Changes, changed
from tests.sinks.merge_on_write.renames import (
    ORDERS,
    USERS,
    contents,
    named,
    order,
    origin,
    put,
    put_users,
    two_tables,
    versions,
)

DAY_MS = 24 * 3600 * 1000
SWAP = {"a": "b", "b": "a"}
MORE: Changes = {0: "new", 12: None, 23: "new", 99: "new"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    return two_tables(tmp_path_factory.mktemp("rename") / "shop")


@pytest.fixture
def folder(template: str, tmp_path: Path) -> str:
    return str(shutil.copytree(template, tmp_path / "a shop~41 é"))


def tidied(folder: str) -> None:
    """All goes that no newest version needs, as long after as one likes."""
    later = int(time.time() * 1000) + 9999 * DAY_MS
    for path in Path(folder).iterdir():
        for old in path.rglob("*"):
            os.utime(old, (0, 0))
        storage = LocalStorage(str(path))
        state = read_log(storage)
        assert state is not None
        write_checkpoint(storage, state, now_ms=later)
        clean_log(storage, state, now_ms=later, retention_ms=0)
    cleaned(folder)


def cleaned(folder: str) -> None:
    """The same of files; the log stays as long as a rename is under way, by its retention."""
    later = int(time.time() * 1000) + 9999 * DAY_MS
    for path in Path(folder).iterdir():
        storage = LocalStorage(str(path))
        if (state := read_log(storage)) is not None:
            clean_files(storage, state, now_ms=later, retention_ms=0, orphans=True)


def rows_on_s3(uri: str, options: dict[str, str]) -> dict[int, str]:
    table = DeltaTable(uri, storage_options=options)
    batches = QueryBuilder().register("t", table).execute("SELECT id, v FROM t").read_all()
    return dict(tuple(row.values()) for row in pa.table(batches).to_pylist())


class TestRename:
    def test_the_rows_are_under_the_new_name_and_go_on(
        self, engine: MergeOnWriteEngine, folder: str
    ) -> None:
        before = contents(folder)
        rename(engine, order(folder, {"a": "c"}))
        assert contents(folder) == {"c": before["a"], "b": before["b"]}
        state = state_of(DeltaTable(f"{folder}/a"))
        assert state.is_dropped
        uri = f"{folder}/c"
        state = state_of(DeltaTable(uri))
        assert not state.is_dropped
        assert (state.schema, state.identity(named(uri).app_id)) == (ORDERS, Ts(C - 1))
        assert put(engine, uri, C, MORE) == Applied(1)
        assert_in_memory(engine, uri)
        after = changed(before["a"], MORE)
        assert contents(folder) == {"c": after, "b": before["b"]}
        tidied(folder)
        assert contents(folder) == {"c": after, "b": before["b"]}

    def test_it_is_folded_like_any_other(self, engine: MergeOnWriteEngine, folder: str) -> None:
        rename(engine, order(folder, {"a": "c"}))
        uri = f"{folder}/c"
        for at in range(C, C + 6):
            put(engine, uri, at, {at: "x"})
        before = contents(folder)
        while fold(engine.table(uri), ("id",)) is not None:
            assert contents(folder) == before
        assert len(engine.table(uri).files) < 6
        tidied(folder)
        assert contents(folder) == before
        assert put(engine, uri, C + 9, {0: "last", 3: None}) == Applied(DeltaTable(uri).version())
        assert contents(folder)["c"] == changed(before["c"], {0: "last", 3: None})

    def test_a_cut_from_before_is_read_where_it_was(
        self, engine: MergeOnWriteEngine, folder: str
    ) -> None:
        before = contents(folder)["a"]
        rename(engine, order(folder, {"a": "c"}))
        put(engine, f"{folder}/c", C, MORE)
        assert {row["id"]: row["v"] for row in read_rows(f"{folder}/a", version=4)} == before

    def test_into_another_database(self, engine: MergeOnWriteEngine, folder: str) -> None:
        before = contents(folder)["a"]
        rename(engine, order(folder, {"a": "../another/c"}))
        assert contents(f"{folder}/../another") == {"c": before}

    @pytest.mark.parametrize(
        "names", [SWAP, {"b": "a", "a": "b"}, {"b": "c", "a": "b"}, {"a": "b", "b": "c"}]
    )
    def test_a_name_is_taken_that_is_left_by_the_same_statement(
        self, engine: MergeOnWriteEngine, folder: str, names: dict[str, str]
    ) -> None:
        before = contents(folder)
        rename(engine, order(folder, names))
        wanted = {new: before[old] for old, new in names.items()}
        assert contents(folder) == wanted
        tidied(folder)
        orders, users = f"{folder}/{names['a']}", f"{folder}/{names['b']}"
        assert isinstance(put(engine, orders, C, MORE), Applied)
        assert isinstance(put_users(engine, users, C, {"b1": -1, "z": 3}), Applied)
        for uri in (orders, users):
            assert_in_memory(engine, uri)
        assert contents(folder) == {
            names["a"]: changed(before["a"], MORE),
            names["b"]: {**before["b"], "b1": -1, "z": 3},
        }

    def test_again_and_again_and_home(self, engine: MergeOnWriteEngine, folder: str) -> None:
        """Each name keeps its log, and files may be named by several."""
        before = contents(folder)
        wanted = before["a"]
        steps = [{"a": "c"}, {"c": "d"}, {"d": "a"}, {"a": "c"}, {"c": "a"}]
        for number, names in enumerate(steps):
            at = C + 10 * number
            rename(engine, order(folder, names, at))
            uri = f"{folder}/{next(iter(names.values()))}"
            changes: Changes = {number: None, 10: f"{number}", 100 + number: "new"}
            assert isinstance(put(engine, uri, at + 1, changes), Applied)
            wanted = changed(wanted, changes)
            tidied(folder)
            assert contents(folder) == {Path(uri).name: wanted, "b": before["b"]}

    def test_a_dropped_table_makes_room(self, engine: MergeOnWriteEngine, folder: str) -> None:
        before = contents(folder)
        gone = DdlIdentity(commit_ts=Ts(C - 9), order=0, query="DROP TABLE b")
        engine.alter(table_ddl(target=named(f"{folder}/b", USERS), ddl=gone, on_drop="keep"))
        log_id = DeltaTable(f"{folder}/b").metadata().id
        rename(engine, order(folder, {"a": "b"}))
        assert DeltaTable(f"{folder}/b").metadata().id == log_id
        tidied(folder)
        kept = Path(kept_uri(f"{folder}/b", gone)).name
        assert contents(folder) == {"b": before["a"], kept: before["b"]}

    def test_the_old_name_is_made_again(self, engine: MergeOnWriteEngine, folder: str) -> None:
        before = contents(folder)
        rename(engine, order(folder, {"a": "c"}))
        again = named(f"{folder}/a", USERS)
        create(again, properties=origin(C + 2))
        put_users(engine, again.uri, C + 3, {"x": 1})
        rename(engine, order(folder, {"a": "c"}))
        assert contents(folder) == {"a": {"x": 1}, "b": before["b"], "c": before["a"]}

    def test_on_s3(self, s3: S3Server) -> None:
        folder, options = f"s3://{s3.bucket}/{uuid4()}", s3.options
        two_tables(folder, options)
        before = rows_on_s3(f"{folder}/a", options)
        engine = MergeOnWriteEngine(options, keeps_up=False)
        rename(engine, order(folder, SWAP))
        put(engine, f"{folder}/b", C, MORE)
        engine.close()
        assert rows_on_s3(f"{folder}/b", options) == changed(before, MORE)

    def test_an_empty_table_has_its_shape(self, engine: MergeOnWriteEngine, folder: str) -> None:
        create(named(f"{folder}/empty"), properties=origin(5))
        rename(engine, order(folder, {"empty": "full"}))
        put(engine, f"{folder}/full", C, {1: "x"})
        assert contents(folder)["full"] == {1: "x"}


class TestOnce:
    def test_a_replay_changes_nothing(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, folder: str
    ) -> None:
        rename(engine, order(folder, SWAP))
        put(engine, f"{folder}/b", C, MORE)
        before, at = contents(folder), versions(folder)
        for each in (engine, other):
            rename(each, order(folder, SWAP))
        assert (contents(folder), versions(folder)) == (before, at)

    def test_rows_from_below_come_too_late(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, folder: str
    ) -> None:
        other.table(f"{folder}/a").refresh()
        rename(engine, order(folder, {"a": "c"}))
        for uri in (f"{folder}/a", f"{folder}/c"):
            assert isinstance(put(other, uri, C - 1, MORE), Skipped)

    @pytest.mark.parametrize("names", [{"a": "c"}, SWAP])
    def test_a_fold_and_late_rows_come_between(
        self,
        engine: MergeOnWriteEngine,
        other: MergeOnWriteEngine,
        folder: str,
        names: dict[str, str],
    ) -> None:
        late = range(C - 8, C)

        def meanwhile(_path: str) -> None:
            for at in late:
                put(other, f"{folder}/a", at, {at: "late"})
            assert fold(other.table(f"{folder}/a"), ("id",)) is not None

        before = contents(folder)
        faulty(engine, f"{folder}/a").before = once(meanwhile)
        rename(engine, order(folder, names))
        tidied(folder)
        assert contents(folder)[names["a"]] == changed(before["a"], {at: "late" for at in late})

    @pytest.mark.parametrize("put_at", [1, 2, 3, 4])
    @pytest.mark.parametrize("names", [{"a": "c"}, SWAP, {"a": "b", "b": "c"}])
    def test_a_zombie_wakes_when_its_successor_went_on(
        self,
        engine: MergeOnWriteEngine,
        other: MergeOnWriteEngine,
        folder: str,
        names: dict[str, str],
        put_at: int,
    ) -> None:
        """At each of its commits."""
        before = contents(folder)

        def meanwhile() -> None:
            rename(other, order(folder, names))
            put(other, f"{folder}/{names['a']}", C + 5, MORE)

        at_put(engine, folder, put_at, meanwhile)
        rename(engine, order(folder, names))
        tidied(folder)
        found = contents(folder)[names["a"]]
        assert found == (changed(before["a"], MORE) if put_at <= 2 * len(names) else before["a"])

    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("put_at", [1, 2, 3, 4])
    def test_it_dies_at_a_put(
        self,
        engine: MergeOnWriteEngine,
        other: MergeOnWriteEngine,
        folder: str,
        put_at: int,
        when: str,
    ) -> None:
        before = contents(folder)
        at_put(engine, folder, put_at, lambda: _raise(KeyboardInterrupt()), when)
        with pytest.raises(KeyboardInterrupt):
            rename(engine, order(folder, SWAP))
        cleaned(folder)
        rename(other, order(folder, SWAP))
        assert contents(folder) == {"a": before["b"], "b": before["a"]}
        rename(engine, order(folder, SWAP))
        assert isinstance(put(engine, f"{folder}/b", C, MORE), Applied)
        assert contents(folder)["b"] == changed(before["a"], MORE)

    def test_a_new_incarnation_finishes_what_another_has_begun(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, folder: str
    ) -> None:
        """It begins below the DDL, and writes what it reads there to the name that was left."""
        before = contents(folder)
        at_put(engine, folder, 4, lambda: _raise(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            rename(engine, order(folder, SWAP))
        for table, schema in (("a", ORDERS), ("b", USERS)):
            target = named(f"{folder}/{table}", schema)
            new = named(f"{folder}/{table}", schema, incarnation=2)
            seal(target.uri, [target.app_id], new.app_id, lambda _: Ts(4), {})
        rename(other, order(folder, SWAP, incarnation=2))
        assert contents(folder) == {"a": before["b"], "b": before["a"]}

    def test_a_left_version_that_is_gone_is_told(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, folder: str
    ) -> None:
        at_put(engine, folder, 2, lambda: _raise(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            rename(engine, order(folder, {"a": "c"}))
        uri = f"{folder}/a"
        set_property(uri, "tidelake.left", json.dumps([C + 1, 4]))
        with pytest.raises(TidelakeError, match="is no longer at"):
            rename(other, order(folder, {"a": "c"}))


def at_put(
    engine: MergeOnWriteEngine,
    folder: str,
    number: int,
    does: Callable[[], None],
    when: str = "before",
) -> None:
    """At the so-manieth commit of all that the engine makes."""
    count = iter(range(1, 99))

    def hook(path: str) -> None:
        if path.endswith(".json") and next(count) == number:
            does()

    for name in ("a", "b", "c"):
        setattr(faulty(engine, f"{folder}/{name}"), when, hook)


def faulty(engine: MergeOnWriteEngine, uri: str) -> FaultyStorage:
    table = engine.table(uri)
    storage = FaultyStorage(table.storage)
    table.storage = storage
    return storage


def _raise(error: BaseException) -> None:
    raise error
