"""The one clock that trust is measured on.

CLOCK_BOOTTIME goes on while the process is stopped (SIGSTOP) *and* while the machine is suspended,
which CLOCK_MONOTONIC does not: a laptop that slept must not wake up trusting a lease that ended.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic time, and waiting on it; tests have one that they move by hand."""

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back."""
        ...

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Block until the event is set or the time is over; True if it is set."""
        ...


class SystemClock:
    """The machine's own clock."""

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) if _HAS_BOOTTIME else time.monotonic()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(max(0.0, timeout_s))


_HAS_BOOTTIME = hasattr(time, "CLOCK_BOOTTIME")
