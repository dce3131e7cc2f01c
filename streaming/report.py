"""What ``tidelake progress`` and ``snapshot`` show, read from the warehouse without a JVM."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from conf.settings import DeltaSink
from coordination.errors import ConfigError, TidelakeError
from coordination.model import TableName, time_tso, tso_time
from sinks.changefeeds import ChangefeedRow
from sinks.progress import ProgressRow
from sinks.snapshots import SnapshotRow
from sinks.tables import table_uri
from streaming.backlog import NEARLY_S
from streaming.control_tables import ControlTables

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)  # of TSOs: a start-ts of 0 or 1 is no time
_TSO = re.compile(r"^\d{1,19}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """Changefeeds and their spans as of ``now``."""

    changefeeds: tuple[ChangefeedRow, ...]
    spans: tuple[ProgressRow, ...]
    now: datetime

    def lag_s(self, checkpoint_ts: int) -> float | None:
        """Seconds between a checkpoint and now, on TiDB's clock and ours; None before the first."""
        at = checkpoint_time(checkpoint_ts)
        return (self.now - at).total_seconds() if at is not None else None

    def source_left_s(self, row: ChangefeedRow) -> float | None:
        """Till Kafka may delete what the changefeed needs; it goes on falling while nobody looks,
        of a paused one above all."""
        if row.source_left_s is None:
            return None
        return max(0.0, row.source_left_s - (self.now - row.updated_at).total_seconds())

    def to_json(self) -> dict[str, Any]:
        return {
            "changefeeds": [
                {
                    **asdict(row),
                    "source_left_s": self.source_left_s(row),
                    "checkpoint_time": checkpoint_time(row.checkpoint_ts),
                    "resolved_time": checkpoint_time(row.resolved_ts),
                    "lag_s": self.lag_s(row.checkpoint_ts),
                    "without_watermark": without_watermark(row),
                    "slowest_partition": slowest_partition(row),
                }
                for row in self.changefeeds
            ],
            "spans": [
                {
                    **asdict(row),
                    "checkpoint_time": checkpoint_time(row.checkpoint_ts),
                    "lag_s": self.lag_s(row.checkpoint_ts),
                }
                for row in self.spans
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    table: str
    version: int
    uri: str

    @property
    def sql(self) -> str:
        path = self.uri.replace("`", "``")
        return f"SELECT * FROM delta.`{path}` VERSION AS OF {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport:
    row: SnapshotRow
    tables: tuple[TableVersion, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "changefeed_id": self.row.changefeed_id,
            "primary_ts": self.row.primary_ts,
            "primary_time": self.row.primary_time,
            "dead_letters": self.row.dead_letters,
            "created_at": self.row.created_at,
            "tables": [{**asdict(table), "sql": table.sql} for table in self.tables],
        }


def read_progress(sink: DeltaSink, changefeed_id: str | None) -> ProgressReport:
    """Every changefeed of the warehouse, or the one that is named."""
    rows = _changefeeds(sink, changefeed_id)
    wanted = {row.changefeed_id for row in rows}
    spans = ControlTables.of(sink).progress.read_all()
    return ProgressReport(
        changefeeds=rows,
        spans=tuple(span for span in spans if span.changefeed_id in wanted),
        now=datetime.now(UTC),
    )


def read_snapshot(
    sink: DeltaSink, changefeed_id: str | None, as_of: int | None = None
) -> SnapshotReport:
    """The newest snapshot, or the newest one at or below a TSO."""
    rows, tables = _changefeeds(sink, changefeed_id), ControlTables.of(sink)
    warehouse = sink.warehouse
    if len(rows) > 1:
        raise ConfigError(
            f"{warehouse} has the changefeeds {_names(rows)}: say which by --changefeed-id"
        )
    name = rows[0].changefeed_id
    ledger = tables.snapshots
    found = ledger.latest(name) if as_of is None else ledger.as_of(name, as_of)
    if found is None:
        at = checkpoint_time(as_of) if as_of is not None else None
        time = f" ({at.isoformat()})" if at is not None else ""
        below = "" if as_of is None else f" at or below {as_of}{time}"
        raise TidelakeError(
            f"changefeed {name} has no snapshot{below} in {warehouse}: "
            "`tidelake progress` shows how far its tables are"
        )
    spans = tables.progress.read(name)
    known = {str(table): table for table in spans}  # one with further dots is there
    return SnapshotReport(
        row=found,
        tables=tuple(
            TableVersion(
                table=table,
                version=version,
                uri=table_uri(warehouse, known.get(table) or TableName(*table.split(".", 1))),
            )
            for table, version in sorted(found.tables.items())
        ),
    )


def parse_as_of(text: str) -> int:
    """A TSO, or the last TSO of an RFC 3339 time's millisecond."""
    if _TSO.match(text):
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"--as-of {text!r} is neither a TSO nor a time such as 2026-01-31T12:00:00Z"
        ) from error
    if at.tzinfo is None:
        raise ConfigError(f"--as-of {text!r} has no time zone: write {text}Z for UTC")
    return time_tso(at + timedelta(milliseconds=1)) - 1


def checkpoint_time(ts: int) -> datetime | None:
    """A TSO as a time; None for one that stands for the beginning, before all that was read."""
    at = tso_time(ts)
    return at if at >= BEGINNING + timedelta(days=1) else None


def without_watermark(row: ChangefeedRow) -> list[str]:
    """The partitions that are read to their end and have not said how far they are: they hold
    every table back. While one is still read, its watermark may come yet.
    """
    return sorted(
        partition
        for partition, offset in row.read_offsets.items()
        if offset >= row.end_offsets.get(partition, offset + 1)
        and (partition not in row.watermarks or row.watermarks[partition].ts <= 0)
    )


def slowest_partition(row: ChangefeedRow) -> str | None:
    """The partition whose watermark is the lowest: the global one stands there. None while some
    have none yet.
    """
    if not row.watermarks or row.source_offsets.keys() - row.watermarks.keys():
        return None
    return min(sorted(row.watermarks), key=lambda partition: row.watermarks[partition].ts)


def falls_behind(row: ChangefeedRow) -> bool:
    """Whether a backlog of some size, and a rate, promise no end."""
    behind, per_s = row.messages_behind, row.messages_per_s
    is_measured = is_moving(row) and behind is not None and bool(per_s)
    return is_measured and row.time_left_s is None and (behind or 0) > (per_s or 0.0) * NEARLY_S


def is_moving(row: ChangefeedRow) -> bool:
    """Whether a lag means anything: only a finished changefeed does not fall behind."""
    return row.state != "finished"


def _changefeeds(sink: DeltaSink, changefeed_id: str | None) -> tuple[ChangefeedRow, ...]:
    rows, warehouse = ControlTables.of(sink).changefeeds.read_all(), sink.warehouse
    if not rows:
        raise TidelakeError(
            f"no changefeed has run in {warehouse} yet: there is no _tidelake/changefeeds; "
            "check --sink-uri"
        )
    if changefeed_id is None:
        return tuple(rows)
    found = tuple(row for row in rows if row.changefeed_id == changefeed_id)
    if not found:
        raise ConfigError(f"{warehouse} has no changefeed {changefeed_id!r}, but {_names(rows)}")
    return found


def _names(rows: Iterable[ChangefeedRow]) -> str:
    return ", ".join(row.changefeed_id for row in rows)
