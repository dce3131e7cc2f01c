"""The binlog's limit: what was read completely is resolved, and an idle log's pin when stored."""

from __future__ import annotations

from coordination.model import Ts
from sinks.control.changefeeds import RecordedWatermark
from streaming.source.resolved.commit_clock import Pin, to_token
from streaming.source.resolved.limits import Stored
from streaming.source.resolved.pinned_limits import PartLimits, PinnedLimits


def begun(position: int = 100) -> PartLimits:
    return PartLimits().read((), position)


def read(limits: PartLimits, to: int, *pins: Pin) -> PartLimits:
    return limits.read(pins, to)


def recorded_by(limits: PartLimits) -> RecordedWatermark:
    mark = limits.record()
    assert mark is not None
    return mark


def again_from(mark: RecordedWatermark, position: int) -> PartLimits:
    limits = PinnedLimits.of(frozenset(("a",)), {"a": mark}).advance({}, {"a": position})
    return limits.by_part["a"]


def test_nothing_is_resolved_before_a_transaction_was_read() -> None:
    assert begun().global_ts == 0


def test_whole_transactions_are_resolved() -> None:
    limits = read(begun(), 200, Pin(200, 50))
    assert limits.global_ts == 51  # L = 50


def test_a_transaction_that_is_read_in_part_is_not() -> None:
    limits = read(read(begun(), 200, Pin(200, 50)), 300)
    assert limits.global_ts == 51


def test_a_restart_knows_the_numbers_from_where_it_begins() -> None:
    before = read(read(begun(), 200, Pin(200, 50)), 300, Pin(300, 60))
    mark = recorded_by(before)
    assert (mark.ts, mark.position) == (61, 300)
    again = again_from(mark, 250)
    assert again.global_ts == 51
    assert again.pins == before.pins


def test_what_a_time_that_is_not_believed_has_numbered_counts_when_it_is_stored() -> None:
    """A restart with another clock would believe it, and number otherwise."""
    limits = read(begun(), 200, Pin(200, 50))
    limits = read(limits, 300, Pin(280, 52, is_needed=True), Pin(300, 60))
    assert limits.global_ts == 51
    stored = recorded_by(limits)
    limits = read(limits, 400, Pin(400, 70, is_needed=True), Pin(400, 70))
    limits = limits.with_stored(stored)
    assert limits.global_ts == 61
    assert limits.with_stored(recorded_by(limits)).global_ts == 71


def test_a_log_that_is_idle_for_longer_has_one_pin() -> None:
    limits = read(begun(), 200, Pin(200, 50)).idle_at(Ts(90))
    stored = recorded_by(limits)
    limits = limits.idle_at(Ts(95))
    assert limits.with_stored(stored).global_ts == 51
    assert limits.with_stored(recorded_by(limits)).global_ts == 96


def test_an_idle_log_moves_the_limit_when_its_pin_is_stored() -> None:
    limits = read(begun(), 200, Pin(200, 50)).idle_at(Ts(90))
    assert limits.global_ts == 51
    assert limits.numbering[-1] == Pin(200, 50, above_ts=90, is_needed=True)
    recorded = recorded_by(limits)
    assert recorded.ts == 51
    assert limits.with_stored(None) == limits
    assert limits.with_stored(recorded_by(read(begun(), 200, Pin(200, 50)))) == limits
    stored = limits.with_stored(recorded)
    assert stored.global_ts == 91
    assert again_from(recorded, 200).global_ts == 91


def test_what_comes_behind_an_idle_log_is_above_its_pin_stored_or_not() -> None:
    idle = read(begun(), 200, Pin(200, 50)).idle_at(Ts(90))
    limits = read(idle, 300, Pin(300, 91))
    assert limits.global_ts == 51
    assert limits.with_stored(recorded_by(limits)).global_ts == 92
    assert Pin(200, 50, above_ts=90, is_needed=True) in limits.numbering


def test_a_first_reading_of_an_idle_log_has_a_limit_too() -> None:
    limits = begun().idle_at(Ts(90))
    assert limits.with_stored(recorded_by(limits)).global_ts == 91


def test_an_idle_log_amid_a_transaction_moves_nothing() -> None:
    limits = read(read(begun(), 200, Pin(200, 50)), 300)
    assert limits.idle_at(Ts(90)) == limits


def test_another_capture_keeps_to_what_the_owner_has_stored() -> None:
    owners = read(read(begun(), 200, Pin(200, 50)).idle_at(Ts(90)), 300, Pin(300, 91))
    stored = recorded_by(owners)
    other = begun().with_stored(stored)
    assert other.global_ts == 0  # it has not read that far
    assert read(other, 200).global_ts == 91
    assert read(other, 300).global_ts == 92
    assert {*owners.numbering} <= {*other.numbering}


def test_what_no_reading_needs_any_more_goes_with_the_low_water() -> None:
    limits = begun()
    for step in range(1, 200):
        idle = read(limits, 100 + 10 * step, Pin(100 + 10 * step, 50 * step))
        limits = idle.idle_at(Ts(50 * step + 20))
        limits = limits.with_stored(recorded_by(limits))
    assert sum(pin.is_needed for pin in limits.pins) == 199
    left = limits.from_position(1_005)
    assert left.pins[0].position == 1_000
    assert {pin for pin in limits.pins if pin.is_needed} - set(left.pins) == {
        pin for pin in limits.pins if pin.is_needed and pin.position < 1_000
    }
    assert left.global_ts == limits.global_ts


def test_w_is_the_least_over_the_parts() -> None:
    limits = PinnedLimits.of(frozenset("ab"), {})
    assert (limits.global_ts, limits.holding_back) == (0, ["a", "b"])
    limits = limits.advance({}, {"a": 0, "b": 0})
    seen = {"a": RecordedWatermark(ts=0, position=3, token=to_token([Pin(3, 70)]))}
    limits = limits.advance(seen, {"a": 3, "b": 0})
    assert (limits.global_ts, limits.holding_back) == (0, ["b"])
    limits = limits.idle_at({"b": Ts(60)})
    limits = limits.settled(Stored(limits.to_record(), is_ours=True))
    assert (limits.global_ts, limits.holding_back) == (61, ["b"])
    assert not limits.all_at(61)


def test_a_part_that_is_added_is_numbered_above_what_others_may_have_resolved() -> None:
    limits = PinnedLimits.of(frozenset("a"), {}).advance({}, {"a": 0})
    limits = limits.with_parts(frozenset("ab"), Ts(500)).advance({}, {"b": 0})
    assert limits.global_ts == 0
    assert limits.numbering("b")[-1].floor_ts == 500
    record = limits.to_record()
    stored = limits.settled(Stored(record, is_ours=True))
    assert stored.by_part["b"].global_ts == 501
    other = PinnedLimits.of(frozenset("ab"), {"a": record["a"]}, above_ts=Ts(700))
    other = other.advance({}, {"b": 0}).settled(Stored(record, is_ours=False))
    assert other.numbering("b") == stored.numbering("b"), "it keeps to what the owner has stored"
