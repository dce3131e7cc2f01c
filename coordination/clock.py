"""The one clock that trust is measured on.

It goes on while the process is stopped (SIGSTOP) *and* while the machine is suspended: a laptop
that slept must not wake up trusting a lease that ended. On Linux that is CLOCK_BOOTTIME
(CLOCK_MONOTONIC stands still there), on macOS CLOCK_MONOTONIC. No clock of a virtual machine counts
for how long its host did not let it run: docs/operations.md says what holds then.
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
        return time.clock_gettime(_COUNTS_SUSPENSION)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(max(0.0, timeout_s))


_COUNTS_SUSPENSION = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
