"""How far reading is behind Kafka's ends, how fast it goes, and when it will have caught up. Pure.

Offsets are by ``topic/partition``, times are seconds of one monotonic clock. The rate is that of
reading over the last minute; what is still read, or written, counts when it is done.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Offsets = Mapping[str, int]

OVER_S = 60.0  # the rate is measured over
NEARLY_S = 10.0  # a backlog of so little is as good as gone: what comes in meanwhile is no matter
LEAST_SPAN_S = 4.0  # a shorter look at the ends does not tell how fast they grow


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """As of one look. None is what cannot be known yet."""

    read: Offsets = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    per_s: float | None = None
    growth_per_s: float | None = None  # of the ends: what is produced meanwhile

    @property
    def behind(self) -> int | None:
        """Messages that Kafka has and that are not read yet."""
        if not self.read or not self.ends.keys() >= self.read.keys():
            return None
        return sum(max(0, self.ends[partition] - at) for partition, at in self.read.items())

    @property
    def left_s(self) -> float | None:
        """Until it has caught up, at this pace; None too while it does not catch up."""
        if self.behind is None or not self.per_s:
            return None
        if self.behind <= self.per_s * NEARLY_S:
            return self.behind / self.per_s
        net = self.per_s - (self.growth_per_s or 0.0)
        return self.behind / net if net > 0 else None

    def columns(self) -> dict[str, Any]:
        """As the changefeed's row has it."""
        return {
            "read_offsets": dict(self.read),
            "end_offsets": dict(self.ends),
            "messages_behind": self.behind,
            "messages_per_s": self.per_s,
            "time_left_s": self.left_s,
        }

    def facts(self) -> dict[str, int]:
        """As a log line has it: what is known."""
        names = ("messages_behind", "messages_per_s", "time_left_s")
        found = zip(names, (self.behind, self.per_s, self.left_s), strict=True)
        return {name: round(value) for name, value in found if value is not None}


@dataclass(frozen=True, slots=True)
class _Stretch:
    begin_s: float
    end_s: float
    messages: int


class BacklogMeter:
    """Told by who reads and by who asks the broker; looked at by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: Offsets = {}
        self._ends: Offsets = {}
        self._since_s = 0.0  # what is read next has been read since then
        self._stretches: deque[_Stretch] = deque()
        self._looks: deque[tuple[float, int]] = deque()  # when, and the sum of the ends

    def begin(self, read: Offsets, now_s: float) -> None:
        """Reading begins here: nothing of before counts."""
        with self._lock:
            self._read, self._ends, self._since_s = dict(read), {}, now_s
            self._stretches.clear()
            self._looks.clear()

    def reading(self, now_s: float) -> None:
        """A read begins now: the first one after ``begin`` may have waited for Spark to start."""
        with self._lock:
            if not self._stretches:
                self._since_s = now_s

    def read_to(self, read: Offsets, now_s: float) -> None:
        """All before these offsets has been read and done with."""
        with self._lock:
            messages = sum(at - self._read.get(each, at) for each, at in read.items())
            if messages < 0 or read.keys() != self._read.keys():  # it began again elsewhere
                self._stretches.clear()
                self._since_s = now_s
            elif messages:
                self._stretches.append(_Stretch(self._since_s, now_s, messages))
                self._since_s = now_s
            self._read = dict(read)

    def ends_at(self, ends: Offsets, now_s: float) -> None:
        with self._lock:
            if ends.keys() != self._ends.keys():
                self._looks.clear()
            self._ends = dict(ends)
            self._looks.append((now_s, sum(ends.values())))
            while now_s - self._looks[0][0] > OVER_S:
                self._looks.popleft()
            if not self._backlog().behind:  # nothing to do: no time that reading takes
                self._since_s = now_s

    def look(self, now_s: float) -> Backlog:
        with self._lock:
            return self._backlog(self._rate(now_s), self._growth())

    def _backlog(self, per_s: float | None = None, growth_per_s: float | None = None) -> Backlog:
        return Backlog(read=self._read, ends=self._ends, per_s=per_s, growth_per_s=growth_per_s)

    def _rate(self, now_s: float) -> float | None:
        """Over the last minute, or the last stretch if that is longer ago: one may be long."""
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
        return (last - first) / span_s if span_s >= LEAST_SPAN_S else None
