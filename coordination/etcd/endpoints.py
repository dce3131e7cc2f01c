"""Make gRPC channels from the settings of etcd's endpoints and certificates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import grpc

from conf.settings import EtcdSettings
from coordination.errors import ConfigError

CHANNEL_OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),  # also the limit for one attempt to connect
    ("grpc.max_reconnect_backoff_ms", 1000),  # with the default of 120 s any lease would expire
    ("grpc.keepalive_time_ms", 6000),  # etcd closes connections that ping more often than each 5 s
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),  # the answer to a read of all keys may exceed 4 MB
)


def targets(urls: Sequence[str]) -> tuple[str, ...]:
    """The `host:port` of each endpoint, as gRPC needs it. Raises ConfigError."""
    if not urls:
        raise ConfigError("etcd: no endpoint given; --etcd wants http://host:2379 or embedded")
    return tuple(_target(url) for url in urls)


def credentials(settings: EtcdSettings) -> grpc.ChannelCredentials | None:
    """TLS credentials if the endpoints are https or a CA or certificate is given; None: no TLS.
    Raises ConfigError."""
    if (settings.cert is None) != (settings.key is None):
        raise ConfigError("etcd: cert and key must be given together")
    https = {url.startswith("https://") for url in settings.endpoints}
    if len(https) > 1:
        raise ConfigError("etcd: the endpoints must be all http or all https")
    if https == {False} and settings.ca is None and settings.cert is None:
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=read_file("etcd: cannot read ca", settings.ca),
        private_key=read_file("etcd: cannot read key", settings.key),
        certificate_chain=read_file("etcd: cannot read cert", settings.cert),
    )


def channel(target: str, tls: grpc.ChannelCredentials | None) -> grpc.Channel:
    """A channel to the target. It connects with the first call, not before."""
    if tls is None:
        return grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
    return grpc.secure_channel(target, tls, options=CHANNEL_OPTIONS)


def _target(url: str) -> str:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or 2379
    except ValueError:
        raise ConfigError(f"etcd endpoint {url!r}: expected http://host:2379") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise ConfigError(f"etcd endpoint {url!r}: expected http://host:2379")
    return f"[{parts.hostname}]:{port}" if ":" in parts.hostname else f"{parts.hostname}:{port}"


def read_file(failure: str, path: str | None) -> bytes | None:
    """The content of a certificate's or key's file; None if no path is given. Raises ConfigError,
    whose message begins with ``failure``."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{failure} {path!r}: {error.strerror}") from None
