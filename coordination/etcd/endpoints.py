"""From etcd's endpoints and certificates to gRPC channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import grpc

from conf.settings import EtcdSettings
from coordination.errors import ConfigError

CHANNEL_OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),  # also how long one connect may take
    ("grpc.max_reconnect_backoff_ms", 1000),  # the default of 120 s would outlive any lease
    ("grpc.keepalive_time_ms", 6000),  # etcd ends connections that ping more often than every 5 s
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),  # a read of all keys is one answer, above 4 MB too
)


def targets(urls: Sequence[str]) -> tuple[str, ...]:
    """`host:port` of each endpoint, as gRPC wants it; raises ConfigError."""
    if not urls:
        raise ConfigError("etcd: no endpoint given; --etcd wants http://host:2379 or embedded")
    return tuple(_target(url) for url in urls)


def credentials(settings: EtcdSettings) -> grpc.ChannelCredentials | None:
    """TLS as soon as an endpoint is https or a certificate is given; None without."""
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
    """Opened lazily: nothing is sent before the first call."""
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
    """A certificate or a key; None: none is given. Raises ConfigError, which begins with
    ``failure``."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{failure} {path!r}: {error.strerror}") from None
