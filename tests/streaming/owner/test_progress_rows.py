"""What the owner writes down."""

from __future__ import annotations

from dataclasses import replace

from coordination.model import CaptureID, ProcessorEpoch, TableName, Ts, fence_number
from coordination.ports import Advance
from coordination.scheduler.coordinator import SpanProgress
from coordination.scheduler.messages import Checkpoint, Span
from coordination.scheduler.replication_set import ReplicationState
from coordination.scheduler.table_status import TableState, TableStatus
from sinks.control.changefeeds import ChangefeedRow, RecordedWatermark
from sinks.control.progress import ProgressRow
from streaming.changefeed.replicated_table import ReplicatedTable
from streaming.owner.progress_rows import (
    all_is_well,
    at_pins,
    cut,
    ended_progress,
    first_progress,
    later,
    low_water,
    made_again,
    merged,
    past_tables,
    reported_progress,
    resumed_progress,
    risen,
    with_blocked,
    with_unlogged,
)
from streaming.source.resolved.commit_clock import Pin, to_token

NAME = TableName("shop", "a")
SPAN = Span(7, "shop", "a")
ROW = ChangefeedRow(
    changefeed_id="shop",
    start_ts=1,
    checkpoint_ts=10,
    resolved_ts=10,
    term=3,
    capture_id="owner",
    epoch="e",
    source_positions={"t/0": 5},
)
BEFORE = ProgressRow(
    changefeed_id="shop",
    incarnation=1,
    schema_name="shop",
    table_name="a",
    generation=1,
    state="replicating",
    checkpoint_ts=50,
    resolved_ts=60,
    delta_version=4,
    source_positions={"t/0": 40},
    capture_id="c1",
    epoch="e1",
    fence=fence_number(2, 9),
)


def told(ts: int, **status: object) -> SpanProgress:
    found = TableStatus(7, TableState.REPLICATING, Ts(ts), Ts(ts))._replace(**status)
    return SpanProgress(
        span=SPAN,
        state=ReplicationState.REPLICATING,
        capture_id=CaptureID("c2"),
        epoch=ProcessorEpoch("e2"),
        checkpoint=Checkpoint(Ts(ts), Ts(ts)),
        delta_version=found.delta_version,
        status=found,
    )


def advance(ts: int, *spans: SpanProgress, **more: object) -> Advance:
    return Advance(checkpoint_ts=Ts(ts), resolved_ts=Ts(ts), spans=spans, **more)


def test_all_is_well_where_every_table_is_green_and_fresh():
    now_s = 1_700_000_000
    ts = Ts((now_s - 5) * 1000 << 18)
    green = replace(BEFORE, checkpoint_ts=ts)
    dropped = replace(BEFORE, table_name="d", state="dropped")
    assert all_is_well([green, dropped], ts, now_s)
    assert not all_is_well([green], ts, now_s + 60)
    assert not all_is_well([green, replace(green, checkpoint_ts=ts - 1)], ts, now_s)
    for state in ("blocked", "warning", "paused", "loading"):
        assert not all_is_well([green, replace(green, state=state)], ts, now_s)


def test_a_row_follows_its_span():
    row = reported_progress(
        BEFORE, told(70, fence=fence_number(3, 1), delta_version=6), {"t/0": 55}
    )
    assert (row.checkpoint_ts, row.delta_version, row.capture_id, row.epoch) == (70, 6, "c2", "e2")
    assert (row.fence, row.source_positions) == (fence_number(3, 1), {"t/0": 55})
    own = reported_progress(BEFORE, told(70, source_positions={"t/0": 44}), {"t/0": 55})
    assert own.source_positions == {"t/0": 44}


def test_late_news_take_nothing_back():
    row = reported_progress(BEFORE, told(40, fence=fence_number(2, 1), delta_version=2), {})
    assert (row.checkpoint_ts, row.delta_version, row.fence) == (50, 4, BEFORE.fence)
    assert row.source_positions == BEFORE.source_positions


def test_a_table_that_could_not_be_made_warns_until_it_is():
    before = replace(BEFORE, delta_version=None)
    assert reported_progress(before, told(70), {}).state == "replicating"
    cut = replace(before, state="warning")
    assert reported_progress(cut, told(80), {}).state == "warning"
    assert reported_progress(cut, told(80, delta_version=0), {}).state == "replicating"


