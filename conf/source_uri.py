"""TiCDC's Kafka sink URI, read from the other end: where the topic is and how to reach it.

The URI is the very text that TiCDC was given, so every parameter that TiCDC knows is known here:
those that say what is in the topic or how to connect are used, those that only steer TiCDC's
producer are ignored, and those that change the bytes in a way that is not built yet are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit
from zoneinfo import ZoneInfo

from conf.masking import is_secret_name
from conf.references import parse_reference
from conf.settings import KafkaSecurity, KafkaSource, Problems, SettingError, require
from conf.unknown import unknown

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
    "enable-tls", "ca", "cert", "key", "insecure-skip-verify",
    "sasl-mechanism", "sasl-user", "sasl-password", "large-message-handle-compression",
)  # fmt: skip
PRODUCER_ONLY = (
    "kafka-version", "kafka-client-id", "replication-factor", "max-message-bytes", "max-batch-size",
    "compression", "auto-create-topic", "required-acks", "dial-timeout", "write-timeout",
    "read-timeout", "transaction-atomicity", "only-output-updated-columns", "content-compatible",
    "safe-mode", "large-message-handle-option", "claim-check-storage-uri",
    "claim-check-raw-value", "output-row-key", "schema-registry", "avro-enable-watermark",
    "avro-decimal-handling-mode",
    "avro-bigint-unsigned-handling-mode", "encoding-format",
)  # fmt: skip
SASL_NOT_BUILT = (
    "sasl-gssapi-auth-type", "sasl-gssapi-keytab-path", "sasl-gssapi-kerberos-config-path",
    "sasl-gssapi-service-name", "sasl-gssapi-user", "sasl-gssapi-password", "sasl-gssapi-realm",
    "sasl-gssapi-disable-pafxfast", "sasl-oauth-client-id", "sasl-oauth-client-secret",
    "sasl-oauth-token-url", "sasl-oauth-scopes", "sasl-oauth-grant-type", "sasl-oauth-audience",
)  # fmt: skip
KNOWN = (*READ, *PRODUCER_ONLY, *SASL_NOT_BUILT)

SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})  # Go's strconv.ParseBool
FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})

_BROKER = re.compile(r"^(\[[0-9a-fA-F:.%]+\]|[^:\[\]@/\s]+):(\d{1,5})$")
_TOPIC = re.compile(r"^[A-Za-z0-9._-]{1,249}$")
_OFFSET = re.compile(r"^[+-](0\d|1[0-8]):[0-5]\d$")
_NOTHING: Mapping[str, str] = MappingProxyType({})


def parse_source_uri(
    uri: str, *, defaults: Mapping[str, str] = _NOTHING, topics: Sequence[str] = ()
) -> KafkaSource:
    """Read the URI; ``defaults`` are parameters from a changefeed file, ``topics`` further topics.

    Raises SettingError. No message repeats the URI: it may hold a password.
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
        made["partition_num"] = _partition_num(parameters.get("partition-num"))
    with problems.noted():
        made["time_zone"] = _time_zone(parameters.get("time-zone", "UTC"))
    with problems.noted():
        made["security"] = _security(parameters)
    problems.refuse()
    return KafkaSource(protocol=parameters["protocol"], **made)


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
    """Raise one SettingError for all parameters that nobody knows or that are not built."""
    problems = Problems()
    for name, value in parameters.items():
        with problems.noted():
            require(name in KNOWN, _unknown_parameter(name, parameters))
            require(
                name not in SASL_NOT_BUILT or not value,
                f"{name} is not built yet: of SASL, use {', '.join(SASL_MECHANISMS)}",
            )
    problems.refuse()


def _unknown_parameter(name: str, parameters: Mapping[str, str]) -> str:
    """A password with & in it looks like one more parameter: it is not shown."""
    said = unknown("parameter", name, KNOWN)
    if not any(map(is_secret_name, parameters)):
        return said
    _, found, hint = said.partition("; did you mean")
    return f"unknown parameter{found}{hint} (not shown: in a password & is written %26)"


def split_uri(uri: str) -> SplitResult:
    """Raises SettingError for what is no URI at all."""
    try:
        return urlsplit(uri)
    except ValueError as error:
        is_quoted = "netloc" in str(error)  # it repeats what may be a password
        raise SettingError("its host cannot be read" if is_quoted else str(error)) from error


def uri_parameters(uri: str) -> dict[str, str]:
    """Those of the URI, whatever else it is."""
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
        _boolean("enable-tidb-extension", parameters.get("enable-tidb-extension", "false")),
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


def _partition_num(text: str | None) -> int | None:
    if text is None:
        return None
    require(text.isdecimal() and 0 < int(text) < 2**31, f"partition-num={text} must be above 0")
    return int(text)


def _time_zone(name: str) -> str:
    if _OFFSET.match(name):
        return name
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # unknown; a folder of zones; not a relative path
        known = False
    else:
        known = True
    hint = " ('+' is written %2B in a URI)" if name.startswith(" ") else ""
    require(known, f"time-zone={name}: not a zone such as Asia/Shanghai or UTC{hint}")
    return name


def _boolean(name: str, text: str) -> bool:
    require(text in TRUE | FALSE, f"{name}={text} must be true or false")
    return text in TRUE


def _security(parameters: Mapping[str, str]) -> KafkaSecurity:
    """TLS follows the files unless enable-tls speaks; SASL follows the mechanism, as in TiCDC."""
    ca, cert, key = (parameters.get(name) or None for name in ("ca", "cert", "key"))
    require((cert is None) == (key is None), "cert and key go together: one of them is missing")
    files = ca is not None or cert is not None
    tls = _boolean("enable-tls", parameters.get("enable-tls") or str(files).lower())
    require(tls or not files, "ca, cert and key are given, but enable-tls is false")
    user, password = parameters.get("sasl-user") or None, parameters.get("sasl-password") or None
    for name in ("sasl-user", "sasl-password"):
        parse_reference(name, parameters.get(name, ""))
    mechanism = _mechanism(parameters.get("sasl-mechanism") or None, user, password)
    return KafkaSecurity(
        tls=tls,
        ca=ca,
        cert=cert,
        key=key,
        insecure_skip_verify=tls
        and _boolean("insecure-skip-verify", parameters.get("insecure-skip-verify") or "false"),
        sasl_mechanism=mechanism,
        sasl_user=user,
        sasl_password=password,
    )


def _mechanism(mechanism: str | None, user: str | None, password: str | None) -> str | None:
    choices = ", ".join(SASL_MECHANISMS)
    if mechanism is None:
        # TiCDC would connect without SASL here, without a word.
        require(
            user is None and password is None, f"sasl-user without sasl-mechanism: name {choices}"
        )
        return None
    mechanism = mechanism.upper()
    require(
        mechanism not in ("GSSAPI", "OAUTHBEARER"),
        f"sasl-mechanism={mechanism} is not built yet: use {choices}",
    )
    require(mechanism in SASL_MECHANISMS, f"sasl-mechanism={mechanism} must be one of {choices}")
    require(
        user is not None and password is not None,
        f"sasl-mechanism={mechanism} needs sasl-user and sasl-password",
    )
    return mechanism
