"""A control table keeps its columns over releases: older ones gain ours, newer ones keep theirs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from sinks.control.columns import column
from sinks.control.control_table import Change, ControlTable, TableView

NARROW = pa.schema([column("name", pa.string(), "whose"), column("n", pa.int64(), "how many")])
WIDE = pa.schema(
    [
        NARROW.field("name"),
        column("seen", pa.map_(pa.string(), pa.int64()), "where"),
        NARROW.field("n"),
        column("note", pa.string(), "why"),
    ]
)
NOTED = {"name": "a", "seen": [("shop/0", 7)], "note": "why not"}


def table_of(warehouse: Path, schema: pa.Schema) -> ControlTable:
    """The same table, as one release or another knows it."""
    return ControlTable(str(warehouse), "counter", schema, {}, description="test")


def count(table: ControlTable) -> None:
    def plan(view: TableView) -> Change:
        n = sum(view.rows()["n"].to_pylist()) + 1
        row = {name: (NOTED | {"n": n})[name] for name in table.schema.names}
        return Change(rows=pa.Table.from_pylist([row], schema=table.schema), mode="overwrite")

    table.commit(plan, "count in")


def rows(table: ControlTable) -> list[dict[str, object]]:
    return table.read(lambda view: view.rows().to_pylist()) or []


def test_a_table_of_an_earlier_release_is_read_without_a_commit(tmp_path: Path):
    narrow, wide = table_of(tmp_path, NARROW), table_of(tmp_path, WIDE)
    count(narrow)
    version = DeltaTable(wide.uri).version()
    assert rows(wide) == [{"name": "a", "seen": None, "n": 1, "note": None}]
    assert wide.read(lambda view: view.scan(["note", "n"]).to_pylist()) == [{"note": None, "n": 1}]
    assert DeltaTable(wide.uri).version() == version


def test_a_table_of_an_earlier_release_gains_its_columns_with_the_first_commit(tmp_path: Path):
    count(table_of(tmp_path, NARROW))
    wide = table_of(tmp_path, WIDE)
    wide.commit(lambda _: Change(transactions={"tidelake/shop/term": 7}), "claim in")
    assert [row["n"] for row in rows(wide)] == [1]
    count(wide)
    assert rows(table_of(tmp_path, WIDE)) == [NOTED | {"n": 2}]
    described = {field.name: field.metadata for field in DeltaTable(wide.uri).schema().fields}
    assert described["note"] == {"comment": "why"}
    assert wide.read(lambda view: view.transaction("tidelake/shop/term")) == 7


def test_many_writers_of_a_new_release_add_its_columns_once(tmp_path: Path):
    count(table_of(tmp_path, NARROW))
    ready = threading.Barrier(4)

    def write(_: int) -> None:
        table = table_of(tmp_path, WIDE)
        ready.wait()
        count(table)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert [row["n"] for row in rows(table_of(tmp_path, WIDE))] == [5]
    assert len(DeltaTable(table_of(tmp_path, WIDE).uri).schema().fields) == len(WIDE)


def test_a_table_of_a_later_release_is_written_on(tmp_path: Path):
    """Two releases may share a warehouse: each has changefeeds of its own."""
    count(table_of(tmp_path, WIDE))
    count(table_of(tmp_path, NARROW))
    assert rows(table_of(tmp_path, WIDE)) == [{"name": "a", "seen": None, "n": 2, "note": None}]


def test_a_column_that_is_described_otherwise_today_is_the_same_column(tmp_path: Path):
    count(table_of(tmp_path, NARROW))
    reworded = pa.schema([column(f.name, f.type, f"today: {f.name}") for f in NARROW])
    count(table_of(tmp_path, reworded))
    assert rows(table_of(tmp_path, reworded)) == [{"name": "a", "n": 2}]
