"""What the owner writes of a table's shapes: each once, beside the path of the rows, and what a
crash has lost at the next start."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from deltalake import DeltaTable

from conf.settings import DeltaSink
from coordination.model import Ts
from coordination.ports import Advance
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.warehouse import ControlTables
from sinks.merge_on_write.engine import MergeOnWriteEngine
from streaming.apply.letters.dead_letter_writer import DeadLetterWriter
from streaming.changefeed.table_registry import TableRegistry
from streaming.owner.control_rows import ControlRows
from streaming.owner.ddl.steps import DdlEvent
from streaming.stream.backlog import Backlog
from tests.sinks.merge_on_write.altering import column
from tests.sinks.merge_on_write.ddls import ADD_N, change, ddl
from tests.sinks.merge_on_write.orders import NAME, UPSERTED, target, write
from tests.streaming.lake import OWNER

MADE = DdlEvent(commit_ts=Ts(5), place=0, name=NAME, ddl_type="", query="CREATE TABLE …")


class Owner:
    """One term of one owner over a warehouse."""

    def __init__(self, warehouse: Path) -> None:
        sink = DeltaSink(warehouse=str(warehouse))
        tables = ControlTables.of(sink)
        initial = ChangefeedRow(changefeed_id="shop", start_ts=1, checkpoint_ts=1, resolved_ts=1)
        row = tables.changefeeds.claim(initial, OWNER, ttl_s=1.0, stop=threading.Event())
        tables.progress.claim("shop", row.term)
        tables.snapshots.claim("shop", row.term)
        self.spans = TableRegistry(sink, row)
        self.rows = ControlRows(tables, row, self.spans, lambda each: each)
        self.rows.save(row)
        no_letters = SimpleNamespace(counts={}, refreshed=dict)
        self.rows.resume(tables.progress.read("shop"), lambda: cast(DeadLetterWriter, no_letters))

    def make(self) -> None:
        self.spans.create(NAME, target("").schema, MADE.identity, Ts(5))
        self.rows.add([(self.spans[NAME], {})])

    def write(self) -> None:
        advance = Advance(checkpoint_ts=Ts(5), resolved_ts=Ts(5))
        self.rows.write(advance, reading={}, marks={}, backlog=Backlog(), source_left_s=None)


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


def alter(owner: Owner, order: Any) -> None:
    """By the engine, with rows before and a commit of upkeep's kind after it."""
    engine = MergeOnWriteEngine({}, keeps_up=False)
    uri = owner.spans.uri(NAME)
    engine.apply(write(uri, order.ddl.commit_ts - 1, UPSERTED))
    engine.alter(order)
    engine.close()
    DeltaTable(uri).alter.set_table_properties({"a": "note"}, raise_if_not_exists=False)


def schemas(warehouse: Path) -> list[tuple[Any, ...]]:
    found = DeltaTable(str(warehouse / "_tidelake" / "schemas")).to_pyarrow_table().to_pylist()
    names = ("commit_ts", "delta_version", "statement")
    return sorted(
        (*(row[name] for name in names), [each["name"] for each in row["columns"]]) for row in found
    )


def test_a_shape_is_written_when_it_is_made_and_when_it_changes(
    owner: Owner, tmp_path: Path
) -> None:
    owner.make()
    assert not (tmp_path / "_tidelake" / "schemas").exists()  # that is the control thread's work
    owner.write()
    made = (5, 0, "CREATE TABLE …", ["id", "v"])
    assert schemas(tmp_path) == [made]
    alter(owner, ddl(owner.spans.uri(NAME), ADD_N))
    owner.rows.altered(owner.spans.look_again(NAME))
    for _ in range(2):
        owner.write()
    assert schemas(tmp_path) == [made, (100, 2, "ALTER TABLE …", ["id", "v", "n"])]


def test_a_new_owner_adds_what_a_crash_has_lost_and_nothing_twice(
    owner: Owner, tmp_path: Path
) -> None:
    owner.make()
    alter(owner, ddl(owner.spans.uri(NAME), ADD_N))  # it dies before it says so
    uri = str(tmp_path / "_tidelake" / "schemas")
    for version in (1, 1):
        heir = Owner(tmp_path)
        heir.write()
        assert schemas(tmp_path) == [(100, 2, "ALTER TABLE …", ["id", "v", "n"])]
        assert DeltaTable(uri).version() == version
    both = change(*ADD_N.after.columns, column("m", "int"), before=ADD_N.after)
    alter(heir, replace(ddl(owner.spans.uri(NAME), both, 200), target=heir.spans[NAME].target))
    heir.rows.altered(heir.spans.look_again(NAME))
    heir.write()
    Owner(tmp_path).write()
    assert [row[:2] for row in schemas(tmp_path)] == [(100, 2), (200, 5)]
