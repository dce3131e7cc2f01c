"""Ask the broker: which topics and partitions are ours, from where to read, and whether Kafka still
has that.

Kafka is the log (rule 1): a stream start assigns every sink partition at an explicit offset.
Executors read the rows; this module reads metadata, offsets and first messages, in the driver."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as Assignment
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
)

from conf.sources.kafka_uri import KafkaSettings
from coordination.errors import TopicMissing
from streaming.protocols.clocks import LATEST_MS
from streaming.source.contract import SourceAway, SourceLost
from streaming.source.kafka.connection_errors import connection_refusal
from streaming.source.kafka.consumer import RangeConsumer, new_admin
from streaming.source.kafka.librdkafka_settings import librdkafka_settings
from streaming.source.kafka.offset_ranges import OffsetRange
from streaming.source.kafka.topic_partition import TopicPartition

_ANSWER_S = 5.0
_SEARCH_S = 60.0  # the time-out of a search for first messages
_MESSAGES = 500  # fetched at a time in a search
_TRIES = 3  # each with a new client, which asks anew who leads a partition
K = TypeVar("K")
Answers = dict[K, "Future[Any]"]


@dataclass(frozen=True, slots=True)
class TopicsShape:
    """The topic IDs and the partitions, as they are at a stream's start. ``strays``: those that the
    sink may not use, since ``partition-num`` is lower than the topic's count (rule 1)."""

    topic_ids: Mapping[str, str]
    partitions: frozenset[TopicPartition]
    strays: frozenset[TopicPartition] = frozenset()


