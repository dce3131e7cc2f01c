"""What hangs: a loop whose step takes longer than any honest one. Who hangs keeps no lease.

    rest ──step()──► under way ──step(), get_on()──► under way, as of now
      ▲                  │  └── longer than its limit ──► `overdue` says so, until it gets on
      └──── rest() ──────┘

Each loop of a capture says when a step of its work begins, and when nothing is under way. The
session asks before each keep-alive: while something is overdue none is sent, the lease ends, and
others take the tables. A loop that waits for another one rests: only that one can hang.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from coordination.clock import Clock


class Watchdog:
    """Of one process. Thread-safe; nothing in here waits for anything."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._under_way: dict[Watched, float] = {}  # since when

    def watch(self, what: str, limit_s: float) -> Watched:
        """One loop, at rest. ``what``: as an operator reads it."""
        return Watched(self, what, limit_s)

    def overdue(self) -> str:
        """What hangs, and since when; empty where nothing does."""
        now = self._clock.monotonic()
        with self._lock:
            late = [(now - since, each) for each, since in self._under_way.items()]
        late = [(age_s, each) for age_s, each in late if age_s > each.limit_s]
        if not late:
            return ""
        age_s, oldest = max(late, key=lambda each: each[0])
        return f"{oldest.what} hangs: no step for {age_s:.0f} s (the limit is {oldest.limit_s:g} s)"

    def _step(self, watched: Watched) -> None:
        with self._lock:
            self._under_way[watched] = self._clock.monotonic()

    def _get_on(self, watched: Watched) -> None:
        with self._lock:
            if watched in self._under_way:
                self._under_way[watched] = self._clock.monotonic()

    def _rest(self, watched: Watched) -> None:
        with self._lock:
            self._under_way.pop(watched, None)

    def _age_s(self, watched: Watched) -> float:
        with self._lock:
            since = self._under_way.get(watched)
        return 0.0 if since is None else self._clock.monotonic() - since


class Watched:
    """One loop. ``with`` it: a step, from beginning to end."""

    def __init__(self, watchdog: Watchdog, what: str, limit_s: float) -> None:
        self.what = what
        self.limit_s = limit_s
        self._watchdog = watchdog

    def step(self) -> None:
        """A step begins; the one before has ended."""
        self._watchdog._step(self)

    def get_on(self) -> None:
        """What is under way does, if anything is. From any thread."""
        self._watchdog._get_on(self)

    def rest(self) -> None:
        """Nothing is under way."""
        self._watchdog._rest(self)

    @property
    def age_s(self) -> float:
        """Of the step that is under way."""
        return self._watchdog._age_s(self)

    def __enter__(self) -> None:
        self.step()

    def __exit__(self, *_: object) -> None:
        self.rest()


Watch = Callable[
    [str], Watched
]  # by what an operator reads; the limit is whose it is that gives it
