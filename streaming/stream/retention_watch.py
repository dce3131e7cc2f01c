"""A thread that watches how long Kafka will keep the messages that are still needed.

    every minute: the first needed message of each partition ─► its age ─► retention.ms less that
                        less than half of it is left ─► one warning, until there is more again

The result is a lower bound: Kafka deletes a segment when the newest message in it is too old.
``retention.bytes`` is not looked at. The result is unknown if the broker does not tell the
retention (DescribeConfigs is denied), or if no message is needed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from coordination.errors import TidelakeError
from streaming.source.kafka.broker import KafkaSource
from streaming.source.positions import TopicPartition
from streaming.stream.lasting_warnings import RETENTION, LastingWarnings

logger = logging.getLogger(__name__)

ASK_EVERY_S: Final = 60.0
WARN_BELOW: Final = 0.5  # a part of the retention


@dataclass(frozen=True, slots=True, kw_only=True)
class Oldest:
    """Of the messages that are needed, the one that Kafka will delete first."""

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
            "message that is still needed. What Kafka deletes before it is applied is lost to this "
            "changefeed: make retention.ms larger, or reading faster"
        )


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


class RetentionWatch:
    """Watches one changefeed. ``needed`` returns its low-water offsets by ``topic/partition``, and
    is called on the watch's thread; ``connect`` makes that thread's connection to the broker."""

    def __init__(
        self,
        connect: Callable[[], KafkaSource],
        needed: Callable[[], Mapping[str, int]],
        concerns: LastingWarnings,
    ) -> None:
        self._connect = connect
        self._needed = needed
        self._concerns = concerns
        self._closing = threading.Event()
        self.left_s: float | None = None  # None: not known, or nothing is needed

    def begin(self) -> None:
        threading.Thread(target=self._run, name="retention", daemon=True).start()

    def close(self) -> None:
        """Stop watching. Does not wait for the thread, which may be asking the broker still."""
        self._closing.set()
        self._concerns.withdraw(RETENTION)

    def _run(self) -> None:
        source = self._connect()
        while not self._closing.is_set():
            try:
                self.look(source)
            except TidelakeError as error:  # the reading thread meets it too, and reports it
                self.left_s = None  # the last answer is out of date
                logger.debug("how long Kafka keeps it is not known now: %s", error)
            self._closing.wait(ASK_EVERY_S)
        source.close()

    def look(self, source: KafkaSource) -> None:
        """Ask the broker once, and report. Blocks; raises SourceAway."""
        needed = {TopicPartition.parse(text): at for text, at in self._needed().items()}
        retention_ms = source.retention_ms({each.topic for each in needed})
        wanted = {each: at for each, at in needed.items() if each.topic in retention_ms}
        found = oldest(source.times_ms(wanted), retention_ms, time.time() * 1e3)
        self.left_s = found.left_s if found is not None else None
        if not self._closing.is_set():
            self._concerns.say(RETENTION, found.concern if found is not None else None)
