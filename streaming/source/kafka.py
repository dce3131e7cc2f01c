"""The Kafka side: which topics and partitions are ours, from where to read, and whether that still
holds.

Kafka is the log (rule 1): a stream start assigns every sink partition at an explicit
offset. Executors read the rows; here the broker is asked for metadata, offsets and first words."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, TopicCollection
from confluent_kafka import TopicPartition as Assignment
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
)

from conf.settings import KafkaSource
from coordination.errors import TidelakeError, TopicMissing, TryAgain
from streaming.source.consumer import RangeConsumer
from streaming.source.librdkafka_settings import librdkafka_settings
from streaming.source.ranges import OffsetRange, TopicPartition
from streaming.source.refusal import connection_refusal

_ANSWER_S = 5.0
_SEARCH_S = 60.0  # for the first watermarks: one comes about every second
_MESSAGES = 500  # looked at together
_TRIES = 3  # each of a new client, which learns who leads
K = TypeVar("K")
Answers = dict[K, "Future[Any]"]


class SourceChanged(TidelakeError):
    """A topic grew partitions of ours: the stream must start again with the new set."""


class SourceAway(TryAgain):
    """The broker does not answer: at a start that is an error, later it is waited for a while."""


class SourceLost(TidelakeError):
    """What we still need is gone from Kafka: never skipped in silence. TiCDC's word for it is that
    of a history which TiDB has collected."""

    code = "CDC:ErrGCTTLExceeded"


@dataclass(frozen=True, slots=True)
class SourceShape:
    """What a stream start fixes: topic IDs, and the partitions that the sink uses."""

    topic_ids: Mapping[str, str]
    partitions: frozenset[TopicPartition]


class Source:
    """Metadata, offsets and reads of one changefeed's topics."""

    def __init__(self, settings: KafkaSource) -> None:
        self._settings = settings
        self._admin: AdminClient | None = None

    def close(self) -> None:
        """Give the connection back; it opens again when needed."""
        self._admin = None

    def shape(self) -> SourceShape:
        """As the broker has it now. Raises TopicMissing for one that is not there or too small."""
        described = self._described(self._settings.topics)
        partitions: set[TopicPartition] = set()
        for name, topic in described.items():
            partitions |= self._ours(name, len(topic.partitions))
        topic_ids = {name: _id_of(topic.topic_id) for name, topic in described.items()}
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
        described = self._described(recorded)
        check_topic_ids(recorded, {name: _id_of(each.topic_id) for name, each in described.items()})

    def _described(self, topics: Iterable[str]) -> dict[str, Any]:
        names = list(topics)
        try:
            return self._ask(
                lambda admin: admin.describe_topics(
                    TopicCollection(names), request_timeout=_ANSWER_S
                )
            )
        except SourceAway as error:
            if not isinstance(error.__cause__, KafkaException) or (
                error.__cause__.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART
            ):
                raise
            raise TopicMissing(
                f"topic {' or '.join(names)} does not exist on {self._where()}: "
                "check the source URI, or create the changefeed in TiCDC first"
            ) from error

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that Kafka still has, by partition."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last message that a reader of whole transactions is given."""
        return self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

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
        return self._first(first, lambda message: read(message.value()))

    def times_ms(self, first: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The time of the first message from these offsets on (ms since 1970).

        A partition in which there is none is left out. Raises SourceAway when that takes too long.
        """
        return self._first(first, lambda message: max(0, message.timestamp()[1]))

    def retention_ms(self, topics: Iterable[str]) -> dict[str, int]:
        """``retention.ms`` of those that have one."""
        wanted = [ConfigResource(ConfigResource.Type.TOPIC, each) for each in sorted(topics)]
        answers = self._ask(lambda admin: admin.describe_configs(wanted, request_timeout=_ANSWER_S))
        found = {each.name: int(of["retention.ms"].value) for each, of in answers.items()}
        return {topic: each for topic, each in found.items() if each > 0}

    def _first(
        self, first: Mapping[TopicPartition, int], read: Callable[[Message], int | None]
    ) -> dict[TopicPartition, int]:
        if not first:
            return {}
        consumer = RangeConsumer(librdkafka_settings(self._settings))
        waiting, found = set(first), dict[TopicPartition, int]()
        give_up_s = time.monotonic() + _SEARCH_S
        try:
            consumer.assign(
                [OffsetRange(p.topic, "", p.partition, at, at) for p, at in first.items()]
            )
            while waiting:
                for message in consumer.fetch(_MESSAGES):
                    partition = TopicPartition(message.topic() or "", message.partition() or 0)
                    error = message.error()
                    if partition not in waiting:
                        continue
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        raise self._unread(f"{partition}: {error.str()}")
                    value = read(message) if error is None else None
                    if value is not None:
                        found[partition] = value
                    if error is not None or value is not None:
                        waiting.remove(partition)
                        consumer.leave(partition)
                if time.monotonic() > give_up_s:
                    where = ", ".join(map(str, sorted(waiting)))
                    raise self._unread(
                        f"no watermark of {where} was found within {_SEARCH_S:.0f} s: "
                        f"{consumer.trouble}"
                    )
        finally:
            consumer.close()
        return found

    def _unread(self, why: str) -> SourceAway:
        return SourceAway(f"cannot read the first messages of {self._where()}: {why}")

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        wanted = {Assignment(p.topic, p.partition): spec for p in partitions}
        if not wanted:
            return {}
        for _ in range(_TRIES):
            found = self._ask(
                lambda admin: admin.list_offsets(
                    wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_ANSWER_S
                )
            )
            if all(each.offset >= 0 for each in found.values()):
                return {TopicPartition(p.topic, p.partition): a.offset for p, a in found.items()}
            self.close()  # -1001, and no error: it asked a leader that is gone
        raise SourceAway(f"partitions without a leader on {self._where()}: is a broker down?")

    def _ask(self, request: Callable[[AdminClient], Answers[K]]) -> dict[K, Any]:
        is_new = self._admin is None
        try:
            if self._admin is None:
                settings = librdkafka_settings(self._settings)
                self._admin = AdminClient({**settings, "log_level": 0})
            return {each: answer.result() for each, answer in request(self._admin).items()}
        except KafkaException as error:
            self.close()
            why = connection_refusal(self._settings) if is_new else None
            raise SourceAway(
                f"no answer from the Kafka broker at {self._where()}: {why or error.args[0].str()}"
            ) from error

    def _where(self) -> str:
        return ",".join(self._settings.brokers)


def _id_of(topic_id: object) -> str:
    """librdkafka writes it in base 64; what is stored has the common form."""
    return str(UUID(bytes=base64.urlsafe_b64decode(f"{topic_id}==")))


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
