"""How long Kafka will keep the messages that are still needed.

the first needed message of each partition ─► its age ─► retention.ms less that

The result is a lower bound: Kafka deletes a segment when the newest message in it is too old.
``retention.bytes`` is not looked at. The result is unknown if the broker does not tell the
retention (DescribeConfigs is denied), or if no message is needed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from streaming.source.contract import Kept, SourceAway
from streaming.source.kafka.broker import Broker
from streaming.source.kafka.topic_partition import TopicPartition

logger = logging.getLogger(__name__)
WARN_BELOW: Final = 0.5  # a part of the retention


@dataclass(frozen=True, slots=True, kw_only=True)
class Oldest:
    """The needed message that Kafka will delete first."""

    partition: TopicPartition
    age_s: float
    retention_s: float

    @property
    def left_s(self) -> float:
        return max(0.0, self.retention_s - self.age_s)

    @property
    def concern(self) -> str | None:
        if self.left_s > self.retention_s * WARN_BELOW:
            return None
        return (
            f"topic {self.partition.topic} partition {self.partition.partition}: more than half of "
            f"its retention.ms ({self.retention_s / 3600:.3g} h) has passed since the oldest "
            "message that is still needed. Messages that Kafka deletes before they are applied are "
            "lost to this changefeed: make retention.ms larger, or reading faster"
        )


def tell_of_compacted(broker: Broker, topics: Iterable[str]) -> None:
    """Log which topics lose messages amid others, by which a reader numbers what it reads."""
    try:
        found = broker.compacted(topics)
    except SourceAway as error:  # it may be denied
        logger.debug("whether topics are compacted is not known: %s", error)
        return
    if found:
        logger.warning(
            "compacted topics: Kafka may delete messages there before they are read, so that a "
            "change log or a history lacks them, and the commit-ts of others, which are counted "
            "with them, may change. Their cleanup.policy must be delete topics=%s",
            ",".join(found),
        )


def kept(broker: Broker, needed: Mapping[TopicPartition, int]) -> Kept | None:
    """``needed``: the first needed offset of each partition. Blocks; raises SourceAway."""
    retention_ms = broker.retention_ms({each.topic for each in needed})
    wanted = {each: at for each, at in needed.items() if each.topic in retention_ms}
    found = oldest(broker.times_ms(wanted), retention_ms, time.time() * 1e3)
    return None if found is None else Kept(left_s=found.left_s, concern=found.concern)


def oldest(
    times_ms: Mapping[TopicPartition, int], retention_ms: Mapping[str, int], now_ms: float
) -> Oldest | None:
    """The needed message that Kafka will delete first; None if no topic has a retention.

    ``times_ms``: the time of each partition's first needed message (ms since 1970).
    ``retention_ms``: by topic, for those that have a retention."""
    found = [
        Oldest(
            partition=partition,
            age_s=(now_ms - at_ms) / 1e3,
            retention_s=retention_ms[partition.topic] / 1e3,
        )
        for partition, at_ms in sorted(times_ms.items())
        if partition.topic in retention_ms
    ]
    return min(found, key=lambda each: each.left_s, default=None)
