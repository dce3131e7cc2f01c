from __future__ import annotations

from coordination.capture.reset_limit import ResetLimit


def test_two_at_once_then_one_per_interval() -> None:
    limit = ResetLimit(interval_s=20.0, burst=2)
    assert [limit.take(100.0), limit.take(100.0)] == [0.0, 0.0]
    assert limit.take(100.0) == 20.0
    assert limit.take(125.0) == 15.0


def test_a_long_life_fills_the_bucket_but_not_beyond_the_burst() -> None:
    limit = ResetLimit(interval_s=20.0, burst=2)
    limit.take(0.0)
    assert [limit.take(1e6) for _ in range(3)] == [0.0, 0.0, 20.0]


def test_no_interval_is_no_limit() -> None:
    limit = ResetLimit(interval_s=0.0, burst=1)
    assert [limit.take(0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
