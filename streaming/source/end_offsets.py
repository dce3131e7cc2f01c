"""How far Kafka is: asked for in the driver, again and again, by one thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from typing import Final

from conf.settings import KafkaSource
from streaming.source.kafka import Source
from streaming.source.ranges import TopicPartition

PAUSE_S: Final = 0.01  # between two looks; many partitions take longer to ask for than that
LOOK_SHARE: Final = 0.1  # of the time that is spent on looking, at most


class EndOffsets:
    """Read-committed end offsets of all partitions, in one request to each broker.

    It connects again by itself after an error, which is SourceAway: worth another try.
    """

    def __init__(self, kafka: KafkaSource, partitions: Collection[TopicPartition]) -> None:
        self._source = Source(kafka)
        self._partitions = frozenset(partitions)

    def close(self) -> None:
        self._source.close()

    def __call__(self) -> dict[TopicPartition, int]:
        """As they are now."""
        return self._source.ends(self._partitions)

    def beyond(
        self, positions: Mapping[TopicPartition, int], wake: threading.Event, wait_s: float
    ) -> dict[TopicPartition, int]:
        """As soon as one is beyond its position; after ``wait_s``, or when ``wake`` is set, as they
        are.
        """
        give_up_s = time.monotonic() + wait_s
        while True:
            begun_s = time.monotonic()
            ends = self()
            now_s = time.monotonic()
            is_news = any(ends.get(each, at) > at for each, at in positions.items())
            if is_news or now_s >= give_up_s or wake.is_set():
                return ends
            pause_s = max(PAUSE_S, (now_s - begun_s) / LOOK_SHARE)
            wake.wait(min(pause_s, give_up_s - now_s))
