"""The parameters of a source URI, whatever its scheme: their names, and the facts about messages
that they tell.

The user gives the same text here as to TiCDC, so every parameter that TiCDC knows is known here.
Some say what is in the messages or how to connect: they are used. Some only steer TiCDC's producer:
they are ignored. Some change the messages in a way that is not built: they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from conf.forms import is_time_zone
from conf.masking import is_secret_name
from conf.problems import Problems, SettingError, require, unknown
from conf.sources.kafka_security import NOT_BUILT, boolean
from conf.sources.kafka_security import PARAMETERS as SECURITY
from conf.sources.large_messages import OPTION, parse_large_messages
from conf.sources.large_messages import PARAMETERS as LARGE_MESSAGES
from conf.sources.schema_registry import PARAMETERS as SCHEMA_REGISTRY
from conf.sources.schema_registry import REGISTRY, parse_registry

AT_LEAST_ONCE: Final = "at-least-once"
LOWER_NAMES: Final = "lower-case-names"
OLD_VALUE: Final = "output-old-value"
RAW_EVENTS: Final = "output-raw-change-event"
BEFORE_VALUE: Final = "avro-include-before-value"
PROTOCOLS = ("canal-json", "open-protocol", "simple", "debezium", "avro", "maxwell")
_OLD_ONES = ("canal", "craft")  # binary forms
_NOT_WRITTEN: Final = " (TiCDC's new architecture does not write it either)"
PROTOCOLS_NOT_BUILT = (*_OLD_ONES, "debezium-avro")
_OTHER_NAMES: Final = {"default": "open-protocol", "flat-avro": "avro"}  # TiCDC's own
ENCODINGS = ("json", "avro")  # of simple: each message shows which one it is in
READ = (
    "protocol", "partition-num", "enable-tidb-extension", "time-zone", "topics",
    "max-message-bytes", "encoding-format", AT_LEAST_ONCE, LOWER_NAMES,
    "avro-enable-watermark", OLD_VALUE, RAW_EVENTS, BEFORE_VALUE,
    *LARGE_MESSAGES, *SECURITY, *SCHEMA_REGISTRY,
)  # fmt: skip
UPDATES_AS_INSERTS: Final = (
    f"{OLD_VALUE}=false: an UPDATE comes as an INSERT does. Tables come to the same; a change log, "
    "and columns about a row's last change, say insert"
)
# Protocols whose UPDATEs TiCDC may write without the old row, and the parameter that says so.
_OLD_ROWS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "open-protocol": (OLD_VALUE, "true"),
        "debezium": (OLD_VALUE, "true"),
        "avro": (BEFORE_VALUE, "false"),
        "csv": (OLD_VALUE, "false"),
    }
)
# Unless they have the TiDB extension.
WITHOUT_WATERMARKS: Final = ("canal-json", "debezium")
PRODUCER_ONLY = (
    "kafka-version", "kafka-client-id", "replication-factor", "max-batch-size", "compression",
    "auto-create-topic", "required-acks", "dial-timeout", "write-timeout",
    "read-timeout", "transaction-atomicity", "only-output-updated-columns", "content-compatible",
    "safe-mode", "output-row-key", "avro-decimal-handling-mode",
    "avro-bigint-unsigned-handling-mode", "debezium-disable-schema", "debezium-include-start-ts",
    "max-retry", "worker-count", "delete-only-output-handle-key-columns",
)  # fmt: skip
KNOWN = (*READ, *PRODUCER_ONLY, *NOT_BUILT)
# `[sink.kafka-config]` has the URI's parameters by the same names, some in tables of their own.
KAFKA_CONFIG_TABLES = ("codec-config", "large-message-handle")
KAFKA_CONFIG_IGNORED = ("glue-schema-registry-config",)
NOTHING: Mapping[str, str] = MappingProxyType({})

_HOSTS: Final = re.compile(r"\A[a-zA-Z][a-zA-Z0-9+.-]*://([^/?#]*)")
_MOST_DIGITS = 20  # int() refuses 4,301 and more by an error of its own


def split_uri(uri: str) -> SplitResult:
    """The parts of a URI. Raises SettingError if the text is no URI at all."""
    try:
        # Newer Pythons take [::1] for an address alone, and not beside other hosts.
        hosts = _HOSTS.search(uri)
        if hosts is None or "[" not in hosts[1] or "," not in hosts[1]:
            return urlsplit(uri)
        found = urlsplit(uri[: hosts.start(1)] + uri[hosts.end(1) :])
        return found._replace(netloc=hosts[1])
    except ValueError as error:
        is_quoted = "netloc" in str(error)  # then the message repeats what may be a password
        raise SettingError("its host cannot be read" if is_quoted else str(error)) from error


def uri_parameters(uri: str, known: Sequence[str] = KNOWN) -> dict[str, str]:
    """The parameters of the URI; its other parts are not checked. Raises SettingError if one of the
    ``known`` names is there twice."""
    pairs = parse_qsl(split_uri(uri).query, keep_blank_values=True)
    parameters = dict(pairs)
    twice = [name for name in known if sum(name == other for other, _ in pairs) > 1]
    require(not twice, f"parameter {', '.join(twice)} is given twice")
    return parameters


def check_names(parameters: Mapping[str, str]) -> None:
    """Raise one SettingError for all parameters that are unknown or not built."""
    problems = Problems()
    for name, value in parameters.items():
        with problems.noted():
            require(name in KNOWN, unknown_parameter(name, parameters))
            require(name not in NOT_BUILT or not value, NOT_BUILT.get(name, ""))
    problems.refuse()


def message_settings(parameters: Mapping[str, str], problems: Problems) -> dict[str, Any]:
    """The fields that sources of messages have in common. Parameters that are refused go into
    ``problems``, unknown ones too."""
    made = dict[str, Any]()
    with problems.noted():
        check_names(parameters)
    with problems.noted():
        made["large"] = parse_large_messages(parameters)
    with problems.noted():
        made["protocol"], made["is_numbered"] = _protocol(parameters)
    made["registry"] = None
    with problems.noted():
        is_avro = _protocol_name(parameters) == "avro"
        made["registry"] = parse_registry(parameters) if is_avro else None
        require(
            not is_avro or made["registry"] is not None,
            f"protocol=avro needs {REGISTRY}=http://host:8081, the registry that TiCDC was given "
            "(AWS's Glue is not read here)",
        )
    with problems.noted():
        has_old = has_old_rows(made.get("protocol", ""), parameters)
        made["tells_updates"] = has_old or made.get("protocol") != "open-protocol"
    with problems.noted():
        told = parameters.get(LOWER_NAMES)
        made["lower_names"] = None if told is None else boolean(LOWER_NAMES, told)
    with problems.noted():
        made["partition_num"] = number(parameters, "partition-num", 2**31, "must be above 0")
    with problems.noted():
        made["time_zone"] = _time_zone(parameters.get("time-zone", "UTC"))
    return made


def has_old_rows(protocol: str, parameters: Mapping[str, str]) -> bool:
    """Whether UPDATEs have their old row. Raises SettingError where they need one."""
    option, default = _OLD_ROWS.get(protocol, ("", "true"))
    has_old = boolean(option, parameters.get(option) or default)
    is_raw = boolean(RAW_EVENTS, parameters.get(RAW_EVENTS) or "false")
    require(
        has_old or not is_raw,
        f"{RAW_EVENTS}=true: an UPDATE that changes the key is one event then, and without its old "
        f"row nobody can tell that the row of the old key is gone. Set {option}=true in the TiCDC "
        f"changefeed and here, or {RAW_EVENTS}=false in both",
    )
    return has_old


def number(parameters: Mapping[str, str], name: str, below: int, form: str) -> int | None:
    """A parameter's whole number from 1 to ``below``; None where it is not given. Raises
    SettingError, which says what ``form`` says."""
    if (text := parameters.get(name)) is None:
        return None
    is_number = text.isdecimal() and len(text) <= _MOST_DIGITS and 0 < int(text) < below
    require(is_number, f"{name}={text} {form}")
    return int(text)


def unknown_parameter(
    name: str,
    parameters: Mapping[str, str],
    known: Sequence[str] = KNOWN,
    *,
    is_shown: bool = True,
) -> str:
    """The message about an unknown parameter. If there is a secret among the parameters, the name
    is not shown: the text behind an & in a password looks like the name of a parameter."""
    said = unknown("parameter", name, known)
    if is_shown and not any(map(is_secret_name, parameters)):
        return said
    _, found, hint = said.partition("; did you mean")
    return f"unknown parameter{found}{hint} (not shown: in a password & is written %26)"


def _protocol_name(parameters: Mapping[str, str]) -> str:
    name = parameters.get("protocol", "").lower()  # as TiCDC reads it
    return _OTHER_NAMES.get(name, name)


def _protocol(parameters: Mapping[str, str]) -> tuple[str, bool]:
    """Its name, and whether its messages have neither a commit-ts nor watermarks."""
    protocol, built = _protocol_name(parameters), ", ".join(PROTOCOLS)
    require(protocol != "", f"protocol is missing: give that of the changefeed, one of {built}")
    require(protocol != "csv", "protocol=csv is in files alone: use s3:// or file://")
    require(
        protocol not in PROTOCOLS_NOT_BUILT,
        f"protocol={protocol} is not read{_NOT_WRITTEN if protocol in _OLD_ONES else ''}: let "
        "TiCDC write protocol=canal-json&enable-tidb-extension=true to a new topic, and give that "
        "sink URI here",
    )
    known = (*PROTOCOLS, *PROTOCOLS_NOT_BUILT)
    require(protocol in known, unknown("protocol", protocol, known))
    encoding = parameters.get("encoding-format", "json").lower()
    require(
        protocol != "simple" or encoding in ENCODINGS,
        unknown("encoding-format", encoding, ENCODINGS),
    )
    told = {
        each: parameters.get(each, "false") for each in ("enable-tidb-extension", AT_LEAST_ONCE)
    }
    has_extension, may_double = (boolean(name, text) for name, text in told.items())
    if protocol == "maxwell":
        require(
            may_double,
            f"{AT_LEAST_ONCE}=true is needed for protocol=maxwell: its messages carry no commit-ts "
            "and no watermarks. Tables with a key come to the same in the end, snapshots may show "
            "half a transaction, and a change log may hold changes twice. canal-json with "
            "enable-tidb-extension=true is exact",
        )
        return protocol, True
    if protocol == "avro":
        return protocol, not _has_avro_watermarks(parameters, may_double=may_double)
    require(
        protocol not in WITHOUT_WATERMARKS or has_extension or may_double,
        "enable-tidb-extension=true is needed: without it the messages carry no commit-ts and no "
        "watermarks; set it in the TiCDC changefeed and here. Where messages cannot have it (those "
        f"of Alibaba Canal, say), {AT_LEAST_ONCE}=true reads them all the same: tables come to the "
        "same in the end, snapshots may show half a transaction, and a change log may hold changes "
        "twice",
    )
    return protocol, protocol in WITHOUT_WATERMARKS and not has_extension


def _has_avro_watermarks(parameters: Mapping[str, str], *, may_double: bool) -> bool:
    """Whether messages of avro have a commit-ts and watermarks. Raises SettingError where they do
    not, and must."""
    option = parameters.get(OPTION, "").lower()
    require(option in ("", "none"), f"{OPTION}={option}: TiCDC has no such option for avro")
    for name in ("enable-tidb-extension", "avro-enable-watermark"):
        if not boolean(name, parameters.get(name, "false")):
            require(
                may_double,
                f"{name}=true is needed for protocol=avro: without it there are no watermarks; set "
                f"it in the TiCDC changefeed and here. {AT_LEAST_ONCE}=true reads such topics all "
                "the same: tables come to the same in the end, but no DDL comes",
            )
            return False
    return True


def _time_zone(name: str) -> str:
    hint = " ('+' is written %2B in a URI)" if name.startswith(" ") else ""
    says = f"time-zone={name}: not a zone such as Asia/Shanghai or UTC{hint}"
    require(is_time_zone(name), says)
    return name
