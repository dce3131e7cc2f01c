"""How librdkafka connects, and as whom: of the source URI and Tidelake's own keys for it."""

from __future__ import annotations

from conf.settings import KafkaSecurity, KafkaSource
from coordination.secrets import revealed
from streaming.source.security import login, oauth_client, pem, security_protocol

Setting = str | int | bool
Settings = dict[str, Setting]

_RESPONSE_BYTES = 100_000_000  # librdkafka's own limit: what is larger is taken for garbage
_BESIDE_A_MESSAGE = 16 << 20  # in a response: the other partitions, and what frames them


def librdkafka_settings(kafka: KafkaSource) -> Settings:
    """Connection and identity of a ``confluent_kafka`` client; how it reads is the reader's matter.

    Everything stands in the values: a process elsewhere needs neither the files nor the variables
    that the parameters name. So they hold secrets in clear: never to be logged (a ``repr`` of them
    is no way to name a client). Raises ConfigError for a file or a secret that cannot be had.
    """
    settings: Settings = {
        "bootstrap.servers": ",".join(kafka.brokers),
        "client.id": "tidelake",
        "group.id": revealed("kafka-group-id", kafka.group_id),
        "security.protocol": security_protocol(kafka.security),
        "receive.message.max.bytes": _response_bytes(kafka.max_message_bytes),
    }
    if kafka.client_rack:
        settings["client.rack"] = revealed("kafka-client-rack", kafka.client_rack)
    return settings | _sasl(kafka.security) | _tls(kafka.security)


def _response_bytes(max_message_bytes: int | None) -> int:
    """A broker sends the first message of a fetch however large it is."""
    return max(_RESPONSE_BYTES, (max_message_bytes or 0) + _BESIDE_A_MESSAGE)


def _sasl(security: KafkaSecurity) -> Settings:
    mechanism = security.sasl_mechanism
    if not mechanism:
        return {}
    if mechanism != "OAUTHBEARER":
        user, password = login(security)
        return {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    client = oauth_client(security)
    settings: Settings = {
        "sasl.mechanism": mechanism,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": security.oauth_token_url or "",
        "sasl.oauthbearer.client.id": client.id,
        "sasl.oauthbearer.client.secret": client.secret,
    }
    if security.oauth_scopes:
        settings["sasl.oauthbearer.scope"] = " ".join(security.oauth_scopes)
    return settings


def _tls(security: KafkaSecurity) -> Settings:
    if not security.tls:
        return {}
    settings: Settings = {"enable.ssl.certificate.verification": not security.insecure_skip_verify}
    if security.ca:
        settings["ssl.ca.pem"] = pem(security.ca, "ca")
    if security.cert and security.key:
        settings["ssl.certificate.pem"] = pem(security.cert, "cert")
        settings["ssl.key.pem"] = pem(security.key, "key")
    return settings
