"""TLS to the database, as the source URI's parameters say.

We make the context ourselves: PyMySQL's own ignores the server's name where no CA is given.
"""

from __future__ import annotations

import ssl
from typing import Any

from conf.sources.database_server import DatabaseServer
from coordination.errors import ConfigError


def tls_arguments(settings: DatabaseServer) -> dict[str, Any]:
    """PyMySQL's arguments. Raises ConfigError for a file that cannot be used."""
    if settings.tls == "off":
        return {"ssl_disabled": True}
    if settings.tls == "preferred" and settings.cert is None:
        return {}  # PyMySQL does so by itself, and checks nothing
    return {"ssl": _context(settings)}


def _context(settings: DatabaseServer) -> ssl.SSLContext:
    """With a context PyMySQL refuses a server that has no TLS."""
    with_ca = _named("ca", settings.ca)
    try:
        context = ssl.create_default_context(cafile=settings.ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{with_ca}: {_why(error)}") from error
    context.check_hostname = settings.tls == "verify-identity"
    if not settings.tls.startswith("verify"):
        context.verify_mode = ssl.CERT_NONE
    # Python 3.13 would refuse the certificates that MySQL makes itself.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if settings.cert is not None:
        try:
            context.load_cert_chain(settings.cert, settings.key)
        except (OSError, ssl.SSLError) as error:
            files = f"{_named('cert', settings.cert)} with key={settings.key}"
            raise ConfigError(f"{files}: {_why(error)}") from error
    return context


def _named(parameter: str, path: str | None) -> str:
    return f"source-uri: {parameter}={path}"


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"it is no such PEM file ({error.reason or error})"
    return f"it cannot be read ({getattr(error, 'strerror', None) or error})"
