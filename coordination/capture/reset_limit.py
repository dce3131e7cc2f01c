"""How often a process may start a new capture. Pure: the caller has the clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

RESET_INTERVAL_S: Final = 20.0  # as TiCDC: one reset per 20 s …
RESET_BURST: Final = 2  # … after a burst of two


@dataclass(slots=True)
class ResetLimit:
    """A token bucket: up to `burst` resets at once, and one more per `interval_s`."""

    interval_s: float = RESET_INTERVAL_S
    burst: int = RESET_BURST
    _tokens: float = field(init=False)
    _at: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._tokens = self.burst

    def take(self, now: float) -> float:
        """Take one reset; returns how many seconds to wait before it. `now` is in seconds."""
        if self._at is not None:
            refill = (now - self._at) / self.interval_s if self.interval_s else self.burst
            self._tokens = min(self.burst, self._tokens + refill)
        self._at = now
        self._tokens -= 1
        return max(0.0, -self._tokens * self.interval_s)
