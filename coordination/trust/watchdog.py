"""Finds loops that hang: a step takes longer than it may. While one hangs, no keep-alive is sent.

    rest ──step()──► under way ──step(), get_on()──► under way, as of now
      ▲                  │  └── longer than its limit ──► `overdue` names it, until it gets on
      └──── rest() ──────┘

Each loop of a capture tells the watchdog when a step of its work begins, and when no step is under
way. The session asks before each keep-alive: while something is overdue none is sent, so the lease
ends and other captures take the tables. A loop that waits for another loop rests meanwhile: then
only the other one can be overdue.

If something hangs, the coordination loop ends the capture, and the process if that does not help.
If that loop itself hangs, `end_with` ends the process, on a thread of its own."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

from coordination.trust.clock import Clock

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0  # between two looks of `end_with` at its loop
SAID_WITHIN_S: Final = 5.0  # how long `end_with` waits for its log line to be written


class Watchdog:
    """The watched loops of one process. Thread-safe; no method blocks."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.under_way: dict[Watched, float] = {}  # since when

    def watch(self, what: str, limit_s: float) -> Watched:
        """Watch one more loop, which rests at first. ``what`` is its name in messages."""
        return Watched(self, what, limit_s)

    def overdue(self) -> str:
        """A sentence with the loop that has hung for longest, and for how long; empty if none."""
        now = self.clock.monotonic()
        with self.lock:
            late = [(now - since, each) for each, since in self.under_way.items()]
        late = [(age_s, each) for age_s, each in late if age_s > each.limit_s]
        if not late:
            return ""
        age_s, oldest = max(late, key=lambda each: each[0])
        return f"{oldest.what} hangs: no step for {age_s:.0f} s (the limit is {oldest.limit_s:g} s)"


class Watched:
    """One loop. A ``with`` block of it is one step."""

    def __init__(self, watchdog: Watchdog, what: str, limit_s: float) -> None:
        self.what = what
        self.limit_s = limit_s
        self._watchdog = watchdog

    def step(self) -> None:
        """A step begins, and the one before has ended."""
        with self._watchdog.lock:
            self._watchdog.under_way[self] = self._watchdog.clock.monotonic()

    def get_on(self) -> None:
        """The step that is under way, if any, makes progress: its time counts anew. Any thread."""
        with self._watchdog.lock:
            if self in self._watchdog.under_way:
                self._watchdog.under_way[self] = self._watchdog.clock.monotonic()

    def rest(self) -> None:
        """No step is under way."""
        with self._watchdog.lock:
            self._watchdog.under_way.pop(self, None)

    @property
    def since(self) -> float | None:
        """When the step that is under way began or last made progress; None if there is none."""
        with self._watchdog.lock:
            return self._watchdog.under_way.get(self)

    @property
    def age_s(self) -> float:
        """Seconds since the step that is under way began or last made progress; 0 if none is."""
        since = self.since
        return 0.0 if since is None else self._watchdog.clock.monotonic() - since

    def __enter__(self) -> None:
        self.step()

    def __exit__(self, *_: object) -> None:
        self.rest()


# Watches a loop by its name in messages; the limit is set by who provides this function.
Watch = Callable[[str], Watched]


def end_with(loop: Watched, within_s: Callable[[], float], over: threading.Event) -> None:
    """End the process, with exit code 1, once a step of the loop takes longer than its limit and
    ``within_s`` more. Blocks until ``over`` is set, so it needs a thread of its own.

    It counts its looks and not the clock's seconds: after the whole process stood still (SIGSTOP),
    the loop must have its time before it counts as hanging."""
    looks, seen = 0, loop.since
    while not over.wait(LOOK_S):
        before, seen = seen, loop.since
        looks = looks + 1 if seen is not None and seen == before else 0
        if looks * LOOK_S <= loop.limit_s + within_s():
            continue
        # Logged on another thread, since the loop that hangs may hold the lock of the log.
        saying = threading.Thread(
            target=logger.critical,
            args=("%s hangs: no step for %.0f s, so this process ends", loop.what, loop.age_s),
            daemon=True,
        )
        saying.start()
        saying.join(SAID_WITHIN_S)
        os._exit(1)
