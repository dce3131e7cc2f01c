"""The owner's control rows: what stands in Delta, and the next of it, in order (rule 6).

schemas ─► progress ─► the changefeed's row ─► ledger    one call of ``write``, one thread at a time
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName, Ts
from coordination.ports import Advance
from coordination.scheduler.coordinator import SpanProgress
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import DROPPED, ProgressRow
from sinks.control.schemas import SchemaRow
from sinks.control.warehouse import ControlTables
from streaming.apply.letters.dead_letter_writer import DeadLetterWriter
from streaming.changefeed.refused.lossy_tables import MissingValues
from streaming.changefeed.replicated_table import ReplicatedTable, schema_row
from streaming.changefeed.table_registry import TableRegistry
from streaming.owner.progress_rows import (
    all_is_well,
    counted,
    ended_progress,
    first_progress,
    made_again,
    resumed_progress,
)
from streaming.owner.rows import NONE_BLOCKED, Rows
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
    """The control rows of one term, and who writes them. ``as_shown`` makes the changefeed's row
    that others read."""

    dead_letters: DeadLetterWriter  # from `resume` on

    def __init__(
        self,
        tables: ControlTables,
        row: ChangefeedRow,
        spans: TableRegistry,
        as_shown: Callable[[ChangefeedRow], ChangefeedRow],
    ) -> None:
        self.spans = spans
        self.state = Rows(row=row, tables=spans)
        self._tables = tables
        self._as_shown = as_shown
        self._lock = threading.Lock()
        self._shown: ChangefeedRow | None = None
        self._written_at_s = time.monotonic()
        self._schemas: list[SchemaRow] = []  # to be written; again where they may be there
        self._is_told = False
        self._missing = MissingValues()

    @property
    def row(self) -> ChangefeedRow:
        return self.state.row

    @row.setter
    def row(self, row: ChangefeedRow) -> None:
        self.state.row = row

    @property
    def progress(self) -> Mapping[TableName, ProgressRow]:
        return self.state.progress

    @property
    def age_s(self) -> float:
        """The age of the changefeed's row."""
        return time.monotonic() - self._written_at_s

    @property
    def floor_ts(self) -> int:
        """See `Rows.floor_ts`."""
        return self.state.floor_ts

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
        self.state.progress = dict(before)
        tables = self.spans.values()
        found = [resumed_progress(each, before[each.name], self.row) for each in tables]
        self._write_progress([*found, *self._marks()])
        self.state.know(self.spans.values())
        self._note_schemas(self.spans.values())
        self.dead_letters = letters()

    def _marks(self) -> list[ProgressRow]:
        """The marks of dropped tables: the owner that dropped one may have died before it wrote the
        mark."""
        marks = []
        for name, at_ts in self.spans.ended.items():
            row = self.progress[name]
            row = row if row.state == DROPPED else ended_progress(row, at_ts, None)
            self.state.know_dropped(row)
            marks.append(row)
        return marks

    def add(self, tables: Sequence[tuple[ReplicatedTable, Mapping[str, int]]]) -> None:
        """Adds rows of new tables, with the positions from which each must be read: before anybody
        hears of them."""
        with self._lock:
            rows = [first_progress(table, self.row, begin) for table, begin in tables]
            self._write_progress([made_again(row, self.progress.get(row.name)) for row in rows])
            self.state.know(table for table, _ in tables)
            self._note_schemas(table for table, _ in tables)

    def end(self, ended: EndedSpan) -> None:
        """The table's row stays as a mark: rows and DDLs of the table at or below the DDL are
        old."""
        with self._lock:
            row = ended_progress(self.progress[ended.table.name], ended.at_ts, ended.version)
            self._write_progress([row])
            self.state.know_dropped(row)

    def altered(self, table: ReplicatedTable) -> None:
        """A DDL has run on the table; its writer may not know until the next change of it comes."""
        with self._lock:
            self.state.altered.setdefault(table.name, []).append(table)
            self._note_schemas([table])
            if table.null_dates:
                self._write_progress([counted(self.progress[table.name], table.null_dates)])

    def tell_dates(self, advance: Advance) -> None:
        """See `Rows.tell_dates`. Never blocks."""
        self.state.tell_dates(advance)

    def null_dates(self, name: TableName) -> Mapping[str, int]:
        """See `Rows.null_dates`."""
        return self.state.null_dates(name)

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
        blocked: Mapping[TableName, str] = NONE_BLOCKED,
    ) -> bool:
        """Write the captures' reports, and how far the owner has read. Returns whether its sync
        point is in the ledger now. The other values: see `Rows`."""
        state = self.state
        with self._lock:
            self._save_schemas()
            reported = state.reported(advance)
            self._look_at_letters_of(reported)
            self._write_progress(
                state.to_write(
                    reported,
                    advance.source_positions,
                    letters=self.dead_letters.counts,
                    unlogged=unlogged,
                    blocked=blocked,
                )
            )
            failpoint(Failpoint.AFTER_PROGRESS)
            row = state.row_after(
                advance,
                reading=reading,
                marks=marks,
                backlog=backlog,
                letters=self._letters,
                source_left_s=source_left_s,
            )
            if state.is_news(row) or not self.is_shown:
                self.save(row)
            failpoint(Failpoint.AFTER_CHANGEFEED)
            state.know_reported(reported)
            at_ts = advance.sync_point_ts
            is_published = at_ts is not None and self._publish(at_ts)
            if at_ts is None:
                self.publish_known()
            failpoint(Failpoint.AFTER_LEDGER)
            return is_published

    def _look_at_letters_of(self, reported: Iterable[SpanProgress]) -> None:
        """A capture has added some, or seen some handled."""
        told = {each.span.name: each.status.dead_letters for each in reported if each.status}
        counts = self.dead_letters.counts
        if any(counts.get(name, 0) != count for name, count in told.items()):
            self.dead_letters.refreshed()

    def never_there(self, target_ts: Ts, waiting: Collection[TableName]) -> str | None:
        """See `Rows.never_there`."""
        return self.state.never_there(target_ts, waiting)

    def look_at_letters(self) -> None:
        """Operators handle them beside us."""
        if self.dead_letters.have_news():
            with self._lock:
                self._write_progress(self.state.with_letters((), self.dead_letters.counts))
                self.save(replace(self.row, dead_letters=self._letters))

    @property
    def _letters(self) -> int:
        return sum(self.dead_letters.counts.values())

    def _publish(self, at_ts: Ts) -> bool:
        self.dead_letters.refreshed()
        if beyond := self.state.beyond(at_ts):
            logger.info("sync point passed over ts=%d beyond=%s", at_ts, beyond[0])
            return True
        snapshot = self.state.cut_at(at_ts, self._letters)
        if snapshot is None:
            logger.warning("not every table is exactly at the sync point ts=%d", at_ts)
            return False
        if snapshot.tables and at_ts > self.floor_ts:
            self._tables.snapshots.publish(snapshot, self.row.term)
        return True

    def publish_known(self) -> None:
        """The cut at the changefeed's checkpoint, where it is known: see `Rows.known_cut`."""
        snapshot = self.state.known_cut(self._letters)
        if snapshot is None:
            return
        self._tables.snapshots.publish(snapshot, self.row.term)
        at_ts = Ts(snapshot.primary_ts)
        if not self._is_told and all_is_well(self.progress.values(), at_ts, time.time()):
            self._is_told = True
            logger.info(
                "all is well: every table is there, and fresh tables=%d", len(snapshot.tables)
            )

    def _write_progress(self, rows: Iterable[ProgressRow]) -> None:
        changed = self.state.changed(rows)
        self._tables.progress.advance(changed, self.row.term)
        self.state.stand(changed)
