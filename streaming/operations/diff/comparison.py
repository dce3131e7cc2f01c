"""All tables of a changefeed, or some, beside the database that it follows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from conf.settings import DeltaSink
from conf.sources.binlog_uri import BinlogSettings
from conf.sources.source_uri import SourceSettings
from coordination.errors import ConfigError, TidelakeError
from coordination.model import TableName
from coordination.secrets import revealed_options
from coordination.trust.clock import Clock, SystemClock
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import DROPPED, ProgressRow
from sinks.control.warehouse import ControlTables
from sinks.types.text_arrays import CastRules
from streaming.operations.diff.database_rows import DatabaseRows
from streaming.operations.diff.findings import DiffReport, TableFinding
from streaming.operations.diff.lake_rows import open_newest
from streaming.operations.diff.passing import LowWaterPassing
from streaming.operations.diff.patience import KeptSession
from streaming.operations.diff.table_diff import compare_table
from streaming.operations.progress_report import changefeed_rows
from streaming.source.binlog.database import connected
from streaming.source.binlog.position import BinlogPosition, LogIdentity, file_number
from streaming.source.binlog.source import PART, BinlogSource
from streaming.source.contract import Source
from streaming.source.dump.moment import settled_position
from streaming.source.dump.session import Session
from streaming.source.dump.source_table import SourceTable, read_tables
from streaming.source.positions import Positions

WAIT_S: Final = 60.0
QUERY_S: Final = 3600.0  # for the first rows of a SELECT: one without an index may sort a table
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
    if not isinstance(settings, BinlogSettings):
        raise ConfigError(
            "source-uri: tables are compared with a database's: give mysql://user@host:3306/"
        )
    source = BinlogSource(settings)
    source.keep_to(_changefeed(sink, changefeed_id).source_identities)
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


def compare_tables(
    sink: DeltaSink,
    changefeed_id: str | None,
    names: Sequence[str],
    session: KeptSession,
    source: Source,
    *,
    limits: DiffLimits = DiffLimits(),  # it is frozen
    told: Told = lambda _done, _total: None,
) -> DiffReport:
    """``names``: as schema.table; none: all tables of the changefeed. ``told`` gets how many rows
    of both sides were read, of about how many.

    Raises ConfigError for a name that is not there, TidelakeError where a side cannot be read."""
    _refuse_tidb(session)
    row = _changefeed(sink, changefeed_id)
    lift = LogIdentity.parse(row.source_identities.get(PART, "")).lift
    control = ControlTables.of(sink)
    progress = control.progress.read(row.changefeed_id)
    wanted = _chosen(progress, names)
    there = _source_tables(session, sorted({name.schema for name in wanted}))
    options = revealed_options(sink.storage_options)
    pace, rules = Pace(limits.rows_per_s), _rules(row)
    progressed = _Progressed(told, 2 * sum(there[name].rows for name in wanted if name in there))

    def one(name: TableName) -> TableFinding:
        table = there.get(name)
        if table is None:
            return TableFinding(name=name, problem="the database has no such table")
        if table.refusal:
            return TableFinding(name=name, problem=table.refusal)

        def rows() -> tuple[ChangefeedRow | None, ProgressRow | None]:
            feed = row.changefeed_id
            return control.changefeeds.read(feed), control.progress.read(feed).get(name)

        def settled() -> Positions:
            found = session.asked(lambda each: settled_position(each, [name]))
            at = BinlogPosition(file_number(found.file) + lift, found.offset)
            return dict.fromkeys(source.shape().parts, int(at))

        return compare_table(
            name,
            lambda: open_newest(sink.warehouse, name, options),
            DatabaseRows(session, table, rules, rows_per_chunk=limits.chunk_rows, pause=pace),
            LowWaterPassing(source, rows, settled=settled, patience_s=limits.wait_s),
            progressed.more,
        )

    return DiffReport(tables=tuple(map(one, wanted)))


def _changefeed(sink: DeltaSink, changefeed_id: str | None) -> ChangefeedRow:
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


def _source_tables(session: KeptSession, schemas: Sequence[str]) -> dict[TableName, SourceTable]:
    found = session.asked(lambda each: read_tables(each.query, schemas)) if schemas else []
    return {table.name: table for table in found}


def _refuse_tidb(session: KeptSession) -> None:
    """A TiDB has no binlog, so nothing would tell when a table has passed a reading."""
    ((version,),) = session.open().query("SELECT VERSION()")  # at once, if it is not there
    if "tidb" in str(version).lower():
        raise ConfigError(
            "source-uri: this is a TiDB, which is not compared yet: only MySQL and MariaDB are"
        )


def _rules(row: ChangefeedRow) -> CastRules:
    """The rules by which the changefeed's rows were cast."""
    if row.row_rules is None:
        raise TidelakeError(f"changefeed {row.changefeed_id} has not run yet: there is no row")
    return CastRules(time_zone="UTC", zero_date=json.loads(row.row_rules)["zero_date"])
