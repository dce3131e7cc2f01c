"""Which topics are another changefeed's, by the watermarks that come behind a given one."""

from __future__ import annotations

from sinks.control.changefeeds import RecordedWatermark
from streaming.source.resolved.watermarks import Watermarks

URI, TABLE = "uri/0", "table/0"
START = Watermarks(parts=frozenset({URI, TABLE}))


def read(known: Watermarks, at: int, **seen: int) -> Watermarks:
    """The next read, to position ``at`` of both. A part without a watermark in it has none."""
    marks = {f"{each}/0": RecordedWatermark(ts=ts, position=at - 1) for each, ts in seen.items()}
    read = known.advance(marks, {URI: at, TABLE: at}).gone_back({TABLE})
    return read.past({TABLE}, {TABLE: at})


def test_one_that_stays_behind_is_of_another() -> None:
    known = read(read(START, 1, uri=10), 2, table=7)
    assert known.of_others({TABLE}) == frozenset()
    assert known.global_ts == 10
    known = read(known, 3, table=8)
    assert known.of_others({TABLE}) == frozenset()  # of the same moment
    known = read(read(known, 4, uri=20), 5, table=19)
    assert known.of_others({TABLE}) == {TABLE}


def test_one_whose_watermarks_are_read_later_or_have_ended_is_not() -> None:
    known = START
    for at in range(1, 9, 2):
        known = read(read(known, at, uri=10 * at), at + 1, table=10 * at)
        assert not known.lower
    for at in range(11, 20):
        known = read(known, at, uri=10 * at)
    assert (known.of_others({TABLE}), known.global_ts) == (frozenset(), 190)


def test_a_sink_that_starts_again_and_again_goes_back_everywhere() -> None:
    known = START
    for at in range(10, 100, 10):  # the table is dropped meanwhile: it never rises again
        known = read(known, at, uri=10 * at)
        known = read(known, at + 1, table=10 * at - 5)
        known = read(known, at + 2, uri=10 * at - 5)
        assert known.of_others({TABLE}) == frozenset()
        known = read(known, at + 3, uri=10 * at - 4)
        known = read(known, at + 4, table=10 * at - 4, uri=10 * at)
        assert known.of_others({TABLE}) == frozenset()


def test_what_was_before_a_recorded_one_is_not_behind_it() -> None:
    known = read(read(START, 1, uri=10), 5, uri=20)
    again = Watermarks(parts=START.parts, recorded=known.to_record())
    again = read(read(again, 2, uri=10, table=10), 4, table=11)
    assert not again.lower
    again = read(read(again, 5), 6, table=19)
    assert again.lower == {TABLE: frozenset({20})}
