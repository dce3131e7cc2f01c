"""Which server a copy is of. Chunks of two servers do not go together: with asynchronous
replication the one may lack what the other has shown. So where another server answers in the place
of the one with which a copy began, the copy begins anew."""

from __future__ import annotations

import threading
from typing import Final

from coordination.trust.clock import Clock, SystemClock
from streaming.source.binlog.database import Database, connected, moved, server_of
from streaming.source.binlog.source import PART, BinlogSource
from streaming.source.contract import SourceAway, SourceMoved
from streaming.source.dump.session import Connection

AWAY_S: Final = 10.0
LOOK_EVERY_S: Final = 0.5
ANSWER_S: Final = 3_600.0  # for a row of a large table


def is_there(source: BinlogSource, server: str, clock: Clock | None = None) -> bool:
    """Whether the server of this log identity answers, at once or within ten seconds: from then on
    it alone is asked. False: another one answers in its place. Blocks; raises SourceAway where
    none does."""
    clock, never, database = clock or SystemClock(), threading.Event(), source.database
    until = clock.monotonic() + (AWAY_S if database.others else 0.0)
    source.keep_to({PART: server})
    while True:
        try:
            return database.facts().identity == server
        except SourceMoved:
            return False
        except SourceAway:
            if not database.others:
                raise
        if clock.monotonic() >= until:
            break
        clock.wait(never, LOOK_EVERY_S)
    source.keep_to({})
    return database.facts().identity == server


def connection_to(database: Database) -> Connection:
    """A new one to the server that is asked now. Raises pymysql's errors, and SourceAway where the
    name leads to another server meanwhile."""
    settings, server = database.settings, database.facts().server
    found = connected(settings, read_timeout_s=ANSWER_S)
    with found.cursor() as cursor:
        now = server_of(cursor)
    if now != server:
        found.close()
        raise SourceAway(str(moved(settings, server, now)))
    return found
