"""Read what ``tidelake progress`` shows from the warehouse, without a JVM."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from conf.settings import DeltaSink
from coordination.errors import ConfigError, TidelakeError
from coordination.model import tso_time
from sinks.changefeeds import ChangefeedRow
from sinks.progress import DROPPED, ProgressRow
from streaming.backlog import NEARLY_S
from streaming.control_tables import ControlTables

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)  # the time of TSO 0; a start-ts of 0 or 1 is no time


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """Changefeeds and their spans as of ``now``."""

    changefeeds: tuple[ChangefeedRow, ...]
    spans: tuple[ProgressRow, ...]
    now: datetime

    def lag_s(self, checkpoint_ts: int) -> float | None:
        """Seconds from a checkpoint (TiDB's clock) to now (this machine's clock); None if there is
        no checkpoint yet."""
        at = checkpoint_time(checkpoint_ts)
        return (self.now - at).total_seconds() if at is not None else None

    def source_left_s(self, row: ChangefeedRow) -> float | None:
        """Seconds until Kafka may delete messages that the changefeed needs; None if that is not
        known. The time since the row was written is subtracted: nobody updates the row of a paused
        changefeed."""
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
                    "lag_s": None if row.state == DROPPED else self.lag_s(row.checkpoint_ts),
                }
                for row in self.spans
            ],
        }


def read_progress(sink: DeltaSink, changefeed_id: str | None) -> ProgressReport:
    """The progress of all changefeeds in the warehouse, or of the named one. Raises ConfigError or
    another TidelakeError if there is none."""
    rows = changefeed_rows(sink, changefeed_id)
    wanted = {row.changefeed_id for row in rows}
    spans = ControlTables.of(sink).progress.read_all()
    return ProgressReport(
        changefeeds=rows,
        spans=tuple(span for span in spans if span.changefeed_id in wanted),
        now=datetime.now(UTC),
    )


def checkpoint_time(ts: int) -> datetime | None:
    """The time of a TSO; None for a TSO such as 0 or 1, which means the beginning and is no
    time."""
    at = tso_time(ts)
    return at if at >= BEGINNING + timedelta(days=1) else None


def without_watermark(row: ChangefeedRow) -> list[str]:
    """The partitions that are read to their end and have no watermark: they hold every table back.
    A partition that is not read to its end is left out, since its watermark may still come.
    """
    return sorted(
        partition
        for partition, offset in row.read_offsets.items()
        if offset >= row.end_offsets.get(partition, offset + 1)
        and (partition not in row.watermarks or row.watermarks[partition].ts <= 0)
    )


def slowest_partition(row: ChangefeedRow) -> str | None:
    """The partition with the lowest watermark, which is the changefeed's. None while a partition
    has no watermark yet.
    """
    if not row.watermarks or row.source_offsets.keys() - row.watermarks.keys():
        return None
    return min(sorted(row.watermarks), key=lambda partition: row.watermarks[partition].ts)


def falls_behind(row: ChangefeedRow) -> bool:
    """Whether there is a backlog of some size that will not end at the measured rates."""
    behind, per_s = row.messages_behind, row.messages_per_s
    is_measured = is_moving(row) and behind is not None and bool(per_s)
    return is_measured and row.time_left_s is None and (behind or 0) > (per_s or 0.0) * NEARLY_S


def is_moving(row: ChangefeedRow) -> bool:
    """Whether the changefeed's lag has a meaning: it has none once it is finished."""
    return row.state != "finished"


def changefeed_rows(sink: DeltaSink, changefeed_id: str | None) -> tuple[ChangefeedRow, ...]:
    """All, or the one that is named. ConfigError: it is not there."""
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
        names = ", ".join(row.changefeed_id for row in rows)
        raise ConfigError(f"{warehouse} has no changefeed {changefeed_id!r}, but {names}")
    return found