class Broker:
    """Metadata, offsets and first messages of one changefeed's topics."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._admin: AdminClient | None = None

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        self._admin = None

    def shape(self) -> TopicsShape:
        """The shape that the broker has now. Raises TopicMissing for a topic that does not exist or
        has too few partitions, SourceAway."""
        described = self._described((*self._settings.topics, *self._matching()))
        counts = {name: len(topic.partitions) for name, topic in described.items()}
        partitions = {
            TopicPartition(name, n) for name, count in counts.items() for n in range(count)
        }
        return TopicsShape(
            {name: _id_of(topic.topic_id) for name, topic in described.items()},
            frozenset(partitions),
            frozenset(p for p in partitions if p.partition >= self._used(p.topic, counts[p.topic])),
        )

    def _matching(self) -> list[str]:
        """The topics that the source URI's expressions stand for now. TiCDC makes a topic before it
        writes to it, so who asks behind a watermark knows all topics with rows up to it. Raises
        SourceAway."""
        expressions, named = self._settings.expressions, self._settings.topics
        if not expressions:
            return []
        found = self._tried(lambda admin: admin.list_topics(timeout=_ANSWER_S).topics)
        return sorted(each for each in found if expressions.take(each) and each not in named)

    def _used(self, topic: str, count: int) -> int:
        """How many partitions of a topic the sink surely uses: ``partition-num`` of the default
        topic, as many as the broker says of other topics (rule 1)."""
        is_default = topic == self._settings.topic
        wanted = self._settings.partition_num if is_default else None
        if wanted is not None and count < wanted:
            raise TopicMissing(
                f"topic {topic} has {count} partitions, the source URI says "
                f"partition-num={wanted}: "
                "use the sink URI that TiCDC was given"
            )
        return count if wanted is None else wanted

    def check_topic_ids(self, recorded: Mapping[str, str]) -> None:
        """Raise SourceLost if a topic was made again, TopicMissing if it is gone, or SourceAway."""
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
        """The first offset that Kafka still has, by partition. Raises SourceAway."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def ends(
        self, partitions: Iterable[TopicPartition], *, committed: bool = True
    ) -> dict[TopicPartition, int]:
        """The offset after the last message that a reader of committed transactions gets, by
        partition; not ``committed``: after the last message. Raises SourceAway."""
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._offsets(partitions, spec, committed=committed)

    def offsets_at(
        self, partitions: Iterable[TopicPartition], at_ms: int
    ) -> dict[TopicPartition, int]:
        """The first offset whose message has this time (ms since 1970) or a later one; the end if
        there is none. Raises SourceAway."""
        wanted = list(partitions)
        ends = self.ends(wanted)
        spec = OffsetSpec.for_timestamp(at_ms)
        asked = {Assignment(p.topic, p.partition): spec for p in wanted}
        found = self._ask(lambda admin: admin.list_offsets(asked, request_timeout=_ANSWER_S))
        at = {TopicPartition(p.topic, p.partition): a.offset for p, a in found.items()}
        return {each: at[each] if at[each] >= 0 else ends[each] for each in wanted}

    def check_offsets(
        self, offsets: Mapping[TopicPartition, int], checkpoint_ts: int | None = None
    ) -> None:
        """Raise SourceLost, naming topic, partition and offsets, unless Kafka has everything from
        these offsets on. ``checkpoint_ts``: the changefeed's, for the advice in the message.
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
        """Raise SourceLost if Kafka has deleted messages at or after these offsets."""
        first = self.beginnings(offsets)
        for partition, offset in sorted(offsets.items()):
            if offset < first[partition]:
                raise SourceLost(
                    f"topic {partition.topic} partition {partition.partition}: offset {offset} is "
                    f"needed and Kafka begins at {first[partition]}: messages were deleted before "
                    f"they were applied. {_by_a_new_topic(checkpoint_ts)}"
                )

    def times_ms(self, first: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The time of the first message at or after each offset (ms since 1970).

        A partition without a message there is left out; the time of a message that has none is 0.
        Blocks; raises SourceAway after a minute.
        """
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
                    if partition not in waiting:
                        continue
                    error = message.error()
                    if error is None:
                        found[partition] = max(0, message.timestamp()[1])
                    elif error.code() != KafkaError._PARTITION_EOF:
                        raise self._unread(f"{partition}: {error.str()}")
                    waiting.remove(partition)
                    consumer.leave(partition)
                if time.monotonic() > give_up_s:
                    where = ", ".join(map(str, sorted(waiting)))
                    raise self._unread(
                        f"no message of {where} came within {_SEARCH_S:.0f} s: {consumer.trouble}"
                    )
        finally:
            consumer.close()
        return found

    def newest_ms(self) -> float | None:
        """The greatest timestamp of all messages (ms since 1970), by which the broker's clock, or
        the producers', is known; None without a message. Raises SourceAway."""
        spec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
        wanted = {Assignment(p.topic, p.partition): spec for p in self.shape().partitions}
        found = self._ask(lambda admin: admin.list_offsets(wanted, request_timeout=_ANSWER_S))
        times = [each.timestamp for each in found.values() if 0 < each.timestamp < LATEST_MS]
        return max(times, default=None)

    def retention_ms(self, topics: Iterable[str]) -> dict[str, int]:
        """``retention.ms`` of each topic; topics without a limit are left out. Raises
        SourceAway."""
        found = {topic: int(each) for topic, each in self._told(topics, "retention.ms").items()}
        return {topic: each for topic, each in found.items() if each > 0}

    def compacted(self, topics: Iterable[str]) -> list[str]:
        """Those of which Kafka deletes messages that have a later one of their key. Raises
        SourceAway."""
        found = self._told(topics, "cleanup.policy")
        return [topic for topic, policy in found.items() if "compact" in policy]

    def _told(self, topics: Iterable[str], setting: str) -> dict[str, str]:
        wanted = [ConfigResource(ConfigResource.Type.TOPIC, each) for each in sorted(topics)]
        answers = self._ask(lambda admin: admin.describe_configs(wanted, request_timeout=_ANSWER_S))
        return {each.name: str(of[setting].value) for each, of in answers.items()}

    def _unread(self, why: str) -> SourceAway:
        return SourceAway(f"cannot read the first messages of {self._where()}: {why}")

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, *, committed: bool = True
    ) -> dict[TopicPartition, int]:
        wanted = {Assignment(p.topic, p.partition): spec for p in partitions}
        if not wanted:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        for _ in range(_TRIES):
            found = self._ask(
                lambda admin: admin.list_offsets(
                    wanted, isolation_level=level, request_timeout=_ANSWER_S
                )
            )
            if all(each.offset >= 0 for each in found.values()):
                return {TopicPartition(p.topic, p.partition): a.offset for p, a in found.items()}
            self.close()  # offset -1001 without an error: the client asked a leader that is gone
        raise SourceAway(f"partitions without a leader on {self._where()}: is a broker down?")

    def _ask(self, request: Callable[[AdminClient], Answers[K]]) -> dict[K, Any]:
        return self._tried(
            lambda admin: {each: answer.result() for each, answer in request(admin).items()}
        )

    def _tried(self, request: Callable[[AdminClient], dict[K, Any]]) -> dict[K, Any]:
        is_new = self._admin is None
        try:
            if self._admin is None:
                settings = librdkafka_settings(self._settings)
                self._admin = new_admin({**settings, "log_level": 0})
            return request(self._admin)
        except KafkaException as error:
            self.close()
            why = connection_refusal(self._settings) if is_new else None
            raise SourceAway(
                f"no answer from the Kafka broker at {self._where()}: {why or error.args[0].str()}"
            ) from error

    def _where(self) -> str:
        return ",".join(self._settings.brokers)


def _id_of(topic_id: object) -> str:
    """The topic ID in the usual form of a UUID, as it is stored; librdkafka gives it in base 64."""
    return str(UUID(bytes=base64.urlsafe_b64decode(f"{topic_id}==")))


def check_topic_ids(recorded: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise SourceLost if a topic has another ID than recorded: it was deleted and made again."""
    for topic, topic_id in recorded.items():
        if topic in now and now[topic] != topic_id:
            raise SourceLost(
                f"topic {topic} was deleted and made again (ID {now[topic]}, was {topic_id}): its "
                "offsets "
                "mean nothing any more. Load the tables anew and start with "
                "--overwrite-checkpoint-ts"
            )


def _by_a_new_topic(checkpoint_ts: int | None) -> str:
    """Advice for getting the changes that Kafka no longer has: the tables stay as they are, and
    after a rewind the changefeed may read any topic."""
    ts = "the changefeed's checkpoint-ts" if checkpoint_ts is None else checkpoint_ts
    return (
        f"Have TiCDC send the tables to a new topic from start-ts {ts}, name it in source-uri, and "
        f"start with --overwrite-checkpoint-ts {ts} (docs/operations.md, What Kafka has no more)"
    )
