"""What one DDL does to a table: to the small one of orders, whose rows are in twelve files with
vectors."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from coordination.errors import TidelakeError
from sinks.merge_on_write.alter.table_ddl import AlterTable
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log.pause import set_paused
from sinks.merge_on_write.log.physical_schema import NotForThisEngine
from sinks.merge_on_write.upkeep.fold import fold
from sinks.target.engine_port import Applied, TableHeld
from sinks.target.target_table import inspect, state_of
from sinks.types.table_schema import CURRENT_TIMESTAMP, TableSchema
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.altering import column
from tests.sinks.merge_on_write.ddls import (
    ADD_FILLED,
    ADD_N,
    ID,
    C,
    V,
    action,
    assert_in_memory,
    change,
    comment_on,
    ddl,
    fields_of,
    last_commit,
    orphans,
    rows,
    set_property,
    statistics_of,
)
from tests.sinks.merge_on_write.orders import changed, rows_of


class TestMetadataOnly:
    def test_an_added_column_costs_one_small_commit_and_no_read(
        self, engine: MergeOnWriteEngine, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = rows_of(uri)
        table = engine.table(uri)
        opened: list[str] = []
        read_input = table.storage.open_input
        monkeypatch.setattr(
            table.storage, "open_input", lambda path: opened.append(path) or read_input(path)
        )
        assert engine.alter(ddl(uri, ADD_N)) == Applied(13)
        assert not opened
        assert [next(iter(each)) for each in last_commit(uri)] == ["commitInfo", "txn", "metaData"]
        assert read_rows(uri)[0].keys() == {"id", "v", "n"}
        assert {row["id"]: row["v"] for row in read_rows(uri) if row["n"] is None} == before

    def test_what_is_not_the_columns_stays(self, engine: MergeOnWriteEngine, uri: str) -> None:
        table = engine.table(uri)
        table.refresh()
        metadata = table.state.metadata
        assert metadata is not None
        set_property(uri, "user.note", "stays")
        comment_on(uri, "v", "a note")
        engine.alter(ddl(uri, change(column("w", "varchar(20)"), ID, renamed={"w": "v"})))
        found = action(uri, "metaData")
        for name in ("id", "createdTime", "format", "partitionColumns"):
            assert found[name] == metadata.fields[name]
        assert found["configuration"]["user.note"] == "stays"
        w, _ = json.loads(found["schemaString"])["fields"]
        assert (w["name"], w["metadata"]["comment"]) == ("w", "a note")

    def test_statistics_follow_renames_and_drops(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        first = change(ID, column("a`b", "int"), column("d", "decimal(9,2)"))
        engine.alter(ddl(uri, first))
        assert statistics_of(uri) == "`id`,`a``b`"
        key, c = column("key", "bigint"), column("c", "int")
        second = change(key, c, key=("key",), before=first.after)
        second = replace(second, sources={"key": "id", "c": "a`b"})
        engine.alter(ddl(uri, second, C + 1))
        assert statistics_of(uri) == "`key`,`c`"

    def test_a_name_that_comes_again_is_another_column(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        dropped = change(ID)
        engine.alter(ddl(uri, dropped))
        engine.alter(ddl(uri, change(ID, V, before=dropped.after), C + 1))
        assert {row["v"] for row in read_rows(uri)} == {None}
        fields = {each["name"]: each["metadata"] for each in fields_of(uri)}
        assert fields["v"]["delta.columnMapping.id"] == 3
        settings = action(uri, "metaData")["configuration"]
        assert settings["delta.columnMapping.maxColumnId"] == "3"

    def test_the_first_datetime_needs_a_feature_once(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        one = change(ID, V, column("at", "datetime"))
        engine.alter(ddl(uri, one))
        protocol = action(uri, "protocol")
        assert "timestampNtz" in protocol["readerFeatures"]
        assert "timestampNtz" in protocol["writerFeatures"]
        two = change(*one.after.columns, column("till", "datetime"), before=one.after)
        engine.alter(ddl(uri, two, C + 1))
        assert action(uri, "protocol") == []
        assert read_rows(uri)[0].keys() == {"id", "v", "at", "till"}

    def test_definitions_and_identity_stand_in_the_properties(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        order = ddl(uri, change(column("ID", "bigint"), V, key=("ID",), renamed={"ID": "id"}))
        engine.alter(order)
        state = state_of(DeltaTable(uri))
        assert isinstance(order, AlterTable)
        assert state.schema == order.change.after
        assert state.properties["tidelake.key"] == '["ID"]'
        assert state.properties["tidelake.altered"] == order.ddl.to_json()
        assert state.identity(order.target.app_id) == C - 1

    def test_upserts_and_folds_go_on_over_files_of_every_shape(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        before = rows_of(uri)
        engine.alter(ddl(uri, ADD_N))
        schema = ADD_N.after
        engine.apply(rows(uri, C, schema, {"id": 1, "v": "x", "n": 5}, {"id": 500, "v": "y"}))
        while fold(engine.table(uri), ("id",)) is not None:
            pass
        engine.apply(rows(uri, C + 1, schema, {"id": 115, "v": "z", "n": 6}))
        assert rows_of(uri) == changed(before, {1: "x", 500: "y", 115: "z"})
        assert {row["id"]: row["n"] for row in read_rows(uri) if row["n"]} == {1: 5, 115: 6}

    def test_upkeep_that_knows_an_old_key_leaves_the_table(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        """Its thread, or another process, has not heard of the DDL yet."""
        key = column("key", "bigint")
        engine.alter(ddl(uri, change(key, V, key=("key",), renamed={"key": "id"})))
        assert fold(engine.table(uri), ("id",)) is None
        assert fold(engine.table(uri), ("key",)) is not None
        keyless = change(key, V, key=(), before=change(key, V, key=("key",)).after)
        engine.alter(ddl(uri, keyless, C + 1))
        assert fold(engine.table(uri), ()) is None

    def test_clustering_follows_drops(self, engine: MergeOnWriteEngine, uri: str) -> None:
        table = engine.table(uri)
        table.refresh()
        physical = [each.physical for each in table.shape.columns]
        told = json.dumps({"clusteringColumns": [[name] for name in physical]})
        domain = {"domain": "delta.clustering", "configuration": told, "removed": False}
        table.commit(12, [{"domainMetadata": domain}], operation="TEST", user_metadata="")
        engine.alter(ddl(uri, ADD_N))
        assert action(uri, "domainMetadata") == []
        engine.alter(ddl(uri, change(ID, before=ADD_N.after), C + 1))
        left = json.loads(action(uri, "domainMetadata")["configuration"])
        assert left == {"clusteringColumns": [[physical[0]]]}


class TestRewrites:
    def test_an_added_column_with_a_default_shows_it_in_old_rows(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        before = rows_of(uri)
        engine.alter(ddl(uri, ADD_FILLED))
        assert rows_of(uri) == before
        assert {row["n"] for row in read_rows(uri)} == {7}
        assert_in_memory(engine, uri)

    def test_or_it_shows_none_where_that_is_wished(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        engine.alter(ddl(uri, ADD_FILLED, on_add_default="null"))
        assert {row["n"] for row in read_rows(uri)} == {None}
        assert action(uri, "add") == []

    def test_the_time_of_the_ddl_as_a_default(self, engine: MergeOnWriteEngine, uri: str) -> None:
        at = column("at", "timestamp(3)")
        does = change(ID, V, at, fills={"at": CURRENT_TIMESTAMP})
        engine.alter(ddl(uri, does, 1_700_000_000_123 << 18))
        (found,) = {row["at"] for row in read_rows(uri)}
        assert found.isoformat() == "2023-11-14T22:13:20.123000+00:00"

    def test_a_changed_key_finds_its_rows(self, engine: MergeOnWriteEngine, uri: str) -> None:
        engine.alter(ddl(uri, change(ID, column("v", "varbinary(20)"), key=("v", "id"))))
        schema = TableSchema(columns=(ID, column("v", "varbinary(20)")), key=("v", "id"))
        rows_before = len(read_rows(uri))
        engine.apply(rows(uri, C, schema, {"id": 115, "v": b"old"}, {"id": 114, "v": b"new"}))
        assert len(read_rows(uri)) == rows_before + 2

    def test_only_a_key_that_tells_rows_apart_otherwise_ends_rewinds(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        def rekeyed() -> int:
            found = inspect(uri, {})
            assert found is not None
            return found.rekeyed_ts

        wider = change(column("id", "bigint"), V, key=("id",))
        engine.alter(ddl(uri, wider))
        renamed = change(
            column("no", "bigint"), V, key=("no",), renamed={"no": "id"}, before=wider.after
        )
        engine.alter(ddl(uri, renamed, C + 1))
        assert rekeyed() == 0
        both = change(column("no", "bigint"), V, key=("v", "no"), before=renamed.after)
        engine.alter(ddl(uri, both, C + 2))
        assert rekeyed() == C + 2

    def test_a_key_that_is_not_unique_or_null_is_refused_by_name(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        with pytest.raises(TidelakeError, match=r"key becomes \(v\), and two rows have \('old'\)"):
            engine.alter(ddl(uri, change(ID, V, key=("v",))))
        added = change(ID, V, column("n", "int"), key=("n",))
        with pytest.raises(TidelakeError, match=r"shop\.orders: .*\(n\), and some rows have NULL"):
            engine.alter(ddl(uri, added))
        assert DeltaTable(uri).version() == 12
        assert orphans(uri) == set()

    def test_a_key_that_goes_is_metadata(self, engine: MergeOnWriteEngine, uri: str) -> None:
        engine.alter(ddl(uri, change(ID, V, key=())))
        assert action(uri, "add") == []
        engine.alter(ddl(uri, change(column("id", "int"), V, key=()), C + 1))
        assert len(read_rows(uri)) == 44

    def test_a_value_that_has_no_place_is_named(self, engine: MergeOnWriteEngine, uri: str) -> None:
        with pytest.raises(TidelakeError, match=r"shop\.orders: column v: its value 'old' .* int"):
            engine.alter(ddl(uri, change(ID, column("v", "int"))))
        with pytest.raises(TidelakeError, match=r"shop\.orders: column n: the default 'x' .* int"):
            engine.alter(ddl(uri, replace(ADD_FILLED, fills={"n": "x"})))
        assert DeltaTable(uri).version() == 12
        assert orphans(uri) == set()

    def test_a_changed_type_may_stop(self, engine: MergeOnWriteEngine, uri: str) -> None:
        order = ddl(uri, change(column("id", "int"), V), on_type_change="stop")
        with pytest.raises(TidelakeError, match=r"shop\.orders: the type of id changes"):
            engine.alter(order)

    def test_slices_are_bounded(
        self, engine: MergeOnWriteEngine, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sinks.merge_on_write.alter.rewrite.SLICE_ROWS", 10)
        before = rows_of(uri)
        engine.alter(ddl(uri, ADD_FILLED))
        added = action(uri, "add")
        assert len(added) == 6  # of small files so many that they pass the bound, deleted rows too
        assert rows_of(uri) == before


class TestRefused:
    def test_a_table_that_is_for_the_spark_engine(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        set_property(uri, "delta.appendOnly", "true")
        with pytest.raises(NotForThisEngine, match=r"shop\.orders: .* delta\.appendOnly is true"):
            engine.alter(ddl(uri, ADD_N))

    def test_a_table_that_is_paused(self, engine: MergeOnWriteEngine, uri: str) -> None:
        set_paused(uri, {}, paused=True)
        with pytest.raises(TableHeld):
            engine.alter(ddl(uri, ADD_N))

    def test_a_table_whose_columns_somebody_has_altered_by_hand(
        self, engine: MergeOnWriteEngine, uri: str
    ) -> None:
        table = engine.table(uri)
        table.refresh()
        metadata = table.state.metadata
        assert metadata is not None
        notes = {"delta.columnMapping.id": 3, "delta.columnMapping.physicalName": "col-3"}
        mine = {"name": "mine", "type": "string", "nullable": True, "metadata": notes}
        schema = {**metadata.schema, "fields": [mine, *metadata.schema["fields"]]}
        told = {**metadata.fields, "schemaString": json.dumps(schema)}
        table.commit(12, [{"metaData": told}], operation="TEST", user_metadata="")
        with pytest.raises(TidelakeError, match=r"table has \(mine string, id bigint, v str"):
            engine.alter(ddl(uri, ADD_N))
