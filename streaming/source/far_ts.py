"""Refuse an operator's TSO that is further ahead than the clocks allow."""

from __future__ import annotations

import time

from coordination.errors import ConfigError
from coordination.model import TSO_LOGICAL_BITS
from streaming.protocols.clocks import latest_ts, shown_ts
from streaming.source.contract import Source, SourceClock


def refuse_far_ahead(name: str, ts: int | None, source: Source | None) -> None:
    """Raise ConfigError for a setting with a TSO that is more than a minute ahead. The source is
    asked only if the TSO is ahead of this machine's clock; ``source``: None if it cannot be
    asked."""
    ours_ms = time.time() * 1e3
    if ts is None or ts <= latest_ts(ours_ms):
        return
    clock = source.clock() if source is not None else SourceClock()
    theirs = (each for each in (clock.newest_ms, clock.latest_ms) if each is not None)
    if ts <= latest_ts(ours_ms, *theirs):
        return
    newest = (
        "the source's is not known (it was not asked, did not answer, or has no message)"
        if clock.newest_ms is None
        else f"its newest message is of {_shown_ms(clock.newest_ms)}"
    )
    raise ConfigError(
        f"{name} {ts} is the time {shown_ts(ts)}, more than a minute ahead: this machine's clock "
        f"says {_shown_ms(ours_ms)}, and {newest}. All changes up to then would be passed over: "
        "give a TSO of the past, or set the clock"
    )


def _shown_ms(at_ms: float) -> str:
    return shown_ts(int(at_ms) << TSO_LOGICAL_BITS)
