"""The binlog's limit: what was read completely is resolved, and an idle log's pin when stored."""

from __future__ import annotations

from coordination.model import Ts
from sinks.control.changefeeds import RecordedWatermark
from streaming.source.binlog.walk.limits import BinlogLimits
from streaming.source.resolved.commit_clock import Pin, to_token

PART = "binlog"


def begun(position: int = 100) -> BinlogLimits:
    return BinlogLimits.of(PART, None).advance({}, {PART: position})


def read(limits: BinlogLimits, to: int, *pins: Pin) -> BinlogLimits:
    seen = {PART: RecordedWatermark(ts=0, position=to, token=to_token(pins))} if pins else {}
    return limits.advance(seen, {PART: to})


def test_nothing_is_resolved_before_a_transaction_was_read() -> None:
    assert begun().global_ts == 0
    assert not begun().all_at(5)


def test_whole_transactions_are_resolved() -> None:
    limits = read(begun(), 200, Pin(200, 50))
    assert limits.global_ts == 51  # L = 50
    assert limits.all_at(51)
    assert limits.holding_back == [PART]


def test_a_transaction_that_is_read_in_part_is_not() -> None:
    limits = read(read(begun(), 200, Pin(200, 50)), 300)
    assert limits.global_ts == 51


def test_a_restart_knows_the_numbers_from_where_it_begins() -> None:
    before = read(read(begun(), 200, Pin(200, 50)), 300, Pin(300, 60))
    mark = before.to_record()[PART]
    assert (mark.ts, mark.position) == (61, 300)
    again = BinlogLimits.of(PART, mark).advance({}, {PART: 250})
    assert again.global_ts == 51
    assert again.pins == before.pins


def test_what_a_time_that_is_not_believed_has_numbered_counts_when_it_is_stored() -> None:
    """A restart with another clock would believe it, and number otherwise."""
    limits = read(begun(), 200, Pin(200, 50))
    limits = read(limits, 300, Pin(280, 52, is_needed=True), Pin(300, 60))
    assert limits.global_ts == 51
    stored = limits.to_record()[PART]
    limits = read(limits, 400, Pin(400, 70, is_needed=True), Pin(400, 70))
    limits = limits.with_stored(stored)
    assert limits.global_ts == 61
    assert limits.with_stored(limits.to_record()[PART]).global_ts == 71


def test_a_log_that_is_idle_for_longer_has_one_pin() -> None:
    limits = read(begun(), 200, Pin(200, 50)).idle_at(Ts(90))
    stored = limits.to_record()[PART]
    limits = limits.idle_at(Ts(95))
    assert limits.with_stored(stored).global_ts == 51
    assert limits.with_stored(limits.to_record()[PART]).global_ts == 96


def test_an_idle_log_moves_the_limit_when_its_pin_is_stored() -> None:
    limits = read(begun(), 200, Pin(200, 50)).idle_at(Ts(90))
    assert limits.global_ts == 51
    assert limits.numbering[-1] == Pin(200, 50, above_ts=90, is_needed=True)
    recorded = limits.to_record()[PART]
    assert recorded.ts == 51
    assert limits.with_stored(None) == limits
    assert limits.with_stored(read(begun(), 200, Pin(200, 50)).to_record()[PART]) == limits
    stored = limits.with_stored(recorded)
    assert stored.global_ts == 91
    assert BinlogLimits.of(PART, recorded).advance({}, {PART: 200}).global_ts == 91


def test_what_comes_behind_an_idle_log_is_above_its_pin_stored_or_not() -> None:
    idle = read(begun(), 200, Pin(200, 50)).idle_at(Ts(90))
    limits = read(idle, 300, Pin(300, 91))
    assert limits.global_ts == 51
    assert limits.with_stored(limits.to_record()[PART]).global_ts == 92
    assert Pin(200, 50, above_ts=90, is_needed=True) in limits.numbering


def test_a_first_reading_of_an_idle_log_has_a_limit_too() -> None:
    limits = begun().idle_at(Ts(90))
    assert limits.with_stored(limits.to_record()[PART]).global_ts == 91


def test_an_idle_log_amid_a_transaction_moves_nothing() -> None:
    limits = read(read(begun(), 200, Pin(200, 50)), 300)
    assert limits.idle_at(Ts(90)) == limits


def test_another_capture_keeps_to_what_the_owner_has_stored() -> None:
    owners = read(read(begun(), 200, Pin(200, 50)).idle_at(Ts(90)), 300, Pin(300, 91))
    stored = owners.to_record()[PART]
    other = begun().with_stored(stored)
    assert other.global_ts == 0  # it has not read that far
    assert read(other, 200).global_ts == 91
    assert read(other, 300).global_ts == 92
    assert {*owners.numbering} <= {*other.numbering}
