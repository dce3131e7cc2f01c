"""A DDL takes effect once and in its place, whoever tries it again, late, or dies at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from coordination.errors import Fenced
from coordination.model import SEALED_TS, Ts
from sinks.ddl.schema_change import SchemaChange
from sinks.merge_on_write.alter.table_ddl import AlterTable, TableDdl
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.spark.merge_engine import SparkEngine
from sinks.storage.local_storage import LocalStorage
from sinks.target.engine_port import Applied, Skipped, TableAltered
from sinks.target.target_table import seal
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.altering import column
from tests.sinks.merge_on_write.ddls import (
    ADD_FILLED,
    ADD_N,
    ID,
    C,
    V,
    assert_in_memory,
    change,
    ddl,
    names_of,
    orphans,
    rows,
    truncate,
)
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage, failing, once
from tests.sinks.merge_on_write.orders import UPSERTED, changed, rows_of, target, write


class TestIdentity:
    @pytest.mark.parametrize("does", [ADD_N, ADD_FILLED, change(ID), None])
    def test_a_replay_changes_nothing(
        self,
        engine: MergeOnWriteEngine,
        other: MergeOnWriteEngine,
        uri: str,
        does: SchemaChange | None,
    ) -> None:
        order = ddl(uri, does, empties=does is None)
        assert engine.alter(order) == Applied(13)
        for each in (engine, other):
            assert each.alter(order) == Skipped(13, Ts(C - 1))
        schema = target(uri).schema if does is None else does.after
        engine.apply(rows(uri, C, schema, {"id": 1, "v": "x"}))  # of the DDL's own ts
        assert other.alter(order) == Skipped(14, Ts(C))
        assert 1 in {row["id"] for row in read_rows(uri)}

    def test_an_older_ddl_comes_too_late(self, engine: MergeOnWriteEngine, uri: str) -> None:
        engine.alter(ddl(uri, ADD_N, order=1))
        for late in (ddl(uri, change(ID)), truncate(uri), truncate(uri, C - 1)):
            assert engine.alter(late) == Skipped(13, Ts(C - 1))
        assert isinstance(engine.alter(ddl(uri, None, order=2, empties=True)), Applied)

    def test_late_rows_from_below_come_too_late(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, uri: str
    ) -> None:
        other.alter(truncate(uri))
        assert isinstance(engine.apply(write(uri, C - 1, UPSERTED)), Skipped)
        assert rows_of(uri) == {}

    def test_a_ddl_of_the_very_ts_at_which_a_feed_ended_takes_no_identity_back(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, uri: str
    ) -> None:
        """It came after the last rows; a zombie's write of those may still wake up."""
        engine.apply(write(uri, C, UPSERTED))
        assert isinstance(other.alter(truncate(uri)), Applied)
        assert engine.apply(write(uri, C, UPSERTED)) == Skipped(14, Ts(C))
        assert rows_of(uri) == {}

    @pytest.mark.parametrize("of", [MergeOnWriteEngine, SparkEngine])
    def test_who_knew_the_table_before_sees_that_a_ddl_has_run(
        self, engine: MergeOnWriteEngine, uri: str, of: type[MergeOnWriteEngine | SparkEngine]
    ) -> None:
        before, looking = replace(target(uri), shaped_by=""), of({})
        looking.check_shape(before)
        engine.alter(ddl(uri, ADD_N))
        with pytest.raises(TableAltered):
            looking.check_shape(before)
        looking.check_shape(target(uri))  # who did not look at its shape does not mind

    def test_nothing_of_a_sealed_writer_counts(self, engine: MergeOnWriteEngine, uri: str) -> None:
        old = target(uri).app_id
        seal(uri, [old], f"{old}-new", lambda reached: reached, {})
        for order in (ddl(uri, ADD_N), truncate(uri)):
            assert engine.alter(order) == Skipped(13, SEALED_TS)

    def test_a_rewound_table_is_emptied_again_and_keeps_its_newer_shape(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        """Its rows come again from below the TRUNCATE; the columns that came later are there."""
        engine.alter(truncate(uri))
        engine.alter(ddl(uri, ADD_N, C + 1))
        old, new = target(uri).app_id, f"{target(uri).app_id}-new"
        seal(uri, [old], new, lambda _: Ts(50), {})
        again = replace(target(uri), schema=ADD_N.after, app_id=new)
        engine.apply(replace(rows(uri, 60, ADD_N.after, {"id": 1}), target=again))
        assert isinstance(engine.alter(replace(truncate(uri), target=again)), Applied)
        assert read_rows(uri) == []
        assert isinstance(engine.alter(replace(truncate(uri), target=again)), Skipped)
        order = replace(ddl(uri, ADD_N, C + 1), target=again)
        assert isinstance(engine.alter(order), Skipped)
        assert names_of(uri) == ["id", "v", "n"]

    def test_a_ddl_that_is_skipped_by_hand_comes_too_late_afterwards(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        before = rows_of(uri)
        assert isinstance(engine.alter(ddl(uri, None)), Applied)
        assert isinstance(engine.alter(truncate(uri)), Skipped)
        assert isinstance(engine.alter(ddl(uri, ADD_N)), Skipped)
        assert rows_of(uri) == before


DEEDS: dict[str, Callable[[str], TableDdl]] = {
    "add": lambda uri: ddl(uri, ADD_N),
    "fill": lambda uri: ddl(uri, ADD_FILLED),
    "retype": lambda uri: ddl(uri, change(column("id", "varchar(20)"), V)),
    "truncate": truncate,
}


class TestRaces:
    @pytest.mark.parametrize("deed", DEEDS)
    def test_rows_of_another_writer_come_between(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, uri: str, deed: str
    ) -> None:
        """Of one who is as far: they are below the DDL, and take part in it."""
        table = engine.table(uri)
        faulty = FaultyStorage(table.storage)
        faulty.before = once(lambda _path: other.apply(write(uri, C - 1, UPSERTED)))
        table.storage = faulty
        wanted = {} if deed == "truncate" else changed(rows_of(uri), UPSERTED)
        assert engine.alter(DEEDS[deed](uri)) == Applied(14)
        assert {int(row["id"]): row["v"] for row in read_rows(uri)} == wanted
        assert_in_memory(engine, uri)
        assert orphans(uri) == set()

    @pytest.mark.parametrize("deed", DEEDS)
    def test_a_zombie_wakes_at_its_put_when_its_successor_went_on(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, uri: str, deed: str
    ) -> None:
        order = DEEDS[deed](uri)
        schema = order.change.after if isinstance(order, AlterTable) else target(uri).schema

        def meanwhile(_path: str) -> None:
            other.alter(order)
            id_ = "1" if deed == "retype" else 1
            other.apply(rows(uri, C + 5, schema, {"id": id_, "v": "successor's"}))

        table = engine.table(uri)
        faulty = FaultyStorage(table.storage)
        faulty.before = once(meanwhile)
        table.storage = faulty
        assert engine.alter(order) == Skipped(14, Ts(C + 5))
        found = {int(row["id"]): row["v"] for row in read_rows(uri)}
        assert found[1] == "successor's"
        assert orphans(uri) == set()

    @pytest.mark.parametrize("deed", DEEDS)
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_storage_fails_at_the_put(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, uri: str, deed: str, when: str
    ) -> None:
        """Whether it was made or not: it is carried out once, by whoever comes."""
        order = DEEDS[deed](uri)
        table = engine.table(uri)
        faulty = FaultyStorage(table.storage)
        setattr(faulty, when, once(failing(KeyboardInterrupt())))
        table.storage = faulty
        with pytest.raises(KeyboardInterrupt):
            engine.alter(order)
        outcome = other.alter(order)
        assert outcome == (Applied(13) if when == "before" else Skipped(13, Ts(C - 1)))
        assert engine.alter(order) == Skipped(13, Ts(C - 1))
        assert_in_memory(engine, uri)

    def test_one_who_is_no_longer_trusted_leaves_nothing(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        def fence() -> None:
            raise Fenced("lost")

        with pytest.raises(Fenced):
            engine.alter(ddl(uri, ADD_FILLED, before_commit=fence))
        assert DeltaTable(uri).version() == 12
        assert orphans(uri) == set()

    def test_that_its_files_cannot_be_deleted_does_not_hide_why(
        self, engine: MergeOnWriteEngine, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Or one who lost its term would try again, as for storage that is away."""

        def fence() -> None:
            raise Fenced("lost")

        monkeypatch.setattr(LocalStorage, "delete", failing_deletes)
        with pytest.raises(Fenced):
            engine.alter(ddl(uri, ADD_FILLED, before_commit=fence))
        assert DeltaTable(uri).version() == 12


def failing_deletes(_storage: LocalStorage, _paths: object) -> None:
    raise OSError("503 Slow Down")
