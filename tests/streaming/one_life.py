"""The right to write of one life of ``OneWriter``, where it dies, and what of it outlives that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from coordination.errors import Fenced
from coordination.failpoint import Failpoint
from coordination.model import TableName, Ts
from coordination.trust.clock import SystemClock
from coordination.trust.watchdog import Watchdog, Watched

STEPS = (
    *(Failpoint.BEFORE_DDL, Failpoint.AMID_RENAME, Failpoint.AMID_REWRITE, Failpoint.AFTER_DDL),
    *(Failpoint.AFTER_FENCE_CHECK, Failpoint.AFTER_APPLY_ONE, Failpoint.AFTER_PROGRESS),
    Failpoint.AFTER_CREATE_TABLE,
)


def watch(what: str) -> Watched:
    """Nobody looks whether it hangs."""
    return Watchdog(SystemClock()).watch(what, 60.0)


class Permit:
    """Always given, unless it falls asleep: then the pass that it slept at is the last one."""

    capture_id = "by-hand"

    def __init__(self) -> None:
        self.asleep, self.wake = Event(), Event()
        self._left: int | None = None

    def sleep_at(self, nth: int) -> None:
        self._left = nth

    def check(self) -> None:
        if self._left is None:
            return
        if self.wake.is_set():
            raise Fenced("its trust is over")
        self._left -= 1
        if self._left <= 0:
            self.asleep.set()
            self.wake.wait()

    def begin(self, _name: TableName, _limit: Ts) -> None:
        self.check()

    def ended(self, name: TableName) -> None: ...

    def signature(self, _name: TableName) -> Mapping[str, object]:
        return {"fence": 1}


class Letters:
    """Rows that could not be applied; whoever has lost its trust notes none."""

    counts: Mapping[TableName, int] = {}
    dead_letters = None
    refreshed = dict
    by = SimpleNamespace(incarnation=1)

    def __init__(self, permit: Permit, rows: list[dict[str, Any]]) -> None:
        self._permit, self._rows = permit, rows

    def add_rows(self, found: Mapping[TableName, pa.Table], _: object = None) -> None:
        if rows := [row for errors in found.values() for row in errors.to_pylist()]:
            self._permit.check()
            self._rows += rows


class Zombie:
    """A life whose thread sleeps between its last check and a commit; or that has just ended."""

    def __init__(self, permit: Permit, live: Callable[[], None], end: Callable[[], None]) -> None:
        """``live`` asks for ``permit`` before all that it does; ``end`` comes after it."""
        self._permit, self._live, self._end = permit, live, end
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()
        while self._thread.is_alive() and not permit.asleep.wait(0.005):
            pass

    def wake(self) -> None:
        """Its commit comes now, however late."""
        self._permit.wake.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(Exception):  # it is refused in many ways
            self._live()
        self._end()
