"""Loops that hang: a step takes longer than it ever should. While one hangs, the lease is not kept.

    rest ──step()──► under way ──step(), get_on()──► under way, as of now
      ▲                  │  └── longer than its limit ──► `overdue` says so, until it gets on
      └──── rest() ──────┘

Each loop of a capture says when a step of its work begins, and when nothing is under way. The
session asks before each keep-alive: while something is overdue none is sent, the lease ends, and
others take the tables. A loop that waits for another one rests: only that one can hang.

The coordination loop ends the capture of what hangs, and the process where that does not help. If
that loop itself hangs, `end_with` ends the process, on a thread of its own."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

from coordination.clock import Clock

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0  # between two looks at a loop that the process is to end with
SAID_WITHIN_S: Final = 5.0  # a line that cannot be written does not keep the process alive


class Watchdog:
    """Of one process. Thread-safe; nothing in here waits for anything."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.under_way: dict[Watched, float] = {}  # since when

    def watch(self, what: str, limit_s: float) -> Watched:
        """One loop, at rest. ``what``: as an operator reads it."""
        return Watched(self, what, limit_s)

    def overdue(self) -> str:
        """What hangs, and since when; empty where nothing does."""
        now = self.clock.monotonic()
        with self.lock:
            late = [(now - since, each) for each, since in self.under_way.items()]
        late = [(age_s, each) for age_s, each in late if age_s > each.limit_s]
        if not late:
            return ""
        age_s, oldest = max(late, key=lambda each: each[0])
        return f"{oldest.what} hangs: no step for {age_s:.0f} s (the limit is {oldest.limit_s:g} s)"


class Watched:
    """One loop. ``with`` it: a step, from beginning to end."""

    def __init__(self, watchdog: Watchdog, what: str, limit_s: float) -> None:
        self.what = what
        self.limit_s = limit_s
        self._watchdog = watchdog

    def step(self) -> None:
        """A step begins; the one before has ended."""
        with self._watchdog.lock:
            self._watchdog.under_way[self] = self._watchdog.clock.monotonic()

    def get_on(self) -> None:
        """What is under way does, if anything is. From any thread."""
        with self._watchdog.lock:
            if self in self._watchdog.under_way:
                self._watchdog.under_way[self] = self._watchdog.clock.monotonic()

    def rest(self) -> None:
        """Nothing is under way."""
        with self._watchdog.lock:
            self._watchdog.under_way.pop(self, None)

    @property
    def since(self) -> float | None:
        """When the step that is under way has begun, or got on."""
        with self._watchdog.lock:
            return self._watchdog.under_way.get(self)

    @property
    def age_s(self) -> float:
        """Of the step that is under way."""
        since = self.since
        return 0.0 if since is None else self._watchdog.clock.monotonic() - since

    def __enter__(self) -> None:
        self.step()

    def __exit__(self, *_: object) -> None:
        self.rest()


# By what an operator reads; the limit is whose it is that gives it.
Watch = Callable[[str], Watched]


def end_with(loop: Watched, within_s: Callable[[], float], over: threading.Event) -> None:
    """End the process, with exit code 1, once a step of the loop takes longer than its limit and
    ``within_s`` more; return when it is ``over``.

    Looks are counted, not the clock's seconds: where the whole process stood still (SIGSTOP), the
    loop has yet to have its time."""
    looks, seen = 0, loop.since
    while not over.wait(LOOK_S):
        before, seen = seen, loop.since
        looks = looks + 1 if seen is not None and seen == before else 0
        if looks * LOOK_S <= loop.limit_s + within_s():
            continue
        # on another thread: what hangs may hold the lock of the log
        saying = threading.Thread(
            target=logger.critical,
            args=("%s hangs: no step for %.0f s, so this process ends", loop.what, loop.age_s),
            daemon=True,
        )
        saying.start()
        saying.join(SAID_WITHIN_S)
        os._exit(1)
