"""Where a commit's time goes, measured from outside: timers around the engine's own functions.

Each part's time is its own alone: what a timed function calls that is timed too counts there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sinks.merge_on_write import engine, table_handle
from sinks.merge_on_write.files import sorted_files
from sinks.storage import local_storage

PARTS = ("follow", "sort", "find", "write", "vectors", "put")
_TIMED = (
    (table_handle.TableHandle, "refresh", "follow"),
    (engine, "keys_of", "sort"),
    (engine, "sort_keys", "sort"),
    (sorted_files, "keys_of", "sort"),
    (sorted_files, "_key_order", "sort"),
    (sorted_files, "sort_keys", "sort"),
    (table_handle.TableHandle, "find", "find"),
    (engine._Upsert, "_write_rows", "write"),
    (table_handle.TableHandle, "taken_out", "vectors"),
    (table_handle.TableHandle, "commit", "put"),
)


class PartTimes:
    """Seconds of each part since the last ``take``; of one thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._open: list[float] = []  # what was timed within each open call

    def take(self) -> dict[str, float]:
        found, self._seconds = self._seconds, dict.fromkeys(PARTS, 0.0)
        return found

    def timed(self, part: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def outer(*args: Any, **kwargs: Any) -> Any:
            self._open.append(0.0)
            begun = self._clock()
            try:
                return inner(*args, **kwargs)
            finally:
                took = self._clock() - begun
                self._seconds[part] += took - self._open.pop()
                if self._open:
                    self._open[-1] += took

        return outer


@contextmanager
def part_times(clock: Callable[[], float] = time.perf_counter) -> Iterator[PartTimes]:
    """Not while the engine's upkeep runs: its thread would be timed too."""
    times = PartTimes(clock)
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in _TIMED]
    for owner, name, part in _TIMED:
        setattr(owner, name, times.timed(part, getattr(owner, name)))
    try:
        yield times
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


@contextmanager
def bytes_written() -> Iterator[dict[str, int]]:
    """Bytes that go to local disk in this process, of files of each kind."""
    found = dict.fromkeys(("data", "vectors", "log", "checkpoints"), 0)
    before = local_storage._write_durably

    def counted(target: str, data: Any) -> None:
        found[_kind(target)] += memoryview(data).nbytes
        before(target, data)

    local_storage._write_durably = counted
    try:
        yield found
    finally:
        local_storage._write_durably = before


def _kind(target: str) -> str:
    if "/_delta_log/" in target:
        return "log" if ".json." in target or target.endswith(".json") else "checkpoints"
    return "vectors" if target.endswith(".bin") else "data"
