"""All tables of a changefeed, or some, beside the database that it follows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from conf.settings import DeltaSink
from coordination.errors import ConfigError, TidelakeError
from coordination.model import TableName
from coordination.secrets import revealed_options
from coordination.trust.clock import Clock, SystemClock
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import DROPPED, ProgressRow
from sinks.control.snapshots import SnapshotRow
from sinks.control.warehouse import ControlTables
from sinks.types.text_arrays import CastRules
from streaming.changefeed.earlier_filters import stored_routes
from streaming.changefeed.replicated_table import not_replicated
from streaming.changefeed.routes import Shards, shards_of
from streaming.changefeed.target_forms import mask_salt
from streaming.operations.diff.database_rows import DatabaseRows
from streaming.operations.diff.findings import DiffReport, TableFinding
from streaming.operations.diff.lake_rows import LakeVersion, open_table
from streaming.operations.diff.merged_rows import MergedRows, Upstream, upstream_of
from streaming.operations.diff.passing import AtOneMoment, LowWaterPassing, Passing
from streaming.operations.diff.patience import KeptSession
from streaming.operations.diff.shape import NotComparable
from streaming.operations.diff.table_diff import ALTERED, compare_table
from streaming.operations.progress_report import changefeed_rows
from streaming.source.binlog.position import BinlogPosition, LogIdentity, file_number
from streaming.source.binlog.source import PART
from streaming.source.contract import Source
from streaming.source.dump.moment import settled_position
from streaming.source.dump.session import Session
from streaming.source.dump.source_table import SourceTable, Vectors, read_tables
from streaming.source.positions import Positions

WAIT_S: Final = 60.0
Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLimits:
    """``wait_s``: how long a table may take to come to what the database had at a reading.
    ``rows_per_s``: so many rows are read off the database at most; None: as fast as it gives them.
    ``chunk_rows`` of a SELECT; None: some 64 MiB."""

    wait_s: float = WAIT_S
    rows_per_s: int | None = None
    chunk_rows: int | None = None


@dataclass(slots=True)
class _Progressed:
    """The rows of all tables together. ``total`` comes from the server's estimates."""

    told: Told
    total: int
    done: int = 0

    def more(self, rows: int) -> None:
        self.done += rows
        self.told(self.done, max(self.total, self.done))


class Pace:
    """Holds a reader back to so many rows a second."""

    def __init__(self, rows_per_s: int | None, clock: Clock | None = None) -> None:
        self._rows_per_s = rows_per_s
        self._clock = clock or SystemClock()
        self._never = threading.Event()
        self._free_at = self._clock.monotonic()

    def __call__(self, rows: int) -> None:
        """These were read just now. Blocks until the next may be."""
        if self._rows_per_s is None:
            return
        now = self._clock.monotonic()
        self._free_at = max(self._free_at, now) + rows / self._rows_per_s
        self._clock.wait(self._never, self._free_at - now)


def compare_tables(
    sink: DeltaSink,
    changefeed_id: str | None,
    names: Sequence[str],
    session: KeptSession,
    source: Source | SnapshotRow,
    *,
    limits: DiffLimits = DiffLimits(),  # it is frozen
    told: Told = lambda _done, _total: None,
) -> DiffReport:
    """``names``: as schema.table; none: all tables of the changefeed. ``source``: a snapshot if the
    session shows the database as of its TSO. ``told`` gets how many rows of both sides were read,
    of about how many.

    Raises ConfigError for a name that is not there, TidelakeError where a side cannot be read."""
    if not isinstance(source, SnapshotRow):
        _refuse_tidb(session)
    row = changefeed_of(sink, changefeed_id)
    progress = ControlTables.of(sink).progress.read(row.changefeed_id)
    if isinstance(source, SnapshotRow) and not names:  # those that were there then
        progress = {name: each for name, each in progress.items() if str(name) in source.tables}
    wanted = _chosen(progress, names)
    lacking = {name: each.lacks for name, each in progress.items() if each.lacks}
    tables = _Tables(sink, row, session, source, limits, lacking=lacking)
    progressed = _Progressed(told, 2 * tables.rows_of(wanted))
    return DiffReport(tables=tuple(tables.compare(name, progressed.more) for name in wanted))


