"""Access tokens by OAuth 2.0's client credentials (RFC 6749, 4.4), for kafka-python.

librdkafka asks the token endpoint itself, in the same way.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Sequence
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from kafka.errors import SaslAuthenticationFailedError
from kafka.net.sasl.oauth import AbstractTokenProvider

_TIMEOUT_S = 5.0
_RENEWED_AT = 0.8  # of its life, as librdkafka does


class TokenEndpoint(AbstractTokenProvider):  # type: ignore[misc]
    """Asks for a token when a connection needs one, and keeps it for most of its life."""

    def __init__(self, url: str, client_id: str, secret: str, scopes: Sequence[str]) -> None:
        super().__init__()
        self._url = url
        credentials = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
        self._authorization = f"Basic {credentials}"
        self._scopes = " ".join(scopes)
        self._lock = threading.Lock()
        self._token = ""
        self._good_until = 0.0  # monotonic

    def token(self) -> str:
        """Raises SaslAuthenticationFailedError where none can be had."""
        with self._lock:
            if time.monotonic() >= self._good_until:
                self._token, life_s = self._asked()
                self._good_until = time.monotonic() + _RENEWED_AT * life_s
            return self._token

    def _asked(self) -> tuple[str, float]:
        form = {"grant_type": "client_credentials"}
        if self._scopes:
            form["scope"] = self._scopes
        headers = {"Authorization": self._authorization, "Accept": "application/json"}
        request = Request(self._url, urlencode(form).encode(), headers)
        try:
            with urlopen(request, timeout=_TIMEOUT_S) as response:
                answer = json.loads(response.read())
            return str(answer["access_token"]), float(answer.get("expires_in", 0))
        except (URLError, OSError) as error:
            raise self._refused(str(error)) from error
        except (ValueError, TypeError, KeyError) as error:
            raise self._refused("its answer is no access token") from error

    def _refused(self, why: str) -> SaslAuthenticationFailedError:
        where = self._url.partition("?")[0]
        return SaslAuthenticationFailedError(f"no token from sasl-oauth-token-url={where}: {why}")
