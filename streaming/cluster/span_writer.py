"""What a capture does with its spans' rows: join, carry, apply. A role of the stream.

    new ──wanted from the next read on──► since ──rows from its low water to there are read──►
    joined: all its rows are in the carry ──its table opened, as its log has it──► written, up to
    min(L, barrier) ──gone from `HeldSpans`──► forgotten, and not wanted any more

Only rows of these spans are decoded (docs/cluster.md 3). Each span has its own low water: the first
message that it has not applied, from where any capture can take it up.

Three threads: the worker brings newcomers and their rows, the reading thread asks what is wanted,
the applying thread does all else. The first two leave what they have under a short lock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName, Ts
from coordination.scheduler.messages import NO_TS, Scan
from coordination.watchdog import Watched
from streaming.apply.applier import Applier, DueTable
from streaming.apply.carry import Carry
from streaming.apply.dead_letter_writer import DeadLetterWriter
from streaming.apply.shape import newest_whole_row
from streaming.apply.table_task import TableTask
from streaming.cluster.applied_lines import AppliedLines
from streaming.cluster.carry_warning import CarryWarning
from streaming.cluster.held_spans import AppliedSpan, Assignment, HeldSpans
from streaming.cluster.newcomers import Joining, Newcomer, Newcomers, low_water_of, wanted_of
from streaming.cluster.reads import Offsets, Read, low, texts
from streaming.cluster.span_permit import SpanPermit
from streaming.cluster.tables_in_sight import TablesInSight
from streaming.cluster.topic_stream import TopicStream
from streaming.filter import TableFilter
from streaming.protocols.contract import Block, Kind, Wanted
from streaming.sink_tables import PAUSED, SinkTable, SinkTables
from streaming.source.ranges import TopicPartition

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Joined:
    assignment: Assignment
    is_written: bool = False


class SpanWriter:
    """Implements ``topic_stream.StreamRole``.

    ``opener`` reads the control tables once and says how to open the table of an assignment, as its
    log has it now; either raises where it cannot go on. ``failed`` is called with what a role's
    work ended with: nothing is written until ``retry``.
    """

    def __init__(
        self,
        *,
        held: HeldSpans,
        spans: SinkTables,
        permit: SpanPermit,
        applier: Applier,
        carry: Carry,
        carry_warning: CarryWarning,
        dead_letters: DeadLetterWriter,
        table_filter: TableFilter,
        in_sight: TablesInSight,
        opener: Callable[[], Callable[[Assignment], SinkTable]],
        stream: TopicStream,
        on_failed: Callable[[BaseException], None],
        on_news: Callable[[], None],
    ) -> None:
        self._held = held
        self._spans = spans
        self._permit = permit
        self._applier = applier
        self._carry = carry
        self._carry_warning = carry_warning
        self._dead_letters = dead_letters
        self._filter = table_filter
        self._in_sight = in_sight
        self._opener = opener
        self._stream = stream
        self._lines = AppliedLines(stream.name)
        self._on_failed = on_failed
        self._on_news = on_news
        self._newcomers = Newcomers()
        self._is_failed = threading.Event()
        self._has_lost_rows = False
        self._seen: tuple[object, ...] | None = None  # when there was nothing more to do
        self._taken = 0  # reads
        self._is_held = False  # some table took no commit: it is looked at again
        self._joined: dict[TableName, _Joined] = {}
        self._bad: list[Block] = []
        self.decoded: Counter[TableName] = Counter()  # rows that came out of the decoder

    def close(self) -> None:
        """It has left the stream."""
        self._applier.close()
        self._carry.close()

    # Joining: the worker's calls.

    def known(self) -> set[int]:
        """The assignments of the spans that are here, or on their way."""
        coming = self._newcomers.assignment_ids()  # first: they go from there to here
        return coming | {each.assignment.id for each in list(self._joined.values())}

    def begin(self, newcomers: Sequence[Newcomer]) -> None:
        """Their rows are wanted from the next read on."""
        self._newcomers.begin(newcomers)

    def coming(self) -> list[Joining]:
        """Those whose rows are not all here yet."""
        return self._newcomers.coming()

    def catch_up(self, together: Sequence[Joining], step: Watched) -> None:
        """Read their rows up to where the stream has them, in one pass (`passes`); the stream goes
        on meanwhile. They go into the carry read by read: a backlog may be larger than memory.
        After a failure it is called again and begins anew: rows that come twice are applied once.
        ``step``: of the worker; each read is one."""
        begun_s = time.monotonic()
        since = together[0].since
        assert since is not None
        newcomers = [joining.newcomer for joining in together]
        wanted = {
            each.assignment.name: wanted_of(each.table, each.assignment.checkpoint_ts)
            for each in newcomers
        }
        messages, is_last = 0, False
        for read in self._stream.read_between(low_water_of(together), since, wanted):
            messages += read.messages
            is_last = all(at >= since[p] for p, at in read.position.items())
            self._bring(together, read.blocks, is_last=is_last)
            step.rest()
            together = together if is_last else self._newcomers.await_taken(together)
            step.step()
            if not together:
                return
        if not is_last:
            self._bring(together, (), is_last=True)
        logger.debug(
            "caught up name=%s tables=%d messages=%d seconds=%.3f",
            *(self._stream.name, len(together), messages, time.monotonic() - begun_s),
        )

    def _bring(
        self, together: Sequence[Joining], blocks: Sequence[Block], *, is_last: bool
    ) -> None:
        self._newcomers.bring(together, blocks, is_last=is_last)
        self._stream.wake()

    def retry(self) -> None:
        """After ``failed``: go on."""
        self._newcomers.set_failed(has_failed=False)
        self._is_failed.clear()

    # The role.

    @property
    def is_behind(self) -> bool:
        return self._is_failed.is_set()

    def failed(self, error: BaseException) -> None:
        self._is_failed.set()
        self._newcomers.set_failed(has_failed=True)
        self._on_failed(error)

    def submit(self, begin: Offsets) -> Wanted:
        return self._newcomers.submit(begin)

    @property
    def has_lost_rows(self) -> bool:
        """It could not keep what was read: all of it must be read again, by another writer."""
        return self._has_lost_rows

    def take(self, read: Read) -> None:
        if self._has_lost_rows:  # a read that is kept does not bring the lost one back
            return
        started = time.monotonic()
        before = self.decoded.total()
        self._taken += 1
        names = {each for each in {b.name for b in read.blocks} if self._newcomers.is_wanted(each)}
        with self._all_or_lost():
            self._keep(block for block in read.blocks if block.name in names)
            failpoint(Failpoint.AFTER_DECODE)
            self._in_sight.meet(read.tables(), self._joined.keys())
        logger.debug(
            "took a read name=%s messages=%d rows=%d seconds=%.3f",
            *(self._stream.name, read.messages, self.decoded.total() - before),
            time.monotonic() - started,
        )

    def _keep(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            if block.kind is Kind.ROW and block.body is not None:
                self.decoded[block.name] += block.rows
                self._carry.add(block)
            elif block.kind is Kind.BAD:
                self._bad.append(block)

    @contextmanager
    def _all_or_lost(self) -> Iterator[None]:
        self._has_lost_rows = True
        yield
        self._has_lost_rows = False

    def apply_due(self) -> None:
        """Write what may be written by now, and tell how far all is."""
        if self._is_failed.is_set() or self._has_lost_rows:
            return
        resolved = self._stream.resolved_ts()
        self._in_sight.look_again(self._joined.keys(), now_s=time.monotonic())
        counts = (self._held.changes, self._taken, self._newcomers.steps)
        seen = (*counts, resolved, self._in_sight.unknown)
        if seen == self._seen and not self._is_held:
            return
        held = {each.id: each for each in self._held.assignments()}
        self._drop_leavers(held)
        self._take_in(held)
        self._open()
        self._bury()
        self._is_held = False
        for limit, names in sorted(self._due(resolved).items()):
            self._apply(limit, names)
        for joined in self._joined.values():
            self._trim(joined)
        self._carry_warning.look(self._carry, resolved, self._stream.watermarks)
        if self._publish(resolved):
            self._on_news()
        self._seen = seen

    # Coming and going.

    def _drop_leavers(self, held: Mapping[int, Assignment]) -> None:
        for name, joined in list(self._joined.items()):
            assignment_id = joined.assignment.id
            if assignment_id in held:
                joined.assignment = held[assignment_id]  # its fence, and what is wanted of it
            else:
                del self._joined[name]
                self._spans.drop(name)
                self._forget(name)
        for name in self._newcomers.drop_all_but(held):
            self._forget(name)

    def _forget(self, name: TableName) -> None:
        if self._newcomers.forget(name):
            self._carry.forget(name)

    def _take_in(self, held: Mapping[int, Assignment]) -> None:
        blocks, ready = self._newcomers.take(held)
        with self._all_or_lost():
            self._keep(blocks)
        for newcomer in ready:
            assignment = held[newcomer.assignment.id]
            self._joined[assignment.name] = _Joined(assignment=assignment)
            self._newcomers.has_joined(newcomer)
            self._spans.put(newcomer.table)
            self._held.prepared(assignment)

    def _open(self) -> None:
        """Begin to write what is to be written and has its rows."""
        open_table: Callable[[Assignment], SinkTable] | None = None
        for joined in self._joined.values():
            if joined.is_written or not joined.assignment.is_to_write:
                continue
            open_table = open_table or self._opener()
            self._spans.put(open_table(joined.assignment))
            joined.is_written = True
            self._held.opened(joined.assignment, self.applied(joined.assignment))

    # Writing.

    def _bury(self) -> None:
        """Before anything is told: the low water passes them."""
        if self._bad:
            self._dead_letters.add_messages(self._bad)
            self._bad = []
        failpoint(Failpoint.AFTER_DEAD_LETTERS)

    def reached(self) -> int:
        """Rises with every span that gets on."""
        return sum(self._checkpoint(joined) for joined in list(self._joined.values()))

    def _due(self, resolved: Ts) -> Mapping[Ts, Sequence[TableName]]:
        """By limit: most spans have the same."""
        due: dict[Ts, list[TableName]] = defaultdict(list)
        for name, joined in self._joined.items():
            allowed = self._held.limit(joined.assignment) if joined.is_written else None
            if allowed is not None and min(resolved, allowed) > self._spans[name].checkpoint:
                due[min(resolved, allowed)].append(name)
        return due

    def _apply(self, limit: Ts, names: Sequence[TableName]) -> None:
        self._permit.check()
        self._find(names, limit)
        self._permit.grant({name: self._joined[name].assignment for name in names})
        due = [each for name in sorted(names) if (each := self._due_table(name, limit)) is not None]
        started_s = time.monotonic()
        held = self._applier.apply(due, limit) | self._permit.withdrawn
        self._lines.add(due, limit, time.monotonic() - started_s)
        self._is_held |= bool(held)
        failpoint(Failpoint.AFTER_APPLY)
        self._spans.idle_to(limit, [name for name in names if name not in held])

    def _due_table(self, name: TableName, limit: Ts) -> DueTable | None:
        span = self._spans[name]
        blocks = self._carry.due(name, span.checkpoint, limit)
        if not blocks:
            return None
        ignored = self._filter.ignored_row_events(name)
        task = TableTask(
            name=name,
            schema=self._spans.schema_or_empty(name),
            checkpoint=span.checkpoint,
            ignored_events=ignored | (frozenset(("delete",)) if span.has_no_row else frozenset()),
            is_keyless=span.is_keyless,
        )
        return DueTable(task=task, blocks=blocks)

    def _find(self, names: Sequence[TableName], limit: Ts) -> None:
        """Tables that the owner could not make yet: from the newest whole row."""
        for name in sorted(self._spans.open_names(names)):
            checkpoint = self._spans[name].checkpoint
            if blocks := self._carry.due(name, checkpoint, limit):
                told = newest_whole_row(blocks, limit)
                self._spans.make_from_rows(name, told, checkpoint)

    def _trim(self, joined: _Joined) -> None:
        name, at_ts = joined.assignment.name, self._checkpoint(joined)
        self._carry.drop_applied(name, at_ts)
        if joined.is_written:
            self._newcomers.want(name, wanted_of(self._spans[name], at_ts))

    def _checkpoint(self, joined: _Joined) -> Ts:
        at_ts = joined.assignment.checkpoint_ts
        return self._spans[joined.assignment.name].checkpoint if joined.is_written else at_ts

    # Telling.

    def _publish(self, resolved: Ts) -> bool:
        spans = [joined.assignment for joined in self._joined.values()]
        applied = [(each, self.applied(each, resolved)) for each in spans]
        scan = Scan(
            scanned_to_ts=resolved,
            unknown_tables=self._in_sight.unknown,
            source_offsets=texts(self._stream.position),
        )
        return self._held.publish(applied, scan)

    def applied(self, assignment: Assignment, resolved: Ts = NO_TS) -> AppliedSpan:
        """How far it is; the permit asks right after a write of it."""
        name = assignment.name
        joined, table = self._joined[name], self._spans[name]
        at_ts = self._checkpoint(joined)
        low_water, here = self._low_water(name), self._stream.position
        return AppliedSpan(
            checkpoint_ts=at_ts,
            resolved_ts=Ts(max(resolved, self._stream.resolved_ts(), at_ts)),
            delta_version=table.version,
            dead_letters=self._dead_letters.counts.get(name, 0),
            engine=table.engine or None,
            source_offsets=None if low_water == here else texts(low_water),
            dropped_columns=table.dropped or None,
            is_paused=table.state == PAUSED,
        )

    def _low_water(self, name: TableName) -> dict[TopicPartition, int]:
        return low([self._stream.position, self._carry.low_water(name)])
