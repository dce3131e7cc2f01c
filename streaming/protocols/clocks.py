"""How late a TSO may be, by the clocks. Pure.

With a TSO of the far future, all changes of the next years would count as applied or resolved, and
would be passed over. Clocks may be wrong, and a clock that is behind must not stop a correct feed.
So the later of two clocks counts: the reader's, and the broker's (or the producers'), as the
timestamps of messages tell it.
"""

from __future__ import annotations

from typing import Final

from coordination.model import TSO_LOGICAL_BITS, Ts, tso_time

AHEAD_MS: Final = 60_000  # by so much may TiDB's clock be ahead of both
# No TSO is so late. What a producer has written in µs or ns is beyond it.
LATEST_MS: Final = 1 << (63 - TSO_LOGICAL_BITS)
# A row or DDL that is so much further ahead than a watermark may be would be kept for as long, and
# all that the source has from there on would be needed.
KEPT_MS: Final = 24 * 3_600_000


def latest_ts(*clocks_ms: float) -> Ts:
    """The last TSO that a watermark may have by these clocks (ms since 1970). A time beyond all
    TSOs counts for nothing."""
    at_ms = max((int(each) for each in clocks_ms if each < LATEST_MS), default=0)
    return Ts((min(at_ms + AHEAD_MS + 1, LATEST_MS) << TSO_LOGICAL_BITS) - 1)


def beyond_ts(clock_ms: float) -> Ts:
    """A TSO that no number is above which was given up to now, by any reader whose clock is less
    than a minute ahead of this one."""
    return latest_ts(clock_ms + AHEAD_MS)


def clock_of(latest: int) -> str:
    """The later clock, which gave `latest_ts`."""
    return shown_ts(latest - (AHEAD_MS << TSO_LOGICAL_BITS))


def shown_ts(ts: int) -> str:
    return f"{tso_time(ts):%Y-%m-%d %H:%M:%S} UTC"
