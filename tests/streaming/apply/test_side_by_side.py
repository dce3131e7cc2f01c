"""Tables of one batch are written side by side; when one fails, its failure is what is heard."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from coordination.errors import Fenced
from streaming.apply.applier import side_by_side


def refuse() -> str:
    raise Fenced("the lease is lost")


def test_results_come_in_the_order_of_the_jobs():
    first_may_end = threading.Event()

    def first() -> str:
        assert first_may_end.wait(60)
        return "first"

    def second() -> str:
        first_may_end.set()
        return "second"

    with ThreadPoolExecutor(2) as pool:
        assert side_by_side(pool, [first, second]) == ["first", "second"]
        assert side_by_side(pool, []) == []


@pytest.mark.parametrize("place", [0, 1, 2, 5])
def test_the_failure_is_raised_and_not_that_others_were_cancelled(place: int):
    jobs: list[Callable[[], str]] = [lambda: "done"] * 6
    jobs[place] = refuse
    with ThreadPoolExecutor(2) as pool, pytest.raises(Fenced, match="the lease is lost"):
        side_by_side(pool, jobs)


def test_what_runs_has_ended_and_the_rest_never_begins():
    failing, ended, begun = threading.Event(), threading.Event(), []

    def slow() -> str:
        failing.wait(60)
        ended.wait(0.1)
        ended.set()
        return "slow"

    def fail() -> str:
        failing.set()
        return refuse()

    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(Fenced):
            side_by_side(pool, [slow, fail, *[lambda: begun.append(1) or "late"] * 20])
        assert ended.is_set()
        assert len(begun) < 20
