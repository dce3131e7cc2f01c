"""gRPC between captures, and operators' requests to a capture, as "drain" (docs/cluster.md 15).

    request  {"method": "drain", "params": {…}}
    reply    {"result": {…}}, or {"error": "a sentence"}; with "again": true it may pass by itself

Requests and replies are bytes: no stubs, no protobuf. A request that has no key in etcd (drain a
capture, move a table, rebalance, list the processors) is sent to the owner in this way. Which
methods there are, the handler decides.
"""

from __future__ import annotations

from coordination.etcd import grpc_environment  # noqa: F401 - before anything imports grpc

# isort: split

import errno
import json
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

import grpc

from conf.masking import masked
from conf.settings import TransportSettings
from coordination.errors import ConfigError, TidelakeError, TryAgain
from coordination.etcd.endpoints import read_file
from coordination.transport.transport import MAX_BATCH_RECEIVED_BYTES

logger = logging.getLogger(__name__)

DELIVER: Final = "/tidelake.Messages/Deliver"
CALL: Final = "/tidelake.Owner/Call"
NO_TLS: Final = TransportSettings()
TLS_ADVICE: Final = (
    "all captures and callers need ca-path, cert-path and key-path, or none of them, and "
    "certificates of that CA which have not expired"
)
ANSWERED_WITHIN_S: Final = 0.5
OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_BATCH_RECEIVED_BYTES),
    ("grpc.max_send_message_length", MAX_BATCH_RECEIVED_BYTES),
    # TiCDC: 30 s and 10 s. Here a dead connection must be noticed before a session would end.
    ("grpc.keepalive_time_ms", 6000),
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.http2.min_ping_interval_without_data_ms", 3000),  # the server allows such pings
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),  # else two servers on one port would each get some of the calls
    ("grpc.use_local_subchannel_pool", 1),
)
_WHY_NOT_FREE: Final = {
    errno.EADDRINUSE: "the port is in use, perhaps by another `tidelake server`: give --addr "
    "another port, or port 0 for any free one",
    errno.EADDRNOTAVAIL: "that is no address of this machine: give --addr one of its own, and "
    "--advertise-addr where others find it by another",
    errno.EACCES: "ports below 1024 are not for everyone: give --addr another port",
}

# Called on a thread of the server with method and params; it posts the request to the coordination
# thread and blocks until that has done it, with a time limit of its own. The message of a
# TidelakeError that it raises is sent to the caller.
Handle = Callable[[str, dict[str, Any]], dict[str, Any]]


class CallRefused(TidelakeError):
    """The capture that was called refuses the request; the message is the sentence in its reply."""


class Unanswered(TryAgain):
    """The capture was not reached, or cannot answer at the moment, as while the owner changes."""


def no_calls(method: str, _params: dict[str, Any]) -> dict[str, Any]:
    """The handler of a capture that takes no requests: always raises CallRefused."""
    raise CallRefused(f"this capture takes no calls, {method!r} neither")


def open_channel(address: str, tls: TransportSettings) -> grpc.Channel:
    """A channel to a capture; it connects at the first call. Raises ConfigError if a file of `tls`
    cannot be read."""
    if tls.ca_path is None:
        return grpc.insecure_channel(address, options=OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=read_file("cannot read ca-path", tls.ca_path),
        private_key=read_file("cannot read key-path", tls.key_path),
        certificate_chain=read_file("cannot read cert-path", tls.cert_path),
    )
    return grpc.secure_channel(address, credentials, options=OPTIONS)


def check_free(addr: str) -> None:
    """Bind `addr` (host:port) for a moment; raises ConfigError that says why it cannot be bound
    (gRPC only says that it failed)."""
    host, _, port = addr.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as probe:
            # As gRPC does: a connection that has just ended does not keep the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            probe.listen()
    except (socket.gaierror, OverflowError) as error:
        raise ConfigError(f"cannot listen at addr {addr!r}: it is not known ({error})") from None
    except OSError as error:
        why = _WHY_NOT_FREE.get(error.errno or 0, error.strerror)
        raise ConfigError(f"cannot listen at addr {addr!r}: {why}") from None


