"""Rule 2: what a watermark resolves, and when a recorded one counts."""

from __future__ import annotations

from itertools import permutations

from sinks.control.changefeeds import RecordedWatermark
from streaming.source.resolved.watermarks import Watermarks

P0, P1, P2 = (f"shop/{number}" for number in range(3))
ALL = frozenset({P0, P1, P2})


def mark(ts: int, offset: int = 0) -> RecordedWatermark:
    return RecordedWatermark(ts=ts, position=offset)


def test_a_partition_that_never_spoke_holds_everything_back() -> None:
    watermarks = Watermarks(parts=ALL).advance({P0: mark(10), P1: mark(12)}, {})

    assert watermarks.global_ts == 0
    assert watermarks.holding_back == [P2]


def test_the_least_partition_decides() -> None:
    watermarks = Watermarks(parts=ALL).advance({P0: mark(10), P1: mark(12), P2: mark(11)}, {})

    assert watermarks.global_ts == 10
    assert watermarks.holding_back == [P0]


def test_surplus_partitions_do_not_count() -> None:
    surplus = "shop/3"
    watermarks = Watermarks(parts=frozenset({P0})).advance({P0: mark(5), surplus: mark(1)}, {})

    assert watermarks.global_ts == 5
    assert surplus not in watermarks.live


def test_a_watermark_that_goes_back_changes_nothing() -> None:
    before = Watermarks(parts=frozenset({P0})).advance({P0: mark(10, offset=7)}, {})
    after = before.advance({P0: mark(4, offset=9)}, {P0: 10})

    assert after.live == before.live


def test_any_order_of_arrival_gives_the_same_watermark() -> None:
    seen = [{P0: mark(3, 1)}, {P0: mark(9, 5)}, {P1: mark(7, 2)}, {P2: mark(8, 4)}]
    results = set()
    for order in permutations(seen):
        watermarks = Watermarks(parts=ALL)
        for each in order:
            watermarks = watermarks.advance(each, {})
        results.add(watermarks.global_ts)

    assert results == {7}


def test_a_recorded_watermark_counts_only_past_the_offset_where_it_was_seen() -> None:
    resumed = Watermarks(parts=frozenset({P0}), recorded={P0: mark(10, offset=20)})

    assert resumed.advance({}, {P0: 20}).global_ts == 0
    assert resumed.advance({}, {P0: 21}).global_ts == 10


def test_reading_on_without_passing_it_keeps_it_waiting() -> None:
    resumed = Watermarks(parts=frozenset({P0}), recorded={P0: mark(10, offset=20)})
    halfway = resumed.advance({P0: mark(6, offset=12)}, {P0: 15})

    assert halfway.global_ts == 6
    assert halfway.to_record() == {P0: mark(10, offset=20)}
    assert halfway.advance({}, {P0: 21}).global_ts == 10


def test_all_at_is_true_only_when_every_partition_is_exactly_there() -> None:
    watermarks = Watermarks(parts=frozenset({P0, P1})).advance({P0: mark(10), P1: mark(10)}, {})

    assert watermarks.all_at(10)
    assert not watermarks.advance({P1: mark(11)}, {}).all_at(10)


def test_a_partition_that_the_sink_may_not_use_is_resolved_as_far_as_the_others() -> None:
    """Once it is read to its end, and again whenever the others have risen."""
    before = Watermarks(parts=ALL).advance({P0: mark(10), P1: mark(12)}, {})
    after = before.past({P2}, {P2: 7})

    assert after.global_ts == 10
    assert after.to_record()[P2] == mark(10, offset=6)
    assert after.past({P2}, {P2: 7}) == after
    assert after.advance({P0: mark(11)}, {}).past({P2}, {}).global_ts == 10  # there is more in it
    assert Watermarks(parts=ALL, recorded=after.to_record()).advance({}, {P2: 7}).live == {
        P2: mark(10, offset=6)
    }


def test_what_nobody_has_resolved_is_not_resolved_there() -> None:
    before = Watermarks(parts=ALL).advance({P0: mark(10)}, {})

    assert before.past({P2}, {P2: 7}) == before
    assert Watermarks(parts=ALL).advance({P2: mark(9)}, {}).past({P2}, {P2: 7}).global_ts == 0
