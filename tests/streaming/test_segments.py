"""The carry: what stays, where a restart reads from, and that joining loses nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial, reduce
from typing import Any

import pytest

from coordination.model import TableName, Ts
from sinks.changefeeds import Watermark
from streaming.events import DdlEvent, TopicPartition
from streaming.segments import MAX_SEGMENTS, Carry, Segment, TableCount

P0, P1 = TopicPartition("shop", 0), TopicPartition("shop", 1)
A, B = TableName("shop", "a"), TableName("shop", "b")


class Frame:
    """Stands for a persisted frame: its rows are a tuple of names."""

    def __init__(self, *rows: str) -> None:
        self.rows = rows
        self.is_persisted = True

    def unionAll(self, other: Frame) -> Frame:  # noqa: N802  # Spark's name
        return Frame(*self.rows, *other.rows)

    def localCheckpoint(self) -> Frame:  # noqa: N802
        assert self.is_persisted
        return Frame(*self.rows)

    def unpersist(self) -> None:
        self.is_persisted = False


@pytest.fixture(autouse=True)
def _frames_are_fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.segments.union", partial(reduce, Frame.unionAll))


def count(rows: int, first: int, last: int) -> TableCount:
    return TableCount(rows=rows, min_ts=first, max_ts=last, key_updates=0)


def segment(
    number: int,
    tables: Mapping[TableName, TableCount] | None = None,
    ddl_ts: int | None = None,
    partitions: tuple[TopicPartition, ...] = (P0, P1),
) -> Segment:
    """The ``number``-th of ten messages per partition."""
    frame: Any = Frame(f"s{number}")
    event = DdlEvent(commit_ts=Ts(ddl_ts or 0), offset=number, name=A, ddl_type="", query="")
    return Segment(
        frame=frame,
        begin={p: 10 * number for p in partitions},
        end={p: 10 * number + 10 for p in partitions},
        tables=tables or {},
        watermarks={p: Watermark(ts=number, offset=10 * number + 9) for p in partitions},
        ddls=(event,) if ddl_ts else (),
        bad=1,
    )


def rows(segment: Segment) -> tuple[str, ...]:
    return segment.frame.rows  # type: ignore[attr-defined, no-any-return]


def is_persisted(segment: Segment) -> bool:
    return segment.frame.is_persisted  # type: ignore[attr-defined, no-any-return]


def test_a_segment_stays_until_its_last_row_and_ddl_are_applied() -> None:
    with_rows = segment(0, {A: count(3, 5, 20)})
    with_ddl = segment(1, {A: count(1, 6, 7)}, ddl_ts=30)
    marks_only = segment(2)
    carry = Carry((with_rows, with_ddl, marks_only))
    assert carry.trimmed(19).segments == (with_rows, with_ddl)
    assert not is_persisted(marks_only)
    assert carry.trimmed(20).segments == (with_ddl,)
    assert not is_persisted(with_rows)
    assert is_persisted(with_ddl)
    assert carry.trimmed(30).segments == ()


def test_low_water_is_where_the_oldest_live_segment_begins() -> None:
    position = {P0: 30, P1: 30}
    old = segment(0, {A: count(1, 5, 50)}, partitions=(P1,))
    dead = segment(1, {A: count(1, 6, 7)})
    new = segment(2, {B: count(1, 8, 60)})
    carry = Carry((old, dead, new))
    assert carry.low_water(position) == {P0: 10, P1: 0}
    assert carry.trimmed(10).low_water(position) == {P0: 20, P1: 0}
    assert carry.trimmed(50).low_water(position) == {P0: 20, P1: 20}
    assert carry.trimmed(60).low_water(position) == position
    assert position == {P0: 30, P1: 30}


def test_due_segments_are_those_that_may_hold_rows_between() -> None:
    first, second = segment(0, {A: count(2, 5, 20)}), segment(1, {A: count(2, 15, 40)})
    other = segment(2, {B: count(9, 1, 99)})
    carry = Carry((first, second, other))
    assert carry.due(A, 0, 14) == (first,)
    assert carry.due(A, 0, 15) == (first, second)
    assert carry.due(A, 20, 30) == (second,)
    assert carry.due(A, 40, 99) == ()
    assert carry.names(4) == {B}
    assert carry.names(5) == {A, B}
    assert carry.rows_above(30) == 2 + 9
    assert carry.rows_above(99) == 0


def test_a_long_carry_joins_its_smallest_neighbours_and_loses_nothing() -> None:
    carry = Carry()
    for number in range(MAX_SEGMENTS):
        size = 1 if number in (7, 8) else 100
        carry = carry.add(segment(number, {A: count(size, number + 1, number + 1000)}))
    assert len(carry.segments) == MAX_SEGMENTS
    seven, eight = carry.segments[7:9]

    carry = carry.add(segment(MAX_SEGMENTS, {B: count(5, 3, 3000)}, ddl_ts=77))

    assert len(carry.segments) == MAX_SEGMENTS
    joined = carry.segments[7]
    assert rows(joined) == ("s7", "s8")
    assert (is_persisted(seven), is_persisted(eight), is_persisted(joined)) == (False, False, True)
    assert joined.tables == {A: count(2, 8, 1008)}
    assert (joined.begin[P0], joined.end[P0], joined.bad) == (70, 90, 2)
    assert joined.watermarks[P0] == Watermark(ts=8, offset=89)
    everything = [name for each in carry for name in rows(each)]
    assert everything == [f"s{number}" for number in range(MAX_SEGMENTS + 1)]
    assert carry.low_water({P0: 999, P1: 999}) == {P0: 0, P1: 0}


def test_joined_segments_keep_the_partitions_of_either() -> None:
    carry = Carry()
    for number in range(MAX_SEGMENTS + 1):
        size = 1 if number < 2 else 100
        only = (P0,) if number % 2 else (P1,)
        carry = carry.add(segment(number, {A: count(size, 1, 9)}, partitions=only))
    joined = carry.segments[0]
    assert joined.begin == {P1: 0, P0: 10}
    assert joined.end == {P1: 10, P0: 20}


def test_a_joined_segment_is_released_like_any_other() -> None:
    carry = Carry()
    for number in range(MAX_SEGMENTS + 5):
        carry = carry.add(segment(number, {A: count(1, number, number)}))
    live = carry.segments
    assert carry.trimmed(10_000).segments == ()
    assert not any(map(is_persisted, live))
