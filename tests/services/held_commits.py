"""Commits that are in the binlog and that no other session is shown: semi-synchronous replication
to a replica that never answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.services.database_server import DatabaseServer

_LONG_MS = 60_000
_BINARY_LOGS = {True: "SHOW MASTER STATUS", False: "SHOW BINARY LOG STATUS"}


@contextmanager
def held_commit(server: DatabaseServer, statement: str) -> Iterator[threading.Event]:
    """The statement's transaction is committed when the event is set, or at the end. For a server
    that nobody else uses."""
    name = "master" if server.edition.is_mariadb else "source"
    if not server.edition.is_mariadb:
        server.execute("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
    server.execute(
        f"SET GLOBAL rpl_semi_sync_{name}_wait_point = 'AFTER_SYNC'",
        f"SET GLOBAL rpl_semi_sync_{name}_timeout = {_LONG_MS}",
        f"SET GLOBAL rpl_semi_sync_{name}_enabled = ON",
    )
    before = log_end(server)
    writer = threading.Thread(target=server.execute, args=(statement,))
    go_on = threading.Event()

    def release() -> None:
        go_on.wait()
        server.execute(f"SET GLOBAL rpl_semi_sync_{name}_enabled = OFF")

    releaser = threading.Thread(target=release)
    for each in (writer, releaser):
        each.start()
    try:
        deadline = time.monotonic() + 10
        while log_end(server) == before:
            assert time.monotonic() < deadline, "it is not in the binlog"
            time.sleep(0.01)
        yield go_on
    finally:
        go_on.set()
        for each in (releaser, writer):
            each.join()
        if not server.edition.is_mariadb:
            server.execute("UNINSTALL PLUGIN rpl_semi_sync_source")


def log_end(server: DatabaseServer) -> tuple[str, int]:
    """File and offset of what is written next."""
    ((file, offset, *_),) = server.query(_BINARY_LOGS[server.edition.is_mariadb])
    return file, offset
