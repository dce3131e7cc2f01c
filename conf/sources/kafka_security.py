"""The SASL and TLS parameters of a Kafka source URI, under TiCDC's names.

TiCDC reads the ``sasl-oauth-*`` parameters from ``[sink.kafka-config]`` only; here they may be in
the URI too, like all other parameters of that table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from conf.problems import SettingError, require
from conf.secret_references import parse_reference

LOGINS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SASL_MECHANISMS = (*LOGINS, "OAUTHBEARER")
_CHOICES = ", ".join(SASL_MECHANISMS)
OAUTH = (
    "sasl-oauth-client-id", "sasl-oauth-client-secret", "sasl-oauth-token-url", "sasl-oauth-scopes",
    "sasl-oauth-grant-type",
)  # fmt: skip
PARAMETERS = (
    "enable-tls", "ca", "cert", "key", "insecure-skip-verify",
    "sasl-mechanism", "sasl-user", "sasl-password", *OAUTH,
)  # fmt: skip
_OAUTH_NEEDS = OAUTH[:3]

KERBEROS = (
    "Kerberos (sasl-mechanism=GSSAPI, sasl-gssapi-…) is not supported: librdkafka, which reads "
    f"here, comes built without it. Read from a listener of the brokers with {_CHOICES}"
)
NOT_BUILT: Mapping[str, str] = {
    **{
        f"sasl-gssapi-{name}": KERBEROS
        for name in (
            "auth-type", "keytab-path", "kerberos-config-path", "service-name", "user", "password",
            "realm", "disable-pafxfast",
        )
    },
    "sasl-oauth-audience": "sasl-oauth-audience is not built: librdkafka asks the token endpoint "
    "for no audience. Give the client a default audience there, and leave it out here",
}  # fmt: skip

TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})  # Go's strconv.ParseBool
FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSecurity:
    """SASL and TLS of a Kafka source, by TiCDC's URI parameters."""

    tls: bool = False  # enable-tls
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure_skip_verify: bool = False
    sasl_mechanism: str | None = None  # PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
    sasl_user: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    oauth_client_id: str | None = None  # sasl-oauth-…
    oauth_client_secret: str | None = field(default=None, repr=False)  # in Base64, as TiCDC has it
    oauth_token_url: str | None = None
    oauth_scopes: tuple[str, ...] = ()


def boolean(name: str, text: str) -> bool:
    """The truth value of a parameter's text, as TiCDC (Go) reads it. Raises SettingError."""
    require(text in TRUE | FALSE, f"{name}={text} must be true or false")
    return text in TRUE


def parse_security(parameters: Mapping[str, str]) -> KafkaSecurity:
    """SASL and TLS of the source, by TiCDC's rules: TLS is on if a CA or certificate file is given
    or enable-tls says so, SASL is on if a mechanism is given. Raises SettingError."""
    given = {name: parameters.get(name) or None for name in PARAMETERS}
    ca, cert, key = given["ca"], given["cert"], given["key"]
    require((cert is None) == (key is None), "cert and key go together: one of them is missing")
    files = ca is not None or cert is not None
    tls = boolean("enable-tls", given["enable-tls"] or str(files).lower())
    require(tls or not files, "ca, cert and key are given, but enable-tls is false")
    skipped = boolean("insecure-skip-verify", given["insecure-skip-verify"] or "false")
    for name in ("sasl-user", "sasl-password", *OAUTH[:2]):
        parse_reference(name, parameters.get(name, ""))
    mechanism = _mechanism(given)
    return KafkaSecurity(
        tls=tls,
        ca=ca,
        cert=cert,
        key=key,
        insecure_skip_verify=tls and skipped,
        sasl_mechanism=mechanism,
        sasl_user=given["sasl-user"],
        sasl_password=given["sasl-password"],
        oauth_client_id=given["sasl-oauth-client-id"],
        oauth_client_secret=given["sasl-oauth-client-secret"],
        oauth_token_url=given["sasl-oauth-token-url"],
        oauth_scopes=tuple(filter(None, (given["sasl-oauth-scopes"] or "").split(","))),
    )


def _mechanism(given: Mapping[str, str | None]) -> str | None:
    named = [name for name, value in given.items() if value and name.startswith("sasl-")]
    mechanism = (given["sasl-mechanism"] or "").upper()
    if not mechanism:
        # TiCDC would silently connect without SASL here.
        require(not named, f"{named[0] if named else ''} without sasl-mechanism: name {_CHOICES}")
        return None
    if mechanism == "GSSAPI":
        raise SettingError(KERBEROS)
    require(mechanism in SASL_MECHANISMS, f"sasl-mechanism={mechanism} must be one of {_CHOICES}")
    if mechanism == "OAUTHBEARER":
        _check_oauth(given)
        return mechanism
    foreign = [name for name in OAUTH if given[name]]
    require(not foreign, f"{', '.join(foreign)}: only with sasl-mechanism=OAUTHBEARER")
    require(
        given["sasl-user"] is not None and given["sasl-password"] is not None,
        f"sasl-mechanism={mechanism} needs sasl-user and sasl-password",
    )
    return mechanism


def _check_oauth(given: Mapping[str, str | None]) -> None:
    missing = [name for name in _OAUTH_NEEDS if given[name] is None]
    require(not missing, f"sasl-mechanism=OAUTHBEARER needs {', '.join(missing)}")
    grant = given["sasl-oauth-grant-type"]
    require(
        grant in (None, "client_credentials"),
        f"sasl-oauth-grant-type={grant} is not built: client_credentials (the default) is",
    )
    try:
        parts = urlsplit(given["sasl-oauth-token-url"] or "")
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_url = False
    require(is_url, "sasl-oauth-token-url must be a URL: https://host/path")
