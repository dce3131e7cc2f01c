"""The rate of ticks."""

from __future__ import annotations

import math

from coordination.orchestrator.etcd_worker import TickLimit


def test_the_first_tick_is_at_once():
    assert TickLimit(1.0).due_at(has_news=False) == -math.inf
    assert TickLimit(1.0).due_at(has_news=True) == -math.inf


def test_without_news_there_is_one_tick_per_interval():
    limit = TickLimit(1.0)
    limit.take(10.0)
    assert limit.due_at(has_news=False) == 11.0


def test_a_reactor_that_is_not_due_rests():
    limit = TickLimit(0.05, rest_s=1.0)
    limit.take(10.0)
    assert limit.due_at(has_news=False, reactor_due_at=10.0) == 10.05
    assert limit.due_at(has_news=False, reactor_due_at=10.3) == 10.3
    assert limit.due_at(has_news=False, reactor_due_at=math.inf) == 11.0, "a wake-up may be lost"
    assert limit.due_at(has_news=True, reactor_due_at=math.inf) <= 10.0


def test_news_after_a_rest_are_not_made_to_wait():
    limit = TickLimit(1.0)
    limit.take(10.0)
    assert limit.due_at(has_news=True) <= 10.0


def test_a_flood_of_news_ticks_once_per_interval():
    limit, now, ticks = TickLimit(0.05), 100.0, 0
    while now < 110.0:
        if now >= limit.due_at(has_news=True):
            limit.take(now)
            ticks += 1
        now += 0.001
    assert ticks in range(199, 203)  # 200 and the burst
