"""Sync points: timestamps at which all spans stop, so that a snapshot of all tables is one moment.

The grid is the physical clock of TiDB: with an interval of 10 minutes every full ten minutes. So
every owner has the same points, and none is told by the one before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from coordination.errors import TidelakeError
from coordination.model import TSO_LOGICAL_BITS, Ts

DEFAULT_INTERVAL_MS: Final = 600_000  # sync-point-interval
_NS_PER_MS: Final = 1_000_000
_UNIT_MS: Final = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0, "h": 3_600_000.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def interval_ms(config: Mapping[str, Any] | None) -> int | None:
    """Of a changefeed's ``config``; None where sync points are off. Raises ``TidelakeError``.

    A duration is nanoseconds, as Go writes it, or text as a user does: ``10m``, ``1h30m``."""
    if not config or not config.get("enable-sync-point"):
        return None
    value = config.get("sync-point-interval")
    if value is None:
        return DEFAULT_INTERVAL_MS
    interval = value // _NS_PER_MS if isinstance(value, int) else _parsed_ms(str(value))
    if interval <= 0:
        raise TidelakeError(f"sync-point-interval {value!r} must be a duration above 0, as 10m")
    return interval


def next_sync_point(after_ts: int, interval: int) -> Ts:
    """The first point of the grid above `after_ts`."""
    physical_ms = after_ts >> TSO_LOGICAL_BITS
    return Ts((physical_ms // interval + 1) * interval << TSO_LOGICAL_BITS)


def _parsed_ms(text: str) -> int:
    parts = _PART.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        return 0
    return int(sum(float(number) * _UNIT_MS[unit] for number, unit in parts))
