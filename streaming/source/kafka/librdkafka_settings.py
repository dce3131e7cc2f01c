"""librdkafka's settings for connection and login, from the source URI and Tidelake's own keys."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

from conf.sources.kafka_security import KafkaSecurity
from conf.sources.kafka_uri import KafkaSettings
from coordination.errors import ConfigError
from coordination.secrets import revealed

Setting = str | int | bool
ClientConfig = dict[str, Setting]

_RESPONSE_BYTES = 100_000_000  # librdkafka's default limit: it takes what is larger for garbage
_BESIDE_A_MESSAGE = 16 << 20  # room in a response for other partitions' messages, and for framing


def librdkafka_settings(kafka: KafkaSettings) -> ClientConfig:
    """The settings by which a ``confluent_kafka`` client connects and logs in; the settings for
    reading are in `consumer.py`.

    The content of certificate files and secrets is in the values, since an executor has neither the
    files nor the variables that the parameters name. So the values hold secrets in clear: never log
    them. Raises ConfigError for a file or a secret that cannot be read.
    """
    transport = "SSL" if kafka.security.tls else "PLAINTEXT"
    # A broker sends the first message of a fetch even if it exceeds the limits of the fetch.
    response_bytes = max(_RESPONSE_BYTES, (kafka.max_message_bytes or 0) + _BESIDE_A_MESSAGE)
    settings: ClientConfig = {
        "bootstrap.servers": ",".join(kafka.brokers),
        "client.id": "tidelake",
        "group.id": revealed("kafka-group-id", kafka.group_id),
        "security.protocol": f"SASL_{transport}" if kafka.security.sasl_mechanism else transport,
        "receive.message.max.bytes": response_bytes,
    }
    if kafka.client_rack:
        settings["client.rack"] = revealed("kafka-client-rack", kafka.client_rack)
    return settings | _sasl(kafka.security) | _tls(kafka.security)


def _sasl(security: KafkaSecurity) -> ClientConfig:
    mechanism = security.sasl_mechanism
    if not mechanism:
        return {}
    if mechanism != "OAUTHBEARER":
        return {
            "sasl.mechanism": mechanism,
            "sasl.username": revealed("sasl-user", security.sasl_user or ""),
            "sasl.password": revealed("sasl-password", security.sasl_password or ""),
        }
    name = "sasl-oauth-client-id"
    settings: ClientConfig = {
        "sasl.mechanism": mechanism,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": security.oauth_token_url or "",
        "sasl.oauthbearer.client.id": revealed(name, security.oauth_client_id or ""),
        "sasl.oauthbearer.client.secret": _oauth_secret(security),
    }
    if security.oauth_scopes:
        settings["sasl.oauthbearer.scope"] = " ".join(security.oauth_scopes)
    return settings


def _oauth_secret(security: KafkaSecurity) -> str:
    """The client secret, decoded: it is given in Base64, as for TiCDC. Raises ConfigError."""
    name = "sasl-oauth-client-secret"
    text = revealed(name, security.oauth_client_secret or "")
    try:
        return revealed(name, base64.b64decode(text, validate=True).decode())
    except (binascii.Error, UnicodeDecodeError):
        raise ConfigError(f"{name} is not Base64: write it as TiCDC has it") from None


def _tls(security: KafkaSecurity) -> ClientConfig:
    if not security.tls:
        return {}
    settings: ClientConfig = {
        "enable.ssl.certificate.verification": not security.insecure_skip_verify
    }
    if security.ca:
        settings["ssl.ca.pem"] = _pem(security.ca, "ca")
    if security.cert and security.key:
        settings["ssl.certificate.pem"] = _pem(security.cert, "cert")
        settings["ssl.key.pem"] = _pem(security.key, "key")
    return settings


def _pem(path: str, parameter: str) -> str:
    """The content of a PEM file, so that executors need no copy of it. Raises ConfigError."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")  # bundles have comments
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ConfigError(f"cannot read {parameter}={path} of the source URI: {why}") from error
