"""How often a reactor may tick: once per interval, twice in a row after a rest. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TICK_BURST: Final = 2  # as TiCDC: an event is not made to wait for the timer


@dataclass(slots=True)
class TickLimit:
    """Ticks on news as soon as the rate allows it, and without news once per interval."""

    interval_s: float
    _last: float = float("-inf")
    _paid_until: float = float("-inf")  # ticks taken so far are paid for by then

    def due_at(self, *, has_news: bool) -> float:
        """When the next tick may be; -inf is at once."""
        if not has_news:
            return self._last + self.interval_s
        return self._paid_until - self.interval_s * (TICK_BURST - 1)

    def take(self, now: float) -> None:
        """A tick takes place now."""
        self._last = now
        self._paid_until = max(now, self._paid_until) + self.interval_s
