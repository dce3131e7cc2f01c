"""Where in the binlog a consistent read stands: for tables that need one moment.

A table without a key cannot be read in chunks: its rows could not be told from those that the
binlog brings again. So it is one SELECT in a transaction, and what the binlog has up to the
transaction's own position is in it. MariaDB says that position. MySQL does not: there the table is
locked against writers for the instant in which the transaction begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from streaming.source.dump.cells import quoted
from streaming.source.dump.session import Connect, Session
from streaming.source.dump.source_table import SourceTable


@dataclass(frozen=True, slots=True)
class SnapshotPosition:
    """All of a table up to here was read, and nothing behind. ``file`` and ``offset``: None on
    MySQL, where the GTIDs tell it alone. ``gtid``: empty where the server has none."""

    gtid: str
    file: str | None = None
    offset: int | None = None


@contextmanager
def one_moment(
    session: Session, connect: Connect, table: SourceTable
) -> Iterator[SnapshotPosition]:
    """A transaction of the session that sees the table as it is at the position. Raises
    SourceRefuses where MySQL's account may not LOCK TABLES, and else as ``Session.query``."""
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
    """LOCK TABLES waits for transactions that have written the table, and for no others."""
    name = f"{quoted(table.name.schema)}.{quoted(table.name.table)}"
    locker = Session(connect)
    try:
        locker.query(f"LOCK TABLES {name} READ")
        session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        ((gtid,),) = session.query("SELECT @@GLOBAL.gtid_executed")
    finally:
        locker.close()
    return SnapshotPosition(str(gtid).replace("\n", ""))
