"""The registry of Avro's schemas, with the REST interface of Confluent's. The driver alone asks it:
what it has answered is sent with the tasks.

A schema never changes under its id, so one that was fetched is kept. An id that the registry does
not have may be one that has not reached this node of it yet. So it is asked for again for a while,
in which reading waits. After that a message of this id is a dead letter: garbage looks so, and one
such message must not hold up all others for ever.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from conf.sources.schema_registry import SchemaRegistry
from coordination.errors import ConfigError
from coordination.secrets import revealed
from streaming.protocols.avro.decoder import Schemas
from streaming.source.contract import SourceAway

TIMEOUT_S: Final = 5.0
PATIENCE_S: Final = 15.0  # for an id that is not there; a stream gives up after half a minute
MOST_LACKED: Final = 1_000  # ids of a read that are not there; after so many it asks for no more
_MOST_BYTES: Final = 16 << 20  # of an answer
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_NOT_THERE: Final = 404
_CODES: Final = range(40400, 40500)  # of what a registry does not have; 404 is of a path
_IDS: Final = range(1 << 31)  # of others a registry does not even say that it lacks them
_REFUSED: Final = (401, 403)


class RegistryClient:
    """Asks one registry for schemas by their ids. For one thread. ``clock``: seconds."""

    def __init__(
        self, settings: SchemaRegistry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._known: dict[int, str] = {}
        self._lacked_since: dict[int, float] = {}

    def schemas(self, ids: Iterable[int]) -> Schemas:
        """All that are known, and these; None for an id that the registry does not have. Raises
        SourceAway where the registry does not answer, or may still get such a schema; ConfigError
        where it refuses the login, or is no registry."""
        wanted = sorted(set(ids) - self._known.keys())
        found: dict[int, str | None] = {}
        context = self._context()
        waiting = []
        for number in wanted:
            if len(found) >= MOST_LACKED:
                found |= dict.fromkeys(wanted[wanted.index(number) :])
                break
            text = self._fetch(number, context) if number in _IDS else None
            if text is not None:
                self._known[number] = text
                self._lacked_since.pop(number, None)
                continue
            since = self._lacked_since.setdefault(number, self._clock())
            if number in _IDS and self._clock() - since < PATIENCE_S:
                waiting.append(number)
            found[number] = None
        if waiting:
            raise SourceAway(
                f"the schema registry {self._settings.url} does not have the schema of the id "
                f"{waiting[0]}{' and others' if waiting[1:] else ''}: it is asked again for "
                f"{PATIENCE_S:.0f} s. After that, messages of this id are dead letters"
            )
        return found | self._known

    @property
    def known(self) -> Schemas:
        return dict(self._known)

    def _fetch(self, number: int, context: ssl.SSLContext | None) -> str | None:
        url = self._settings.url
        request = Request(f"{url}/schemas/ids/{number}", headers=self._headers())
        try:
            with urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
                return _schema(url, answer.read(_MOST_BYTES))
        except HTTPError as error:
            with error:
                if error.code == _NOT_THERE and _is_told(error.read(_MOST_BYTES)):
                    return None
            if error.code == _NOT_THERE:
                raise SourceAway(
                    f"the schema registry {url} has no such path as /schemas/ids/{number}: check "
                    "schema-registry (Apicurio's ends with /apis/ccompat/v7)"
                ) from error
            if error.code in _REFUSED:
                raise ConfigError(
                    f"the schema registry {url} refuses the login ({error.code}): check "
                    "schema-registry-user and schema-registry-password"
                ) from error
            raise SourceAway(f"the schema registry {url} answers with {error.code}") from error
        except (URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise SourceAway(f"the schema registry {url} does not answer: {reason}") from error

    def _headers(self) -> Mapping[str, str]:
        of = self._settings
        if of.user is None:
            return {"Accept": _ACCEPT}
        user = revealed("schema-registry-user", of.user)
        password = revealed("schema-registry-password", of.password or "")
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Accept": _ACCEPT, "Authorization": f"Basic {login}"}

    def _context(self) -> ssl.SSLContext | None:
        if not self._settings.url.startswith("https"):
            return None
        try:
            return ssl.create_default_context(cafile=self._settings.ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"schema-registry-ca: {self._settings.ca} cannot be read: {error}"
            ) from error


def _schema(url: str, answer: bytes) -> str:
    try:
        found = json.loads(answer)
        text, kind = found["schema"], found.get("schemaType", "AVRO")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{url} is no schema registry: it answers with another text") from error
    return text if kind == "AVRO" and type(text) is str else "{}"


def _is_told(answer: bytes) -> bool:
    """Whether a registry says that it has no such schema, not some server that it has no such
    page: Confluent's and Apicurio's do both in JSON."""
    try:
        return json.loads(answer)["error_code"] in _CODES
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
