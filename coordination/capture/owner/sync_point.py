"""Sync points: timestamps at which all spans stop, so that a snapshot of all tables is one moment.

The points lie on a grid of TiDB's physical clock: with an interval of 10 minutes, every full ten
minutes. So every owner computes the same points, and needs nothing from the owner before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from coordination.metadata.duration import duration_ms
from coordination.model import TSO_LOGICAL_BITS, Ts

DEFAULT_INTERVAL_MS: Final = 600_000  # sync-point-interval


def interval_ms(config: Mapping[str, Any] | None) -> int | None:
    """The sync point interval in a changefeed's ``config``, in ms; None if sync points are off.
    Raises ``ConfigError``."""
    if not config or not config.get("enable-sync-point"):
        return None
    value = config.get("sync-point-interval")
    if value is None:
        return DEFAULT_INTERVAL_MS
    return duration_ms("sync-point-interval", value)


def next_sync_point(after_ts: int, interval: int) -> Ts:
    """The first point of the grid above `after_ts`; `interval` is in ms."""
    physical_ms = after_ts >> TSO_LOGICAL_BITS
    return Ts((physical_ms // interval + 1) * interval << TSO_LOGICAL_BITS)
