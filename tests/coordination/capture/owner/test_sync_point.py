from __future__ import annotations

import pytest

from coordination.capture.owner.sync_point import DEFAULT_INTERVAL_MS, interval_ms, next_sync_point
from coordination.errors import TidelakeError
from coordination.model import TSO_LOGICAL_BITS


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, DEFAULT_INTERVAL_MS),
        (600_000_000_000, 600_000),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("1.5s", 1_500),
        ("250ms", 250),
    ],
)
def test_an_interval_is_gos_nanoseconds_or_a_users_text(value: object, expected: int) -> None:
    assert interval_ms({"enable-sync-point": True, "sync-point-interval": value}) == expected


@pytest.mark.parametrize("value", ["", "10", "ten minutes", "0s", "-1m", 0, 999])
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(TidelakeError, match="sync-point-interval"):
        interval_ms({"enable-sync-point": True, "sync-point-interval": value})


@pytest.mark.parametrize("config", [None, {}, {"enable-sync-point": False}])
def test_they_are_off_unless_asked_for(config: dict[str, object] | None) -> None:
    assert interval_ms(config) is None


@pytest.mark.parametrize(
    ("after_ms", "expected_ms"), [(0, 4_000), (3_999, 4_000), (4_000, 8_000), (4_001, 8_000)]
)
def test_the_next_point_is_above_on_the_grid(after_ms: int, expected_ms: int) -> None:
    after_ts = after_ms << TSO_LOGICAL_BITS
    assert next_sync_point(after_ts, 4_000) == expected_ms << TSO_LOGICAL_BITS
