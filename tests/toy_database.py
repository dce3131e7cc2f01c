"""A MariaDB to play with (docs/tutorial.md), on a free port of this machine.

``python -m tests.toy_database serve`` starts it with the tests' settings and prints its URI, which
``python -m tests.toy_database sql "INSERT …"`` finds in TIDELAKE_SOURCE_URI.
"""

from __future__ import annotations

import os
import signal
import sys
from urllib.parse import urlsplit

import pymysql

from tests.services.database_server import DatabaseServer


def serve() -> None:
    """Until SIGTERM."""
    with DatabaseServer() as server:
        print(f"mysql://root@{server.host}:{server.port}/", flush=True)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


def run(statement: str) -> str:
    """What a client is shown."""
    at = urlsplit(os.environ["TIDELAKE_SOURCE_URI"])
    with (
        pymysql.connect(host=at.hostname, port=at.port or 0, user="root", autocommit=True) as link,
        link.cursor() as cursor,
    ):
        try:
            return f"ok, {cursor.execute(statement)} rows"
        except pymysql.Error as error:
            return f"error: {error}"


def main() -> None:
    match sys.argv[1:]:
        case ["serve"]:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
            serve()
        case ["sql", statement]:
            print(run(statement))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
