"""Whether a capture can listen where it is told to, in words: gRPC only says that it failed."""

from __future__ import annotations

import errno
import socket

from coordination.errors import ConfigError

_WHY = {
    errno.EADDRINUSE: "the port is in use, perhaps by another `tidelake server`: give --addr "
    "another port, or port 0 for any free one",
    errno.EADDRNOTAVAIL: "that is no address of this machine: give --addr one of its own, and "
    "--advertise-addr where others find it by another",
    errno.EACCES: "ports below 1024 are not for everyone: give --addr another port",
}


def check_free(addr: str) -> None:
    """Bind `addr` (host:port) for a moment; raises ConfigError that says why it cannot be bound."""
    host, _, port = addr.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as probe:
            # As gRPC does: connections that have just ended are no reason to refuse.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            probe.listen()
    except (socket.gaierror, OverflowError) as error:
        raise ConfigError(f"cannot listen at addr {addr!r}: it is not known ({error})") from None
    except OSError as error:
        why = _WHY.get(error.errno or 0, error.strerror)
        raise ConfigError(f"cannot listen at addr {addr!r}: {why}") from None
