from __future__ import annotations

from contextlib import suppress

from coordination.watchdog import Watchdog
from tests.fakes.fake_clock import FakeClock


def made() -> tuple[FakeClock, Watchdog]:
    clock = FakeClock()
    return clock, Watchdog(clock)


def test_a_step_may_take_its_limit_and_no_longer() -> None:
    clock, watchdog = made()
    loop = watchdog.watch("the loop", 60.0)
    loop.step()
    clock.advance(60.0)
    assert watchdog.overdue() == ""
    clock.advance(1.0)
    assert watchdog.overdue() == "the loop hangs: no step for 61 s (the limit is 60 s)"


def test_who_rests_cannot_hang() -> None:
    clock, watchdog = made()
    loop = watchdog.watch("the loop", 60.0)
    clock.advance(3600)
    assert watchdog.overdue() == ""
    with loop:
        clock.advance(59.0)
    clock.advance(3600)
    assert watchdog.overdue() == ""


def test_what_gets_on_does_not_hang_however_long_it_takes() -> None:
    clock, watchdog = made()
    loop = watchdog.watch("a commit", 60.0)
    loop.step()
    for _ in range(100):
        clock.advance(59.0)
        assert loop.age_s == 59.0
        loop.get_on()
    assert watchdog.overdue() == ""
    loop.rest()
    loop.get_on()  # a thread of its step that was late to say so
    clock.advance(61.0)
    assert watchdog.overdue() == ""


def test_what_gets_on_again_hangs_no_more() -> None:
    clock, watchdog = made()
    loop = watchdog.watch("the loop", 60.0)
    loop.step()
    clock.advance(61.0)
    assert watchdog.overdue()
    loop.step()
    assert watchdog.overdue() == ""


def test_one_that_works_does_not_hide_another_that_hangs() -> None:
    clock, watchdog = made()
    one, other = watchdog.watch("reading", 60.0), watchdog.watch("applying", 600.0)
    one.step()
    other.step()
    clock.advance(61.0)
    other.step()
    assert watchdog.overdue().startswith("reading hangs")
    one.rest()
    clock.advance(601.0)
    assert watchdog.overdue().startswith("applying hangs")


def test_a_step_that_ends_in_an_error_has_ended() -> None:
    clock, watchdog = made()
    loop = watchdog.watch("the loop", 60.0)
    with suppress(ZeroDivisionError), loop:
        assert 1 / 0
    clock.advance(61.0)
    assert watchdog.overdue() == ""
