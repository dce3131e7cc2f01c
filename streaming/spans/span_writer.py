"""What a capture does with its spans' rows: join, carry, apply. A role of the stream.

    new ──its rows are wanted from the next read on──► coming ──earlier rows, from its low water to
    that read, are read──► joined: all its unapplied rows are in the carry ──its table is opened, as
    its log has it──► written, up to min(L, barrier) ──gone from `AssignedSpans`──► forgotten, and
    not wanted any more

Only rows of these spans are decoded (docs/cluster.md 3). Each span has its own low water: the
positions of the first messages that it has not applied. From there any capture can take it over.
Three threads use it. The worker begins newcomers and reads their earlier rows, the reading thread
asks which rows are wanted (both by `JoiningSpans`), and the applying thread does all else.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from coordination.errors import TryAgain
from coordination.failpoint import Failpoint, failpoint
from coordination.model import NO_TS, TableName, Ts, lowest
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import ProgressRow
from sinks.target.write_mode import UPSERT
from streaming.apply.applier import DueTable
from streaming.apply.newest_whole_row import newest_whole_row
from streaming.apply.row_block import RowsGone
from streaming.apply.table_task import TableTask
from streaming.changefeed.replicated_table import ReplicatedTable, span_of
from streaming.protocols.contract import Block, Kind, Wanted
from streaming.source.positions import Positions
from streaming.spans.assigned_spans import AppliedSpan, AssignedSpans, Assignment
from streaming.spans.joining_spans import JoiningSpan, JoiningSpans, stored_low_water, wanted_of
from streaming.spans.log_lines import SpanLogLines
from streaming.spans.span_guard import SpanGuard
from streaming.spans.troubled_tables import TroubledTables, opened_or_held
from streaming.stream.read import Read
from streaming.stream.role import StreamRole
from streaming.stream.role_context import RoleContext
from streaming.stream.schema_cache import PastSchemaCache

logger = logging.getLogger(__name__)
ProgressRows = Mapping[TableName, ProgressRow]


@dataclass(slots=True, kw_only=True)
class _Joined:
    assignment: Assignment
    is_written: bool = False
    is_over: bool = False  # its table was dropped: the owner takes the span away


class SpanWriter(StreamRole):
    """Writes the spans of one incarnation of the changefeed, as long as this capture has one."""

    def __init__(
        self,
        context: RoleContext,
        row: ChangefeedRow,
        held: AssignedSpans,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        super().__init__(on_failed)
        self._context = context
        self._incarnation = row.incarnation
        self._held = held
        self._stream = context.stream
        self._spans = context.spans(row)
        self._dead_letters = context.dead_letters(row)
        self._permit = SpanGuard(context, held, self.applied)
        self._carry = context.carry()
        self._log = SpanLogLines(self._stream.name, carry_warn_rows=context.batch.carry_warn_rows)
        self._older = PastSchemaCache(
            context.changefeed,
            lambda name: context.tables.schemas.of_table(context.changefeed.id, name),
        )
        self._applier = context.applier(self._spans, self._dead_letters, self._permit, self._older)
        self._troubled = TroubledTables(context.concerns)
        self.newcomers = JoiningSpans(self._stream)
        self.has_lost_rows = False  # then another writer must read everything again
        self._seen: tuple[object, ...] | None = None  # the inputs of the last `apply_due`
        self._taken = 0  # how many reads
        self._joined: dict[TableName, _Joined] = {}
        self._bad: list[Block] = []

    def close(self) -> None:
        """To be called after the writer has left the stream."""
        self._applier.close()
        self._carry.close()
        self._troubled.close()

    # Called by the worker.

    def known(self) -> set[int]:
        """The IDs of the assignments that have joined or are newcomers."""
        coming = self.newcomers.assignment_ids()  # first: a newcomer may join in between
        return coming | {each.assignment.id for each in list(self._joined.values())}

    def begin(self, held: Sequence[Assignment]) -> None:
        """Assignments that are not known yet become newcomers: their rows are wanted from the
        stream's next read on. Raises TryAgain where the control rows do not have them yet."""
        known = self.known()
        new = [each for each in held if each.id not in known]
        if not new:
            return
        row, rows = self._context.row(self._incarnation), self._context.progress()
        coming = []
        for each in new:
            table = self._table(each, rows)
            if table is None:
                raise TryAgain(f"table {each.name} was dropped: its span will be taken away")
            low_water = stored_low_water(row, rows.get(each.name))
            coming.append(JoiningSpan(assignment=each, table=table, low_water=low_water))
        self.newcomers.begin(coming)

    def _table(
        self, assignment: Assignment, rows: ProgressRows, at_least: Ts = NO_TS
    ) -> ReplicatedTable | None:
        """The table as its Delta log has it now; None if it was dropped, also if it was made again
        since: that table is another span's. Raises TryAgain while its progress row is missing or of
        another incarnation."""
        row = rows.get(assignment.name)
        if row is None:
            raise TryAgain(f"table {assignment.name} is in no progress row yet")
        if row.incarnation != self._incarnation:
            raise TryAgain(f"table {assignment.name} is of incarnation {row.incarnation} still")
        at_least = Ts(max(at_least, assignment.checkpoint_ts))
        table = self._spans.opened(assignment.name, row, at_least)
        is_same = span_of(table, self._incarnation) == assignment.span
        return table if is_same and not table.is_dropped else None

    @property
    def is_sound(self) -> bool:
        """Whether everything that may be written was, since it began or was told to retry."""
        return self._seen is not None and not (self.is_behind or self.has_lost_rows)

    def retry(self) -> None:
        self._seen = None
        self.newcomers.set_failed(has_failed=False)
        super().retry()

    # The role.

    def failed(self, error: BaseException) -> None:
        self.has_lost_rows |= isinstance(error, RowsGone)
        self._is_failed.set()
        self.newcomers.set_failed(has_failed=True)
        self._on_failed(error)

    def submit(self, begin: Positions) -> Wanted:
        return self.newcomers.submit(begin)

    def take(self, read: Read) -> None:
        if self.has_lost_rows:  # later reads are of no use without the lost one
            return
        started = time.monotonic()
        self._taken += 1
        self._applier.rows_wait(read.rows_wait)
        names = {each for each in {b.name for b in read.blocks} if self.newcomers.is_wanted(each)}
        with self._all_or_lost():
            rows = self._keep(block for block in read.blocks if block.name in names)
            failpoint(Failpoint.AFTER_DECODE)
        logger.debug(
            "took a read name=%s messages=%d rows=%d seconds=%.3f",
            *(self._stream.name, read.messages, rows),
            time.monotonic() - started,
        )

    def _keep(self, blocks: Iterable[Block]) -> int:
        """Put rows into the carry and bad messages aside. Returns how many rows there were."""
        rows = 0
        for block in blocks:
            if block.kind is Kind.ROW and block.body is not None:
                rows += block.rows
                self._carry.add(block)
            elif block.kind is Kind.BAD:
                self._bad.append(block)
        return rows

    @contextmanager
    def _all_or_lost(self) -> Iterator[None]:
        """An error within the context leaves rows half kept. The worker may ask meanwhile."""
        try:
            yield
        except BaseException:
            self.has_lost_rows = True
            raise

    def apply_due(self) -> None:
        """Write the rows that may be written by now, and publish how far all spans are."""
        if self.is_behind or self.has_lost_rows:
            return
        if self._dead_letters.have_news():
            self._seen = None
        resolved = self._stream.resolved_ts()
        seen = (self._held.changes, self._taken, self.newcomers.steps, resolved)
        if seen == self._seen and not self.is_held:
            return
        held = {each.id: each for each in self._held.assignments()}
        self._drop_leavers(held)
        self._take_in(held)
        self._open()
        self._open_again()
        self._write_bad()
        self.is_held = False
        for limit, names in sorted(self._due(resolved).items()):
            self._apply(limit, names)
        for joined in self._joined.values():
            self._trim(joined)
        tables = [self._spans[name] for name, each in self._joined.items() if each.is_written]
        self.is_held |= any(each.error for each in tables)
        self._troubled.tell(tables, time.monotonic())
        self._log.look_at_carry(self._carry, resolved, self._stream.watermarks)
        if self._publish(resolved):
            self._context.wake()
        self._seen = seen

    # Coming and going.

    def _drop_leavers(self, held: Mapping[int, Assignment]) -> None:
        for name, joined in list(self._joined.items()):
            assignment_id = joined.assignment.id
            if assignment_id in held:
                joined.assignment = held[assignment_id]  # fence and `is_to_write` may have changed
            else:
                del self._joined[name]
                self._dead_letters.say_stopped(name)
                self._spans.pop(name, None)
                self._forget(name)
        for name in self.newcomers.drop_all_but(held):
            self._forget(name)

    def _forget(self, name: TableName) -> None:
        if self.newcomers.forget(name):
            self._carry.forget(name)

    def _take_in(self, held: Mapping[int, Assignment]) -> None:
        blocks, ready = self.newcomers.take(held)
        with self._all_or_lost():
            self._keep(blocks)
        for newcomer in ready:
            assignment = held[newcomer.assignment.id]
            self._joined[assignment.name] = _Joined(assignment=assignment)
            self.newcomers.has_joined(newcomer)
            self._spans.put(newcomer.table)
            self._held.prepared(assignment)

    def _open(self) -> None:
        """Begin to write the joined spans that are to be written: each table is opened anew, since
        another capture may have written it while its rows were read."""
        rows: ProgressRows | None = None
        for joined in self._joined.values():
            if joined.is_written or joined.is_over or not joined.assignment.is_to_write:
                continue
            if rows is None:
                self._context.row(self._incarnation)  # raises when another incarnation has begun
                rows = self._context.progress()
                self._dead_letters.refreshed()  # who wrote it before us may have added some
            if (table := self._table(joined.assignment, rows)) is None:
                joined.is_over = True
                continue
            self._spans.put(table)
            self._applier.letters.forget(table.name)
            joined.is_written = True
            self._held.opened(joined.assignment, self.applied(joined.assignment))

    def _open_again(self) -> None:
        """Tables that could not be written. It stays said until a write has shown the contrary."""
        names = [name for name in self._troubled.due(time.monotonic()) if name in self._joined]
        rows = self._context.progress() if names else {}
        for name in names:
            span, table = self._spans[name], self._opened_again(name, rows)
            if table is not None:
                told = table.error or ("" if span.is_blocked else span.error)
                self._spans.put(replace(table, error=told))

    def _opened_again(self, name: TableName, rows: ProgressRows) -> ReplicatedTable | None:
        span, assignment = self._spans[name], self._joined[name].assignment
        return opened_or_held(span, lambda: self._table(assignment, rows, span.checkpoint))

    # Writing.

    def _write_bad(self) -> None:
        """To be called before `_publish`, since its low water passes these messages: they are not
        read again."""
        if self._bad:
            self._applier.letters.add_messages(self._bad)
            self._bad = []
        failpoint(Failpoint.AFTER_DEAD_LETTERS)

    def reached(self) -> Mapping[TableName, Ts]:
        """The checkpoints. The applying thread may take spans out meanwhile."""
        spans = ((name, self._spans.get(name)) for name in list(self._joined))
        return {name: span.checkpoint for name, span in spans if span is not None}

    def _due(self, resolved: Ts) -> Mapping[Ts, Sequence[TableName]]:
        """The tables that can be advanced, by the ts up to which they can; most have the same."""
        due: dict[Ts, list[TableName]] = defaultdict(list)
        for name, joined in self._joined.items():
            is_ours = joined.is_written and not (joined.is_over or self._spans[name].is_blocked)
            is_ours = is_ours and self._dead_letters.stops(name) is None
            allowed = self._held.limit(joined.assignment) if is_ours else None
            if allowed is not None and min(resolved, allowed) > self._spans[name].checkpoint:
                due[min(resolved, allowed)].append(name)
        return due

    def _apply(self, limit: Ts, names: Sequence[TableName]) -> None:
        self._permit.check()
        self._make_tables(names, limit)
        self._permit.grant({name: self._joined[name].assignment for name in names})
        due = [each for name in sorted(names) if (each := self._due_table(name, limit)) is not None]
        started_s = time.monotonic()
        done = self._applier.apply(due, limit)
        self._log.applied(due, limit, time.monotonic() - started_s)
        self.is_held |= bool(done.paused | done.withdrawn)
        failpoint(Failpoint.AFTER_APPLY)
        self._spans.idle_to(limit, [name for name in names if name not in done.waiting])
        if done.altered and (names := self._looked_again(sorted(done.altered))):
            self._apply(limit, names)

    def _looked_again(self, names: Sequence[TableName]) -> list[TableName]:
        """A DDL has run on these tables since they were opened: they are opened anew, and their
        rows cast by the new schema. Returns the tables that it has not dropped."""
        rows = self._context.progress()
        for name in names:
            logger.info("a DDL has run on the table table=%s", name)
            joined, table = self._joined[name], self._opened_again(name, rows)
            if table is None:
                joined.is_over = True
                continue
            self._spans.put(table)
            self._applier.letters.forget(name)
            self._trim(joined)
        waiting = {n for n in names if self._joined[n].is_over or self._spans[n].error}
        return [name for name in names if name not in waiting]

    def _due_table(self, name: TableName, limit: Ts) -> DueTable | None:
        span = self._spans[name]
        if span.lacks or not (blocks := self._carry.due(name, span.checkpoint, limit)):
            return None
        filters = self._context.routes.filter.row_filters({of.upstream for of in blocks})
        # A filter is asked of the DELETE too: it may be half of an UPDATE.
        has_none = span.has_no_row and not self._spans.forms.of(name).is_log and not filters
        task = TableTask(
            name=name,
            schema=self._spans[name].schema_or_empty,
            checkpoint=span.checkpoint,
            ignored_events=frozenset({"delete"} if has_none else ()),
            filters=filters,
            behind=self._older.behind(span),
            form=UPSERT if span.target is None else span.target.form,
            is_keyless=span.is_keyless,
            older=self._older.of(span),
        )
        return DueTable(task=task, blocks=blocks)

    def _make_tables(self, names: Sequence[TableName], limit: Ts) -> None:
        """Make the tables that have no target yet, because the owner had no definition of them:
        from the newest whole row at or below ``limit``."""
        for name in sorted(self._spans.open_names(names)):
            checkpoint = self._spans[name].checkpoint
            if blocks := self._carry.due(name, checkpoint, limit):
                told = newest_whole_row(blocks, limit)
                self._spans.make_from_rows(name, told, checkpoint)

    def _trim(self, joined: _Joined) -> None:
        name, at_ts = joined.assignment.name, self._checkpoint(joined)
        self._carry.drop_applied(name, at_ts)
        if joined.is_written:
            self.newcomers.want(name, wanted_of(self._spans[name], at_ts))

    def _checkpoint(self, joined: _Joined) -> Ts:
        at_ts = joined.assignment.checkpoint_ts
        return self._spans[joined.assignment.name].checkpoint if joined.is_written else at_ts

    # How far all is.

    def _publish(self, resolved: Ts) -> bool:
        spans = [joined.assignment for joined in self._joined.values()]
        applied = [(each, self.applied(each, resolved)) for each in spans]
        return self._held.publish(applied, self._stream.position)

    def applied(self, assignment: Assignment, resolved: Ts = NO_TS) -> AppliedSpan:
        """How far a span is. The permit also asks for it, right after a write of the span."""
        name = assignment.name
        joined, table = self._joined[name], self._spans[name]
        at_ts = self._checkpoint(joined)
        here = self._stream.position
        low_water = lowest([here, self._carry.low_water(name)])
        return AppliedSpan.of(
            table,
            at_ts=at_ts,
            resolved=Ts(max(resolved, self._stream.resolved_ts(), at_ts)),
            low_water=None if low_water == here else low_water,
            letters=self._dead_letters,
        )
