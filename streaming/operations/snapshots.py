"""All tables of a changefeed as of one moment, for every reader (docs/reading.md).

    snapshot = find_snapshot("delta:///data/lake", "shop", as_of="2026-01-31T12:00:00Z")
    orders = snapshot.open("shop.orders").to_table()  # Arrow, without Spark
    register_views(spark, snapshot)  # shop_orders, shop_customers, …

The ledger says which Delta versions belong together (rule 7). Each table has the columns, names and
types that it had at that moment, whatever DDLs have run since.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from conf.forms import other_unit
from conf.load import warehouse_of
from conf.settings import DeltaSink
from coordination.errors import ConfigError, TidelakeError
from coordination.model import SEALED_TS, TSO_LOGICAL_BITS, TableName, time_tso
from coordination.secrets import revealed_options
from sinks.control.snapshots import SnapshotRow
from sinks.control.warehouse import ControlTables
from sinks.merge_on_write.log.reader import VersionGone
from sinks.merge_on_write.version_reader import TableVersion, open_version
from sinks.spark.jvm_errors import line
from sinks.target.target_table import table_uri
from sinks.types.delta_types import quoted
from streaming.operations.progress_report import changefeed_rows, checkpoint_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Dialect = Literal["spark", "databricks", "trino", "duckdb"]
# Delta refuses a version whose own commit is older than the retention of deleted files, though it
# was the newest one until a moment ago and its files are all there: a table that rarely changes.
BY_COMMIT_AGE = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
LOOKS = 8  # at tables, side by side
_TSO = re.compile(r"\d{1,19}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTable:
    """Where a table of the snapshot is, and at which version to read it."""

    name: TableName
    uri: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSnapshot:
    """One row of the ledger. ``tables`` are in the order of their names."""

    row: SnapshotRow
    tables: tuple[SnapshotTable, ...]
    _storage_options: Mapping[str, str] = field(repr=False)

    @property
    def primary_ts(self) -> int:
        """TSO: every change at or below is in the tables, and none above."""
        return self.row.primary_ts

    def open(self, name: str) -> TableVersion:
        """One table (``schema.table``) without Spark: as a ``pyarrow.Table``, a stream of record
        batches, or a dataset. TidelakeError: it is not in the snapshot, or cannot be read."""
        return self.look(self._table(name))

    def look(self, table: SnapshotTable) -> TableVersion:
        """The same for one of ``tables``."""
        try:
            return open_version(table.uri, table.version, self._storage_options)
        except TidelakeError as error:
            raise type(error)(f"table {table.name}: {error}") from error

    def chosen(self, names: Iterable[str] | None) -> tuple[SnapshotTable, ...]:
        """These tables; all where none are named."""
        return self.tables if names is None else tuple(map(self._table, names))

    def _table(self, name: str) -> SnapshotTable:
        for table in self.tables:
            if str(table.name) == name:
                return table
        there = ", ".join(str(each.name) for each in self.tables)
        raise TidelakeError(
            f"the snapshot at {self.primary_ts} has no table {name}, but {there}: it was made, "
            "renamed or dropped at another time, or the name is another"
        )


def find_snapshot(
    sink_uri: str,
    changefeed_id: str | None = None,
    *,
    as_of: int | str | datetime | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> LedgerSnapshot:
    """The newest snapshot, or the newest one at or below ``as_of``: a TSO, an RFC 3339 time, or a
    ``datetime`` with a zone. The ID may be left out if the warehouse has one changefeed.

    Raises TidelakeError if there is no snapshot, ConfigError for arguments that cannot be right.
    """
    options = tuple((storage_options or {}).items())
    sink = DeltaSink(warehouse=warehouse_of(sink_uri), storage_options=options)
    if isinstance(as_of, datetime):
        as_of = as_of.isoformat()
    return snapshot_of(sink, changefeed_id, None if as_of is None else parse_as_of(str(as_of)))


def snapshot_of(sink: DeltaSink, changefeed_id: str | None, as_of: int | None) -> LedgerSnapshot:
    """``find_snapshot`` of a loaded sink; ``as_of`` is a TSO."""
    rows, warehouse = changefeed_rows(sink, changefeed_id), sink.warehouse
    if len(rows) > 1:
        names = ", ".join(row.changefeed_id for row in rows)
        raise ConfigError(f"{warehouse} has the changefeeds {names}: say which by --changefeed-id")
    name, tables = rows[0].changefeed_id, ControlTables.of(sink)
    ledger = tables.snapshots
    found = ledger.latest(name) if as_of is None else ledger.as_of(name, as_of)
    if found is None:
        earliest = ledger.earliest(name)
        below = "" if as_of is None else f" at or below {_moment(as_of)}"
        there = (
            "`tidelake progress` shows how far its tables are"
            if earliest is None
            else f"the earliest that is kept is at {_moment(earliest.primary_ts)}"
        )
        raise TidelakeError(f"changefeed {name} has no snapshot{below} in {warehouse}: {there}")
    known = {str(each): each for each in tables.progress.read(name)}  # a dot may be in a name
    return LedgerSnapshot(
        row=found,
        tables=tuple(
            SnapshotTable(name=each, uri=table_uri(warehouse, each), version=version)
            for each, version in sorted(
                (known.get(text) or TableName(*text.split(".", 1)), version)
                for text, version in found.tables.items()
            )
        ),
        _storage_options=revealed_options(sink.storage_options),
    )


def _moment(ts: int) -> str:
    at = checkpoint_time(ts)
    return str(ts) if at is None else f"{ts} ({at.isoformat()})"


def parse_as_of(text: str) -> int:
    """A TSO, or the last TSO of an RFC 3339 time's millisecond."""
    if _TSO.fullmatch(text):
        if (other := other_unit(int(text))) is not None:
            raise ConfigError(f"as-of {other}")
        return min(int(text), SEALED_TS)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"as-of {text!r} is neither a TSO nor a time such as 2026-01-31T12:00:00Z"
        ) from error
    if at.tzinfo is None:
        raise ConfigError(f"as-of {text!r} has no time zone: write {at.isoformat()}Z for UTC")
    last = time_tso(at) + (1 << TSO_LOGICAL_BITS) - 1
    return min(max(last, 0), SEALED_TS)  # of any year that a time can have


