"""Why two captures do not accept each other, in words: gRPC only says that a socket was closed.

The answer comes from Python's own TLS, with the files that gRPC was given: this capture's
certificate is checked before it listens, and the other side is asked when it does not answer.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from contextlib import closing
from typing import Any, Final

from conf.settings import TransportSettings
from coordination.errors import ConfigError

PROBE_S: Final = 2.0
_SPEAKS_TLS: Final = "it speaks TLS: give ca-path, cert-path and key-path"


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


def why_no_answer(address: str, settings: TransportSettings) -> str | None:
    """What is wrong with TLS between this capture and the one at ``address``; None if nothing is,
    or it cannot be reached. Blocks for up to some seconds."""
    host, _, port = address.rpartition(":")
    try:
        with closing(socket.create_connection((host.strip("[]"), int(port)), PROBE_S)) as line:
            line.settimeout(PROBE_S)
            return _handshake_problem(line, host.strip("[]"), settings)
    except (OSError, ValueError):
        return None  # it cannot be reached: TLS is not the reason


def _handshake_problem(line: socket.socket, host: str, settings: TransportSettings) -> str | None:
    is_greeted = False
    try:
        with _client(settings).wrap_socket(line, server_hostname=host) as secured:
            is_greeted = True
            if secured.recv(1):  # the server may refuse our certificate only after the handshake
                return None if settings.ca_path is not None else _SPEAKS_TLS
            return _refusal(settings)
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is not accepted: {error.verify_message}"
    except TimeoutError:
        return None
    except (ssl.SSLError, ConnectionError) as error:
        is_verdict = isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "").upper()
        if is_greeted or is_verdict:
            return _refusal(settings)
        return None if settings.ca_path is None else "it does not speak TLS, and this one does"


def _refusal(settings: TransportSettings) -> str:
    """Why the other side, which speaks TLS, ended the connection: what is wrong with this capture's
    certificate."""
    if settings.ca_path is None:
        return _SPEAKS_TLS
    if settings.cert_path is None:
        return "it asks for a certificate: give cert-path and key-path"
    own = _own_problem(settings) or "its ca-path is not that of our certificate"
    return f"it does not accept our certificate {settings.cert_path!r}: {own}"


def _client(settings: TransportSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if settings.ca_path is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        context.load_verify_locations(settings.ca_path)
    if settings.cert_path is not None:
        context.load_cert_chain(settings.cert_path, settings.key_path)
    return context


def _own_problem(settings: TransportSettings) -> str | None:
    """What is wrong with this capture's certificate for another capture with the same settings;
    None if nothing is."""
    assert settings.cert_path is not None
    assert settings.ca_path is not None
    try:
        client, server = _client(settings), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(settings.cert_path, settings.key_path)
        server.load_verify_locations(settings.ca_path)
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
