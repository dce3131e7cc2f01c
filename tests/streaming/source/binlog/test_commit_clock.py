"""The commit-ts of the binlog's transactions: rising, near their own time, and the same again."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from coordination.errors import TidelakeError
from coordination.model import TSO_LOGICAL_BITS, Ts
from streaming.source.resolved.commit_clock import (
    MOST_PINS,
    Pin,
    from_token,
    needed_pins,
    numbered,
    pin_at,
    to_token,
    with_pins,
)

NOW_MS = 1_700_000_000_000
LATEST = Ts((NOW_MS + 60_000) << TSO_LOGICAL_BITS)


def number(
    own_ms: list[int],
    *,
    after: int = 0,
    pins: tuple[Pin, ...] = (),
    first: int = 0,
    latest: Ts = LATEST,
):
    count = len(own_ms)
    begins = np.arange(first, first + count, dtype=np.int64) * 10
    own = np.array(own_ms, np.int64)
    made = numbered(begins, own, after=after, pins=pins, latest=latest)
    return made, needed_pins(begins + 10, made, own, open_end=1 << 62)


def test_a_transaction_has_its_own_time() -> None:
    made, pins = number([NOW_MS, NOW_MS + 5])
    assert made.commit_ts.tolist() == [NOW_MS << 18, (NOW_MS + 5) << 18]
    assert pins == ()


def test_the_order_of_the_log_wins_over_own_times() -> None:
    made, _ = number([NOW_MS, NOW_MS, NOW_MS - 9, NOW_MS + 1])
    first = NOW_MS << 18
    assert made.commit_ts.tolist() == [first, first + 1, first + 2, (NOW_MS + 1) << 18]


def test_numbering_goes_on_above_what_was_before() -> None:
    after = (NOW_MS + 1_000) << 18
    assert number([NOW_MS, NOW_MS + 2_000], after=after)[0].commit_ts.tolist() == [
        after + 1,
        (NOW_MS + 2_000) << 18,
    ]


def test_a_time_years_ahead_is_not_believed_and_is_pinned() -> None:
    made, pins = number([NOW_MS, 4_000_000_000_000, NOW_MS + 7])
    first = NOW_MS << 18
    assert made.commit_ts.tolist() == [first, first + 1, (NOW_MS + 7) << 18]
    assert pins == (Pin(20, first + 1, is_needed=True),)


def test_a_replay_that_believes_the_clock_numbers_as_before() -> None:
    """The reader's clock has passed the time that was not believed."""
    made, pins = number([NOW_MS, NOW_MS + 3_600_000, NOW_MS + 7])
    begins = np.arange(3, dtype=np.int64) * 10
    own = np.array([NOW_MS, NOW_MS + 3_600_000, NOW_MS + 7], np.int64)
    later = Ts((NOW_MS + 7_200_000) << 18)
    again = numbered(begins, own, after=0, pins=pins, latest=later)
    assert again.commit_ts.tolist() == made.commit_ts.tolist()


def test_an_idle_pin_raises_what_comes_behind_and_bounds_nothing_before() -> None:
    """The log may go on in another file, where no transaction begins at the pin."""
    idle = Pin(5, 7, above_ts=(NOW_MS + 50) << 18, is_needed=True)
    made, _ = number([NOW_MS, NOW_MS + 100], pins=(idle,), first=1)
    assert made.commit_ts.tolist() == [idle.above_ts + 1, (NOW_MS + 100) << 18]


def test_two_pins_of_one_place_both_hold() -> None:
    known = with_pins([Pin(10, 50, is_needed=True)], [Pin(10, 80), Pin(10, 50, above_ts=90)])
    assert known == (Pin(10, 50, above_ts=90, is_needed=True),)


@pytest.mark.seeds(80)
def test_numbering_from_any_pin_gives_the_same(seed: int) -> None:
    """Whatever the clock is by then."""
    chance = random.Random(seed)
    count = chance.randint(1, 60)
    off_ms = (0, 0, 1, -5_000, 1_000, 59_000, 61_000, 70_000, 10**7)
    own = [NOW_MS + chance.choice(off_ms) + i // 3 for i in range(count)]
    whole, needed = number(own)
    pins = [Pin(0, 0), *needed]
    for at in range(0, count, chance.randint(1, 7)):
        if at:
            pins.append(Pin(at * 10, int(whole.commit_ts[at - 1])))
    known = with_pins((), pins)
    later = Ts(LATEST + (chance.choice((0, 5_000, 60_000, 10**8)) << TSO_LOGICAL_BITS))
    # Behind the last needed pin there are believed times alone.
    for start in range(count):
        pin = pin_at(known, start * 10)
        assert pin is not None
        first = pin.position // 10
        again, _ = number(own[first:], after=pin.floor_ts, pins=known, first=first, latest=later)
        assert again.commit_ts.tolist() == whole.commit_ts[first:].tolist()


def test_pins_are_few_and_lie_closer_near_the_end() -> None:
    pins: tuple[Pin, ...] = (Pin(0, 1), Pin(777, 2, is_needed=True))
    for at in range(1, 3_000):
        pins = with_pins(pins, [Pin(at * 1_000, at)])
    assert len(pins) == MOST_PINS + 1
    assert pins[0] == Pin(0, 1)
    assert Pin(777, 2, is_needed=True) in pins
    assert pins[-1] == Pin(2_999_000, 2_999)
    last = pins[-1].position
    for before, after in pairwise(pins):
        assert after.position - before.position <= max(1_000, (last - before.position) * 0.5 + 1)


def test_a_token_comes_back() -> None:
    pins = (Pin(1 << 50, NOW_MS << 18), Pin((1 << 50) + 1, NOW_MS << 18, 7, True))
    assert from_token(to_token(pins)) == pins
    assert from_token("") == ()


@pytest.mark.parametrize(
    "token",
    [
        *("[[4,5,0,0,0]]", "[[4,5,0,0,0,null,1]]", "[[4,5,0,0,0,[1,2]]]", "[4]", "4", "{", '"a"'),
        *('[[4,5,0,0,0,["a",0,0]]]', '[["4",5,0,0,0,null]]', "[[4,null,0,0,0,null]]"),
    ],
)
def test_a_token_of_another_version_is_one_sentence(token: str) -> None:
    with pytest.raises(TidelakeError, match=r"Another version of Tidelake.*another warehouse"):
        from_token(token)
