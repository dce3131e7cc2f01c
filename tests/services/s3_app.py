"""moto's S3, with puts one after the other: ``python -m tests.services.s3_app <port>``.

moto looks whether the file of a conditional put is there, and then puts it, with a thread for each
request: of two puts at once both may win.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from threading import Lock
from typing import Any

from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

_moto = DomainDispatcherApplication(create_backend_app)
_puts = Lock()


def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    if environ["REQUEST_METHOD"] != "PUT":
        return _moto(environ, start_response)
    with _puts:
        return _moto(environ, start_response)


if __name__ == "__main__":
    port = int(sys.argv[1])
    run_simple("127.0.0.1", port, app, threaded=True, request_handler=MotoRequestHandler)
