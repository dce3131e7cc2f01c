"""SASL and TLS of a source, in the words of its clients: kafka-python asks for metadata and
offsets, and Spark's connector reads. (librdkafka: ``librdkafka_settings``.)"""

from __future__ import annotations

import base64
import binascii
import ssl
from pathlib import Path
from typing import Any, NamedTuple

from conf.settings import KafkaSecurity
from coordination.errors import ConfigError
from coordination.secrets import revealed
from streaming.source.oidc import TokenEndpoint


class Client(NamedTuple):
    """Who asks a token endpoint for a token."""

    id: str
    secret: str


def security_protocol(security: KafkaSecurity) -> str:
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    transport = "SSL" if security.tls else "PLAINTEXT"
    return f"SASL_{transport}" if security.sasl_mechanism else transport


def python_options(security: KafkaSecurity) -> dict[str, Any]:
    """For kafka-python's clients. Raises ConfigError where a file or a secret cannot be had."""
    options: dict[str, Any] = {"security_protocol": security_protocol(security)}
    if security.sasl_mechanism:
        options["sasl_mechanism"] = security.sasl_mechanism
    if security.sasl_mechanism == "OAUTHBEARER":
        client = oauth_client(security)
        options["sasl_oauth_token_provider"] = TokenEndpoint(
            security.oauth_token_url or "", client.id, client.secret, security.oauth_scopes
        )
    elif security.sasl_mechanism:
        options["sasl_plain_username"], options["sasl_plain_password"] = login(security)
    if security.tls:
        options["ssl_context"] = ssl_context(security)
    return options


def login(security: KafkaSecurity) -> tuple[str, str]:
    """User and password. Looked up here, and not before: only who connects must have them."""
    user = revealed("sasl-user", security.sasl_user or "")
    return user, revealed("sasl-password", security.sasl_password or "")


def oauth_client(security: KafkaSecurity) -> Client:
    """Looked up in the same way; TiCDC has the secret in Base64, so it is written so here too."""
    name = "sasl-oauth-client-secret"
    text = revealed(name, security.oauth_client_secret or "")
    try:
        secret = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ConfigError(f"{name} is not Base64: write it as TiCDC has it") from None
    return Client(
        revealed("sasl-oauth-client-id", security.oauth_client_id or ""), revealed(name, secret)
    )


def pem(path: str, parameter: str) -> str:
    """What the file holds: whoever reads elsewhere needs no copy of the file."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")  # bundles have comments
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ConfigError(f"cannot read {parameter}={path} of the source URI: {why}") from error


def ssl_context(security: KafkaSecurity) -> ssl.SSLContext:
    """Raises ConfigError for files that are not what the parameters say."""
    try:
        context = ssl.create_default_context(cafile=security.ca)
        if security.cert:
            context.load_cert_chain(security.cert, security.key, _no_passphrase)
    except OSError as error:
        raise ConfigError(f"cannot use ca, cert or key of the source URI: {error}") from error
    if security.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _no_passphrase() -> str:
    """OpenSSL would ask the terminal for it."""
    raise ConfigError("key of the source URI is encrypted: give one without a passphrase")
