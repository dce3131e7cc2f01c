"""A stand-in for a registry of Avro's schemas: an HTTP server with the part of Confluent's REST
interface that TiCDC and readers use, with TLS and a login where asked for, and troubles at will.

What it answers is what a real one answers: both pass ``tests/contracts/registry_contract.py``.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.services.certificates import Files

NOT_FOUND = {"error_code": 40403, "message": "Schema not found"}
JSON = "application/vnd.schemaregistry.v1+json"


class SchemaRegistry:
    """``schemas``: by id. ``asked``: the ids of all requests, in their order. While ``trouble`` is
    a status, all requests are answered with it; ``delay_s`` comes before each answer."""

    def __init__(self, schemas: Mapping[int, str], *, login: tuple[str, str] | None = None) -> None:
        self.schemas = dict(schemas)
        self.login = login
        self.asked: list[int] = []
        self.trouble: int | None = None
        self.answer: bytes | None = None  # in the place of a right one
        self.delay_s = 0.0
        self.url = ""
        self._files: Files | None = None
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    def register(self, _subject: str, schema: str) -> int:
        """The same schema has the same id, whatever its subject."""
        for number, text in self.schemas.items():
            if text == schema:
                return number
        number = max(self.schemas, default=0) + 1
        self.schemas[number] = schema
        return number

    def kill(self) -> None:
        assert self._server is not None
        assert self._thread is not None
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def restart(self) -> None:
        """At the same port."""
        assert self._server is not None
        self._serve(self._server.server_address[1])

    def start(self, files: Files | None = None) -> None:
        self._files = files
        self._serve(0)

    def respond(self, path: str, login: str | None) -> tuple[int, Any]:
        time.sleep(self.delay_s)
        if self.trouble is not None:
            return self.trouble, {"error_code": self.trouble, "message": "trouble"}
        if self.login is not None:
            word = base64.b64encode(":".join(self.login).encode()).decode()
            if login != f"Basic {word}":
                return 401, {"error_code": 401, "message": "Unauthorized"}
        if path == "/":
            return 200, {}
        head, _, number = path.rpartition("/")
        if head != "/schemas/ids" or not number.isdecimal():
            return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
        self.asked.append(int(number))
        text = self.schemas.get(int(number))
        return (404, NOT_FOUND) if text is None else (200, {"schema": text})

    def _serve(self, port: int) -> None:
        server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        scheme = "http"
        if self._files is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._files.cert, self._files.key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()


def _handler(registry: SchemaRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, found = registry.respond(self.path, self.headers.get("Authorization"))
            body = registry.answer or json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", JSON)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    return Handler


@contextmanager
def serving(registry: SchemaRegistry, files: Files | None = None) -> Iterator[SchemaRegistry]:
    """``files``: of the server's certificate."""
    registry.start(files)
    try:
        yield registry
    finally:
        registry.kill()
