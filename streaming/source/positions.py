"""A part of a source (a partition of a Kafka topic), a position in it, and their texts in the
control rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic; ``str()`` is its key in Delta's map columns."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"

    @staticmethod
    def parse(text: str) -> TopicPartition:
        topic, _, partition = text.rpartition("/")
        return TopicPartition(topic, int(partition))


T = TypeVar("T")
Offsets = Mapping[TopicPartition, int]


def texts(offsets: Mapping[TopicPartition, T]) -> dict[str, T]:
    """Offsets (or marks) with partitions as texts, as the control rows store them."""
    return {str(partition): each for partition, each in offsets.items()}


def parsed(stored: Mapping[str, T]) -> dict[TopicPartition, T]:
    """The reverse of `texts`."""
    return {TopicPartition.parse(text): each for text, each in stored.items()}
