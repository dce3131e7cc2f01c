"""The recipes of docs/reading.md are run as they stand there, on tables with deletion vectors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import polars
import pytest
from deltalake import DeltaTable

from sinks.control.progress import Progress, ProgressRow
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from streaming.operations.snapshots import sql_text
from tests.sinks.merge_on_write.orders import target, write
from tests.streaming.lake import Lake

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/reading.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"```python\n(.*?)```", PAGE.partition("## Without Spark")[2], re.DOTALL)
ROWS = [(2, "b"), (3, "new"), (4, "d")]
TS = 1 << 40


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """With a row deleted by a vector and one updated; DuckDB has its extension."""
    lake = Lake(tmp_path / "lake")
    uri = str(lake.tables / "orders")
    create(target(uri), properties={})
    engine = MergeOnWriteEngine({}, keeps_up=False)
    engine.apply(write(uri, 10, {1: "a", 2: "b", 3: "c", 4: "d"}))
    engine.apply(write(uri, 20, {1: None, 3: "new"}))
    engine.close()
    lake.publish(TS, orders=2)
    progress = Progress(str(lake.warehouse))
    progress.claim("shop", lake.term)
    progress.advance(
        [
            ProgressRow(
                changefeed_id="shop", incarnation=1, schema_name="shop", table_name="orders",
                generation=0, state="replicating", checkpoint_ts=TS, resolved_ts=TS,
                delta_version=2, engine="merge-on-write", dead_letters=0, capture_id="c",
                epoch="e", fence=1,
            )
        ],
        lake.term,
    )  # fmt: skip
    monkeypatch.setenv("HOME", str(tmp_path))
    (folder,) = duckdb_extension_delta.__path__
    (extension,) = Path(folder).rglob("*.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"INSTALL '{extension}'")
    return lake


def rows_of(found: Any) -> list[tuple[int, str]]:
    if isinstance(found, polars.DataFrame):
        found = found.rows()
    elif not isinstance(found, list):
        found = list(found.itertuples(index=False, name=None))
    return sorted(found)


@pytest.mark.parametrize("number", range(len(RECIPES)))
def test_a_recipe_reads_what_is_there(lake: Lake, number: int) -> None:
    seen: dict[str, Any] = {}
    exec(RECIPES[number].replace("/data/lake", str(lake.warehouse)), seen)
    assert rows_of(seen["orders"]) == ROWS
    assert rows_of(seen.get("now", ROWS)) == ROWS
    assert seen.get("fresh", [("orders", TS)]) == [("orders", TS)]
    assert len(seen.get("progress", ["one"])) == 1


def test_there_are_recipes_for_each_reader() -> None:
    assert len(RECIPES) == 5
    assert all(any(f"import {name}" in each for each in RECIPES) for name in ("duckdb", "polars"))


def test_what_the_page_says_is_refused_is_refused(lake: Lake) -> None:
    uri = str(lake.tables / "orders")
    refused = (
        lambda: DeltaTable(uri).to_pandas(),
        lambda: polars.read_delta(uri),
        lambda: polars.scan_delta(uri).collect(),
    )
    for read in refused:
        with pytest.raises(Exception, match=r"(?i)(column.?mapping|deletion.?vectors)"):
            read()


def test_duckdb_reads_the_versions_of_a_snapshot(lake: Lake) -> None:
    uri = str(lake.tables / "orders")
    engine = MergeOnWriteEngine({}, keeps_up=False)
    engine.apply(write(uri, 30, {2: None, 9: "later"}))
    engine.close()
    with duckdb.connect() as connection:
        connection.execute(sql_text(lake.find(), "duckdb"))
        assert sorted(connection.sql("SELECT * FROM shop_orders").fetchall()) == ROWS
        assert connection.sql("SELECT count(*) FROM shop_orders").fetchall() == [(3,)]
        found = connection.sql("SELECT v FROM shop_orders WHERE id = 3").fetchall()
        assert found == [("new",)]