def test_dropped_columns_are_counted_and_warned_of_until_a_new_owner_finds_them():
    row = reported_progress(BEFORE, told(70, dropped_columns={"note": 2}), {})
    assert (row.state, row.dropped_columns) == ("warning", {"note": 2})
    late = reported_progress(row, told(80, dropped_columns={"note": 1, "more": 1}), {})
    assert (late.state, late.dropped_columns) == ("warning", {"note": 2, "more": 1})
    assert reported_progress(late, told(80), {}).dropped_columns == late.dropped_columns

    table = ReplicatedTable(
        name=NAME, checkpoint=Ts(80), version=5, dropped={"more": 1}, state="warning"
    )
    assert resumed_progress(table, late, ROW).dropped_columns == {"more": 1}
    filled = resumed_progress(replace(table, dropped={}, state="replicating"), late, ROW)
    assert (filled.state, filled.dropped_columns) == ("replicating", {})


def test_a_new_owner_leaves_the_fences_of_spans_and_a_new_incarnation_does_not():
    table = ReplicatedTable(name=NAME, checkpoint=Ts(55), version=5)
    row = resumed_progress(table, BEFORE, ROW)
    assert (row.fence, row.capture_id, row.checkpoint_ts) == (BEFORE.fence, "c1", 55)
    anew = resumed_progress(table, BEFORE, replace(ROW, incarnation=2))
    assert (anew.fence, anew.capture_id) == (fence_number(3), "owner")
    assert anew.source_positions == ROW.source_positions


def test_notes_in_one_lose_no_span():
    other = replace(told(5), span=Span(8, "shop", "b"))
    both = merged(advance(5, told(5), other, source_positions={"t/0": 3}), advance(9, told(9)))
    assert {each.span.table_id: each.checkpoint.checkpoint_ts for each in both.spans} == {
        7: 9,
        8: 5,
    }
    assert both.checkpoint_ts == 9
    assert merged(advance(5, sync_point_ts=Ts(5)), advance(5)).sync_point_ts == 5


def test_a_table_that_was_registered_between_two_notes_keeps_its_low_water():
    """The older note's offsets are of the tables that it knew."""
    begun = replace(BEFORE, table_name="new", checkpoint_ts=60, source_positions={"t/0": 100})
    new = replace(told(60), span=Span(8, "shop", "new"), status=None)
    for status in (None, TableStatus(8, TableState.PREPARING, Ts(60), Ts(60))):
        newer = advance(60, replace(new, status=status))
        note = merged(advance(60, told(60), source_positions={"t/0": 150}), newer)
        assert reported_progress(begun, note.spans[1], note.source_positions).source_positions == {
            "t/0": 100
        }


def test_a_changefeeds_low_water_is_at_or_below_that_of_every_table():
    """A note may be older than a table that the control writer has registered."""
    note, progress = advance(60, told(60), source_positions={"t/0": 150}), [BEFORE]
    assert low_water(ROW, note, {"t/0": 200}, progress) == {"t/0": 40}
    settled = [replace(BEFORE, source_positions={"t/0": 160})]
    assert low_water(ROW, note, {"t/0": 200}, settled) == {"t/0": 150}
    assert low_water(ROW, note, {"t/0": 120}, settled) == {"t/0": 120}
    assert low_water(ROW, advance(60), {"t/0": 200}, settled) == ROW.source_positions


def test_low_water_is_the_least_and_never_falls():
    before = {"t/0": 10, "t/1": 10}
    assert later(before, [{"t/0": 30, "t/1": 5}, {"t/0": 20}]) == {"t/0": 20, "t/1": 10}
    assert later(before, [{}]) == before


def test_partitions_that_the_topic_has_grown_come_in_when_all_know_them():
    before = {"t/0": 10}
    assert later(before, [{"t/0": 30, "t/1": 5}, {"t/0": 20}]) == {"t/0": 20}
    assert later(before, [{"t/0": 30, "t/1": 5}, {"t/0": 20, "t/1": 2}]) == {"t/0": 20, "t/1": 2}


