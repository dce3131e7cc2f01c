"""What the source has promised: a watermark per partition, and the least of them (rule 2).

Pure. W = min over the partitions that the sink uses; one that never spoke counts 0. A watermark
holds from the offset at which it was seen, so after a restart (which reads again from the low-water
offset) a recorded one counts only when reading has passed that offset::

    recorded ──(position > offset)──► live ──(greater ts read)──► live
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sinks.changefeeds import RecordedWatermark
from streaming.source.ranges import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """Immutable; ``advance`` gives the next one."""

    partitions: frozenset[TopicPartition]
    recorded: Mapping[TopicPartition, RecordedWatermark] = field(default_factory=dict)
    live: Mapping[TopicPartition, RecordedWatermark] = field(default_factory=dict)

    @property
    def global_ts(self) -> int:
        """W: everything at or below W - 1, DDLs too, has been read."""
        return min((self._ts(partition) for partition in self.partitions), default=0)

    @property
    def holding_back(self) -> list[TopicPartition]:
        """The partitions whose watermark is W; all others wait for them."""
        return sorted(p for p in self.partitions if self._ts(p) == self.global_ts)

    def all_at(self, ts: int) -> bool:
        """Whether every partition's watermark is exactly ``ts``."""
        return all(self._ts(partition) == ts for partition in self.partitions)

    def advance(
        self,
        seen: Mapping[TopicPartition, RecordedWatermark],
        positions: Mapping[TopicPartition, int],
    ) -> Watermarks:
        """``seen``: greatest ts and last watermark offset of what was just read; ``positions``:
        next offsets.

        A lower ts than before (TiCDC went back) changes nothing.
        """
        live = dict(self.live)
        passed = {
            partition: mark
            for partition, mark in self.recorded.items()
            if positions.get(partition, 0) > mark.offset
        }
        for partition, mark in (*passed.items(), *seen.items()):
            known_ts = live[partition].ts if partition in live else 0
            if partition in self.partitions and mark.ts > known_ts:
                live[partition] = mark
        waiting = {p: mark for p, mark in self.recorded.items() if p not in passed}
        return replace(self, live=live, recorded=waiting)

    def with_partitions(self, partitions: frozenset[TopicPartition]) -> Watermarks:
        """When the source has got more of them: what is new has promised nothing yet."""
        return replace(self, partitions=partitions)

    def to_record(self) -> dict[TopicPartition, RecordedWatermark]:
        """What to store: for each partition the greatest promise, with the offset where it was
        seen.
        """
        record = dict(self.recorded)
        for partition, mark in self.live.items():
            if partition not in record or mark.ts >= record[partition].ts:
                record[partition] = mark
        return record

    def _ts(self, partition: TopicPartition) -> int:
        mark = self.live.get(partition)
        return mark.ts if mark else 0
