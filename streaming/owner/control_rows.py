"""The owner's control rows: what stands in Delta, and the next of it, in order (rule 6).

schemas ─► progress ─► the changefeed's row ─► ledger    one call of ``write``, one thread at a time
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName, Ts
from coordination.ports import Advance
from coordination.scheduler.messages import Span
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.earlier_owner import AGAIN
from sinks.control.progress import BLOCKED, DROPPED, ProgressRow
from sinks.control.schemas import SchemaRow
from sinks.control.warehouse import ControlTables
from streaming.apply.letters.dead_letter_writer import DeadLetterWriter
from streaming.changefeed.refused.lossy_tables import MissingValues
from streaming.changefeed.replicated_table import ReplicatedTable, schema_row, span_of
from streaming.changefeed.table_registry import TableRegistry
from streaming.owner.progress_rows import (
    all_is_well,
    at_pins,
    counted,
    cut,
    ended_progress,
    first_progress,
    low_water,
    made_again,
    past_tables,
    reported_progress,
    resumed_progress,
    risen,
    there_at,
    with_blocked,
    with_letters,
    with_unlogged,
)
from streaming.source.resolved.limits import Marks
from streaming.stream.backlog import Backlog

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedSpan:
    """The span of a table that a DDL has dropped. ``version``: the last one that had its rows, if
    known."""

    table: ReplicatedTable  # as it was
    at_ts: Ts
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamedSpans:
    """The spans of tables that a RENAME TABLE has renamed: ``ended`` under their old names,
    ``made`` under their new ones, which may be others' old ones. A dropped table that is back is
    only ``made``."""

    ended: tuple[EndedSpan, ...]
    made: tuple[ReplicatedTable, ...]


class ControlRows:
    """The control rows of one term. ``row`` is the changefeed's; ``as_shown`` makes the row that
    others read."""

    dead_letters: DeadLetterWriter  # from `resume` on

    def __init__(
        self,
        tables: ControlTables,
        row: ChangefeedRow,
        spans: TableRegistry,
        as_shown: Callable[[ChangefeedRow], ChangefeedRow],
    ) -> None:
        self.row = row
        self.spans = spans
        self.progress: dict[TableName, ProgressRow] = {}
        self._tables = tables
        self._as_shown = as_shown
        self._lock = threading.Lock()
        self._shown: ChangefeedRow | None = None
        self._written_at_s = time.monotonic()
        self._told_dates: dict[TableName, tuple[Span, Mapping[str, int]]] = {}
        # At which ts a table's Delta version is known exactly: its progress row does not say it.
        self._known: dict[TableName, tuple[Ts, int | None]] = {}
        self._altered: dict[TableName, list[ReplicatedTable]] = {}  # as it was after each DDL
        self._schemas: list[SchemaRow] = []  # to be written; again where they may be there
        self._last_cut_ts = 0
        self._is_told = False
        self._missing = MissingValues()

    @property
    def age_s(self) -> float:
        """The age of the changefeed's row."""
        return time.monotonic() - self._written_at_s

    @property
    def floor_ts(self) -> int:
        """No snapshot is published at or below this ts. Either it was published already, or a
        rewound table still shows later rows."""
        return max(self.row.max_published_ts, self.spans.shown_ts)

    def resume(
        self,
        before: Mapping[TableName, ProgressRow],
        letters: Callable[[], DeadLetterWriter],
    ) -> None:
        """Take up the tables of these rows, and say so in them; the dead letters come after."""
        self.spans.resume(before)
        self._tables.snapshots.forget(
            self.row.changefeed_id, self.spans.older_copies, self.row.term
        )
        self.progress = dict(before)
        tables = self.spans.values()
        found = [resumed_progress(each, before[each.name], self.row) for each in tables]
        self._write_progress([*found, *self._marks()])
        self._know(self.spans.values())
        self._note_schemas(self.spans.values())
        self.dead_letters = letters()

    def _marks(self) -> list[ProgressRow]:
        """The marks of dropped tables: the owner that dropped one may have died before it wrote the
        mark."""
        marks = []
        for name, at_ts in self.spans.ended.items():
            row = self.progress[name]
            row = row if row.state == DROPPED else ended_progress(row, at_ts, None)
            self._know_dropped(row)
            marks.append(row)
        return marks

    def add(self, tables: Sequence[tuple[ReplicatedTable, Mapping[str, int]]]) -> None:
        """Adds rows of new tables, with the positions from which each must be read: before anybody
        hears of them."""
        with self._lock:
            rows = [first_progress(table, self.row, begin) for table, begin in tables]
            self._write_progress([made_again(row, self.progress.get(row.name)) for row in rows])
            self._know(table for table, _ in tables)
            self._note_schemas(table for table, _ in tables)

    def end(self, ended: EndedSpan) -> None:
        """The table's row stays as a mark: rows and DDLs of the table at or below the DDL are
        old."""
        with self._lock:
            row = ended_progress(self.progress[ended.table.name], ended.at_ts, ended.version)
            self._write_progress([row])
            self._know_dropped(row)

    def altered(self, table: ReplicatedTable) -> None:
        """A DDL has run on the table; its writer may not know until the next change of it comes."""
        with self._lock:
            self._altered.setdefault(table.name, []).append(table)
            self._note_schemas([table])
            if table.null_dates:
                self._write_progress([counted(self.progress[table.name], table.null_dates)])

    def tell_dates(self, advance: Advance) -> None:
        """A DDL must know them, before rows of progress are written. Never blocks."""
        for each in advance.spans:
            if each.status is not None and each.status.null_dates:
                self._told_dates[each.span.name] = each.span, each.status.null_dates

    def null_dates(self, name: TableName) -> Mapping[str, int]:
        """By column, dates that are NULL in the table."""
        row, (span, told) = self.progress[name], self._told_dates.get(name, (None, {}))
        is_current = span is not None and self._is_current(span)
        return counted(row, told).null_dates if is_current else row.null_dates

    def _know_dropped(self, row: ProgressRow) -> None:
        """Right below the DDL."""
        self._altered.pop(row.name, None)
        self._known.pop(row.name, None)
        if row.delta_version is not None:
            self._known[row.name] = Ts(row.checkpoint_ts - 1), row.delta_version

    def _know(self, tables: Iterable[ReplicatedTable]) -> None:
        """Identity and version of each are from one handle, and nobody has written since."""
        for table in tables:
            if table.is_blocked:
                continue  # what it shows is not what its row says
            if table.last_ddl_ts:
                self._altered[table.name] = [table]
            if table.version_ts <= table.checkpoint:
                self._known[table.name] = (table.checkpoint, table.version)

    def _note_schemas(self, tables: Iterable[ReplicatedTable]) -> None:
        known = list(tables)
        rows = (schema_row(table, self.row.changefeed_id) for table in known)
        self._schemas += filter(None, rows)
        for table in known:
            if table.target is not None:
                self._missing.tell(table.name, table.target.schema, self.spans.forms.lossy)

    def save_schemas(self) -> None:
        """Before the next DDL: a table's own properties have its newest shape only, so that a later
        owner could not add an older one."""
        with self._lock:
            self._save_schemas()

    def _save_schemas(self) -> None:
        if self._schemas:
            self._tables.schemas.add(self._schemas)
            self._schemas = []

    @property
    def is_shown(self) -> bool:
        """Whether others read how it stands now."""
        return self._as_shown(self.row) == self._shown

    def save(self, row: ChangefeedRow) -> None:
        self._shown = self._as_shown(row)
        self._tables.changefeeds.save(self._shown)
        self.row = row
        self._written_at_s = time.monotonic()

    def refresh(self, older_s: float) -> None:
        """Write the changefeed's row again if it is older, or if others are shown another row."""
        if self.age_s > older_s or not self.is_shown:
            self.save(self.row)

    def write(
        self,
        advance: Advance,
        *,
        reading: Mapping[str, int],
        marks: Marks,
        backlog: Backlog,
        source_left_s: float | None,
        unlogged: Collection[TableName] = (),
        blocked: Mapping[TableName, str] = MappingProxyType({}),
    ) -> bool:
        """Write the captures' reports, and how far the owner has read. Returns whether its sync
        point is in the ledger now. ``reading``: the owner's own low water; ``unlogged``: tables of
        which the source does not tell all; ``blocked``: tables that wait, and why."""
        with self._lock:
            self._save_schemas()
            reported = [each for each in advance.spans if self._is_current(each.span)]
            moved = [
                self._with_ddl(
                    reported_progress(self.progress[each.span.name], each, advance.source_positions)
                )
                for each in reported
            ]
            told = {each.span.name: each.status.dead_letters for each in reported if each.status}
            counts = self.dead_letters.counts
            if any(counts.get(name, 0) != count for name, count in told.items()):
                self.dead_letters.refreshed()  # a capture has added some, or seen some handled
            written = with_unlogged(self._with_letters(moved), self.progress, unlogged)
            self._write_progress(with_blocked(written, self.progress, blocked))
            failpoint(Failpoint.AFTER_PROGRESS)
            row = replace(
                self._row_after(advance, reading, marks, backlog), source_left_s=source_left_s
            )
            if self._is_news(row) or not self.is_shown:
                self.save(row)
            failpoint(Failpoint.AFTER_CHANGEFEED)
            at_ts = advance.sync_point_ts
            for each in reported:  # checkpoint and version of one moment, by who writes them
                status = each.status
                if status is not None and status.delta_version is not None:
                    at, version = status.checkpoint_ts, status.delta_version
                    self._known[each.span.name] = (at, self._version(each.span.name, at, version))
            is_published = at_ts is not None and self._publish(at_ts)
            if at_ts is None:
                self.publish_known()
            failpoint(Failpoint.AFTER_LEDGER)
            return is_published

    def never_there(self, target_ts: Ts, waiting: Collection[TableName]) -> str | None:
        """Why the target-ts is not reached: the other tables are there, and one waits for an
        operator. ``waiting``: tables that wait at a DDL; these are looked at elsewhere."""
        rows = [row for row in self.progress.values() if row.state != DROPPED]
        blocked = [row for row in rows if row.state == BLOCKED and row.name not in waiting]
        others = [row for row in rows if row.state != BLOCKED]
        is_there = blocked and all(row.checkpoint_ts >= target_ts for row in others)
        return blocked[0].error if is_there else None

    def _with_letters(self, moved: Iterable[ProgressRow]) -> list[ProgressRow]:
        """The rows to write: those that moved, and those with another number of letters."""
        counts = self.dead_letters.counts
        rows = self.progress | {row.name: row for row in moved}
        found = (with_letters(row, counts.get(name, 0)) for name, row in rows.items())
        return [row for row in found if row is not self.progress.get(row.name)]

    def look_at_letters(self) -> None:
        """Operators handle them beside us."""
        if self.dead_letters.have_news():
            with self._lock:
                self._write_progress(self._with_letters(()))
                self.save(replace(self.row, dead_letters=self._letters))

    def _is_current(self, span: Span) -> bool:
        """Not of a table that was dropped, whatever is of its name now."""
        table = self.spans.get(span.name)
        if table is None or span.name not in self.progress:
            return False
        return span == span_of(table, self.row.incarnation)

    def _with_ddl(self, row: ProgressRow) -> ProgressRow:
        version = self._version(row.name, row.checkpoint_ts, row.delta_version)
        return replace(row, delta_version=version)

    def _version(self, name: TableName, checkpoint_ts: int, version: int | None) -> int | None:
        """A table without a change since its DDL is at the version that the DDL made, whether its
        writer knows that or not. The next DDL may have run before the report is looked at."""
        after = self._altered.get(name, [])
        reached = [each for each in after if max(each.version_ts, each.checkpoint) <= checkpoint_ts]
        if not reached:
            return version
        self._altered[name] = after[len(reached) - 1 :]
        return max(version or 0, reached[-1].version or 0)

    def _row_after(
        self, advance: Advance, reading: Mapping[str, int], marks: Marks, backlog: Backlog
    ) -> ChangefeedRow:
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
            dead_letters=self._letters,
            error=None,
            error_code=None,
        )

    def _is_news(self, row: ChangefeedRow) -> bool:
        """Where nothing comes, only the rate changes, and nobody needs to read that each second."""
        before = self.row
        rate, left_s = before.messages_per_s, before.time_left_s
        same = replace(row, messages_per_s=rate, time_left_s=left_s)
        return replace(same, source_left_s=before.source_left_s) != before

    @property
    def _letters(self) -> int:
        return sum(self.dead_letters.counts.values())

    def _publish(self, at_ts: Ts) -> bool:
        self.dead_letters.refreshed()
        # Copies, here and below: the applying thread makes and drops tables meanwhile.
        created = {name: table.created_ts for name, table in list(self.spans.items())}
        beyond = past_tables(self.progress.values(), at_ts, created)
        if beyond := [*beyond, *self._ended_past(at_ts)]:
            logger.info("sync point passed over ts=%d beyond=%s", at_ts, beyond[0])
            return True
        snapshot = cut(self.row.changefeed_id, self.progress.values(), at_ts, self._letters)
        if snapshot is None:
            logger.warning("not every table is exactly at the sync point ts=%d", at_ts)
            return False
        if snapshot.tables and at_ts > self.floor_ts:
            self._tables.snapshots.publish(snapshot, self.row.term)
        return True

    def publish_known(self) -> None:
        """The cut at the changefeed's checkpoint, if every table was seen exactly there and the
        checkpoint is above ``floor_ts`` (rule 7); once."""
        row, at_ts = self.row, Ts(self.row.checkpoint_ts)
        if at_ts <= max(self.floor_ts, self._last_cut_ts) or row.state in AGAIN:
            return
        tables = there_at(self.progress.values(), at_ts)
        if any(self._known.get(each.name) != (at_ts, each.delta_version) for each in tables):
            return
        if self._ended_past(at_ts):
            return
        self._last_cut_ts = at_ts
        snapshot = cut(row.changefeed_id, tables, at_ts, self._letters) if tables else None
        if snapshot is not None:
            self._tables.snapshots.publish(snapshot, row.term)
            if not self._is_told and all_is_well(self.progress.values(), at_ts, time.time()):
                self._is_told = True
                logger.info("all is well: every table is there, and fresh tables=%d", len(tables))

    def _ended_past(self, at_ts: Ts) -> list[TableName]:
        """Tables that were in the cut and are dropped since, and whose version at that ts nobody
        knows: the owner that dropped one may have died before it wrote that down."""
        ended = (name for name, ts in list(self.spans.ended.items()) if ts > at_ts)
        return [name for name in ended if self._known.get(name, (0, None))[0] != at_ts]

    def _write_progress(self, rows: Iterable[ProgressRow]) -> None:
        changed = [row for row in rows if row != self.progress.get(row.name)]
        self._tables.progress.advance(changed, self.row.term)
        self.progress.update((row.name, row) for row in changed)