def test_a_cut_wants_every_table_exactly_there():
    here = [
        replace(BEFORE, checkpoint_ts=70),
        replace(BEFORE, table_name="b", checkpoint_ts=70, delta_version=1),
        replace(BEFORE, table_name="keyless", state="warning", delta_version=None),
    ]
    snapshot = cut(ROW.changefeed_id, here, Ts(70), 2)
    assert snapshot is not None
    assert snapshot.tables == {"shop.a": 4, "shop.b": 1}
    assert snapshot.dead_letters == 2
    one_is_behind = [*here, replace(BEFORE, table_name="c", checkpoint_ts=69)]
    assert cut(ROW.changefeed_id, one_is_behind, Ts(70), 0) is None
    began_later = [*here, replace(BEFORE, table_name="c", checkpoint_ts=71)]
    assert cut(ROW.changefeed_id, began_later, Ts(70), 2) == snapshot


def test_a_table_that_has_gone_on_from_a_cut_is_told_from_one_that_began_later():
    rows = [replace(BEFORE, checkpoint_ts=70), replace(BEFORE, table_name="b", checkpoint_ts=71)]
    other = TableName("shop", "b")
    assert past_tables(rows, Ts(70), {}) == [other]
    assert past_tables(rows, Ts(70), {other: Ts(70)}) == [other]
    assert past_tables(rows, Ts(70), {other: Ts(71)}) == []
    assert past_tables(rows, Ts(71), {}) == []


def test_a_table_begins_with_the_owner():
    row = first_progress(ReplicatedTable(name=NAME, checkpoint=Ts(33), version=0), ROW, {"t/0": 9})
    assert (row.fence, row.capture_id, row.checkpoint_ts) == (fence_number(3), "owner", 33)


def test_a_table_that_an_operator_has_paused_says_so_until_it_is_written_again():
    row = reported_progress(BEFORE, told(70, is_paused=True), {})
    assert row.state == "paused"
    assert reported_progress(row, told(80), {}).state == "replicating"


def test_a_table_that_waits_for_an_operator_says_so_until_it_is_written_again():
    other = replace(BEFORE, table_name="b")
    why = {NAME: "it is not known: ALTER TABLE …"}
    (row,) = with_blocked([], {NAME: BEFORE, other.name: other}, why)
    assert row == replace(BEFORE, state="blocked", error=why[NAME], updated_at=None)
    assert with_blocked([], {NAME: row}, why) == []
    moved = reported_progress(row, told(70), {})
    assert (moved.state, moved.error) == ("replicating", None)
    assert with_blocked([moved], {NAME: row}, why) == [
        replace(moved, state="blocked", error=why[NAME])
    ]
    assert with_blocked([moved], {NAME: row}, {}) == [moved]


def test_a_table_that_lacks_changes_which_the_source_does_not_tell_warns_while_that_lasts():
    sound = replace(BEFORE, state="replicating", error=None, dead_letters=0)
    (row,) = with_unlogged([], {NAME: sound}, [NAME, TableName("shop", "not_ours")])
    assert (row.state, "CASCADE or SET NULL" in (row.error or "")) == ("warning", True)
    assert with_unlogged([], {NAME: row}, [NAME]) == []
    moved = replace(row, state="replicating", checkpoint_ts=row.checkpoint_ts + 1)
    (again,) = with_unlogged([moved], {NAME: row}, [NAME])
    assert (again.state, again.error) == ("warning", row.error)
    (over,) = with_unlogged([], {NAME: row}, [])
    assert (over.state, over.error) == ("replicating", None)
    (over,) = with_unlogged([], {NAME: replace(row, dead_letters=1)}, [])
    assert (over.state, over.error) == ("warning", None)
    for other in (replace(sound, error="it waits"), replace(sound, state="dropped")):
        assert with_unlogged([], {NAME: other}, [NAME]) == []


def test_a_table_that_lacks_its_rows_says_so_in_every_report():
    lacking = replace(BEFORE, state="warning", lacks="about 3 rows of before", delta_version=None)
    row = reported_progress(lacking, told(30), {})
    assert (row.state, row.lacks) == ("warning", lacking.lacks)
    assert "about 3 rows of before" in (row.error or "")
    ended = ended_progress(row, Ts(40), None)
    assert (ended.state, ended.lacks, ended.error) == ("dropped", None, None)


