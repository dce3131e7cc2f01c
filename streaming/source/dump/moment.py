"""Where in the binlog a read of tables stands.

A server writes a transaction into its binlog first, and shows it to others afterwards: with
semi-synchronous replication seconds later. So the binlog's end is no place for a copy to begin: a
chunk might not show what lies before it. ``settled_position`` is one before which all is shown.

A table without a key cannot be read in chunks: its rows could not be told from those that the
binlog brings again. So ``one_moment`` is a transaction that shows it at a position, exactly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from coordination.model import TableName
from streaming.source.contract import SourceAway
from streaming.source.dump.cells import quoted
from streaming.source.dump.session import Connect, Session
from streaming.source.dump.source_table import SourceTable

PATIENCE_S: Final = 60.0  # for transactions that are being committed
LOCK_S: Final = 5  # for transactions that have written a table; those behind the lock wait as long
_LOOK_S: Final = 0.02
_BINARY_LOG_STATUS: Final = (8, 2)  # the version of MySQL since which it is called so


@dataclass(frozen=True, slots=True)
class SnapshotPosition:
    """``gtid``: empty where the server has none."""

    gtid: str
    file: str
    offset: int


def settled_position(session: Session, tables: Iterable[TableName]) -> SnapshotPosition:
    """A position near the end: each read of ``tables`` that begins from now on shows all that lies
    before it. Raises as ``Session.query`` does, and SourceAway where commits take too long.

    MariaDB tells it. On MySQL the end is taken, and the commits that are under way are waited for;
    without GTIDs a lock of each table, given up at once, waits for them.
    """
    if session.is_mariadb:
        session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        position = _mariadb_position(session)
        session.query("COMMIT")
        return position
    position = _end(session)
    if _has_gtids(session):
        _await_commits(session)
    else:
        for name in tables:
            session.query(f"SET SESSION lock_wait_timeout = {LOCK_S}")
            session.query(f"LOCK TABLES {_quoted(name)} READ")
            session.query("UNLOCK TABLES")
    return position


@contextmanager
def one_moment(
    session: Session, connect: Connect, table: SourceTable
) -> Iterator[SnapshotPosition]:
    """A transaction of the session that shows the table with all that lies before the position,
    and nothing behind. Raises as ``Session.query`` does: on MySQL, where the table is locked
    against writers for the instant in which the transaction begins, SourceRefuses without the
    right to LOCK TABLES."""
    if session.is_mariadb:
        session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        position = _mariadb_position(session)
    else:
        position = _locked_position(session, connect, table)
    try:
        yield position
    finally:
        if session.is_open:
            session.query("COMMIT")


def _mariadb_position(session: Session) -> SnapshotPosition:
    told = dict(session.query("SHOW STATUS LIKE 'binlog_snapshot_%'"))
    found = {name.lower(): value for name, value in told.items()}
    file, offset = found["binlog_snapshot_file"], int(found["binlog_snapshot_position"])
    ((gtid,),) = session.query(f"SELECT BINLOG_GTID_POS('{file}', {offset})")
    return SnapshotPosition(gtid or "", file, offset)


def _locked_position(session: Session, connect: Connect, table: SourceTable) -> SnapshotPosition:
    """LOCK TABLES waits until transactions that have written the table have ended."""
    locker = Session(connect)
    try:
        locker.query(f"SET SESSION lock_wait_timeout = {LOCK_S}")
        locker.query(f"LOCK TABLES {_quoted(table.name)} READ")
        session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        return _end(session)
    finally:
        locker.close()


def _end(session: Session) -> SnapshotPosition:
    """MySQL's, with the GTIDs that are committed: perhaps fewer than lie before it."""
    name = "BINARY LOG" if session.version >= _BINARY_LOG_STATUS else "MASTER"
    ((file, offset, _, _, gtids, *_),) = session.query(f"SHOW {name} STATUS")
    return SnapshotPosition(str(gtids).replace("\n", ""), file, int(offset))


def _has_gtids(session: Session) -> bool:
    ((mode,),) = session.query("SELECT @@GLOBAL.gtid_mode")
    return str(mode) == "ON"


def _await_commits(
    session: Session, clock: Callable[[], float] = time.monotonic, patience_s: float = PATIENCE_S
) -> None:
    """Until those are through that own a GTID now: from before it is in the binlog, and until its
    transaction is shown."""
    waited_for = _owned(session)
    deadline_s = clock() + patience_s
    while waited_for := waited_for & _owned(session):
        if clock() > deadline_s:
            raise SourceAway(
                f"transactions are being committed for more than {patience_s:.0f} s:"
                f" {', '.join(sorted(waited_for))}. A replica of the source may not answer"
            )
        time.sleep(_LOOK_S)


def _owned(session: Session) -> set[str]:
    """``uuid:4#13:5#14,…``: GTIDs, each with the thread that commits it."""
    ((told,),) = session.query("SELECT @@GLOBAL.gtid_owned")
    found = set()
    for group in str(told).replace("\n", "").split(","):
        source, *owned = group.split(":")
        found |= {f"{source}:{each.partition('#')[0]}" for each in owned}
    return found


def _quoted(name: TableName) -> str:
    return f"{quoted(name.schema)}.{quoted(name.table)}"
