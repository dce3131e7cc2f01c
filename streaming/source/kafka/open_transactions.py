"""A transaction of a producer that stays open: what lies behind its begin in a partition is given
to nobody who reads committed messages, and the partition looks as if nothing came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streaming.source.kafka.topic_partition import TopicPartition

SAYS_AFTER_S: Final = 45.0

Offsets = Mapping[TopicPartition, int]


class OpenTransactions:
    """For one thread."""

    def __init__(self) -> None:
        self._open: dict[TopicPartition, tuple[int, float]] = {}  # its begin, and since when

    def look(self, committed: Offsets, written: Offsets, now_s: float) -> str | None:
        """A sentence about the partition that has waited for longest; None where none has for long.
        ``committed``: the ends up to which messages are given; ``written``: the ends after all
        messages, asked before. ``now_s``: monotonic."""
        now_open = {each: at for each, at in committed.items() if written.get(each, at) > at}
        self._open = {
            each: before if (before := self._open.get(each)) and before[0] == at else (at, now_s)
            for each, at in now_open.items()
        }
        partition = min(self._open, key=lambda each: self._open[each][1], default=None)
        if partition is None:
            return None
        at, since_s = self._open[partition]
        if now_s - since_s < SAYS_AFTER_S:
            return None
        return (
            f"topic {partition.topic} partition {partition.partition}: a transaction of a producer "
            f"has been open for {SAYS_AFTER_S:g} s from offset {at} on, and every table waits for "
            "what lies behind it. The producer has to commit or to abort it; where it is gone, the "
            "broker aborts it after transaction.timeout.ms, or an operator does "
            "(kafka-transactions.sh find-hanging, abort)"
        )
