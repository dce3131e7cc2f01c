"""Read the Kafka sink URI that TiCDC was given: which topic to read, and how to reach the brokers.

The user gives the same text here as to TiCDC, so every parameter that TiCDC knows is known here:
those that say what is in the topic or how to connect are used, those that only steer TiCDC's
producer are ignored, and those that change the messages in a way that is not built are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from conf.forms import is_time_zone
from conf.kafka_security import NOT_BUILT, boolean, parse_security
from conf.kafka_security import PARAMETERS as SECURITY
from conf.masking import is_secret_name
from conf.settings import KafkaSettings, Problems, SettingError, require, unknown

PROTOCOLS_NOT_BUILT = (
    "open-protocol", "default", "simple", "avro", "csv", "debezium", "maxwell", "canal", "craft",
)  # fmt: skip
SCHEMES_NOT_BUILT = (
    "file",
    "s3",
    "gcs",
    "gs",
    "azure",
    "azblob",
    "mysql",
    "mariadb",
    "tidb",
    "pulsar",
)
SCHEMES = ("kafka", "kafka+ssl")  # TiCDC takes both and lets enable-tls alone decide

READ = (
    "protocol", "partition-num", "enable-tidb-extension", "time-zone", "topics",
    "max-message-bytes", "large-message-handle-compression", *SECURITY,
)  # fmt: skip
PRODUCER_ONLY = (
    "kafka-version", "kafka-client-id", "replication-factor", "max-batch-size", "compression",
    "auto-create-topic", "required-acks", "dial-timeout", "write-timeout",
    "read-timeout", "transaction-atomicity", "only-output-updated-columns", "content-compatible",
    "safe-mode", "large-message-handle-option", "claim-check-storage-uri",
    "claim-check-raw-value", "output-row-key", "schema-registry", "avro-enable-watermark",
    "avro-decimal-handling-mode",
    "avro-bigint-unsigned-handling-mode", "encoding-format",
)  # fmt: skip
KNOWN = (*READ, *PRODUCER_ONLY, *NOT_BUILT)

_BROKER = re.compile(r"^(\[[0-9a-fA-F:.%]+\]|[^:\[\]@/\s]+):(\d{1,5})$")
_TOPIC = re.compile(r"^[A-Za-z0-9._-]{1,249}$")
_MOST_DIGITS = 20  # int() refuses 4,301 and more by an error of its own
_NOTHING: Mapping[str, str] = MappingProxyType({})


def parse_source_uri(
    uri: str, *, defaults: Mapping[str, str] = _NOTHING, topics: Sequence[str] = ()
) -> KafkaSettings:
    """The source that the URI describes. ``defaults`` are parameters from a changefeed file (those
    of the URI win), ``topics`` are topics to read besides those of the URI.

    Raises SettingError. No message repeats the URI, which may hold a password.
    """
    parts = split_uri(uri)
    _check_scheme(parts.scheme)
    require(parts.fragment == "" and "#" not in uri, "# is written %23 in a URI, in a password too")
    parameters = {**defaults, **_parameters(parts.query)}
    problems, made = Problems(), dict[str, Any]()
    with problems.noted():
        _check_parameters(parameters)
    with problems.noted():
        _check_protocol(parameters)
    with problems.noted():
        made["brokers"] = _brokers(parts)
    with problems.noted():
        named = (*topics, *filter(None, parameters.get("topics", "").split(",")))
        topic = made["topic"] = _topic(unquote(parts.path.strip("/")))
        made["topics"] = tuple(dict.fromkeys((topic, *map(_topic, named))))
    with problems.noted():
        made["partition_num"] = _number(parameters, "partition-num", 2**31, "must be above 0")
    with problems.noted():
        made["time_zone"] = _time_zone(parameters.get("time-zone", "UTC"))
    with problems.noted():
        made["max_message_bytes"] = _number(parameters, "max-message-bytes", 2**30, "must be bytes")
    with problems.noted():
        made["security"] = parse_security(parameters)
    problems.refuse()
    return KafkaSettings(protocol=parameters["protocol"], **made)


def _check_scheme(scheme: str) -> None:
    require(
        scheme != "", "no scheme; it must look like kafka://host:9092/topic?protocol=canal-json"
    )
    require(
        scheme.partition("+")[0] != "delta",
        "that is --sink-uri here: --source-uri is the sink URI that TiCDC was given, "
        "kafka://host:9092/topic?protocol=canal-json",
    )
    require(scheme not in SCHEMES_NOT_BUILT, f"{scheme}:// is not built yet: use kafka://")
    require(scheme in SCHEMES, f"scheme {scheme!r} is not a source: use kafka://")


def _parameters(query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    parameters = dict(pairs)
    twice = [name for name in KNOWN if sum(name == other for other, _ in pairs) > 1]
    require(not twice, f"parameter {', '.join(twice)} is given twice")
    return parameters


def check_names(parameters: Mapping[str, str]) -> None:
    """Raise one SettingError for all parameters that are unknown or not built."""
    problems = Problems()
    for name, value in parameters.items():
        with problems.noted():
            require(name in KNOWN, _unknown_parameter(name, parameters))
            require(name not in NOT_BUILT or not value, NOT_BUILT.get(name, ""))
    problems.refuse()


def _unknown_parameter(name: str, parameters: Mapping[str, str]) -> str:
    """The message about an unknown parameter. If there is a secret among the parameters, the name
    is not shown: what follows an & in a password looks like the name of a parameter."""
    said = unknown("parameter", name, KNOWN)
    if not any(map(is_secret_name, parameters)):
        return said
    _, found, hint = said.partition("; did you mean")
    return f"unknown parameter{found}{hint} (not shown: in a password & is written %26)"


def split_uri(uri: str) -> SplitResult:
    """The parts of a URI. Raises SettingError if the text is no URI at all."""
    try:
        return urlsplit(uri)
    except ValueError as error:
        is_quoted = "netloc" in str(error)  # then the message repeats what may be a password
        raise SettingError("its host cannot be read" if is_quoted else str(error)) from error


def uri_parameters(uri: str) -> dict[str, str]:
    """The parameters of the URI; its other parts are not checked. Raises SettingError."""
    return _parameters(split_uri(uri).query)


def _check_parameters(parameters: Mapping[str, str]) -> None:
    check_names(parameters)
    compression = parameters.get("large-message-handle-compression", "").lower()
    require(
        compression in ("", "none"),
        f"large-message-handle-compression={compression} is not built yet: use none",
    )


def _check_protocol(parameters: Mapping[str, str]) -> None:
    protocol = parameters.get("protocol", "")
    require(protocol != "", "protocol is missing: canal-json is what can be read")
    require(
        protocol not in PROTOCOLS_NOT_BUILT, f"protocol={protocol} is not built yet: use canal-json"
    )
    require(
        protocol == "canal-json",
        unknown("protocol", protocol, ("canal-json", *PROTOCOLS_NOT_BUILT)),
    )
    require(
        boolean("enable-tidb-extension", parameters.get("enable-tidb-extension", "false")),
        "enable-tidb-extension=true is needed: without it the messages carry no commit-ts and no "
        "watermarks; set it in the TiCDC changefeed and here",
    )


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


def _number(parameters: Mapping[str, str], name: str, below: int, form: str) -> int | None:
    if (text := parameters.get(name)) is None:
        return None
    is_number = text.isdecimal() and len(text) <= _MOST_DIGITS and 0 < int(text) < below
    require(is_number, f"{name}={text} {form}")
    return int(text)


def _time_zone(name: str) -> str:
    hint = " ('+' is written %2B in a URI)" if name.startswith(" ") else ""
    says = f"time-zone={name}: not a zone such as Asia/Shanghai or UTC{hint}"
    require(is_time_zone(name), says)
    return name
