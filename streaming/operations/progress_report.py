"""Read what ``tidelake progress`` shows from the warehouse, without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from conf.settings import DeltaSink
from coordination.errors import ConfigError, TidelakeError
from coordination.model import TSO_LOGICAL_BITS, TableName, tso_time
from coordination.secrets import revealed_options
from sinks.control.changefeeds import NEARLY_S, ChangefeedRow
from sinks.control.dead_letters import DeadLetters
from sinks.control.progress import DROPPED, STOPPED, ProgressRow
from sinks.control.reloads import Reload
from sinks.control.schemas import Schemas
from sinks.control.warehouse import ControlTables
from streaming.changefeed.awaited import awaited, delivery, without_watermark
from streaming.changefeed.freshness import NOT_RUNNING, Freshness, refresh_age_s
from streaming.changefeed.refused.lossy_tables import lossy_tables
from streaming.changefeed.replicated_table import REPLICATING
from streaming.owner.progress_rows import with_letters

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)  # the time of TSO 0; a start-ts of 0 or 1 is no time
APART_MS = 10_000  # TiCDC sends one watermark to all partitions, one after the other


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """Changefeeds and their spans as of ``now``, by their rows. ``not_running``: changefeeds whose
    rows nobody refreshes any more."""

    changefeeds: tuple[ChangefeedRow, ...]
    spans: tuple[ProgressRow, ...]
    now: datetime
    not_running: frozenset[str] = frozenset()
    # Columns of which the messages lose something, and what, by changefeed and table.
    lossy: Mapping[tuple[str, TableName], Mapping[str, str]] = field(default_factory=dict)
    # The last order to load a table anew, by changefeed and table.
    reloads: Mapping[tuple[str, TableName], Reload] = field(default_factory=dict)
    # What an operator has decided about a DDL that holds a table, and is not carried out yet.
    decided: Mapping[tuple[str, TableName], str] = field(default_factory=dict)

    def reload_of(self, row: ProgressRow) -> Reload | None:
        return self.reloads.get((row.changefeed_id, row.name))

    def is_running(self, row: ChangefeedRow | ProgressRow) -> bool:
        return row.changefeed_id not in self.not_running

    def state(self, row: ChangefeedRow | ProgressRow) -> str:
        """The state to show, for tables too: a row of progress is only written when its table
        moves."""
        if isinstance(row, ProgressRow) and row.state != DROPPED:
            order = self.reload_of(row)
            if order is not None and order.is_open:
                return "reloading"
        is_shown = self.is_running(row) or row.state in (DROPPED, STOPPED)
        if not is_shown:
            return NOT_RUNNING
        return "loading" if row.state == REPLICATING and self._is_loading(row) else row.state

    def _is_loading(self, row: ChangefeedRow | ProgressRow) -> bool:
        """Whether tables of its changefeed show rows of different moments still."""
        return any(
            each.changefeed_id == row.changefeed_id and each.state == "loading"
            for each in self.changefeeds
        )

    def measured(self, row: ChangefeedRow) -> ChangefeedRow:
        """The row without old measurements, which do not hold if nobody reads any more."""
        if self.is_running(row):
            return row
        return replace(row, messages_behind=None, messages_per_s=None, time_left_s=None)

    def refresh_age_s(self, row: ChangefeedRow) -> float:
        """Seconds since the row was written; 0 if the writer's clock is ahead of ours."""
        return max(0.0, refresh_age_s(row, self.now))

    def lag_s(self, checkpoint_ts: int) -> float | None:
        """Seconds from a checkpoint (TiDB's clock) to now (this machine's clock); None if there is
        no checkpoint yet. 0 where the clocks differ, and the checkpoint is of a time to come."""
        at = checkpoint_time(checkpoint_ts)
        return max(0.0, (self.now - at).total_seconds()) if at is not None else None

    def source_left_s(self, row: ChangefeedRow) -> float | None:
        """Seconds until the source may delete messages that the changefeed needs; None if that is
        not known. The time since the row was written is subtracted: nobody updates the row of a
        paused changefeed."""
        if row.source_left_s is None:
            return None
        return max(0.0, row.source_left_s - (self.now - row.updated_at).total_seconds())

    def to_json(self) -> dict[str, Any]:
        return {
            "changefeeds": [
                {
                    **asdict(self.measured(row)),
                    "state": self.state(row),
                    "last_state": row.state,
                    "refresh_age_s": self.refresh_age_s(row),
                    "source_left_s": self.source_left_s(row),
                    "checkpoint_time": checkpoint_time(row.checkpoint_ts),
                    "resolved_time": checkpoint_time(row.resolved_ts),
                    "lag_s": self.lag_s(row.checkpoint_ts),
                    "without_watermark": without_watermark(row),
                    "awaits": awaited(row) or None,
                    "delivery": delivery(row),
                    "slowest_part": slowest_part(row),
                }
                for row in self.changefeeds
            ],
            "spans": [
                {
                    **asdict(row),
                    "state": self.state(row),
                    "last_state": row.state,
                    "checkpoint_time": checkpoint_time(row.checkpoint_ts),
                    "lag_s": None if row.state == DROPPED else self.lag_s(row.checkpoint_ts),
                    "lossy_columns": self.lossy.get((row.changefeed_id, row.name), {}),
                    "reload": _told(self.reload_of(row)),
                    "decided": self.decided.get((row.changefeed_id, row.name)),
                }
                for row in self.spans
            ],
        }


