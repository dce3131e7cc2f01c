"""A clock that a test moves by hand."""

from __future__ import annotations

import threading


class FakeClock:
    """`wait` returns when the event is set or when `advance` has passed the time."""

    def __init__(self, now: float = 1000.0) -> None:
        self._now = now
        self._moved = threading.Condition()

    def monotonic(self) -> float:
        with self._moved:
            return self._now

    def advance(self, seconds: float) -> None:
        with self._moved:
            self._now += seconds
            self._moved.notify_all()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        deadline = self.monotonic() + timeout_s
        with self._moved:
            while not event.is_set() and self._now < deadline:
                self._moved.wait(0.01)  # the event does not notify this condition
        return event.is_set()
