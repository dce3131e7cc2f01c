"""What a number that should be a TSO may be instead: a time in another unit."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

LOGICAL_BITS: Final = 18
_FROM_S: Final = 1_262_304_000  # 2010: TiDB is younger
_UNTIL_S: Final = 4_102_444_800  # 2100
_UNITS: Final = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


def other_unit(ts: int) -> str | None:
    """A sentence on a number that is no TSO but a time, such as seconds since 1970; else None. Read
    as a TSO it would be a moment of 1970, or of the far future."""
    if ts % (1 << LOGICAL_BITS) == 0:  # a TSO that was made of a time
        return None
    for unit, per_s in _UNITS.items():
        if _FROM_S <= ts / per_s < _UNTIL_S:
            return _advice(ts, f"{unit} since 1970", ts * 1000 // per_s)
    if len(str(ts)) == 14:
        with suppress(ValueError):
            at = datetime.strptime(str(ts), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
            return _advice(ts, "a date and time", int(at.timestamp()) * 1000)
    return None


def _advice(ts: int, what: str, ms: int) -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return (
        f"{ts} looks like {what} ({at:%Y-%m-%d %H:%M:%S} UTC), and is no TSO: the TSO of that time "
        f"is {ms << LOGICAL_BITS} (milliseconds since 1970, times 2^{LOGICAL_BITS})"
    )