def is_answered(address: str) -> bool:
    """Whether anybody accepts connections there. Blocks for half a second at most."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWERED_WITHIN_S):
            return True
    except (OSError, ValueError):
        return False


def listen(server: grpc.Server, settings: TransportSettings) -> str:
    """Bind the server; returns the address under which others reach it. Raises ConfigError."""
    check_free(settings.addr)
    try:
        if settings.ca_path is None:
            port = server.add_insecure_port(settings.addr)
        else:
            key = read_file("cannot read key-path", settings.key_path)
            if key is None:
                raise ConfigError("ca-path is given: a capture needs cert-path and key-path too")
            credentials = grpc.ssl_server_credentials(
                [(key, read_file("cannot read cert-path", settings.cert_path))],
                root_certificates=read_file("cannot read ca-path", settings.ca_path),
                require_client_auth=settings.mtls,
            )
            port = server.add_secure_port(settings.addr, credentials)
    except RuntimeError as error:
        raise ConfigError(f"cannot listen at addr {settings.addr!r}: {error}") from None
    host, _, wanted = (settings.advertise_addr or settings.addr).rpartition(":")
    return f"{host}:{int(wanted) or port}"


def generic_handlers(
    methods: Mapping[str, Callable[[bytes, grpc.ServicerContext], bytes]],
) -> tuple[grpc.GenericRpcHandler, ...]:
    """Handlers for methods by their full path; requests and replies stay bytes."""
    handlers = []
    for path, method in methods.items():
        _, service, name = path.split("/")
        handler = grpc.unary_unary_rpc_method_handler(method)
        handlers.append(grpc.method_handlers_generic_handler(service, {name: handler}))
    return tuple(handlers)


def call_owner(
    address: str,
    method: str,
    params: Mapping[str, Any],
    *,
    timeout_s: float,
    tls: TransportSettings = NO_TLS,
) -> dict[str, Any]:
    """Send a request to the capture at ``address`` and return its result. Blocks for up to
    ``timeout_s``. Raises CallRefused with the capture's sentence; Unanswered where none came, but
    may come when asked again. The request may have been done all the same."""
    request = json.dumps({"method": method, "params": dict(params)}).encode()
    with open_channel(address, tls) as channel:
        try:
            reply = channel.unary_unary(CALL)(request, timeout=timeout_s)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.PERMISSION_DENIED:
                raise CallRefused(f"the capture at {address} refuses: {error.details()}") from None
            reason = reason_of(error)
            raise Unanswered(f"no answer from the capture at {address}: {reason}") from None
    try:
        document = json.loads(reply)
        if "error" not in document:
            return dict(document["result"])
        sentence, again = str(document["error"]), bool(document.get("again"))
    except (ValueError, KeyError, TypeError):
        sentence, again = "the reply cannot be read: is the capture of another version?", False
    raise (Unanswered if again else CallRefused)(sentence)


def answer_call(handle: Handle, request: bytes) -> bytes:
    """Have the request handled; returns the reply, even if the handler raises. Secrets are
    masked."""
    again = False
    try:
        document = json.loads(request)
        method, params = document["method"], document.get("params") or {}
    except (ValueError, KeyError, TypeError, AttributeError):
        method = params = None
    if not (isinstance(method, str) and isinstance(params, dict)):
        sentence = "this is no request: expected a method and its params"
    else:
        try:
            return json.dumps({"result": handle(method, params)}).encode()
        except TidelakeError as error:
            sentence, again = str(error), isinstance(error, TryAgain)
        except Exception as error:
            logger.exception("an owner call failed")
            sentence = f"the capture failed at this request: {error!r}"
    reply = {"error": masked(sentence)}
    return json.dumps(reply | {"again": True} if again else reply).encode()


def reason_of(error: Any) -> str:
    """Why a call failed, in words. Why a TLS handshake failed gRPC tells the other side alone."""
    if error.code() is grpc.StatusCode.PERMISSION_DENIED:
        return f"it refuses: {error.details()}"
    reason = f"{error.code().name.lower()} ({error.details()})"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return f"{reason}. Where it is up, its log says why it closes the connection: {TLS_ADVICE}"
    return reason
