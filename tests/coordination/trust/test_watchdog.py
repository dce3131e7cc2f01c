from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from coordination.trust.watchdog import Watchdog, end_with
from tests.fakes.fake_clock import FakeClock
from tests.own_lines import own_records


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


class Ended(BaseException):
    """Instead of the end of the process."""


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        raise Ended

    monkeypatch.setattr(os, "_exit", end)
    return codes


class Looks(threading.Event):
    """So many looks; the clock goes on with each, and with some of them the loop makes a step."""

    def __init__(self, clock: FakeClock, looks: int, steps: Callable[[], None] | None) -> None:
        super().__init__()
        self._clock, self.left, self._steps = clock, looks, steps

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.advance(timeout or 0.0)
        self.left -= 1
        if self._steps is not None:
            self._steps()
        return self.left < 0


def test_a_loop_that_hangs_ends_the_process_with_one_line(
    ended: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    clock, watchdog = made()
    loop = watchdog.watch("the loop", 60.0)
    loop.step()
    looks = Looks(clock, 1000, None)
    with pytest.raises(Ended):
        end_with(loop, lambda: 10.0, looks)
    assert ended == [1]
    assert 1000 - looks.left == 71
    (line,) = own_records(caplog)
    assert line.getMessage() == "the loop hangs: no step for 71 s, so this process ends"


@pytest.mark.parametrize("steps", ["steps", "rests"])
def test_a_loop_that_steps_or_rests_does_not_end_the_process(ended: list[int], steps: str) -> None:
    clock, watchdog = made()
    loop = watchdog.watch("the loop", 60.0)
    loop.step()
    end_with(loop, lambda: 10.0, Looks(clock, 1000, loop.step if steps == "steps" else loop.rest))
    assert ended == []


def test_a_process_that_stood_still_has_its_time(ended: list[int]) -> None:
    clock, watchdog = made()
    loop = watchdog.watch("the loop", 60.0)
    loop.step()
    clock.advance(3600)  # SIGSTOP: nobody has looked meanwhile
    end_with(loop, lambda: 10.0, Looks(clock, 60, None))
    assert ended == []
