"""The one contract between a capture that dies and who takes over, at its edge."""

from __future__ import annotations

import pytest

from coordination.trust import deadline

TTL_S, MARGIN_S = 10, 2.0


def test_trust_is_counted_from_when_the_request_was_sent() -> None:
    assert deadline.trusted_until(100.0, TTL_S, MARGIN_S) == 108.0


@pytest.mark.parametrize(("ttl_s", "quiet_s"), [(10, 5.0), (4, 5.0), (30, 15.0)])
def test_margin_and_grace_are_half_a_ttl_and_five_seconds_at_least(
    ttl_s: int, quiet_s: float
) -> None:
    grace_s = deadline.removal_grace_s(ttl_s, MARGIN_S)
    assert MARGIN_S + grace_s == quiet_s
    assert deadline.removal_grace_s(ttl_s, 20.0) == 0.0


def test_spans_are_given_away_when_the_grace_is_over_and_not_a_moment_sooner() -> None:
    grace_s = deadline.removal_grace_s(TTL_S, MARGIN_S)
    assert not deadline.is_given_away(110.0, grace_s, 110.0 + grace_s - 0.001)
    assert deadline.is_given_away(110.0, grace_s, 110.0 + grace_s)


@pytest.mark.parametrize("ttl_s", [5, 10, 60])
@pytest.mark.parametrize("request_s", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("notice_s", [0.0, 0.2])
def test_between_the_last_write_and_the_first_of_a_successor_lie_margin_and_grace(
    ttl_s: int, request_s: float, notice_s: float
) -> None:
    """On one line of true time: sent at 0, granted at `request_s`, its end seen `notice_s` late."""
    grace_s = deadline.removal_grace_s(ttl_s, MARGIN_S)
    closes = deadline.trusted_until(0.0, ttl_s, MARGIN_S)
    lease_ends = request_s + ttl_s
    given_away = (lease_ends + notice_s) + grace_s
    assert closes < lease_ends
    assert deadline.is_given_away(lease_ends + notice_s, grace_s, given_away)
    assert given_away - closes >= MARGIN_S + grace_s
    assert given_away <= request_s + ttl_s + notice_s + grace_s + 1e-9
