"""An OpenID provider's token endpoint: client credentials in, an unsigned token out."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote

CLIENT_ID = "tidelake"
CLIENT_SECRET = "marked-client-secret"
_LIFE_S = 300


class TokenServer:
    """``login()`` is what a source URI says; ``asked`` has (grant type, scope) of each request."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.asked))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> TokenServer:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def login(self, secret: str = CLIENT_SECRET) -> str:
        encoded = base64.b64encode(secret.encode()).decode()
        return (
            "&sasl-mechanism=OAUTHBEARER&sasl-oauth-scopes=kafka,read"
            f"&sasl-oauth-client-id={CLIENT_ID}&sasl-oauth-client-secret={quote(encoded, '')}"
            f"&sasl-oauth-token-url=http://127.0.0.1:{self._server.server_port}/token"
        )


def _handler(asked: list[tuple[str, str]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            asked.append((form["grant_type"][0], form.get("scope", [""])[0]))
            known = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
            is_known = self.headers["Authorization"] == f"Basic {known}"
            answer = {"access_token": _token(), "expires_in": _LIFE_S, "token_type": "Bearer"}
            body = json.dumps(answer if is_known else {"error": "invalid_client"}).encode()
            self.send_response(200 if is_known else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _token() -> str:
    now = int(time.time())
    claims = {"sub": CLIENT_ID, "iat": now, "exp": now + _LIFE_S, "scope": "kafka read"}
    return f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(claims)}."


def _part(value: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