class _Tables:
    """The targets of a changefeed, each beside its upstream tables."""

    def __init__(
        self,
        sink: DeltaSink,
        row: ChangefeedRow,
        session: KeptSession,
        source: Source | SnapshotRow,
        limits: DiffLimits,
        *,
        lacking: Mapping[TableName, str],
    ) -> None:
        self._lacking = lacking
        self._sink = sink
        self._row = row
        self._session = session
        self._source = source
        self._limits = limits
        self._control = ControlTables.of(sink)
        self._options = revealed_options(sink.storage_options)
        self._routes = stored_routes(row)
        self._lift = LogIdentity.parse(row.source_identities.get(PART, "")).lift
        self._rules = _rules(row)
        self._pace = Pace(limits.rows_per_s)
        self._there: dict[TableName, SourceTable] = {}

    def rows_of(self, names: Collection[TableName]) -> int:
        """By the server's estimates."""
        origins = {each for name in names for each in (self._shards(name) or (name,))}
        found = self._source_tables(origins)
        return sum(found[each].rows for each in origins if each in found)

    def compare(self, name: TableName, told: Callable[[int], None]) -> TableFinding:
        if name in self._lacking:
            return TableFinding(name=name, problem=not_replicated(name, self._lacking[name]))
        try:
            shards = self._shards(name)
            upstream = upstream_of(name, shards, self._routes)
            database = self._database_rows(upstream, upstream.tables(name))
        except NotComparable as why:
            return TableFinding(name=name, problem=str(why))

        def newest() -> LakeVersion:
            version = self._version(name)
            found = open_table(self._sink.warehouse, name, self._options, version)
            if self._routes is not None and list(found.shards) != list(shards):
                raise NotComparable(ALTERED)
            return found

        passing = self._passing(name, upstream.tables(name))
        return compare_table(
            name, newest, MergedRows(database), passing, upstream=upstream, told=told
        )

    def _version(self, name: TableName) -> int | None:
        """That of the snapshot; None: the newest. Raises NotComparable."""
        if not isinstance(self._source, SnapshotRow):
            return None
        if (version := self._source.tables.get(str(name))) is None:
            raise NotComparable(f"the snapshot at {self._source.primary_ts} has no such table")
        return version

    def _shards(self, name: TableName) -> Shards:
        return Shards() if self._routes is None else shards_of(self._sink, name)

    def _source_tables(self, names: Collection[TableName]) -> dict[TableName, SourceTable]:
        """Those that were read before, if they have all that is asked for."""
        if schemas := sorted({name.schema for name in names if name not in self._there}):
            is_tidb = isinstance(self._source, SnapshotRow)

            def tables(of: Session) -> list[SourceTable]:
                stored = Vectors.BYTES if of.is_mariadb else Vectors.FLOATS
                return read_tables(of.query, schemas, vectors=Vectors.TEXTS if is_tidb else stored)

            found = self._session.asked(tables)
            self._there |= {table.name: table for table in found}
        return self._there

    def _database_rows(
        self, upstream: Upstream, origins: Sequence[TableName]
    ) -> dict[TableName, DatabaseRows]:
        """Raises NotComparable."""
        found = self._source_tables(origins)
        return {
            each: DatabaseRows(
                self._session,
                _there(found, each),
                self._rules,
                added=upstream.added(each),
                rows_per_chunk=self._limits.chunk_rows,
                pause=self._pace,
            )
            for each in origins
        }

    def _passing(self, name: TableName, origins: Sequence[TableName]) -> Passing:
        source = self._source
        if isinstance(source, SnapshotRow):
            return AtOneMoment()

        def rows() -> tuple[ChangefeedRow | None, ProgressRow | None]:
            feed = self._row.changefeed_id
            progress = self._control.progress.read(feed).get(name)
            return self._control.changefeeds.read(feed), progress

        def settled() -> Positions:
            found = self._session.asked(lambda each: settled_position(each, origins))
            at = BinlogPosition(file_number(found.file) + self._lift, found.offset)
            return dict.fromkeys(source.shape().parts, int(at))

        return LowWaterPassing(source, rows, settled=settled, patience_s=self._limits.wait_s)


def changefeed_of(sink: DeltaSink, changefeed_id: str | None) -> ChangefeedRow:
    """The one of this ID, or the only one. Raises ConfigError and TidelakeError."""
    rows = changefeed_rows(sink, changefeed_id)
    if len(rows) > 1:
        names = ", ".join(row.changefeed_id for row in rows)
        raise ConfigError(f"{sink.warehouse} has the changefeeds {names}: say which by -c")
    return rows[0]


def _chosen(progress: Mapping[TableName, ProgressRow], names: Sequence[str]) -> list[TableName]:
    there = {str(name): name for name, row in progress.items() if row.state != DROPPED}
    if unknown := [name for name in names if name not in there]:
        raise ConfigError(
            f"the changefeed has no table {unknown[0]}, but {', '.join(sorted(there)) or 'none'}"
        )
    return sorted(there[name] for name in (dict.fromkeys(names) if names else there))


def _there(found: Mapping[TableName, SourceTable], name: TableName) -> SourceTable:
    table = found.get(name)
    if table is None:
        raise NotComparable(f"the database has no table {name}")
    if table.unread:
        raise NotComparable(f"table {name} cannot be read whole: {table.unread}")
    return table


def _refuse_tidb(session: KeptSession) -> None:
    """A TiDB has no binlog, so nothing would tell when a table has passed a reading."""
    ((version,),) = session.open().query("SELECT VERSION()")  # at once, if it is not there
    if "tidb" in str(version).lower():
        raise ConfigError(
            "source-uri: this is a TiDB: give it as tidb://user@host:4000/, which compares it at a "
            "snapshot's TSO"
        )


def _rules(row: ChangefeedRow) -> CastRules:
    """The rules by which the changefeed's rows were cast."""
    if row.row_rules is None:
        raise TidelakeError(f"changefeed {row.changefeed_id} has not run yet: there is no row")
    told = json.loads(row.row_rules)
    salt = mask_salt(DeltaSink(warehouse="", mask_salt=told.get("mask_salt")))
    return CastRules(time_zone="UTC", zero_date=told["zero_date"], mask_salt=salt)