def test_a_table_that_its_writer_cannot_write_says_why_while_that_lasts():
    row = reported_progress(BEFORE, told(70, error="table shop.a: no"), {})
    assert (row.state, row.error) == ("warning", "table shop.a: no")
    row = reported_progress(row, told(70, is_blocked=True, error="table shop.a: wait"), {})
    assert (row.state, row.error) == ("blocked", "table shop.a: wait")
    row = reported_progress(row, told(80), {})
    assert (row.state, row.error) == ("replicating", None)


def test_the_identity_that_a_log_was_seen_with_never_falls():
    row = reported_progress(BEFORE, told(70, identity_ts=Ts(60)), {})
    assert row.identity_ts == 60
    assert reported_progress(row, told(80), {}).identity_ts == 60


def test_a_dropped_table_is_in_no_cut_at_or_above_its_ddl_and_holds_nothing_back():
    other = replace(BEFORE, table_name="b", checkpoint_ts=99, delta_version=7)
    dropped = ended_progress(replace(BEFORE, checkpoint_ts=80), 100, 4)
    assert (dropped.state, dropped.checkpoint_ts, dropped.resolved_ts) == ("dropped", 100, 100)

    def tables(at_ts: int, *rows: ProgressRow) -> object:
        found = cut("shop", rows, Ts(at_ts), 0)
        return None if found is None else found.tables

    assert tables(99, other, dropped) == {"shop.a": 4, "shop.b": 7}
    later = replace(other, checkpoint_ts=100)
    assert tables(100, later, dropped) == {"shop.b": 7}
    assert tables(99, other, replace(dropped, delta_version=None)) == {"shop.b": 7}
    note = advance(100, source_positions={"t/0": 90})
    assert low_water(
        ROW, note, {"t/0": 80}, [dropped, replace(other, source_positions={"t/0": 95})]
    ) == {"t/0": 80}
    nobody_reads = advance(100)
    assert low_water(ROW, nobody_reads, {"t/0": 80}, [dropped]) == {"t/0": 80}


def test_the_fence_of_a_table_that_is_made_again_never_falls():
    fresh = first_progress(
        ReplicatedTable(name=NAME, checkpoint=Ts(33), version=0), ROW, {"t/0": 9}
    )
    assert made_again(fresh, None) == fresh
    before = replace(fresh, state="dropped", fence=fresh.fence + 5, dead_letters=2)
    again = made_again(fresh, before)
    assert (again.fence, again.dead_letters, again.state) == (before.fence, 2, fresh.state)
    assert made_again(fresh, replace(before, fence=1)).fence == fresh.fence


def test_a_recorded_watermark_never_falls():
    """An owner that has not read as far as the one before: the low water stays behind the greater
    one, which is not read again."""
    older, newer = RecordedWatermark(ts=72, position=60), RecordedWatermark(ts=126, position=101)
    assert risen({"shop/0": newer}, {"shop/0": older}) == {"shop/0": newer}
    again = RecordedWatermark(ts=126, position=105)
    assert risen({"shop/0": newer}, {"shop/0": again, "shop/1": older}) == {
        "shop/0": again,
        "shop/1": older,
    }


def test_the_low_water_of_a_numbered_part_is_a_stored_pin():
    """A restart reads from the pin on, so the source must keep everything from there."""
    token = to_token([Pin(0, 0), Pin(40, 900), Pin(70, 950)])
    marks = {"t/0": RecordedWatermark(ts=951, position=70, token=token)}
    for low, stored in ((0, 0), (39, 0), (40, 40), (69, 40), (70, 70), (99, 70)):
        assert at_pins({"t/0": low, "t/1": 5}, marks, {"t/1": 4}) == {"t/0": stored, "t/1": 4}
        assert at_pins({"t/0": low, "t/1": 5}, marks, {}) == {"t/0": stored}, "it has no pin yet"
    assert at_pins({"t/0": 5}, {"t/0": RecordedWatermark(ts=1, position=3)}, {}) == {"t/0": 5}