def register_views(
    spark: SparkSession,
    snapshot: LedgerSnapshot,
    *,
    prefix: str = "",
    tables: Iterable[str] | None = None,
) -> dict[str, str]:
    """A temporary view ``<prefix><schema>_<table>`` in this session for each table, or for the
    named ones (``schema.table``), by ``versionAsOf``. Returns the views' names by table.

    All or none: TidelakeError if a table cannot be read, or if two would have one name. The
    session's setting ``BY_COMMIT_AGE`` becomes false, if it may be set.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    chosen = snapshot.chosen(tables)
    names = _view_names(chosen, prefix)
    with suppress(PySparkException):
        spark.conf.set(BY_COMMIT_AGE, "false")
    _refuse_what_is_gone(snapshot, chosen)
    frames = []
    for table in chosen:
        reader = spark.read.format("delta").option("versionAsOf", table.version)
        try:
            frames.append(reader.load(table.uri))
        except (PySparkException, Py4JError) as error:
            raise TidelakeError(
                f"table {table.name}: Spark cannot read version {table.version} of {table.uri}: "
                f"{line(error)}"
            ) from error
    for name, frame in zip(names, frames, strict=True):
        frame.createOrReplaceTempView(quoted(name))
    return {str(table.name): name for table, name in zip(chosen, names, strict=True)}


def _refuse_what_is_gone(snapshot: LedgerSnapshot, tables: Iterable[SnapshotTable]) -> None:
    """Spark would find that out in the middle of a query."""
    for table in tables:
        try:
            snapshot.look(table)
        except TidelakeError as error:
            if isinstance(error, VersionGone):
                raise
            return  # Spark may know more features, and have rights that this process has not


def _view_names(tables: Sequence[SnapshotTable], prefix: str) -> list[str]:
    """In the order of the tables. SQL's names differ in more than case."""
    taken: dict[str, TableName] = {}
    names = []
    for table in tables:
        name = f"{prefix}{table.name.schema}_{table.name.table}"
        other = taken.setdefault(name.lower(), table.name)
        if other != table.name:
            raise TidelakeError(
                f"the tables {other} and {table.name} would both be the view {name}: register them "
                "one after the other, by tables=[…] and with another prefix"
            )
        names.append(name)
    return names


