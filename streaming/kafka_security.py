"""One description of SASL and TLS, in the words of the two Kafka clients that the program uses."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from conf.settings import KafkaSecurity
from coordination.errors import ConfigError
from coordination.secrets import revealed

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def security_protocol(security: KafkaSecurity) -> str:
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    transport = "SSL" if security.tls else "PLAINTEXT"
    return f"SASL_{transport}" if security.sasl_mechanism else transport


def java_options(security: KafkaSecurity) -> dict[str, str]:
    """For Spark's connector, without its ``kafka.`` prefix."""
    options = {"security.protocol": security_protocol(security)}
    if security.sasl_mechanism:
        options["sasl.mechanism"] = security.sasl_mechanism
        options["sasl.jaas.config"] = _jaas(security)
    if not security.tls:
        return options
    if security.insecure_skip_verify:
        options["ssl.endpoint.identification.algorithm"] = ""
    if security.ca:
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.certificates"] = _read(security.ca, "ca")
    if security.cert and security.key:
        options["ssl.keystore.type"] = "PEM"
        options["ssl.keystore.certificate.chain"] = _read(security.cert, "cert")
        options["ssl.keystore.key"] = _read(security.key, "key")
    return options


def python_options(security: KafkaSecurity) -> dict[str, Any]:
    """For kafka-python's clients."""
    options: dict[str, Any] = {"security_protocol": security_protocol(security)}
    if security.sasl_mechanism:
        options["sasl_mechanism"] = security.sasl_mechanism
        options["sasl_plain_username"], options["sasl_plain_password"] = _login(security)
    if security.tls:
        options["ssl_context"] = _ssl_context(security)
    return options


def _jaas(security: KafkaSecurity) -> str:
    mechanism = security.sasl_mechanism or ""
    module = _LOGIN_MODULES.get(mechanism.upper())
    if module is None:
        known = ", ".join(sorted(_LOGIN_MODULES))
        raise ConfigError(f"sasl-mechanism={mechanism} is not built yet: use one of {known}")
    user, password = map(_quoted, _login(security))
    return f"{module} required username={user} password={password};"


def _login(security: KafkaSecurity) -> tuple[str, str]:
    """Looked up here, and not before: only who connects must have them."""
    user = revealed("sasl-user", security.sasl_user or "")
    return user, revealed("sasl-password", security.sasl_password or "")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _ssl_context(security: KafkaSecurity) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=security.ca)
        if security.cert:
            context.load_cert_chain(security.cert, security.key)
    except OSError as error:
        raise ConfigError(f"cannot use ca, cert or key of the source URI: {error}") from error
    context.check_hostname = not security.insecure_skip_verify
    return context


def _read(path: str, parameter: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise ConfigError(f"cannot read {parameter}={path} of the source URI: {error}") from error
