"""The Kafka sink URI that TiCDC was given: which topic to read, and how to reach the brokers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import SplitResult, unquote

from conf.kafka_security import parse_security
from conf.problems import Problems, require
from conf.settings import KafkaSettings
from conf.source_parameters import message_settings, number

SCHEMES = ("kafka", "kafka+ssl")  # TiCDC takes both and lets enable-tls alone decide

_BROKER = re.compile(r"^(\[[0-9a-fA-F:.%]+\]|[^:\[\]@/\s]+):(\d{1,5})$")
_TOPIC = re.compile(r"^[A-Za-z0-9._-]{1,249}$")


def parse_kafka_uri(
    parts: SplitResult, parameters: Mapping[str, str], topics: Sequence[str]
) -> KafkaSettings:
    """``topics`` are topics to read besides those of the URI. Raises SettingError."""
    problems = Problems()
    made = message_settings(parameters, problems)
    with problems.noted():
        made["brokers"] = _brokers(parts)
    with problems.noted():
        named = (*topics, *filter(None, parameters.get("topics", "").split(",")))
        topic = made["topic"] = _topic(unquote(parts.path.strip("/")))
        made["topics"] = tuple(dict.fromkeys((topic, *map(_topic, named))))
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


def _topic(name: str) -> str:
    require(name != "", "no topic; it is the path: kafka://host:9092/topic")
    require(
        _TOPIC.match(name) is not None and name not in (".", ".."),
        f"topic {name!r}: letters, digits, '.', '_' and '-', at most 249",
    )
    return name
