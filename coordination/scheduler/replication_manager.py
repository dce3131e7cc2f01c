"""All spans of a changefeed as the owner sees them, and the tasks that move them between captures.

    reports ─► each span's ReplicationSet ─► orders, numbered with fences ─► `take_outbox`
    tasks   ─►

Indexes name the spans that need attention (tables without a set, Absent sets, unsettled sets,
dropped tables, the spans of each capture), so that a tick without changes walks over no spans.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from coordination.model import CaptureID, TermNumber, Ts, fence_number
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import (
    AddTable,
    Checkpoint,
    DispatchTableRequest,
    RemoveTable,
    Span,
)
from coordination.scheduler.replication_set import AddOrder, Order, ReplicationSet, ReplicationState
from coordination.scheduler.span_columns import SpanColumns
from coordination.scheduler.table_status import Numbers, Statuses, TableState, TableStatus

_MAX_ASSIGNMENTS: Final = 2**32  # of one term
_RESTING: Final = (ReplicationState.REPLICATING, ReplicationState.ABSENT)


class ScheduleTask(NamedTuple):
    """Move a span to the capture `dest`, whether another one has it or none; with None stop it,
    since the table is gone."""

    table_id: int
    dest: CaptureID | None


class Schedule(NamedTuple):
    """The tasks that one scheduler wants."""

    scheduler: str
    tasks: Sequence[ScheduleTask]
    is_burst: bool = False  # the limit on running tasks does not hold these back


class BegunMove(NamedTuple):
    """A table whose move from one capture to another has begun; for log lines."""

    table_id: int
    origin: CaptureID
    dest: CaptureID
    why: str  # the scheduler that wanted it


class ReplicationManager:
    """Mutable; one thread. Until `initialize` it knows the tables, but not which captures have
    them."""

    def __init__(self, *, term: TermNumber, max_task_concurrency: int) -> None:
        self.sets = SpanColumns()
        self.tables: dict[int, Span] = {}  # the tables that the changefeed has now
        self.missing: dict[int, Ts] = {}  # those of them without a set, and where they start
        self.absent: dict[int, None] = {}  # those of them whose set is Absent
        self.unsettled: dict[int, None] = {}  # sets whose holders are asked for a status
        self.dropped: dict[int, None] = {}  # sets to remove: the changefeed has no such table now
        self.running: dict[int, None] = {}  # spans with a task that runs
        self.held: dict[CaptureID, set[int]] = {}  # table IDs that a capture has in any role
        self.is_initialized = False
        self._max_task_concurrency = max_task_concurrency
        self._term = term
        self._assignments = 0
        self._least: Checkpoint | None = None  # of the tables' sets; None: to be computed anew
        self._begun: list[BegunMove] = []
        self._outbox: list[tuple[CaptureID, DispatchTableRequest]] = []

    # Tables.

    def add_table(self, span: Span, start_ts: Ts) -> None:
        """Add a table, applied up to ``start_ts``; later ticks assign it. Does nothing if the table
        is known already."""
        table_id = span.table_id
        if table_id in self.tables:
            return
        self.tables[table_id] = span
        span_set = self.sets.get(table_id)
        if span_set is None:
            self.missing[table_id] = start_ts
        else:
            span_set.span = span
            self._put(span_set)

    def remove_table(self, table_id: int) -> None:
        """Remove a table from the changefeed: the checkpoint no longer waits for it, and later
        ticks stop its span."""
        if self.tables.pop(table_id, None) is None:
            return
        self.missing.pop(table_id, None)
        if table_id in self.sets:
            self._put(self.sets[table_id])

    # What captures report.

    def initialize(self, reported: Mapping[CaptureID, Statuses], ts: Ts) -> None:
        """Build the sets, once, from what all captures report; ``ts`` is the stored checkpoint.
        Raises MultiplePrimaries."""
        assert not self.is_initialized
        self.is_initialized = True
        holders: dict[int, dict[CaptureID, TableStatus]] = {}
        several = _several([each.table_ids for each in reported.values()])
        for capture_id, statuses in reported.items():
            table_ids = statuses.table_ids.tolist()
            is_alone = np.array([each in self.tables for each in table_ids], bool)
            is_alone &= np.isin(statuses.table_ids, several, invert=True)
            is_alone &= statuses.states == TableState.REPLICATING
            self._adopt_written(capture_id, statuses.where(is_alone))
            for status in statuses.where(~is_alone):
                holders.setdefault(status.table_id, {})[capture_id] = status
        for table_id, by_capture in holders.items():
            start_ts = self.missing.get(table_id, ts)
            self._adopt(ReplicationSet.build(self._span(table_id), start_ts, by_capture))
        for capture_id, statuses in reported.items():
            self.sets.advance(capture_id, statuses)
        self.missing = dict(self.missing)  # which is smaller now

    def _adopt_written(self, capture_id: CaptureID, statuses: Statuses) -> None:
        """Adopt tables that this capture writes and no other one reports: nearly all. The sets have
        its numbers when they `advance`."""
        spans = [self.tables[each] for each in statuses.table_ids.tolist()]
        table_ids = [each.table_id for each in spans]
        self.sets.adopt(capture_id, spans, [self.missing.pop(each) for each in table_ids])
        self.held.setdefault(capture_id, set()).update(table_ids)

    def handle_report(self, capture_id: CaptureID, statuses: Statuses) -> None:
        """Take statuses of one capture's spans. Raises MultiplePrimaries."""
        others = self.sets.advance(capture_id, statuses)
        if len(others) < len(statuses):
            self._least = None
        for status in others:
            span_set = self.sets.get(status.table_id)
            if span_set is None:
                self._handle_stray(capture_id, status)
            else:
                self._change(span_set, partial(span_set.poll, status, capture_id))

    def handle_capture_removed(self, capture_id: CaptureID) -> None:
        """The capture is gone and writes nothing more. The caller sees to that
        (docs/cluster.md 18)."""
        for table_id in sorted(self.held.get(capture_id, ())):
            span_set = self.sets[table_id]
            self._change(span_set, partial(span_set.handle_capture_shutdown, capture_id))
        self.held.pop(capture_id, None)

    def _handle_stray(self, capture_id: CaptureID, status: TableStatus) -> None:
        """A capture reports a span that has no set. It gets one in Removing with that capture as
        undetermined holder, which orders the capture to remove the span until it has."""
        if status.state in (TableState.ABSENT, TableState.STOPPED):
            return
        start_ts = self.missing.get(status.table_id, status.checkpoint_ts)
        span_set = ReplicationSet(self._span(status.table_id), start_ts)
        span_set.state, span_set.undetermined = ReplicationState.REMOVING, (capture_id,)
        self._adopt(span_set)
        self._change(span_set, partial(span_set.poll, status, capture_id))

    # Tasks.

    def handle_schedule(self, schedule: Schedule) -> None:
        """Begin the tasks that may begin now; the others are dropped, and their scheduler asks for
        them again."""
        for table_id, dest in schedule.tasks:
            is_busy = table_id in self.running and dest is not None
            if is_busy or (self.is_full and not schedule.is_burst):
                continue
            span_set = self.sets.get(table_id)
            if span_set is None and dest is not None and table_id in self.missing:
                span_set = ReplicationSet(self.tables[table_id], self.missing[table_id])
                self._adopt(span_set)
            if span_set is None:
                continue
            before, origin = span_set.state, span_set.primary
            if dest is None:
                self._change(span_set, span_set.handle_remove)
            else:
                self._change(span_set, partial(span_set.handle_assign, dest))
            state = span_set.state
            if state is before or state in _RESTING or span_set.has_removed:
                continue
            self.running[table_id] = None
            if origin is not None and dest is not None:
                self._begun.append(BegunMove(table_id, origin, dest, schedule.scheduler))

    def take_moves(self) -> list[BegunMove]:
        """The moves that have begun since the last call."""
        begun, self._begun = self._begun, []
        return begun

    @property
    def is_full(self) -> bool:
        return len(self.running) >= self._max_task_concurrency

    @property
    def is_settled(self) -> bool:
        """Whether every table is replicating, and no span is being moved or stopped."""
        return not (self.missing or self.absent or self.unsettled or self.dropped or self.running)

    def others_ts(self, barrier: Barrier, held: Collection[int]) -> Ts:
        """The least checkpoint of the tables that are not in ``held``."""
        barriers = barrier.table_barriers.items()
        reached = [ts for each, ts in barriers if each in self.tables and each not in held]
        least_ts = self.sets.least_but(held, barrier.global_barrier_ts)
        return min(least_ts, *reached, barrier.global_barrier_ts)

    def is_reported(self, ts: Ts) -> bool:
        """Whether the capture that writes it has reported every table at ``ts``, so that the Delta
        version of the report fits. A checkpoint alone may come from a capture that is gone."""
        return self.sets.is_reported(ts)

    # The checkpoint.

    def advance_checkpoint(self, barrier: Barrier) -> Checkpoint | None:
        """The changefeed's checkpoint; None while it cannot proceed: a table has no set yet."""
        if self.missing or not self.is_initialized:
            return None
        limit_ts = barrier.min_table_barrier_ts
        if self._least is None:
            self._least = self.sets.least()
        if self._least is None:  # there are no tables
            return Checkpoint(limit_ts, barrier.global_barrier_ts)
        checkpoint_ts = min(self._least.checkpoint_ts, limit_ts)
        resolved_ts = min(self._least.resolved_ts, barrier.global_barrier_ts)
        return Checkpoint(checkpoint_ts, max(checkpoint_ts, resolved_ts))

    def take_outbox(self) -> list[tuple[CaptureID, DispatchTableRequest]]:
        taken, self._outbox = self._outbox, []
        return taken

    # Keeping the indexes.

    def _span(self, table_id: int) -> Span:
        return self.tables.get(table_id) or Span(table_id, "", "")

    def _adopt(self, span_set: ReplicationSet) -> None:
        table_id = span_set.span.table_id
        self.missing.pop(table_id, None)
        for capture_id in span_set.holders:
            self.held.setdefault(capture_id, set()).add(table_id)
        self._put(span_set, is_news=True)

    def _change(self, span_set: ReplicationSet, action: Callable[[], list[Order]]) -> None:
        """Run `action` on a set, put it back, and put its orders into the outbox."""
        holders = span_set.holders
        orders = action()
        table_id = span_set.span.table_id
        if span_set.holders != holders:
            for capture_id in holders:
                self.held[capture_id].discard(table_id)
            for capture_id in span_set.holders:
                self.held.setdefault(capture_id, set()).add(table_id)
        self._put(span_set, is_news=True)
        self._outbox += [(order.capture_id, self._request(span_set, order)) for order in orders]

    def _put(self, span_set: ReplicationSet, *, is_news: bool = False) -> None:
        """Put a set back, and update the indexes. ``is_news``: it is for the progress rows."""
        table_id, state = span_set.span.table_id, span_set.state
        self._least = None
        is_current, is_absent = table_id in self.tables, state is ReplicationState.ABSENT
        if not span_set.holders and (span_set.has_removed or not is_current):
            if table_id in self.sets:
                self.sets.remove(table_id)
            for index in (self.absent, self.unsettled, self.dropped, self.running):
                index.pop(table_id, None)
            if is_current:  # stopped by the last owner, or by mistake: assign it again
                self.missing[table_id] = span_set.checkpoint_ts
            return
        self.sets.put(span_set, is_current=is_current, is_news=is_news)
        _keep(self.absent, table_id, is_in=is_absent and is_current)
        is_resting = span_set.is_settled or (is_absent and not span_set.undetermined)
        _keep(self.unsettled, table_id, is_in=not is_resting)
        is_dropped = not is_current and state is not ReplicationState.REMOVING
        _keep(self.dropped, table_id, is_in=is_dropped)
        if state in _RESTING:
            self.running.pop(table_id, None)

    def _request(self, span_set: ReplicationSet, order: Order) -> DispatchTableRequest:
        if not isinstance(order, AddOrder):
            fence = fence_number(self._term, self._assignments)
            return RemoveTable(table_id=span_set.span.table_id, fence=fence)
        self._assignments += 1
        assert self._assignments < _MAX_ASSIGNMENTS
        return AddTable(
            span=span_set.span,
            is_secondary=order.is_secondary,
            checkpoint=span_set.checkpoint,
            fence=fence_number(self._term, self._assignments),
        )


def _keep(index: dict[int, None], table_id: int, *, is_in: bool) -> None:
    if is_in:
        index[table_id] = None
    else:
        index.pop(table_id, None)


def _several(lists: Sequence[Numbers]) -> Numbers:
    """The table IDs that are in several of these lists."""
    table_ids: Numbers = np.sort(np.concatenate([np.empty(0, np.int64), *lists]))
    is_again = np.flatnonzero(table_ids[1:] == table_ids[:-1])
    return table_ids[is_again]
