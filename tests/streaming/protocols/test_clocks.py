"""How late a TSO may be."""

from __future__ import annotations

from conf.forms import other_unit
from coordination.model import TSO_LOGICAL_BITS
from streaming.protocols.clocks import AHEAD_MS, latest_ts

NOW_MS = 1_700_000_000_000


def tso(ms: int) -> int:
    return ms << TSO_LOGICAL_BITS


def test_the_later_clock_counts_and_a_minute() -> None:
    for clocks in ((NOW_MS, 5), (5, NOW_MS), (NOW_MS,), (NOW_MS, NOW_MS * 1000)):
        latest = latest_ts(*clocks)
        assert tso(NOW_MS + AHEAD_MS) <= latest < tso(NOW_MS + AHEAD_MS + 1)
    assert latest_ts(NOW_MS * 1_000_000) < tso(NOW_MS)  # in ns: it tells nothing


def test_times_in_other_units_are_known_for_what_they_are() -> None:
    for ts, unit in (
        (1_700_000_001, "seconds since 1970"),
        (1_700_000_000_123, "milliseconds since 1970"),
        (1_700_000_000_123_456, "microseconds since 1970"),
        (1_700_000_000_123_456_789, "nanoseconds since 1970"),
        (20231114221320, "a date and time"),
    ):
        said = other_unit(ts)
        assert said is not None
        assert f"{ts} looks like {unit} (2023-11-14 22:13:2" in said
        assert "is no TSO" in said


def test_tsos_are_known_for_what_they_are() -> None:
    for ts in (0, 1, 5, 900, 449_999_999_999_999_999, 470_620_744_125_251_584, 2**63 - 1):
        assert other_unit(ts) is None
    assert not any(other_unit(tso(n)) for n in range(10_000))  # small ones, as tests have them
