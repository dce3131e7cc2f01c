"""How far reading is behind the source's ends, how fast it goes, and when it will have caught
up. Pure.

Times are seconds of one monotonic clock. The rate is that of
reading over the last minute. Messages count when they are read and applied, not before.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from sinks.control.changefeeds import NEARLY_S
from streaming.source.positions import Distance, Positions, counted

OVER_S = 60.0  # the rate is measured over this time
LEAST_SPAN_S = 4.0  # the ends' growth is known only if they were looked at over this time


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The backlog at one moment. Values that are not known yet are None."""

    read: Positions = field(default_factory=dict)
    ends: Positions = field(default_factory=dict)
    per_s: float | None = None
    distance: Distance = counted
    growth_per_s: float | None = None  # messages per second that are produced

    @property
    def behind(self) -> int | None:
        """The number of messages in the source that are not read yet; None if it is not known."""
        if not self.read or not self.ends.keys() >= self.read.keys():
            return None
        return self.distance(self.read, {part: self.ends[part] for part in self.read})

    @property
    def left_s(self) -> float | None:
        """Seconds until reading has caught up at the present rates; None if that is not known, or
        if reading is no faster than messages come in."""
        if self.behind is None or not self.per_s:
            return None
        if self.behind <= self.per_s * NEARLY_S:
            return self.behind / self.per_s
        net = self.per_s - (self.growth_per_s or 0.0)
        return self.behind / net if net > 0 else None

    def columns(self) -> dict[str, Any]:
        """The backlog as columns of the changefeed's row."""
        return {
            "read_positions": dict(self.read),
            "end_positions": dict(self.ends),
            "messages_behind": self.behind,
            "messages_per_s": self.per_s,
            "time_left_s": self.left_s,
        }

    def facts(self) -> dict[str, int]:
        """The known values, rounded, for a log line."""
        names = ("messages_behind", "messages_per_s", "time_left_s")
        found = zip(names, (self.behind, self.per_s, self.left_s), strict=True)
        return {name: round(value) for name, value in found if value is not None}


@dataclass(frozen=True, slots=True)
class _Stretch:
    begin_s: float
    end_s: float
    messages: int


class BacklogMeter:
    """Measures the backlog from the reports of the reading thread and of the thread that asks the
    source. Thread-safe; times are monotonic seconds."""

    def __init__(self, distance: Distance = counted) -> None:
        self._distance = distance
        self._lock = threading.Lock()
        self._read: Positions = {}
        self._ends: Positions = {}
        self._since_s = 0.0  # the time since when the next stretch is being read
        self._stretches: deque[_Stretch] = deque()
        self._looks: deque[tuple[float, Positions]] = deque()  # the time, and the ends

    def begin(self, read: Positions, now_s: float) -> None:
        """Reading begins at these positions; earlier measurements are forgotten."""
        with self._lock:
            self._read, self._ends, self._since_s = dict(read), {}, now_s
            self._stretches.clear()
            self._looks.clear()

    def reading(self, now_s: float) -> None:
        """A read begins now. For the first one after ``begin`` the time starts here: it may have
        waited for Spark to start."""
        with self._lock:
            if not self._stretches:
                self._since_s = now_s

    def read_to(self, read: Positions, now_s: float) -> None:
        """All messages before these positions have been read and applied."""
        with self._lock:
            went_back = any(at < self._read.get(part, at) for part, at in read.items())
            messages = self._distance(self._read, read)
            if went_back or read.keys() != self._read.keys():  # reading began again elsewhere
                self._stretches.clear()
                self._since_s = now_s
            elif messages:
                self._stretches.append(_Stretch(self._since_s, now_s, messages))
                self._since_s = now_s
            self._read = dict(read)

    def ends_at(self, ends: Positions, now_s: float) -> None:
        with self._lock:
            if ends.keys() != self._ends.keys():
                self._looks.clear()
            self._ends = dict(ends)
            self._looks.append((now_s, self._ends))
            while now_s - self._looks[0][0] > OVER_S:
                self._looks.popleft()
            if not self._backlog().behind:  # nothing to read: idle time is not reading time
                self._since_s = now_s

    def look(self, now_s: float) -> Backlog:
        with self._lock:
            return self._backlog(self._rate(now_s), self._growth())

    def _backlog(self, per_s: float | None = None, growth_per_s: float | None = None) -> Backlog:
        return Backlog(
            read=self._read,
            ends=self._ends,
            per_s=per_s,
            distance=self._distance,
            growth_per_s=growth_per_s,
        )

    def _rate(self, now_s: float) -> float | None:
        """Messages per second over the last minute; over the last stretch if that ended before,
        since a stretch may be long. None before the first stretch."""
        stretches = self._stretches
        while len(stretches) > 1 and now_s - stretches[0].end_s > OVER_S:
            stretches.popleft()
        if not stretches:
            return None
        is_idle = self._backlog().behind == 0
        taken_s = (now_s if is_idle else stretches[-1].end_s) - stretches[0].begin_s
        return sum(each.messages for each in stretches) / taken_s if taken_s > 0 else None

    def _growth(self) -> float | None:
        if not self._looks:
            return None
        (first_s, first), (last_s, last) = self._looks[0], self._looks[-1]
        span_s = last_s - first_s
        return self._distance(first, last) / span_s if span_s >= LEAST_SPAN_S else None