def read_progress(
    sink: DeltaSink, changefeed_id: str | None, freshness: Freshness
) -> ProgressReport:
    """The progress of all changefeeds in the warehouse, or of the named one. Blocks for some
    seconds if it must find out whether anybody is there. Raises ConfigError or another
    TidelakeError if there is none."""
    rows, not_running = freshness.look(lambda: changefeed_rows(sink, changefeed_id))
    wanted = {row.changefeed_id for row in rows}
    tables = ControlTables.of(sink)
    spans = tables.progress.read_all()
    counts = open_letters(sink, wanted)
    of_tables = (
        with_letters(span, counts[span.changefeed_id].get(span.name, 0))
        for span in spans
        if span.changefeed_id in wanted
    )
    return ProgressReport(
        changefeeds=tuple(
            replace(row, dead_letters=sum(counts[row.changefeed_id].values())) for row in rows
        ),
        spans=tuple(of_tables),
        now=datetime.now(UTC),
        not_running=not_running,
        lossy=_lossy(rows, spans, tables.schemas),
        reloads={(each.changefeed_id, each.name): each for each in tables.reloads.read_all()},
        decided=_decided(tables, rows, spans),
    )


def _decided(
    tables: ControlTables, feeds: Iterable[ChangefeedRow], spans: Iterable[ProgressRow]
) -> dict[tuple[str, TableName], str]:
    reached = {(each.changefeed_id, each.name): each.checkpoint_ts for each in spans}
    wanted = {each.changefeed_id for each in feeds}
    return {
        (each.changefeed_id, each.name): f"{each.action} of the DDL at commit-ts {each.commit_ts}"
        for each in tables.blocked_ddls.read_all()
        if each.action is not None
        and each.changefeed_id in wanted
        and reached.get((each.changefeed_id, each.name), 0) < each.commit_ts
    }


def how_far(order: Reload) -> str:
    """A sentence about an order that is not done."""
    at = f"ordered at {order.ordered_at:%F %T} UTC"
    what = f"table {order.name} is to be loaded anew ({at})"
    if order.state == "ordered":
        return (
            f"{what}: a `tidelake run` that is up, or a cluster's leader, begins it within "
            "seconds, else the next start; for a topic of TiCDC one with the tidb:// URI"
        )
    if order.state == "given up":
        return f"table {order.name} was not loaded anew ({at}): {order.error}"
    return (
        f"{what}: {order.state}, {order.rows:,} of about {order.of_rows:,} rows at "
        f"{order.updated_at:%T}; the other tables wait for it"
    )


def _told(order: Reload | None) -> dict[str, Any] | None:
    if order is None:
        return None
    names = ("state", "ordered_at", "updated_at", "rows", "of_rows", "error")
    return {name: getattr(order, name) for name in names}


def _lossy(
    rows: Iterable[ChangefeedRow], spans: Iterable[ProgressRow], schemas: Schemas
) -> dict[tuple[str, TableName], Mapping[str, str]]:
    """What is lost of which columns of the tables that are there."""
    there = {(span.changefeed_id, span.name) for span in spans if span.state != DROPPED}
    found = {
        row.changefeed_id: lossy_tables(row, partial(schemas.newest, row.changefeed_id))
        for row in rows
    }
    return {
        (changefeed_id, name): columns
        for changefeed_id, of in found.items()
        for name, columns in of.items()
        if (changefeed_id, name) in there
    }


def checkpoint_time(ts: int) -> datetime | None:
    """The time of a TSO; None for a TSO such as 0 or 1, which means the beginning and is no
    time."""
    at = tso_time(ts)
    return at if at >= BEGINNING + timedelta(days=1) else None


def slowest_part(row: ChangefeedRow) -> str | None:
    """The part with the lowest watermark, which is the changefeed's. None while a part
    has no watermark yet.
    """
    if not row.watermarks or row.source_positions.keys() - row.watermarks.keys():
        return None
    return min(sorted(row.watermarks), key=lambda part: row.watermarks[part].ts)


def holds_back(row: ChangefeedRow) -> bool:
    """Whether the slowest partition holds others back: it is behind them, while messages wait or by
    more than the moment that TiCDC needs to send one watermark to all."""
    marks = [each.ts for each in row.watermarks.values()]
    apart_ms = (max(marks) - min(marks)) >> TSO_LOGICAL_BITS if marks else 0
    return apart_ms > (0 if row.messages_behind else APART_MS)


def falls_behind(row: ChangefeedRow) -> bool:
    """Whether there is a backlog of some size that will not end at the measured rates."""
    behind, per_s = row.messages_behind, row.messages_per_s
    is_measured = is_moving(row) and behind is not None and bool(per_s)
    return is_measured and row.time_left_s is None and (behind or 0) > (per_s or 0.0) * NEARLY_S


def is_moving(row: ChangefeedRow) -> bool:
    """Whether the changefeed's lag has a meaning: it has none once it is finished."""
    return row.state != "finished"


def changefeed_rows(sink: DeltaSink, changefeed_id: str | None) -> tuple[ChangefeedRow, ...]:
    """The rows of all changefeeds, or of the named one. ConfigError: there is no such
    changefeed."""
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


def open_letters(
    sink: DeltaSink, changefeed_ids: Iterable[str]
) -> dict[str, dict[TableName | None, int]]:
    """How many open dead letters each table has, by changefeed: also those that were handled while
    nobody refreshed the rows."""
    dead_letters = DeadLetters(sink.warehouse, revealed_options(sink.storage_options))
    return {each: dead_letters.counts(each) for each in changefeed_ids}
