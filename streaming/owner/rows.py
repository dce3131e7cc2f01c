"""The control rows of one term as a value: what stands in Delta, and what is to be written next
(rules 6 and 7). Nothing here asks storage or a clock; `ControlRows` writes, in order.

    reports of captures ──to_write──► progress rows ──row_after──► the changefeed's row
                                             └──cut_at, known_cut──► a line of the ledger
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from coordination.model import TableName, Ts
from coordination.ports import Advance
from coordination.scheduler.coordinator import SpanProgress
from coordination.scheduler.messages import Span
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.earlier_owner import AGAIN
from sinks.control.progress import BLOCKED, DROPPED, ProgressRow
from sinks.control.snapshots import SnapshotRow
from streaming.changefeed.replicated_table import ReplicatedTable, span_of
from streaming.changefeed.tables import Tables
from streaming.owner.progress_rows import (
    at_pins,
    counted,
    cut,
    low_water,
    past_tables,
    reported_progress,
    risen,
    there_at,
    with_blocked,
    with_letters,
    with_unlogged,
)
from streaming.source.resolved.limits import Marks
from streaming.stream.backlog import Backlog

NONE_BLOCKED: Mapping[TableName, str] = MappingProxyType({})


@dataclass(slots=True, kw_only=True)
class Rows:
    """``row`` is the changefeed's. ``tables``: those of the term; another thread makes and drops
    them meanwhile."""

    row: ChangefeedRow
    tables: Tables
    progress: dict[TableName, ProgressRow] = field(default_factory=dict)
    # Dates that are NULL, as captures told them, before rows of progress are written.
    told_dates: dict[TableName, tuple[Span, Mapping[str, int]]] = field(default_factory=dict)
    # At which ts a table's Delta version is known exactly: its progress row does not say it.
    known: dict[TableName, tuple[Ts, int | None]] = field(default_factory=dict)
    altered: dict[TableName, list[ReplicatedTable]] = field(default_factory=dict)  # after each DDL
    last_cut_ts: int = 0

    @property
    def floor_ts(self) -> int:
        """No snapshot is published at or below this ts. Either it was published already, or a
        rewound table still shows later rows."""
        return max(self.row.max_published_ts, self.tables.shown_ts)

    # What is known of the tables.

    def know(self, tables: Iterable[ReplicatedTable]) -> None:
        """Identity and version of each are from one handle, and nobody has written since."""
        for table in tables:
            if table.is_blocked:
                continue  # what it shows is not what its row says
            if table.last_ddl_ts:
                self.altered[table.name] = [table]
            if table.version_ts <= table.checkpoint:
                self.known[table.name] = (table.checkpoint, table.version)

    def know_dropped(self, row: ProgressRow) -> None:
        """Right below the DDL."""
        self.altered.pop(row.name, None)
        self.known.pop(row.name, None)
        if row.delta_version is not None:
            self.known[row.name] = Ts(row.checkpoint_ts - 1), row.delta_version

    def know_reported(self, reported: Iterable[SpanProgress]) -> None:
        """Checkpoint and version of one moment, by who writes them."""
        for each in reported:
            status = each.status
            if status is not None and status.delta_version is not None:
                at, version = status.checkpoint_ts, status.delta_version
                self.known[each.span.name] = (at, self._version(each.span.name, at, version))

    def tell_dates(self, advance: Advance) -> None:
        """A DDL must know them, before rows of progress are written."""
        for each in advance.spans:
            if each.status is not None and each.status.null_dates:
                self.told_dates[each.span.name] = each.span, each.status.null_dates

    def null_dates(self, name: TableName) -> Mapping[str, int]:
        """By column, dates that are NULL in the table."""
        row, (span, told) = self.progress[name], self.told_dates.get(name, (None, {}))
        is_current = span is not None and self._is_current(span)
        return counted(row, told).null_dates if is_current else row.null_dates

    # Progress.

    def reported(self, advance: Advance) -> list[SpanProgress]:
        """The reports of tables that are there still."""
        return [each for each in advance.spans if self._is_current(each.span)]

    def to_write(
        self,
        reported: Iterable[SpanProgress],
        source_positions: Mapping[str, int],
        *,
        letters: Mapping[TableName | None, int],
        unlogged: Collection[TableName] = (),
        blocked: Mapping[TableName, str] = NONE_BLOCKED,
    ) -> list[ProgressRow]:
        """The rows of progress after these reports. ``letters``: open dead letters by table;
        ``unlogged``: tables of which the source does not tell all; ``blocked``: tables that wait,
        and why."""
        moved = [
            self._with_ddl(reported_progress(self.progress[each.span.name], each, source_positions))
            for each in reported
        ]
        written = with_unlogged(self.with_letters(moved, letters), self.progress, unlogged)
        return with_blocked(written, self.progress, blocked)

    def with_letters(
        self, moved: Iterable[ProgressRow], letters: Mapping[TableName | None, int]
    ) -> list[ProgressRow]:
        """The rows to write: those that moved, and those with another number of letters."""
        rows = self.progress | {row.name: row for row in moved}
        found = (with_letters(row, letters.get(name, 0)) for name, row in rows.items())
        return [row for row in found if row is not self.progress.get(row.name)]

    def changed(self, rows: Iterable[ProgressRow]) -> list[ProgressRow]:
        """Those that are others than what stands."""
        return [row for row in rows if row != self.progress.get(row.name)]

    def stand(self, rows: Iterable[ProgressRow]) -> None:
        """These are written."""
        self.progress.update((row.name, row) for row in rows)

    def never_there(self, target_ts: Ts, waiting: Collection[TableName]) -> str | None:
        """Why the target-ts is not reached: the other tables are there, and one waits for an
        operator. ``waiting``: tables that wait at a DDL; these are looked at elsewhere."""
        rows = [row for row in self.progress.values() if row.state != DROPPED]
        blocked = [row for row in rows if row.state == BLOCKED and row.name not in waiting]
        others = [row for row in rows if row.state != BLOCKED]
        is_there = blocked and all(row.checkpoint_ts >= target_ts for row in others)
        return blocked[0].error if is_there else None

    def _is_current(self, span: Span) -> bool:
        """Not of a table that was dropped, whatever is of its name now."""
        table = self.tables.get(span.name)
        if table is None or span.name not in self.progress:
            return False
        return span == span_of(table, self.row.incarnation)

    def _with_ddl(self, row: ProgressRow) -> ProgressRow:
        version = self._version(row.name, row.checkpoint_ts, row.delta_version)
        return replace(row, delta_version=version)

    def _version(self, name: TableName, checkpoint_ts: int, version: int | None) -> int | None:
        """A table without a change since its DDL is at the version that the DDL made, whether its
        writer knows that or not. The next DDL may have run before the report is looked at."""
        after = self.altered.get(name, [])
        reached = [each for each in after if max(each.version_ts, each.checkpoint) <= checkpoint_ts]
        if not reached:
            return version
        self.altered[name] = after[len(reached) - 1 :]
        return max(version or 0, reached[-1].version or 0)

    # The changefeed's row.

    def row_after(
        self,
        advance: Advance,
        *,
        reading: Mapping[str, int],
        marks: Marks,
        backlog: Backlog,
        letters: int,
        source_left_s: float | None = None,
    ) -> ChangefeedRow:
        """``reading``: the owner's own low water."""
        row = self.row
        checkpoint_ts = max(row.checkpoint_ts, advance.checkpoint_ts)
        watermarks = risen(row.watermarks, marks)
        positions = low_water(row, advance, reading, self.progress.values())
        is_again = row.state in AGAIN and checkpoint_ts <= self.floor_ts
        return replace(
            row,
            **backlog.columns(),
            state="finished" if advance.finished else row.state if is_again else "running",
            checkpoint_ts=checkpoint_ts,
            resolved_ts=max(row.resolved_ts, advance.resolved_ts, checkpoint_ts),
            max_published_ts=self.floor_ts,
            source_positions=at_pins(positions, watermarks, row.source_positions),
            watermarks=watermarks,
            dead_letters=letters,
            source_left_s=source_left_s,
            error=None,
            error_code=None,
        )

    def is_news(self, row: ChangefeedRow) -> bool:
        """Where nothing comes, only the rate changes, and nobody needs to read that each second."""
        before = self.row
        rate, left_s = before.messages_per_s, before.time_left_s
        same = replace(row, messages_per_s=rate, time_left_s=left_s)
        return replace(same, source_left_s=before.source_left_s) != before

    # The ledger.

    def beyond(self, at_ts: Ts) -> list[TableName]:
        """The tables that cannot be shown as of this sync point any more."""
        # A copy: the applying thread makes and drops tables meanwhile.
        created = {name: table.created_ts for name, table in list(self.tables.items())}
        return [*past_tables(self.progress.values(), at_ts, created), *self._ended_past(at_ts)]

    def cut_at(self, at_ts: Ts, letters: int) -> SnapshotRow | None:
        """The cut at a sync point; None while a table is below it."""
        return cut(self.row.changefeed_id, self.progress.values(), at_ts, letters)

    def known_cut(self, letters: int) -> SnapshotRow | None:
        """The cut at the changefeed's checkpoint, if every table was seen exactly there and the
        checkpoint is above ``floor_ts`` (rule 7); once."""
        row, at_ts = self.row, Ts(self.row.checkpoint_ts)
        if at_ts <= max(self.floor_ts, self.last_cut_ts) or row.state in AGAIN:
            return None
        tables = there_at(self.progress.values(), at_ts)
        if any(self.known.get(each.name) != (at_ts, each.delta_version) for each in tables):
            return None
        if self._ended_past(at_ts):
            return None
        self.last_cut_ts = at_ts
        return cut(row.changefeed_id, tables, at_ts, letters) if tables else None

    def _ended_past(self, at_ts: Ts) -> list[TableName]:
        """Tables that were in the cut and are dropped since, and whose version at that ts nobody
        knows: the owner that dropped one may have died before it wrote that down."""
        ended = (name for name, ts in list(self.tables.ended.items()) if ts > at_ts)
        return [name for name in ended if self.known.get(name, (0, None))[0] != at_ts]
