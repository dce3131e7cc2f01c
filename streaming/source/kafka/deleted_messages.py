"""Check whether Kafka still has everything above the checkpoint in partitions that were not read
yet.

    begins at 0 ───────────────────────────────► nothing was ever deleted
    begins later: its first message is of time t
        ├─ checkpoint >= t + CLOCKS_MS ────────► what was deleted is at or below the checkpoint
        └─ checkpoint below, or no message ────► SourceLost: rows may be missing without a trace

A partition keeps messages in the order in which they came. So what was deleted was sent before the
first message that is left, and a change is sent after it got its commit-ts: that is no later than
this message's time.

A watermark cannot show it. W promises that everything at or below W was sent before it (rule 2),
and nothing about what is above W: TiCDC sends rows as they come, and their watermark follows. So
the deleted messages may hold rows above the first watermark that is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from coordination.model import TSO_LOGICAL_BITS, tso_time
from streaming.protocols.clocks import LATEST_MS
from streaming.source.contract import SourceLost
from streaming.source.kafka.broker import Broker
from streaming.source.kafka.topic_partition import TopicPartition

# By so much may the clock of PD, which gives the commit-ts, be ahead of the clock that stamps
# messages (a TiCDC capture's, or the broker's). A stamped message may also wait before it is sent.
CLOCKS_MS: Final = 10 * 60_000


def refuse_a_hole(
    first: Mapping[TopicPartition, int],
    log: Broker,
    *,
    checkpoint_ts: int,
    reached_ts: int | None,
) -> None:
    """Raise SourceLost unless it is certain that these partitions have, from the offsets ``first``
    on, all changes above the checkpoint. ``reached_ts``: how far the tables are, for the advice in
    the message; None if there are none yet. Blocks, and may raise SourceAway.
    """
    later = {p: offset for p, offset in first.items() if offset > 0}
    told_ms = log.times_ms(later)
    times_ms = {p: at_ms for p, at_ms in told_ms.items() if 0 < at_ms < LATEST_MS - CLOCKS_MS}
    safe_ts = {p: (at_ms + CLOCKS_MS) << TSO_LOGICAL_BITS for p, at_ms in times_ms.items()}
    for partition, offset in sorted(later.items()):
        if partition not in told_ms:
            known = "when they were sent is not known, as no message is left"
            way_out = (
                "Let TiCDC send one, then start again; if it does not write to this partition, "
                "have it send the tables to a new topic"
            )
        elif partition not in times_ms:
            known = (
                "when they were sent is not known, as the timestamp of its first message, "
                f"{told_ms[partition]}, is no time in milliseconds since 1970"
            )
            way_out = "Have TiCDC send the tables to a new topic"
        elif safe_ts[partition] > checkpoint_ts:
            sent_before = tso_time(times_ms[partition] << TSO_LOGICAL_BITS)
            known = (
                f"they were sent before its first message ({sent_before:%Y-%m-%d %H:%M:%S} UTC), "
                "and may be as new as that"
            )
            way_out = _way_out(max(safe_ts.values()), checkpoint_ts, reached_ts)
        else:
            continue
        raise SourceLost(
            f"topic {partition.topic} partition {partition.partition} begins at offset {offset}: "
            f"changes above {checkpoint_ts} may have been deleted before it, since {known}. "
            f"{way_out}"
        )


def _way_out(safe_ts: int, checkpoint_ts: int, reached_ts: int | None) -> str:
    """The operator's ways out. ``safe_ts``: the least checkpoint for which it is certain that no
    partition lacks a change."""
    if reached_ts is None:
        return (
            f"Start with --start-ts {safe_ts} at least ({CLOCKS_MS // 60_000} minutes later than "
            "that message, since clocks differ), or resume an existing changefeed with "
            f"--overwrite-checkpoint-ts {safe_ts} (the tables then lack earlier changes); or have "
            "TiCDC send the tables to a new topic from an earlier start-ts"
        )
    if checkpoint_ts == reached_ts:
        return (
            f"Leave this topic out until the changefeed's checkpoint-ts has passed {safe_ts} (the "
            "tables then lack its earlier messages), or have TiCDC send its tables to a new topic"
        )
    if safe_ts <= reached_ts:
        return f"It can be rewound to {safe_ts} at the earliest"
    return (
        "This topic cannot bring the tables there any more: have TiCDC send them to a new topic, "
        "for a changefeed with another ID"
    )
