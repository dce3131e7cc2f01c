"""A topic in memory: each change and each watermark lies in a partition, at an offset."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sinks.control.changefeeds import RecordedWatermark
from streaming.source.positions import Positions
from streaming.source.resolved.watermarks import Watermarks
from streaming.stream.read import Marks

if TYPE_CHECKING:
    from tests.fakes.fake_source import FakeSource

PARTITIONS: Final = tuple(f"shop/{number}" for number in range(2))


@dataclass(frozen=True, slots=True)
class Row:
    """A change, where it lies."""

    partition: str
    offset: int
    table_id: int
    ts: int


class FakeTopic:
    """A table's rows are in all partitions, in the order of their commit-ts."""

    def __init__(self, source: FakeSource) -> None:
        self.logs: dict[str, list[Row | int]] = {each: [] for each in PARTITIONS}
        self._source = source
        self._sent_ts = int(source.start_ts)
        self._rows: dict[tuple[str, int], list[Row]] = {}

    def send_to(self, ts: int) -> None:
        """All that is at or below ``ts`` is sent, then a watermark in each partition."""
        if ts <= self._sent_ts:
            return
        tables = self._source.tables.items()
        changes = [(at, t) for t, each in tables for at in each.between(self._sent_ts, ts)]
        for at, table_id in sorted(changes):
            partition = PARTITIONS[(at + table_id) % len(PARTITIONS)]
            row = Row(partition, len(self.logs[partition]), table_id, at)
            self.logs[partition].append(row)
            self._rows.setdefault((partition, table_id), []).append(row)
        for log in self.logs.values():
            log.append(ts)
        self._sent_ts = ts

    def rows(self, table_id: int, begin: Positions, end: Positions) -> Iterator[Row]:
        """Of one table, between these offsets."""
        for partition in PARTITIONS:
            for row in self._rows.get((partition, table_id), ()):
                if begin.get(partition, 0) <= row.offset < end[partition]:
                    yield row

    def first_above(self, table_id: int, ts: int) -> Iterator[Row]:
        """The first row of a table above ``ts``, of each partition."""
        for partition in PARTITIONS:
            rows = self._rows.get((partition, table_id), [])
            index = bisect_right(rows, ts, key=lambda row: row.ts)
            yield from rows[index : index + 1]


class Reading:
    """One reader's way through a topic; a partition may lag behind the others."""

    def __init__(self, topic: FakeTopic, begin: Positions, recorded: Marks) -> None:
        self.position = {each: begin.get(each, 0) for each in PARTITIONS}
        marks = Watermarks(parts=frozenset(PARTITIONS), recorded=recorded)
        self.watermarks = marks.advance({}, self.position)
        self._topic = topic

    @property
    def resolved_ts(self) -> int:
        return max(self.watermarks.global_ts - 1, 0)

    def read(self, rng: random.Random, most: int) -> list[Row]:
        """Of each partition ``most`` messages."""
        rows: list[Row] = []
        seen: dict[str, RecordedWatermark] = {}
        for partition, log in self._topic.logs.items():
            begin = self.position[partition]
            end = begin if rng.random() < 0.2 else min(begin + most, len(log))
            for offset, message in enumerate(log[begin:end], begin):
                if isinstance(message, Row):
                    rows.append(message)
                else:
                    seen[partition] = RecordedWatermark(ts=message, position=offset)
            self.position[partition] = end
        self.watermarks = self.watermarks.advance(seen, self.position)
        return rows
