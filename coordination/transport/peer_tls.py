"""Would other captures accept this one's certificate? It is checked before the capture listens, by
a handshake in memory of Python's own TLS, with the files that gRPC was given."""

from __future__ import annotations

import ipaddress
import ssl
from typing import Any

from conf.settings import TransportSettings
from coordination.errors import ConfigError


def check_own(settings: TransportSettings) -> None:
    """Raises ConfigError if other captures, with the same settings, would refuse this capture's
    certificate."""
    if settings.ca_path is None or settings.cert_path is None or not settings.mtls:
        return
    problem = _own_problem(settings)
    if problem is not None:
        raise ConfigError(
            f"cert-path {settings.cert_path!r}: {problem}; no other capture would accept it"
        )


def is_reachable_from_elsewhere(addr: str) -> bool:
    """Whether other machines may connect to host:port: it is not a loopback address."""
    host = addr.rpartition(":")[0].strip("[]")
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def _own_problem(settings: TransportSettings) -> str | None:
    """What is wrong with this capture's certificate for another capture with the same settings;
    None if nothing is."""
    assert settings.cert_path is not None
    assert settings.ca_path is not None
    try:
        client, server = (
            ssl.SSLContext(side) for side in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)
        )
        for each in (client, server):
            each.load_cert_chain(settings.cert_path, settings.key_path)
            each.load_verify_locations(settings.ca_path)
    except OSError as error:  # ssl.SSLError is one
        return f"it cannot be used with its key and ca-path: {error}"
    client.check_hostname, server.verify_mode = False, ssl.CERT_REQUIRED
    try:
        name = _met(client, server)
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except ssl.SSLError as error:
        return str(error)
    allowed = settings.cert_allowed_cn
    if allowed and name not in allowed:
        return f"its common name {name!r} is not in cert-allowed-cn"
    return None


def _met(client: ssl.SSLContext, server: ssl.SSLContext) -> str:
    """A handshake in memory; returns the common name in the client's certificate, as the server
    sees it. Raises ``ssl.SSLError``."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(down, up)
    answering = server.wrap_bio(up, down, server_side=True)
    waiting = [asking, answering]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    subject: Any = (answering.getpeercert() or {}).get("subject", ())
    return next((value for part in subject for key, value in part if key == "commonName"), "")