def sql_text(snapshot: LedgerSnapshot, dialect: Dialect) -> str:
    """Statements that make the view ``<schema>_<table>`` of each table."""
    lines = [f"-- {snapshot.row.changefeed_id} as of {_moment(snapshot.primary_ts)}"]
    if dialect == "trino":
        lines.append(
            "-- The catalog must have each table: CALL system.register_table(schema_name => …, "
            "table_name => …, table_location => …)"
        )
    elif dialect == "duckdb":
        lines.append("INSTALL delta; LOAD delta;")
    elif dialect == "spark":
        lines.append(f"SET {BY_COMMIT_AGE} = false;")
    else:  # not every kind of compute there lets it be set
        lines.append(f"-- If a version is refused for its age: SET {BY_COMMIT_AGE} = false;")
    for name, table in zip(_view_names(snapshot.tables, ""), snapshot.tables, strict=True):
        if dialect == "trino":
            parts = (name, table.name.schema, table.name.table)
            view, schema, of = (quoted(part, '"') for part in parts)
            source = f"SELECT * FROM {schema}.{of} FOR VERSION AS OF {table.version}"
            lines.append(f"CREATE OR REPLACE VIEW {view} AS {source};")
        elif dialect == "duckdb":
            view, uri = quoted(name, '"'), quoted(table.uri, "'")
            source = f"SELECT * FROM delta_scan({uri}, version => {table.version})"
            lines.append(f"CREATE OR REPLACE VIEW {view} AS {source};")
        else:
            view, source = quoted(name), select_text(table)
            lines.append(f"CREATE OR REPLACE TEMPORARY VIEW {view} AS {source};")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLook:
    """The facts about a table; ``problem`` says why there are none."""

    table: SnapshotTable
    rows: int | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport:
    """The content that ``tidelake snapshot`` shows."""

    row: SnapshotRow
    tables: tuple[TableLook, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "changefeed_id": self.row.changefeed_id,
            "primary_ts": self.row.primary_ts,
            "primary_time": self.row.primary_time,
            "dead_letters": self.row.dead_letters,
            "created_at": self.row.created_at,
            "tables": [
                {
                    "table": str(each.table.name),
                    "version": each.table.version,
                    "uri": each.table.uri,
                    "sql": select_text(each.table),
                    "rows": each.rows,
                    "columns": each.types,
                    "problem": each.problem,
                }
                for each in self.tables
            ],
        }


def reported(snapshot: LedgerSnapshot) -> SnapshotReport:
    """The report, with a look at each table's log, and at which of its files are there."""

    def look(table: SnapshotTable) -> TableLook:
        try:
            found = snapshot.look(table)
            return TableLook(table=table, rows=found.count_rows(), types=found.types)
        except TidelakeError as error:
            return TableLook(table=table, problem=str(error))

    with ThreadPoolExecutor(LOOKS) as pool:
        return SnapshotReport(row=snapshot.row, tables=tuple(pool.map(look, snapshot.tables)))


def select_text(table: SnapshotTable) -> str:
    """The SELECT for Spark and Databricks."""
    uri = quoted(table.uri)
    return f"SELECT * FROM delta.{uri} VERSION AS OF {table.version}"
