"""The registry of Avro's schemas, by TiCDC's parameter for it and our own for its login."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from conf.masking import hide
from conf.problems import SettingError, require
from conf.secret_references import parse_reference

REGISTRY: Final = "schema-registry"
CA: Final = "schema-registry-ca"
USER: Final = "schema-registry-user"
PASSWORD: Final = "schema-registry-password"
PARAMETERS: Final = (REGISTRY, CA, USER, PASSWORD)
_FORM: Final = f"{REGISTRY} must look like http://host:8081 or https://host:8081"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRegistry:
    """A registry with the REST interface of Confluent's. ``ca``: a file of certificates by which it
    is known; None: those of this machine. User and password may be references."""

    url: str  # without login, and without a slash at its end
    ca: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)


def parse_registry(parameters: Mapping[str, str]) -> SchemaRegistry | None:
    """None where no registry is given. Raises SettingError, which does not repeat the URL: it may
    have a password."""
    given = {name: parameters.get(name) or None for name in PARAMETERS}
    text = given[REGISTRY]
    if text is None:
        return None
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise SettingError(_FORM) from None
    is_url = parts.scheme in ("http", "https") and bool(host) and not (parts.query + parts.fragment)
    require(is_url, _FORM)
    user, password = given[USER], given[PASSWORD]
    if parts.username is not None:
        require(user is None, f"the login is in {REGISTRY} and in {USER}: give it once")
        user, password = unquote(parts.username), unquote(parts.password or "")
        hide(password)
    require((user is None) == (password is None), f"{USER} and {PASSWORD} go together")
    for name, value in ((USER, user), (PASSWORD, password)):
        parse_reference(name, value or "")
    ca = given[CA]
    require(ca is None or ca.startswith("/"), f"{CA} must be the absolute path of a file")
    _, _, place = parts.netloc.rpartition("@")
    url = f"{parts.scheme}://{place}{parts.path}".rstrip("/")
    return SchemaRegistry(url=url, ca=ca, user=user, password=password)
