"""The control writer on a real topic: terms, tables, blocked DDLs, rows of control."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.errors import TermRefused
from coordination.metadata.records import FeedState
from coordination.model import TableName, Ts
from coordination.ports import Advance, ShownState
from coordination.scheduler.barrier import PendingDdl
from sinks.control.changefeeds import Changefeeds
from sinks.control.progress import Progress
from sinks.target.target_table import inspect
from streaming.owner.ddl.refusal import DdlNotSupported
from tests.acceptance.small_tables import IDLE, A, B, key_only, made, marks, row, small_table
from tests.own_lines import own_text
from tests.services.delta_rows import read_rows
from tests.shop.canal_json import Change, Column, Ddl, encode_change, encode_ddl
from tests.streaming.hand_owner import CHANGEFEED, HandOwner, Stage, until

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

FOUND, DELETED = small_table("found"), small_table("deleted")
FOUND_NAME, DELETED_NAME = TableName("shop", "found"), TableName("shop", "deleted")


def values(stage: Stage, table: str) -> dict[int, str]:
    return {each["id"]: each["v"] for each in read_rows(stage.warehouse / "shop" / table)}


def test_terms_tables_and_rows(stage: Stage):
    stage.capture("c")
    stage.produce([*made(10, A, B), *marks(20)])
    owner = HandOwner(stage)
    owner.await_tables("a", "b")
    assert {name: table.start_ts for name, table in owner.tables.items()} == {"a": 10, "b": 11}
    owner.add(a="c", b="c")
    stage.produce([(1, None, row(25, 1, "x")), (2, None, row(26, 2, "y")), *marks(31)])
    owner.reached(30)
    progress = Progress(str(stage.warehouse))

    def rows_at(ts: int) -> bool:
        found = progress.read(CHANGEFEED)
        return {each.checkpoint_ts for each in found.values()} == {ts}

    owner.until(lambda: rows_at(30))
    by_table = {name.table: each for name, each in progress.read(CHANGEFEED).items()}
    assert by_table["a"].capture_id == "c"
    assert by_table["a"].epoch == "epoch-c"
    assert by_table["a"].state == "replicating"
    assert by_table["a"].fence > by_table["a"].fence >> 32 << 32
    assert by_table["a"].delta_version == stage_version(stage, "a") > by_table["b"].delta_version
    changefeed = Changefeeds(str(stage.warehouse))
    owner.until(lambda: changefeed.read(CHANGEFEED).checkpoint_ts == 30)
    ends = {f"{stage.topic}/{p}": n for p, n in stage.broker.end_offsets(stage.topic).items()}
    owner.until(lambda: changefeed.read(CHANGEFEED).source_positions == ends)
    assert progress.read(CHANGEFEED)[owner.tables["a"].span.name].source_positions == ends
    owner.until(lambda: changefeed.read(CHANGEFEED).end_positions == ends)
    read = changefeed.read(CHANGEFEED)
    assert (read.read_positions, read.messages_behind) == (ends, 0)
    assert read.messages_per_s > 0

    heir = HandOwner(stage, "heir")
    assert heir.claim.term == owner.claim.term + 1
    assert heir.claim.checkpoint_ts == 30
    assert {t.span for t in heir.claim.tables} == {t.span for t in owner.tables.values()}
    assert {t.start_ts for t in heir.claim.tables} == {30}
    now = progress.read(CHANGEFEED)
    assert {name.table: each.fence for name, each in now.items()} == {
        name: each.fence for name, each in by_table.items()
    }
    with pytest.raises(TermRefused):
        until(lambda: owner.control.record(Advance(checkpoint_ts=Ts(31), resolved_ts=Ts(31))))

    heir.homes = dict(owner.homes)  # the spans have stayed where they were
    stage.produce([(0, None, row(40, 1, "z", op="UPDATE")), *marks(51)])
    heir.reached(50)
    assert values(stage, "a") == {1: "z", 2: "y"}


def test_a_table_without_a_ddl_is_found_by_its_rows_and_a_wall_stands(stage: Stage):
    assert stage.info.config is not None
    stage.info = replace(stage.info, config={**stage.info.config, "on-unknown-column": "drop"})
    stage.capture("c")
    stage.produce([*made(10, IDLE), *marks(15)])
    owner = HandOwner(stage)
    owner.await_tables("idle")
    owner.add(idle="c")
    gone = key_only(row(25, 1, "x", table=DELETED, op="DELETE"))
    stage.produce([(1, None, row(25, 1, "x", table=FOUND)), (2, None, b"{broken"), (1, None, gone)])
    stage.produce(marks(26))
    progress = Progress(str(stage.warehouse))
    until(lambda: FOUND.name in [name.table for name in progress.read(CHANGEFEED)])
    assert owner.control.ddl_scan().position_ts < 25  # resolved, but not in the owner's hands yet
    owner.await_tables("found", "deleted")
    assert owner.tables["found"].start_ts < 25
    owner.add(found="c", deleted="c")
    owner.reached(25)
    assert values(stage, "found") == {1: "x"}
    letters = read_rows(stage.warehouse / "_tidelake" / "dead_letters")
    assert [each["value"] for each in letters] == [b"{broken"]

    stage.produce([(1, None, row(30, 2, "y", table=DELETED)), *marks(32)])
    owner.reached(31)
    assert values(stage, "deleted") == {2: "y"}
    row_of = lambda: progress.read(CHANGEFEED)[DELETED_NAME]  # noqa: E731
    owner.until(lambda: row_of().delta_version == stage_version(stage, "deleted"))
    assert (row_of().state, row_of().dead_letters) == ("replicating", 0)

    sql = "ALTER TABLE `shop`.`idle` EXCHANGE PARTITION `p` WITH TABLE `shop`.`x`"
    wall = Ddl("shop", "idle", "ALTER", sql)
    noted = row(39, 1, "y", table=FOUND, op="UPDATE").replace(b'"v":"y"', b'"v":"y","note":"!"')
    rows = [(1, None, noted)]
    above = [(1, None, row(45, 1, "z", table=FOUND, op="UPDATE"))]
    stage.produce([*rows, (0, None, encode_ddl(wall, 40, 0)), *above, *marks(50)])
    blocked = PendingDdl(commit_ts=Ts(39), table_ids=None)  # tables wait right before it
    owner.until(lambda: owner.control.ddl_scan().pending == (blocked,))
    owner.reached(39)
    assert values(stage, "found") == {1: "y"}
    found_row = lambda: progress.read(CHANGEFEED)[FOUND_NAME]  # noqa: E731
    owner.until(lambda: found_row().checkpoint_ts >= 39)
    assert (found_row().state, found_row().dropped_columns) == ("warning", {"note": 1})
    owner.control.run_ddl(blocked)
    with pytest.raises(DdlNotSupported, match="EXCHANGE PARTITION"):
        until(lambda: owner.control.take_changes() and None)
    until(owner.control.is_closed)
    how_it_stands_is_shown(stage)


def how_it_stands_is_shown(stage: Stage) -> None:
    """Nobody runs it; then an heir does, until it fails."""
    progress = Progress(str(stage.warehouse))
    stage.show(ShownState(state=FeedState.PENDING, message="it is not supported"))
    changefeeds = Changefeeds(str(stage.warehouse))
    until(lambda: changefeeds.read(CHANGEFEED).state == "pending")
    row_ = changefeeds.read(CHANGEFEED)
    assert (row_.error, row_.checkpoint_ts) == ("it is not supported", 39)
    until(lambda: {each.state for each in progress.read(CHANGEFEED).values()} == {"stopped"})

    heir = HandOwner(stage, "heir")
    heir.control.set_shown(ShownState(state=FeedState.WARNING, message="tried again"))
    heir.until(lambda: changefeeds.read(CHANGEFEED).error == "tried again")
    assert changefeeds.read(CHANGEFEED).state == "warning"
    states = {name.table: each.state for name, each in progress.read(CHANGEFEED).items()}
    lacking = {"found": "warning"}  # a column, still
    assert states == {"idle": "replicating", "deleted": "replicating", **lacking}
    heir.control.set_shown(ShownState())
    heir.until(lambda: (now := changefeeds.read(CHANGEFEED)).state == "running" and not now.error)
    heir.control.set_shown(ShownState(state=FeedState.FAILED, message="for good"))
    heir.control.close(drop=False)
    until(heir.control.is_closed)
    last = changefeeds.read(CHANGEFEED)
    assert (last.state, last.error) == ("failed", "for good")


def test_a_changefeed_that_goes_on_from_elsewhere_is_a_new_incarnation(stage: Stage):
    stage.capture("c")
    stage.produce([*made(10, A), (1, None, row(25, 1, "x")), *marks(31)])
    owner = HandOwner(stage)
    owner.await_tables("a")
    owner.add(a="c")
    owner.reached(30)
    old = inspect(str(stage.warehouse / "shop" / "a"), {})
    owner.control.close(drop=False)
    stage.replicas["c"].close(drop=False)
    until(owner.control.is_closed)
    until(stage.replicas["c"].is_closed)
    assert Changefeeds(str(stage.warehouse)).read(CHANGEFEED).state == "stopped"

    stage.info = replace(stage.info, start_ts=Ts(20))
    stage.capture("d")
    again = HandOwner(stage, "again")
    changefeed = Changefeeds(str(stage.warehouse)).read(CHANGEFEED)
    assert (changefeed.incarnation, changefeed.checkpoint_ts) == (2, 20)
    assert again.tables["a"].span.table_id != owner.tables["a"].span.table_id
    assert again.tables["a"].start_ts == 20
    assert inspect(str(stage.warehouse / "shop" / "a"), {}).version > old.version
    again.add(a="d")
    again.reached(30)
    assert values(stage, "a") == {1: "x"}


def stage_version(stage: Stage, table: str) -> int:
    return inspect(str(stage.warehouse / "shop" / table), {}).version


def test_a_span_whose_table_was_dropped_is_written_no_more(
    stage: Stage, caplog: pytest.LogCaptureFixture
):
    """The word that it ends may be late: who holds it sees it in the log, made again or not."""
    caplog.set_level("INFO")
    replica = stage.capture("c")
    stage.produce([*made(10, A), *marks(20)])
    owner = HandOwner(stage)
    owner.await_tables("a")
    owner.add(a="c")
    old = owner.tables["a"].span
    drop = encode_ddl(Ddl("shop", "a", "ERASE", "DROP TABLE `shop`.`a`"), 30, 0)
    again = replace(A, columns=(Column("id", "bigint"), Column("w", "int")))
    new = Change(table=again, op="INSERT", row={"id": 7, "w": 8}, old=None)
    stage.produce([(1, None, row(25, 1, "x")), (0, None, drop), *made(40, again)])
    stage.produce([(1, None, encode_change(new, 50, 0)), *marks(61)])
    owner.reached(29)
    owner.homes.clear()  # nobody takes the span away
    owner.control.run_ddl(PendingDdl(commit_ts=Ts(29), table_ids=[old.table_id]))
    owner.until(lambda: owner.tables["a"].span != old)
    owner.until(lambda: "a DDL has run on the table table=shop.a" in own_text(caplog))
    assert [each["limit"] for each in stage.commits("a")] == [29]
    assert read_rows(stage.warehouse / "shop" / "a") == []
    replica.remove_table_span(old.table_id)
    owner.until(lambda: replica.take_stopped(old.table_id))
    owner.add(a="c")
    owner.reached(60)
    assert read_rows(stage.warehouse / "shop" / "a") == [{"id": 7, "w": 8}]
    assert values(stage, "a~dropped-30") == {1: "x"}
    assert read_rows(stage.warehouse / "_tidelake" / "dead_letters") == []
    states = Progress(str(stage.warehouse)).read(CHANGEFEED)
    assert [each.state for each in states.values()] == ["replicating"]
