"""The Kafka sink URI that TiCDC was given: which topic to read, and how to reach the brokers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote

from conf.problems import Problems, require
from conf.setting import setting
from conf.sources.kafka_security import KafkaSecurity, parse_security
from conf.sources.large_messages import NOTHING_LARGE, LargeMessages
from conf.sources.schema_registry import SchemaRegistry
from conf.sources.source_parameters import AT_LEAST_ONCE, message_settings, number
from conf.sources.topic_expressions import (
    NO_EXPRESSIONS,
    TopicExpressions,
    parse_topics,
    topic_name,
)

SCHEMES = ("kafka", "kafka+ssl")  # TiCDC takes both and lets enable-tls alone decide

_BROKER = re.compile(r"^(\[[0-9a-fA-F:.%]+\]|[^:\[\]@/\s]+):(\d{1,5})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """``kafka://host:port,host:port/topic?protocol=canal-json&partition-num=3&…``."""

    brokers: tuple[str, ...]
    topic: str  # the default topic; `topics` has all, this one first
    topics: tuple[str, ...]
    protocol: str
    expressions: TopicExpressions = NO_EXPRESSIONS  # topics that the broker has besides
    # The default topic's number; None: as many as the broker says, as for every other topic. TiCDC
    # does the same for a topic that exists (its default of 3 is only for a topic that it creates).
    partition_num: int | None
    time_zone: str = "UTC"  # the TiCDC server's `tz`: the zone of TIMESTAMP texts
    large: LargeMessages = NOTHING_LARGE
    is_numbered: bool = False  # its messages have no commit-ts: at least once
    lower_names: bool | None = None  # lower_case_table_names is 1 or 2; None: DDLs and rows tell
    registry: SchemaRegistry | None = None  # of Avro's schemas; None: the protocol has none
    tells_updates: bool = True  # else an UPDATE comes as an INSERT does: it has no old row
    max_message_bytes: int | None = None  # TiCDC's limit; None: the URI does not say
    security: KafkaSecurity = KafkaSecurity()
    group_id: str = setting(
        "kafka-group-id",
        "tidelake",
        "the consumer group's name, for brokers that let only some groups read; no offsets are "
        "committed to it",
    )
    client_rack: str | None = setting(
        "kafka-client-rack",
        says="the rack of this capture: it reads from the replica in that rack. `${env:RACK}` "
        "takes it from each capture's environment",
    )

    @property
    def name(self) -> str:
        """The name of a changefeed that has none of its own."""
        return self.topic

    @property
    def uri(self) -> str:
        """The source, without the brokers and the login."""
        more = f"&{AT_LEAST_ONCE}=true" if self.is_numbered else ""
        return f"kafka:///{self.topic}?protocol={self.protocol}{more}"

    @property
    def agreed(self) -> dict[str, str | int | None]:
        """The facts about the source on which all captures of a `run` must agree, by setting."""
        topics = ",".join(sorted((*self.topics, *self.expressions.texts)))
        return {"topics": topics, "partition-num": self.partition_num}


def parse_kafka_uri(
    parts: SplitResult, parameters: Mapping[str, str], topics: Sequence[str]
) -> KafkaSettings:
    """``topics`` are topics to read besides those of the URI, names or expressions. Raises
    SettingError."""
    problems = Problems()
    made = message_settings(parameters, problems)
    with problems.noted():
        made["brokers"] = _brokers(parts)
    with problems.noted():
        named = (*topics, *filter(None, parameters.get("topics", "").split(",")))
        topic = made["topic"] = topic_name(unquote(parts.path.strip("/")))
        names, made["expressions"] = parse_topics(named)
        made["topics"] = tuple(dict.fromkeys((topic, *names)))
    with problems.noted():
        made["max_message_bytes"] = number(parameters, "max-message-bytes", 2**30, "must be bytes")
    with problems.noted():
        made["security"] = parse_security(parameters)
    problems.refuse()
    return KafkaSettings(**made)


def _brokers(parts: SplitResult) -> tuple[str, ...]:
    require(
        "@" not in parts.netloc + parts.path,
        "a user goes into sasl-user and sasl-password, not before the host",
    )
    brokers = tuple(filter(None, parts.netloc.split(",")))
    require(brokers != (), "no broker; it must look like kafka://host:9092,host:9092/topic")
    for broker in brokers:
        match = _BROKER.match(broker)
        require(
            match is not None and 0 < int(match[2]) < 65536, f"broker {broker!r} must be host:port"
        )
    return brokers
