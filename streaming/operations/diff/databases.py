"""The database with which tables are compared: one that goes on, or a TiDB at a snapshot's TSO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from conf.settings import DeltaSink
from conf.sources.binlog_uri import BinlogSettings
from conf.sources.source_uri import SourceSettings
from conf.sources.tidb_uri import TidbSettings
from coordination.errors import ConfigError, TidelakeError
from coordination.model import SEALED_TS
from sinks.control.snapshots import SnapshotRow
from sinks.control.warehouse import ControlTables
from streaming.operations.diff.comparison import DiffLimits, Told, changefeed_of, compare_tables
from streaming.operations.diff.findings import DiffReport
from streaming.operations.diff.patience import KeptSession
from streaming.source.binlog.database import connected
from streaming.source.binlog.source import BinlogSource
from streaming.source.dump.session import Session, SnapshotGone
from streaming.source.dump.tidb import KEEPS_LONGER, Tidb

QUERY_S: Final = 3600.0  # for the first rows of a SELECT: one without an index may sort a table


def compare_with_database(
    sink: DeltaSink,
    changefeed_id: str | None,
    names: Sequence[str],
    settings: SourceSettings,
    *,
    limits: DiffLimits,
    told: Told,
) -> DiffReport:
    """``compare_tables``, by connections of its own, in chunks as the settings say. Raises as that
    does."""
    if isinstance(settings, TidbSettings):
        return _compare_with_tidb(sink, changefeed_id, names, settings, limits=limits, told=told)
    if not isinstance(settings, BinlogSettings):
        raise ConfigError(
            "source-uri: tables are compared with a database's: give mysql://user@host:3306/"
        )
    source = BinlogSource(settings)
    source.keep_to(changefeed_of(sink, changefeed_id).source_identities)
    database = source.database
    if database.others:
        database.choose()  # the server that the changefeed reads
    session = KeptSession(
        lambda: Session(lambda: connected(database.settings, read_timeout_s=QUERY_S))
    )
    try:
        return compare_tables(
            sink,
            changefeed_id,
            names,
            session,
            source,
            limits=replace(limits, chunk_rows=settings.chunk_rows),
            told=told,
        )
    finally:
        session.close()
        source.close()


def _compare_with_tidb(
    sink: DeltaSink,
    changefeed_id: str | None,
    names: Sequence[str],
    settings: TidbSettings,
    *,
    limits: DiffLimits,
    told: Told,
) -> DiffReport:
    """Both sides as of the newest snapshot at or below ``snapshot-ts``, or of all: nothing moves,
    so what differs once differs."""
    id_ = changefeed_of(sink, changefeed_id).changefeed_id
    tidb = Tidb(settings)
    tidb.check()
    snapshot = _snapshot(sink, id_, settings.snapshot_ts)
    session = KeptSession(lambda: tidb.session(snapshot.primary_ts))
    limits = replace(limits, chunk_rows=settings.chunk_rows)
    try:
        found = compare_tables(sink, id_, names, session, snapshot, limits=limits, told=told)
        return replace(found, snapshot_ts=snapshot.primary_ts)
    except SnapshotGone as error:
        raise TidelakeError(
            f"the TiDB cannot be read any more as of the snapshot at {snapshot.primary_ts}: "
            f"{error}. Compare a newer one; or {KEEPS_LONGER}"
        ) from error
    finally:
        session.close()


def _snapshot(sink: DeltaSink, changefeed_id: str, ts: int | None) -> SnapshotRow:
    snapshots = ControlTables.of(sink).snapshots
    found = snapshots.as_of(changefeed_id, SEALED_TS if ts is None else ts)
    if found is None:
        before = "" if ts is None else f" at or below {ts}"
        raise TidelakeError(f"changefeed {changefeed_id} has no snapshot{before} yet")
    return found
