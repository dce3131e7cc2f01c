"""The Kafka side: which topics and partitions are ours, from where to read, and whether that still
holds.

Kafka is the log (rule 1): a stream start assigns every sink partition at an explicit
offset. Spark's connector reads the rows; here kafka-python only asks the broker for metadata and
offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import kafka
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.errors import KafkaError
from kafka.protocol.consumer import IsolationLevel

from conf.settings import KafkaSource
from coordination.errors import TidelakeError, TopicMissing, TryAgain
from streaming.source.first_values import NoAnswer, first_values
from streaming.source.ranges import TopicPartition
from streaming.source.refusal import connection_refusal
from streaming.source.security import python_options

_CONNECT_TIMEOUT_MS = 5_000
_REQUEST_TIMEOUT_MS = 10_000
_SEARCH_S = 60.0  # for the first watermarks: one comes about every second
_UNKNOWN_TOPIC = 3  # Kafka's error code UNKNOWN_TOPIC_OR_PARTITION


class SourceChanged(TidelakeError):
    """A topic grew partitions of ours: the stream must start again with the new set."""


class SourceAway(TryAgain):
    """The broker does not answer: at a start that is an error, later it is waited for a while."""


class SourceLost(TidelakeError):
    """What we still need is gone from Kafka: never skipped in silence."""


@dataclass(frozen=True, slots=True)
class SourceShape:
    """What a stream start fixes: topic IDs, and the partitions that the sink uses."""

    topic_ids: Mapping[str, str]
    partitions: frozenset[TopicPartition]


class Source:
    """Metadata, offsets and reads of one changefeed's topics."""

    def __init__(self, settings: KafkaSource) -> None:
        self._settings = settings
        self._admin: KafkaAdminClient | None = None

    def close(self) -> None:
        """Give the connection back; it opens again when needed."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def shape(self) -> SourceShape:
        """As the broker has it now. Raises TopicMissing for one that is not there or too small."""
        described = self._ask(lambda admin: admin.describe_topics(list(self._settings.topics)))
        partitions: set[TopicPartition] = set()
        topic_ids = {}
        for topic in described:
            name = topic["name"]
            topic_ids[name] = self._topic_id(topic)
            partitions |= self._ours(name, len(topic["partitions"]))
        return SourceShape(topic_ids, frozenset(partitions))

    def _ours(self, topic: str, count: int) -> set[TopicPartition]:
        """``partition-num`` counts for the default topic, the broker's metadata for others (rule
        1).
        """
        is_default = topic == self._settings.topic
        wanted = self._settings.partition_num if is_default else None
        if wanted is None:
            wanted = count
        if count < wanted:
            raise TopicMissing(
                f"topic {topic} has {count} partitions, the source URI says "
                f"partition-num={wanted}: "
                "use the sink URI that TiCDC was given"
            )
        return {TopicPartition(topic, partition) for partition in range(wanted)}

    def check_unchanged(self, start: SourceShape) -> None:
        """Raise SourceLost when a topic was made again, SourceChanged when partitions were
        added.
        """
        now = self.shape()
        check_topic_ids(start.topic_ids, now.topic_ids)
        if now.partitions != start.partitions:
            added = ", ".join(str(p) for p in sorted(now.partitions - start.partitions))
            raise SourceChanged(f"new partitions {added}: starting the stream again to read them")

    def check_topic_ids(self, recorded: Mapping[str, str]) -> None:
        """Raise SourceLost when a topic was made again, TopicMissing when it is gone."""
        described = self._ask(lambda admin: admin.describe_topics(list(recorded)))
        check_topic_ids(recorded, {topic["name"]: self._topic_id(topic) for topic in described})

    def _topic_id(self, topic: Mapping[str, Any]) -> str:
        if topic["error_code"] == _UNKNOWN_TOPIC:
            raise TopicMissing(
                f"topic {topic['name']} does not exist on {self._where()}: "
                "check the source URI, or create the changefeed in TiCDC first"
            )
        found = topic.get("topic_id")
        return str(found) if isinstance(found, UUID | str) else ""

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that Kafka still has, by partition."""
        return self._offsets(partitions, OffsetSpec.EARLIEST)

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last message that a reader of whole transactions is given."""
        return self._offsets(partitions, OffsetSpec.LATEST)

    def check_offsets(
        self, offsets: Mapping[TopicPartition, int], checkpoint_ts: int | None = None
    ) -> None:
        """Raise SourceLost, naming topic, partition and offsets, unless Kafka can go on from
        here. ``checkpoint_ts``: of the changefeed, for the advice.
        """
        self.check_beginnings(offsets, checkpoint_ts)
        end = self.ends(offsets)
        for partition, offset in sorted(offsets.items()):
            if offset > end[partition]:
                raise SourceLost(
                    f"topic {partition.topic} partition {partition.partition}: offset {offset} is "
                    f"needed and Kafka ends at {end[partition]}: the topic was truncated or made "
                    f"again. {_by_a_new_topic(checkpoint_ts)}"
                )

    def check_beginnings(
        self, offsets: Mapping[TopicPartition, int], checkpoint_ts: int | None = None
    ) -> None:
        """Raise SourceLost unless Kafka still has everything from here on."""
        first = self.beginnings(offsets)
        for partition, offset in sorted(offsets.items()):
            if offset < first[partition]:
                raise SourceLost(
                    f"topic {partition.topic} partition {partition.partition}: offset {offset} is "
                    f"needed and Kafka begins at {first[partition]}: messages were deleted before "
                    f"they were applied. {_by_a_new_topic(checkpoint_ts)}"
                )

    def search(
        self, first: Mapping[TopicPartition, int], read: Callable[[bytes | None], int | None]
    ) -> dict[TopicPartition, int]:
        """What ``read`` makes of the first message from these offsets on that it can read.

        A partition in which it reads none is left out. Raises SourceAway when that takes too long.
        """
        try:
            return first_values(self._settings, first, read, _SEARCH_S)
        except NoAnswer as error:
            raise SourceAway(
                f"cannot read the first messages of {self._where()}: {error}"
            ) from error

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        wanted = {kafka.TopicPartition(p.topic, p.partition): spec for p in partitions}
        found = self._ask(
            lambda admin: admin.list_partition_offsets(wanted, IsolationLevel.READ_COMMITTED)
        )
        return {
            TopicPartition(partition.topic, partition.partition): answer.offset
            for partition, answer in found.items()
        }

    def _ask(self, request: Any) -> Any:
        try:
            if self._admin is None:
                self._admin = self._connected()
            return request(self._admin)
        except (KafkaError, OSError) as error:
            self.close()
            raise SourceAway(
                f"no answer from the Kafka broker at {self._where()}: {_reason(error)}. "
                "Check the address and the SASL and TLS parameters of the source URI"
            ) from error

    def _connected(self) -> KafkaAdminClient:
        try:
            return KafkaAdminClient(
                bootstrap_servers=list(self._settings.brokers),
                client_id="tidelake",
                bootstrap_timeout_ms=_CONNECT_TIMEOUT_MS,
                request_timeout_ms=_REQUEST_TIMEOUT_MS,
                **python_options(self._settings.security),
            )
        except (KafkaError, OSError) as error:
            why = connection_refusal(self._settings)
            if why is None:
                raise
            raise SourceAway(
                f"no answer from the Kafka broker at {self._where()}: {why}"
            ) from error

    def _where(self) -> str:
        return ",".join(self._settings.brokers)


def check_topic_ids(recorded: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise SourceLost when a topic of this name is not the one that was read before."""
    for topic, topic_id in recorded.items():
        if topic in now and now[topic] != topic_id:
            raise SourceLost(
                f"topic {topic} was deleted and made again (ID {now[topic]}, was {topic_id}): its "
                "offsets "
                "mean nothing any more. Load the tables anew and start with "
                "--overwrite-checkpoint-ts"
            )


def _by_a_new_topic(checkpoint_ts: int | None) -> str:
    """How the tables get what this topic lacks: they stay, and a rewind takes up any topic."""
    ts = "the changefeed's checkpoint-ts" if checkpoint_ts is None else checkpoint_ts
    return (
        f"Have TiCDC send the tables to a new topic from start-ts {ts}, name it in source-uri, and "
        f"start with --overwrite-checkpoint-ts {ts} (docs/operations.md, What Kafka has no more)"
    )


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
