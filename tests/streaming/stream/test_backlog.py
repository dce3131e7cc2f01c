"""Messages behind, rate and time left, as an operator would count them by hand."""

from __future__ import annotations

import pytest

from streaming.stream.backlog import Backlog, BacklogMeter


def meter(read: int = 0, end: int = 0, now_s: float = 100.0) -> BacklogMeter:
    made = BacklogMeter()
    made.begin({"t/0": read}, now_s)
    made.ends_at({"t/0": end}, now_s)
    return made


def test_before_a_batch_is_done_there_is_a_backlog_and_no_rate():
    found = meter(10, 1_010).look(101)
    assert (found.behind, found.per_s, found.left_s) == (1_000, None, None)


def test_what_the_broker_has_not_told_is_not_known():
    made = BacklogMeter()
    assert made.look(0).behind is None
    made.begin({"t/0": 5, "t/1": 0}, 0)
    assert made.look(0).behind is None
    made.ends_at({"t/0": 9}, 1)
    assert made.look(1).behind is None
    made.ends_at({"t/0": 9, "t/1": 1}, 2)
    assert made.look(2).behind == 5


def test_a_rate_is_what_was_done_over_the_time_that_it_took():
    made = meter(0, 100_000)
    made.read_to({"t/0": 10_000}, 110)
    made.read_to({"t/0": 30_000}, 120)
    found = made.look(125)  # the third batch is under way: it counts when it is done
    assert (found.behind, found.per_s, found.left_s) == (70_000, 1_500, pytest.approx(70 / 1.5))


def test_a_batch_longer_than_the_window_still_tells_the_rate():
    made = meter(0, 1_000_000)
    made.read_to({"t/0": 500}, 101)
    made.read_to({"t/0": 200_500}, 301)
    assert made.look(500).per_s == 1_000


def test_what_comes_in_meanwhile_makes_it_longer():
    made = meter(0, 100_000)
    for second in range(1, 21):
        made.read_to({"t/0": 1_000 * second}, 100 + second)
        made.ends_at({"t/0": 100_000 + 500 * second}, 100 + second)
    found = made.look(120)
    assert (found.behind, found.per_s, found.growth_per_s) == (90_000, 1_000, 500)
    assert found.left_s == 180


@pytest.mark.parametrize("growth", [1_000.0, 2_000.0])
def test_who_does_not_catch_up_is_told_no_time(growth: float):
    found = Backlog(read={"t/0": 0}, ends={"t/0": 90_000}, per_s=1_000, growth_per_s=growth)
    assert found.left_s is None


def test_of_a_steady_feed_the_last_second_is_no_backlog_that_never_ends():
    found = Backlog(read={"t/0": 0}, ends={"t/0": 1_000}, per_s=1_000, growth_per_s=1_000)
    assert found.left_s == 1


def test_idle_time_lowers_the_rate_and_is_not_counted_as_work():
    made = meter(0, 1_000)
    made.read_to({"t/0": 1_000}, 101)
    assert made.look(101).per_s == 1_000
    assert made.look(200).per_s == 10
    assert made.look(200).left_s == 0
    made.ends_at({"t/0": 1_000}, 3_599)  # still nothing to do
    made.ends_at({"t/0": 61_000}, 3_600)
    made.read_to({"t/0": 31_000}, 3_609)
    assert made.look(3_610).per_s == 3_000


def test_reading_that_begins_again_elsewhere_starts_the_rate_anew():
    made = meter(0, 1_000)
    made.read_to({"t/0": 500}, 101)
    made.read_to({"t/0": 100}, 102)
    assert (made.look(102).behind, made.look(102).per_s) == (900, None)
    made.read_to({"t/0": 200}, 103)
    assert made.look(103).per_s == 100
    made.read_to({"t/0": 200, "t/1": 0}, 104)
    assert (made.look(104).behind, made.look(104).per_s) == (None, None)


def test_an_end_that_is_older_than_what_was_read_is_no_negative_backlog():
    made = meter(0, 10)
    made.read_to({"t/0": 15}, 101)
    assert made.look(102).behind == 0
