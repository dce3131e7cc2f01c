"""Tables are taken up where their log says, by the very commit that seals them. Without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from conf.settings import DeltaSink
from coordination.model import SEALED_TS, TableName, Ts
from sinks.apply import app_id
from sinks.changefeeds import ChangefeedRow
from sinks.progress import ProgressRow
from sinks.schema import Column, MySQLType, TableSchema
from sinks.tables import SCHEMA, DdlIdentity, TargetState, inspect, ownership
from streaming import sink_tables
from streaming.sink_tables import SinkTables

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
        owned = ownership(changefeed_id="shop", incarnation=1, generation=1, ddl=DDL)
        table = DeltaTable.create(self.uri, ROWS.schema)
        properties = {**owned, SCHEMA: OF.to_json()}
        table.alter.set_table_properties(properties, raise_if_not_exists=False)
        self.commit(1, 50)

    def commit(self, incarnation: int, limit: int) -> None:
        app = app_id("shop", incarnation, NAME, 1)
        identity = CommitProperties(app_transactions=[Transaction(app, limit)])
        write_deltalake(self.uri, ROWS, mode="append", commit_properties=identity)

    def resumed(self, row: ChangefeedRow) -> SinkTables:
        found = SinkTables(self.sink, row)
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
    sealed = [lake.state().identity(app_id("shop", n, NAME, 1)) for n in (1, 2, 3)]
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

    monkeypatch.setattr(sink_tables, "inspect", look)
    row = replace(ROW, state=state, checkpoint_ts=20 if state == "rewinding" else 40)  # type: ignore[arg-type]
    found = lake.resumed(row)
    assert found[NAME].checkpoint == begins_at
    assert found.shown_ts == (70 if state == "rewinding" else 0)


def test_what_a_table_shows_beyond_a_rewind_is_known_to_every_start_after_it(lake: Lake) -> None:
    rewound = replace(ROW, state="rewinding", checkpoint_ts=20)
    assert lake.resumed(rewound).shown_ts == 50
    lake.commit(2, 30)
    again = SinkTables(lake.sink, rewound)
    again.resume({NAME: replace(PROGRESS, incarnation=2, checkpoint_ts=20)})
    assert (again[NAME].checkpoint, again.shown_ts) == (30, 50)
    further = lake.resumed(replace(rewound, incarnation=3, checkpoint_ts=10))
    assert (further[NAME].checkpoint, further.shown_ts) == (10, 50)
