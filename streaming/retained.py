"""What Kafka still has of partitions that nobody has read yet: is everything above the checkpoint
there?

    begins at 0 ─────────────────────────────► nothing was ever deleted
    begins later ── first watermark <= checkpoint ──► what it promises was sent before it, and is
                 │                                    at or below the checkpoint
                 └─ above it, or none yet ──► SourceLost: rows may be missing, and nobody could tell
"""

from __future__ import annotations

from collections.abc import Mapping

from streaming.protocols.canal_json.message import watermark_of
from streaming.source.kafka import Source, SourceLost
from streaming.source.ranges import TopicPartition


def refuse_a_hole(
    first: Mapping[TopicPartition, int], log: Source, *, checkpoint_ts: int, reached_ts: int | None
) -> None:
    """Raises SourceLost unless all above the checkpoint is provably in these partitions from
    ``first`` on. ``reached_ts``: how far the tables are; None where there are none yet.
    """
    later = {p: offset for p, offset in first.items() if offset > 0}
    if not later:
        return
    marks = {**dict.fromkeys(later), **log.search(later, watermark_of)}
    for partition, offset in sorted(later.items()):
        mark = marks.get(partition)
        if mark is None or mark > checkpoint_ts:
            is_above = f"its first watermark is {mark}"
            raise SourceLost(
                f"topic {partition.topic} partition {partition.partition} begins at offset {offset}"
                f": changes above {checkpoint_ts} may have been deleted before it, since "
                f"{'it has no watermark yet' if mark is None else is_above}. "
                f"{_way_out(marks, checkpoint_ts, reached_ts)}"
            )


def _way_out(
    marks: Mapping[TopicPartition, int | None], checkpoint_ts: int, reached_ts: int | None
) -> str:
    known = [mark for mark in marks.values() if mark is not None]
    if len(known) < len(marks):
        return "Let TiCDC send one, then start again"
    safe_ts = max(known)
    if reached_ts is None:
        return (
            f"Start with --start-ts {safe_ts} at least, or resume a changefeed that is there with "
            f"--overwrite-checkpoint-ts {safe_ts} (what changed before is then not in the tables); "
            "or have TiCDC send the tables to a new topic from an earlier start-ts"
        )
    if checkpoint_ts == reached_ts:
        return f"Leave this topic out until the changefeed's checkpoint-ts has passed {safe_ts}"
    if safe_ts <= reached_ts:
        return f"It can be rewound to {safe_ts} at the earliest"
    return (
        "This topic cannot bring the tables there any more: have TiCDC send them to a new topic, "
        "for a changefeed with another ID"
    )
