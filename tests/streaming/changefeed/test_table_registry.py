"""Tables are taken up where their log says, by the very commit that seals them. Without Spark."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from conf.settings import Changefeed, DeltaSink, FilterSettings, TableRule
from conf.sources.recording_uri import RecordingSettings
from coordination.errors import ConfigError, TidelakeError
from coordination.model import SEALED_TS, TableName, Ts
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import ProgressRow
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.target.engine_port import Target, app_id
from sinks.target.table_properties import REKEYED, SCHEMA, DdlIdentity, ownership
from sinks.target.target_table import TargetState, inspect, table_uri
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from streaming.changefeed import table_opener
from streaming.changefeed.earlier_filters import filters_after, filters_of
from streaming.changefeed.schema_file import read_definitions
from streaming.changefeed.schema_from_rows import WholeRow
from streaming.changefeed.table_registry import TableRegistry
from streaming.changefeed.target_forms import WriteModes
from streaming.spans.joining_spans import wanted_of
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl

NAME = TableName("shop", "a")
OF = TableSchema(columns=(Column(name="id", type=MySQLType.parse("bigint")),), key=("id",))
ROWS = pa.table({"id": pa.array([1], pa.int64())})
DDL = DdlIdentity(commit_ts=Ts(5), order=0, query="CREATE TABLE …")
ROW = ChangefeedRow(
    changefeed_id="shop", start_ts=1, checkpoint_ts=40, resolved_ts=40, incarnation=2
)
PROGRESS = ProgressRow(
    changefeed_id="shop",
    incarnation=1,
    schema_name="shop",
    table_name="a",
    generation=1,
    state="replicating",
    checkpoint_ts=40,
    resolved_ts=40,
    delta_version=0,
    capture_id="c",
    epoch="e",
    fence=1,
)


class Lake:
    """One table, filled by incarnation 1 up to 50."""

    def __init__(self, warehouse: Path) -> None:
        self.sink = DeltaSink(warehouse=str(warehouse))
        self.uri = str(warehouse / "shop" / "a")
        owned = ownership(changefeed_id="shop", incarnation=1, ddl=DDL)
        table = DeltaTable.create(self.uri, ROWS.schema)
        properties = {**owned, SCHEMA: OF.to_json()}
        table.alter.set_table_properties(properties, raise_if_not_exists=False)
        self.commit(1, 50)

    def commit(self, incarnation: int, limit: int) -> None:
        app = app_id("shop", incarnation, NAME)
        identity = CommitProperties(app_transactions=[Transaction(app, limit)])
        write_deltalake(self.uri, ROWS, mode="append", commit_properties=identity)

    def resumed(self, row: ChangefeedRow) -> TableRegistry:
        found = TableRegistry(self.sink, row)
        found.resume({NAME: PROGRESS})
        return found

    def state(self) -> TargetState:
        found = inspect(self.uri, {})
        assert found is not None
        return found


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_a_new_incarnation_goes_on_where_the_log_is(lake: Lake) -> None:
    assert lake.resumed(ROW)[NAME].checkpoint == 50
    again = lake.resumed(replace(ROW, incarnation=4))
    assert again[NAME].checkpoint == 50
    sealed = [lake.state().identity(app_id("shop", n, NAME)) for n in (1, 2, 3)]
    assert sealed == [SEALED_TS] * 3


@pytest.mark.parametrize(("state", "begins_at"), [("running", 70), ("rewinding", 20)])
def test_a_zombies_commit_just_before_the_seal_counts(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, state: str, begins_at: int
) -> None:
    """What was seen a moment ago is not what the seal is put on."""
    looks = iter([lambda: lake.commit(1, 70)])

    def look(uri: str, options: dict[str, str]) -> TargetState | None:
        found = inspect(uri, options)
        next(looks, lambda: None)()
        return found

    monkeypatch.setattr(table_opener, "inspect", look)
    row = replace(ROW, state=state, checkpoint_ts=20 if state == "rewinding" else 40)  # type: ignore[arg-type]
    found = lake.resumed(row)
    assert found[NAME].checkpoint == begins_at
    assert found.shown_ts == (70 if state == "rewinding" else 0)


def test_a_rewind_to_below_its_creation_begins_there(lake: Lake) -> None:
    """It may have been made ahead of the checkpoint: no snapshot has it from before."""
    row = replace(ROW, state="rewinding", checkpoint_ts=DDL.commit_ts - 2)
    assert lake.resumed(row)[NAME].checkpoint == DDL.commit_ts


def test_what_a_table_shows_beyond_a_rewind_is_known_to_every_start_after_it(lake: Lake) -> None:
    rewound = replace(ROW, state="rewinding", checkpoint_ts=20)
    assert lake.resumed(rewound).shown_ts == 50
    lake.commit(2, 30)
    again = TableRegistry(lake.sink, rewound)
    again.resume({NAME: replace(PROGRESS, incarnation=2, checkpoint_ts=20)})
    assert (again[NAME].checkpoint, again.shown_ts) == (30, 50)
    further = lake.resumed(replace(rewound, incarnation=3, checkpoint_ts=10))
    assert (further[NAME].checkpoint, further.shown_ts) == (10, 50)


LOGS = WriteModes((TableRule(matcher=("*.*",), write_mode="append"),))
CREATED = DdlIdentity(commit_ts=Ts(5), order=0, query="CREATE …")


@pytest.mark.parametrize("key", [("id",), ()])
def test_a_change_log_is_taken_up_as_one_without_its_own_columns(
    tmp_path: Path, key: tuple[str, ...]
) -> None:
    """A table without a key is a table like any other there."""
    sink, schema = DeltaSink(warehouse=str(tmp_path)), replace(OF, key=key)
    TableRegistry(sink, ROW, LOGS).create(NAME, schema, CREATED, Ts(5))
    again = TableRegistry(sink, ROW, LOGS)
    again.resume({NAME: replace(PROGRESS, incarnation=2)})
    table = again[NAME]
    assert table.target is not None
    assert table.target.is_log
    assert table.target.schema == schema
    assert not table.is_keyless
    assert wanted_of(table, Ts(5)).key is None  # every UPDATE brings its old row


def test_a_table_stays_what_it_was_made_as(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"shop\.a was made with write-mode = 'upsert', and .* says .* = 'append'",
    ):
        TableRegistry(lake.sink, ROW, LOGS).resume({NAME: PROGRESS})
    sink = DeltaSink(warehouse=str(tmp_path / "logs"))
    TableRegistry(sink, ROW, LOGS).create(NAME, OF, CREATED, Ts(5))
    with pytest.raises(ConfigError, match=r"was made with write-mode = 'append'"):
        TableRegistry(sink, ROW).create(NAME, OF, CREATED, Ts(5))
    with pytest.raises(ConfigError, match=r"was made with write-mode = 'append'"):
        TableRegistry(sink, ROW).resume({NAME: replace(PROGRESS, incarnation=2)})


def test_a_table_that_keeps_less_than_the_snapshots_is_made_to(lake: Lake) -> None:
    names = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")
    table = DeltaTable(lake.uri)
    short = {names[0]: "interval 2 hours", names[1]: "interval 3 days"}
    table.alter.set_table_properties(short, raise_if_not_exists=False)
    assert lake.resumed(replace(ROW, incarnation=1))[NAME].version == table.version() + 1
    assert [lake.state().properties[name] for name in names] == [
        "interval 24 hours",
        "interval 3 days",
    ]
    assert lake.resumed(replace(ROW, incarnation=1))[NAME].version == table.version() + 1
    lake.sink = replace(lake.sink, snapshot_retention_h=100)
    lake.resumed(replace(ROW, incarnation=1))
    assert {lake.state().properties[name] for name in names} == {"interval 100 hours"}


def test_a_new_table_keeps_as_long_as_the_snapshots(lake: Lake) -> None:
    sink = replace(lake.sink, snapshot_retention_h=9)
    name = TableName("shop", "new")
    event = DdlIdentity(commit_ts=Ts(5), order=0, query="CREATE TABLE …")
    tables = TableRegistry(sink, ROW)
    tables.create(name, OF, event, Ts(5))
    state = inspect(tables.uri(name), {})
    assert state is not None
    assert state.properties["delta.deletedFileRetentionDuration"] == "interval 9 hours"
    assert state.properties["delta.logRetentionDuration"] == "interval 9 hours"


FILE = "CREATE TABLE shop.a (id bigint PRIMARY KEY, d decimal(9,2) NOT NULL, e enum('x','y'));"
TOLD = WholeRow({"id": "bigint", "d": "decimal", "e": "enum"}, ("id",), Ts(30))
NEW = replace(ROW, incarnation=1)


def tables(warehouse: Path, file: str = "") -> TableRegistry:
    found = read_definitions(file, lambda _: True)
    return TableRegistry(DeltaSink(warehouse=str(warehouse)), NEW, defined=found)


def test_a_table_of_the_schema_file_is_made_as_it_stands_there(tmp_path: Path) -> None:
    spans = tables(tmp_path, FILE)
    spans.make_from_rows(NAME, TOLD, Ts(40))
    target = spans[NAME].target
    assert target is not None
    assert [str(column.type) for column in target.schema.columns] == [
        "bigint", "decimal(9,2)", "enum('x','y')",
    ]  # fmt: skip
    assert not target.schema.column("d").nullable
    assert (spans[NAME].shape_ts, spans[NAME].checkpoint) == (0, 40)
    delta = DeltaTable(str(tmp_path / "shop" / "a")).schema().to_arrow()
    assert pa.schema(delta).field("d").type == pa.decimal128(9, 2)


def test_messages_that_are_not_as_the_schema_file_says_make_nothing(tmp_path: Path) -> None:
    spans = tables(tmp_path, FILE)
    with pytest.raises(ConfigError, match="column e is enum\\('x','y'\\) in the file and set ther"):
        spans.make_from_rows(NAME, WholeRow({**TOLD.types, "e": "set"}, ("id",)), Ts(40))
    assert spans == {}
    assert not (tmp_path / "shop").exists()


def test_a_unique_key_of_the_schema_file_is_the_key_and_none_is_none(tmp_path: Path) -> None:
    told = WholeRow({"id": "bigint", "u": "int"}, ())
    unique = tables(tmp_path, "CREATE TABLE shop.a (id bigint, u int NOT NULL, UNIQUE uk (u))")
    unique.make_from_rows(NAME, told, Ts(40))
    target = unique[NAME].target
    assert target is not None
    assert (target.schema.key, target.schema.key_index) == (("u",), "uk")
    keyless = tables(tmp_path / "other", "CREATE TABLE shop.a (id bigint, u int, UNIQUE uk (u))")
    keyless.make_from_rows(NAME, told, Ts(40))
    assert keyless[NAME].is_keyless


def feed(chosen: FilterSettings) -> Changefeed:
    source = RecordingSettings(path="unused", protocol="canal-json", time_zone="UTC")
    return Changefeed(id="a", source=source, sink=DeltaSink(warehouse="/w"), filter=chosen)


def test_what_a_filter_passed_is_refused_for_a_table_of_the_schema_file_too(tmp_path: Path) -> None:
    filters = filters_of(feed(FilterSettings(rules=("shop.b",))))
    stored = replace(NEW, filters=filters, checkpoint_ts=45)
    row = replace(NEW, filters=filters_after(stored, feed(FilterSettings())))
    found = TableRegistry(
        DeltaSink(warehouse=str(tmp_path)), row, defined=read_definitions(FILE, lambda _: True)
    )
    with pytest.raises(TidelakeError, match=r"\[filter\] left it out up to 45"):
        found.make_from_rows(NAME, TOLD, Ts(45))


def test_a_table_made_from_a_row_holds_the_ddls_below_that_row(tmp_path: Path) -> None:
    """Also after a restart, when they are read again."""
    spans = tables(tmp_path)
    spans.make_from_rows(NAME, TOLD, Ts(20))
    assert spans[NAME].shape_ts == 30
    again = TableRegistry(DeltaSink(warehouse=str(tmp_path)), replace(NEW, checkpoint_ts=20))
    again.resume({NAME: replace(PROGRESS, checkpoint_ts=20)})
    assert again[NAME].shape_ts == 30


class DropLake:
    """A table that was made at 5 and dropped at 60; nobody has noted that."""

    def __init__(self, warehouse: Path, on_drop: Literal["drop", "rename"] = "drop") -> None:
        self.sink = DeltaSink(warehouse=str(warehouse))
        uri = table_uri(str(warehouse), NAME)
        self.target = Target(name=NAME, uri=uri, schema=OF, app_id=app_id("shop", 1, NAME))
        owned = ownership(changefeed_id="shop", incarnation=1, ddl=DDL)
        create(self.target, properties=owned)
        engine = MergeOnWriteEngine({}, keeps_up=False)
        dropped = DdlIdentity(commit_ts=Ts(60), order=0, query="DROP TABLE `shop`.`a`")
        engine.alter(table_ddl(target=self.target, ddl=dropped, on_drop=on_drop))
        engine.close()
        self.row = replace(ROW, incarnation=1)

    def resumed(self, **row: object) -> TableRegistry:
        found = TableRegistry(self.sink, self.row)
        found.resume({NAME: replace(PROGRESS, **row)})  # type: ignore[arg-type]
        return found

    def make_again(self, tables: TableRegistry, schema: TableSchema = OF) -> None:
        ddl = DdlIdentity(commit_ts=Ts(70), order=0, query="CREATE …")
        tables.create(NAME, schema, ddl, Ts(70))


@pytest.fixture
def dropped(tmp_path: Path) -> DropLake:
    return DropLake(tmp_path)


def test_a_dropped_table_is_not_taken_up(dropped: DropLake) -> None:
    for row in ({"checkpoint_ts": 59}, {"state": "dropped", "checkpoint_ts": 60}):
        found = dropped.resumed(**row)
        assert (dict(found), found.ended, found.last_ddls()) == ({}, {NAME: 60}, {NAME: 60})
    dropped.row = replace(dropped.row, incarnation=2, state="rewinding", checkpoint_ts=20)
    assert dropped.resumed(checkpoint_ts=59).ended == {NAME: 60}


def test_a_table_that_is_gone_since_it_was_dropped_is_not_missed(
    dropped: DropLake, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "shop")
    found = dropped.resumed(state="dropped", checkpoint_ts=60)
    assert found.ended == {NAME: 60}
    dropped.make_again(found)
    assert (found[NAME].checkpoint, found.last_ddls()) == (70, {NAME: 70})


def test_a_table_that_has_left_its_name_waits_for_its_rename(tmp_path: Path) -> None:
    """Its owner died before anything was noted."""
    found = DropLake(tmp_path, on_drop="rename").resumed(checkpoint_ts=59)
    table = found[NAME]
    assert table.target is not None
    assert (table.checkpoint, table.version, found.last_ddls()) == (59, 0, {NAME: 59})


def test_a_table_that_was_made_again_begins_there(dropped: DropLake) -> None:
    found = dropped.resumed(checkpoint_ts=59)
    dropped.make_again(found)
    assert (found[NAME].checkpoint, found[NAME].created_ts, found.last_ddls()) == (
        70,
        70,
        {NAME: 70},
    )
    nobody_noted_it = dropped.resumed(checkpoint_ts=59)
    assert (nobody_noted_it[NAME].checkpoint, nobody_noted_it.ended) == (70, {})
    dropped.row = replace(dropped.row, incarnation=2, state="rewinding", checkpoint_ts=20)
    rewound = dropped.resumed(checkpoint_ts=90)
    assert (rewound[NAME].checkpoint, rewound.last_ddls()) == (70, {NAME: 70})
    state, target = rewound.at(NAME), rewound[NAME].target
    assert state is not None
    assert target is not None
    assert state.identity(target.app_id) == 70  # what it may have from below does not come again


def test_a_table_that_was_made_again_without_a_key_is_none_of_deltas(dropped: DropLake) -> None:
    found = dropped.resumed(checkpoint_ts=59)
    dropped.make_again(found, TableSchema(columns=OF.columns, key=()))
    assert found[NAME].is_keyless
    again = dropped.resumed(checkpoint_ts=70, delta_version=None, state="warning")
    assert (again[NAME].target, again[NAME].checkpoint, again.ended) == (None, 70, {})


ALL_COLUMNS = WriteModes((TableRule(matcher=("*.*",), key="all-columns"),))
KEYLESS = TableSchema(columns=OF.columns, key=())
CREATED = DdlIdentity(commit_ts=Ts(5), order=0, query="…")


def test_a_table_by_all_columns_is_made_and_taken_up_as_such(tmp_path: Path) -> None:
    sink, row = DeltaSink(warehouse=str(tmp_path)), replace(ROW, incarnation=1)
    made = TableRegistry(sink, row, ALL_COLUMNS)
    made.create(NAME, KEYLESS, CREATED, Ts(5))
    progress = replace(PROGRESS, checkpoint_ts=40)
    again = TableRegistry(sink, row, ALL_COLUMNS)
    again.resume({NAME: progress})
    for table in (made[NAME], again[NAME]):
        assert table.target is not None
        assert (table.target.schema.key, table.target.schema.key_is_row) == (("id",), True)
        assert wanted_of(table, Ts(5)).key is None  # old rows are needed whole
    with pytest.raises(ConfigError, match=r"shop\.a has no key and is upserted by all its columns"):
        TableRegistry(sink, row).resume({NAME: progress})
    other = TableName("shop", "b")
    made.opener.forms = WriteModes((TableRule(matcher=("*.a",), key="all-columns"),))
    with pytest.raises(ConfigError, match=r"shop\.b has no key and is upserted by all"):
        made.target_under(NAME, other)


def test_who_comes_to_all_columns_behind_dead_letters_begins_anew(tmp_path: Path) -> None:
    sink = DeltaSink(warehouse=str(tmp_path))
    dead = replace(PROGRESS, delta_version=None, state="warning", dead_letters=3)
    with pytest.raises(TidelakeError, match="3 of its messages so far are dead letters"):
        TableRegistry(sink, ROW, ALL_COLUMNS).resume({NAME: dead})
    for row in (replace(ROW, state="rewinding"), replace(ROW, incarnation=1)):
        TableRegistry(sink, row, ALL_COLUMNS).resume({NAME: dead})
    TableRegistry(sink, ROW, ALL_COLUMNS).resume({NAME: replace(dead, dead_letters=0)})
    TableRegistry(sink, ROW).resume({NAME: dead})


def test_no_rewind_goes_below_a_ddl_of_the_key(lake: Lake) -> None:
    handle = DeltaTable(lake.uri)
    handle.alter.set_table_properties({REKEYED: "30"}, raise_if_not_exists=False)
    back = replace(ROW, state="rewinding", checkpoint_ts=28)
    with pytest.raises(TidelakeError, match=r"shop\.a cannot go back to 28.* 29 at least"):
        lake.resumed(back)
    assert lake.state().identity(app_id("shop", 1, NAME)) == 50  # not sealed
    assert lake.resumed(replace(back, incarnation=3, checkpoint_ts=29))[NAME].checkpoint == 29
