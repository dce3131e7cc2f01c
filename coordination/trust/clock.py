"""The one clock on which a capture's trust in its session is measured.

It goes on while the process is stopped (SIGSTOP) *and* while the machine is suspended: a machine
that wakes up must not trust a lease that has ended meanwhile. On Linux that is CLOCK_BOOTTIME
(CLOCK_MONOTONIC stands still in a suspension), on macOS CLOCK_MONOTONIC. No clock of a virtual
machine counts the time for which its host did not run it: docs/operations.md says what holds then.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic time, and waiting on it. Tests have a clock that they move by hand."""

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back."""
        ...

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Block until the event is set or `timeout_s` seconds are over; True if it is set."""
        ...


class SystemClock:
    """The machine's own clock."""

    def monotonic(self) -> float:
        return time.clock_gettime(_COUNTS_SUSPENSION)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(max(0.0, timeout_s))


_COUNTS_SUSPENSION = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
