"""The minimum of many timestamps that keep moving on: what a changefeed's checkpoint is made of."""

from __future__ import annotations

import heapq
from typing import Final

_SLACK: Final = 1_024  # passed timestamps that may stay in the heap before it is made anew


class LowWater:
    """A multiset of timestamps. Spans of one batch share theirs, so it holds few distinct ones."""

    __slots__ = ("_counts", "_heap", "_live")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}  # a timestamp is a key as long as it is in the heap
        self._heap: list[int] = []
        self._live = 0  # timestamps with a count above 0

    def add(self, ts: int, times: int = 1) -> None:
        count = self._counts.get(ts)
        if count is None:
            heapq.heappush(self._heap, ts)
        self._live += not count
        self._counts[ts] = (count or 0) + times

    def remove(self, ts: int, times: int = 1) -> None:
        count = self._counts[ts] - times
        assert count >= 0, f"{ts} is not in here"
        self._counts[ts] = count
        self._live -= not count
        if len(self._heap) > 2 * self._live + _SLACK:
            self._counts = {ts: count for ts, count in self._counts.items() if count}
            self._heap = sorted(self._counts)

    def move(self, before: int, after: int, times: int = 1) -> None:
        if before != after:
            self.add(after, times)
            self.remove(before, times)

    def min(self) -> int | None:
        """None when it is empty."""
        heap, counts = self._heap, self._counts
        while heap and not counts[heap[0]]:
            del counts[heapq.heappop(heap)]
        return heap[0] if heap else None
