"""The watermark of each partition, and the least of them, W (rule 2).

Pure. W = min over the partitions; one without a watermark counts as 0. A partition that the sink
may not use needs none of its own (`past`). A watermark holds from the offset at which it was seen,
so after a restart (which reads again from the low-water offset) a recorded one counts only when
reading has passed that offset::

    recorded ──(position > offset)──► live ──(greater ts read)──► live
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from sinks.control.changefeeds import RecordedWatermark
from streaming.source.positions import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """The watermarks at one point of reading. Immutable; ``advance`` returns the next ones."""

    partitions: frozenset[TopicPartition]
    recorded: Mapping[TopicPartition, RecordedWatermark] = field(default_factory=dict)
    live: Mapping[TopicPartition, RecordedWatermark] = field(default_factory=dict)

    @property
    def global_ts(self) -> int:
        """W: all rows and DDLs at or below W - 1 have been read."""
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
        """The watermarks after a read. ``seen``: by partition the greatest watermark in the read,
        with the offset of its last watermark; ``positions``: the next offset of each partition.

        A watermark lower than the one before (TiCDC went back) changes nothing.
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

    def past(
        self, strays: Collection[TopicPartition], read_to: Mapping[TopicPartition, int]
    ) -> Watermarks:
        """The same, where these of the ``strays`` were read to the end that they had *after* the
        other partitions' watermarks had been sent; ``read_to``: that end.

        A watermark W is sent when every row at or below W is in Kafka, in whatever partition. So
        what such a stray gets later is above the least watermark of the others, as if it had that
        one itself."""
        used = [self._ts(each) for each in self.partitions if each not in strays]
        if (ts := min(used, default=0)) == 0:
            return self
        return self.advance(
            {p: RecordedWatermark(ts=ts, offset=at - 1) for p, at in read_to.items()}, {}
        )

    def with_partitions(self, partitions: frozenset[TopicPartition]) -> Watermarks:
        """The same with other partitions, after some were added; a new one has no watermark."""
        return replace(self, partitions=partitions)

    def to_record(self) -> dict[TopicPartition, RecordedWatermark]:
        """What to store: for each partition the greatest watermark, with the offset where it was
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
