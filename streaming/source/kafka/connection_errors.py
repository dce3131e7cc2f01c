"""Find out why a broker refuses a connection, and say it in one line.

librdkafka reports the broker's answer. It does not say why it cannot trust a certificate. So the
connection is tried again with Python's ssl, which does.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException

from conf.sources.kafka_security import KafkaSecurity
from conf.sources.kafka_uri import KafkaSettings
from coordination.errors import ConfigError
from streaming.source.kafka.consumer import new_consumer
from streaming.source.kafka.librdkafka_settings import librdkafka_settings

_ASKED_FOR_S = 0.2
_FRAME = re.compile(
    r"^\S+(?:/bootstrap|/\d+): | \(after \d+ms in state \w+\)|error:\w+:SSL routines::"
)
_OFFERED = re.compile(r"supported mechanisms: (.*)")
_ALERT = re.compile(r"alert [a-z ]*(?:certificate|unknown ca|access denied)")
_WITHOUT_A_WORD = {
    "_ALL_BROKERS_DOWN": "it closes the connection without a word: it may want TLS or a login. "
    "Check the port, enable-tls and sasl-mechanism",
    "_TIMED_OUT": "it does not answer. Check the address, and whether the broker is well",
}
_VERIFIED = "certificate verify failed"
_HUNG_UP = re.compile("Broken pipe|Connection reset")


def connection_refusal(kafka: KafkaSettings, patience_s: float = 2.0) -> str | None:
    """Connect once more, and return why that fails and the way out; None if it works now.

    Blocks for about ``patience_s`` seconds, longer to look at certificates. Raises ConfigError if a
    file or secret that the URI names cannot be read or used.
    """
    told: list[KafkaError] = []
    settings = librdkafka_settings(kafka)
    try:
        consumer = new_consumer({**settings, "error_cb": told.append, "log_level": 0})
    except KafkaException as unusable:  # "Failed to create consumer: ssl.key.pem failed: …"
        raise ConfigError(f"the source URI's SASL or TLS: {unusable.args[0].str()}") from unusable
    give_up_at = time.monotonic() + patience_s
    try:
        while time.monotonic() < give_up_at:
            with suppress(KafkaException):
                consumer.list_topics(timeout=_ASKED_FOR_S)
                return None
            consumer.poll(0)
            for error in told:
                if error.code() != KafkaError._ALL_BROKERS_DOWN:
                    return _exactly(kafka, error.name(), error.str())
    finally:
        consumer.close()
    return in_words("_ALL_BROKERS_DOWN" if told else "_TIMED_OUT", "", kafka.security)


def in_words(code: str, text: str, security: KafkaSecurity) -> str:
    """librdkafka's error as a sentence, with the way out. ``code``: ``KafkaError.name()``."""
    reason = _FRAME.sub("", text)
    if code == "_AUTHENTICATION":
        return _login_refused(reason, security)
    if _ALERT.search(reason):
        todo = "is refused: check cert and key" if security.cert else "is wanted: give cert and key"
        return f"{reason}: a certificate of ours {todo}"
    if "PLAINTEXT broker listener" in reason:
        return "it speaks no TLS there: give the port of its TLS listener, or no enable-tls and ca"
    if _VERIFIED in reason:
        return f"its certificate cannot be trusted ({reason}): check ca"
    if _HUNG_UP.search(reason):  # the broker closed the connection while we wrote, without a word
        code = "_ALL_BROKERS_DOWN"
    return _WITHOUT_A_WORD.get(code, f"{reason}. Check the address")


def _login_refused(reason: str, security: KafkaSecurity) -> str:
    offered = _OFFERED.search(reason)
    if offered is not None and not offered[1].strip():
        return "it takes no login there: give the port of its SASL listener, or no sasl-mechanism"
    if offered is not None:
        return (
            f"it takes no login by {security.sasl_mechanism}: "
            f"sasl-mechanism must be one of {offered[1].strip()}"
        )
    if security.sasl_mechanism == "OAUTHBEARER":
        return f"{reason}: check sasl-oauth-token-url, -client-id, -client-secret and -scopes"
    return f"{reason}: check sasl-user and sasl-password"


def _exactly(kafka: KafkaSettings, code: str, text: str) -> str:
    if _VERIFIED not in text:
        return in_words(code, text, kafka.security)
    for broker in kafka.brokers:
        fault = _certificate_fault(broker, kafka.security.ca)
        if fault is not None:
            return fault
    return in_words(code, text, kafka.security)


def _certificate_fault(broker: str, ca: str | None) -> str | None:
    host, _, port = broker.rpartition(":")
    host = host.strip("[]")
    try:
        context = ssl.create_default_context(cafile=ca)
        with (
            socket.create_connection((host, int(port)), timeout=1) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return f"its certificate cannot be trusted ({error.verify_message}): {_todo(error)}"
    except OSError:
        return None


def _todo(error: ssl.SSLCertVerificationError) -> str:
    if "mismatch" in error.verify_message:
        return "name the broker in the source URI as its certificate does"
    if "expired" in error.verify_message or "not yet valid" in error.verify_message:
        return "give the broker another one, or set this machine's clock"
    return "ca must be the file of the CA that signed it"
