"""One partition of one topic: a part of a Kafka source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """``str()`` is the name of the part."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"

    @staticmethod
    def parse(part: str) -> TopicPartition:
        """Raises ValueError for the part of another kind of source."""
        topic, _, partition = part.rpartition("/")
        return TopicPartition(topic, int(partition))
