"""All spans of a changefeed as the owner sees them, and the tasks that change who has them.

    reports ─► each span's ReplicationSet ─► orders, numbered with fences ─► `take_outbox`
    tasks   ─►

Nothing here walks over all spans in a tick: what needs attention is kept in indexes (tables without
a set, Absent sets, unsettled sets, dropped tables, who holds what), and the checkpoint is a minimum
that only what changed moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from coordination.model import CaptureID, TermNumber, Ts, fence_number
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.low_water import LowWater
from coordination.scheduler.messages import (
    AddTable,
    Checkpoint,
    DispatchTableRequest,
    RemoveTable,
    Span,
    TableState,
    TableStatus,
)
from coordination.scheduler.replication_set import (
    AddOrder,
    Order,
    ReplicationSet,
    ReplicationState,
)
from coordination.scheduler.schedule_task import (
    AddTask,
    BurstBalance,
    MoveTask,
    RemoveTask,
    ScheduleTask,
    TableTask,
)

V = TypeVar("V")

_Moves = dict[tuple[Ts, Ts, Ts, Ts], int]  # checkpoint from, to, resolved from, to: how many spans
_MAX_ASSIGNMENTS: Final = 2**32  # of one term
_RESTING: Final = (ReplicationState.REPLICATING, ReplicationState.ABSENT)


class ReplicationManager:
    """Mutable; one thread. Until `initialize` it knows tables, but nothing of who has them."""

    def __init__(self, *, term: TermNumber, max_task_concurrency: int) -> None:
        self.sets: dict[int, ReplicationSet] = {}
        self.tables: dict[int, Span] = {}  # that the changefeed has now
        self.missing: dict[int, Ts] = {}  # of them, those without a set: where they start
        self.absent: dict[int, None] = {}  # of them, those whose set is Absent
        self.unsettled: dict[int, ReplicationSet] = {}  # sets that holders are to be asked about
        self.dropped: dict[int, None] = {}  # sets to be removed: of no table of the changefeed
        self.running: dict[int, TableTask] = {}
        self.held: dict[CaptureID, set[int]] = {}  # table IDs, in whatever role
        self.begun: dict[int, MoveTask] = {}  # moves, until somebody clears it
        self.is_initialized = False
        self._names: dict[str, dict[str, int]] = {}
        self._advanced: dict[int, None] = {}
        self._max_task_concurrency = max_task_concurrency
        self._term = term
        self._assignments = 0
        self._checkpoints, self._resolved = LowWater(), LowWater()  # of the tables' sets
        self._outbox: list[tuple[CaptureID, DispatchTableRequest]] = []

    # Tables.

    def add_table(self, span: Span, start_ts: Ts) -> None:
        """The changefeed has a table; it is assigned by and by. Known already: nothing happens."""
        table_id = span.table_id
        if table_id in self.tables:
            return
        self.tables[table_id] = span
        self._names.setdefault(span.schema, {})[span.table] = table_id
        made = self.sets.get(table_id)
        if made is None:
            self.missing[table_id] = start_ts
            return
        made.span = span
        self._checkpoints.add(made.checkpoint_ts)
        self._resolved.add(made.resolved_ts)
        self._index(made)

    def remove_table(self, table_id: int) -> None:
        """The changefeed has it no more: the checkpoint waits for it no longer, and its span is
        stopped by and by."""
        span = self.tables.pop(table_id, None)
        if span is None:
            return
        if self._names[span.schema].get(span.table) == table_id:
            del self._names[span.schema][span.table]
        self.missing.pop(table_id, None)
        made = self.sets.get(table_id)
        if made is not None:
            self._checkpoints.remove(made.checkpoint_ts)
            self._resolved.remove(made.resolved_ts)
            self._index(made)

    def has_table(self, schema: str, table: str) -> bool:
        return table in self._names.get(schema, ())

    # What captures report.

    def initialize(self, reported: Mapping[CaptureID, Mapping[int, TableStatus]], ts: Ts) -> None:
        """Build the sets, once, from what all captures have; ``ts`` is the stored checkpoint."""
        assert not self.is_initialized
        self.is_initialized = True
        holders: dict[int, dict[CaptureID, TableStatus]] = {}
        for capture_id, statuses in reported.items():
            for table_id, status in statuses.items():
                holders.setdefault(table_id, {})[capture_id] = status
        for table_id, by_capture in holders.items():
            start_ts = self.missing.get(table_id, ts)
            self._adopt(ReplicationSet.build(self._span(table_id), start_ts, by_capture))

    def handle_report(self, capture_id: CaptureID, statuses: Iterable[TableStatus]) -> None:
        """Statuses of one capture's spans, in the order in which they were true. Raises
        MultiplePrimaries."""
        sets, replicating = self.sets, ReplicationState.REPLICATING
        moves: _Moves = {}  # spans of one batch move together: count them, and move them once
        for status in statuses:
            made = sets.get(status.table_id)
            if made is None:
                self._handle_stray(capture_id, status)
            elif (
                made.state is replicating
                and made.primary == capture_id
                and status.state is TableState.REPLICATING
            ):  # nearly all there ever is: the span has moved on
                self._advance(made, status, moves)
            else:
                self._move(moves)
                self._change(made, partial(made.poll, status, capture_id))

        self._move(moves)

    def handle_capture_removed(self, capture_id: CaptureID) -> None:
        """The capture is gone and writes nothing more (docs/cluster.md 18 is the caller's)."""
        for made in self._held_by(capture_id):
            self._change(made, partial(made.handle_capture_shutdown, capture_id))
        self.held.pop(capture_id, None)

    def handle_capture_restarted(
        self, capture_id: CaptureID, statuses: Mapping[int, TableStatus]
    ) -> None:
        """The capture's agent is a new one, and these are the spans that it has."""
        for made in self._held_by(capture_id):
            table_id = made.span.table_id
            status = statuses.get(table_id) or TableStatus(table_id, TableState.ABSENT)
            self._change(made, partial(made.handle_capture_restart, capture_id, status))

    def _handle_stray(self, capture_id: CaptureID, status: TableStatus) -> None:
        """A span that should be nowhere: a set that is being removed asks until it is gone."""
        if status.state in (TableState.ABSENT, TableState.STOPPED):
            return
        start_ts = self.missing.get(status.table_id, status.checkpoint_ts)
        made = ReplicationSet(self._span(status.table_id), start_ts)
        made.state, made.undetermined = ReplicationState.REMOVING, (capture_id,)
        self._adopt(made)
        self._change(made, partial(made.poll, status, capture_id))

    def _held_by(self, capture_id: CaptureID) -> list[ReplicationSet]:
        return [self.sets[table_id] for table_id in sorted(self.held.get(capture_id, ()))]

    # Tasks.

    def handle_tasks(self, tasks: Sequence[ScheduleTask]) -> None:
        """Begin what may begin now; what may not is dropped, and its scheduler asks again."""
        for task in tasks:
            if isinstance(task, BurstBalance):
                for table_task in task.tasks:
                    self._begin(table_task)
            elif len(self.running) < self._max_task_concurrency:
                self._begin(task)

    @property
    def is_full(self) -> bool:
        return len(self.running) >= self._max_task_concurrency

    @property
    def is_settled(self) -> bool:
        """Every table replicates, and nothing is under way."""
        return not (self.missing or self.absent or self.unsettled or self.dropped or self.running)

    def is_told(self, ts: Ts) -> bool:
        """Every table is at ``ts`` in the words of one who wrote it, with the Delta version that
        goes with it. A checkpoint alone may come from a capture that is gone."""
        told = (self.sets[table_id].status for table_id in self.tables)
        return all(each is not None and each.checkpoint_ts >= ts for each in told)

    def _begin(self, task: TableTask) -> None:
        if task.table_id in self.running:
            return
        made = self.sets.get(task.table_id)
        if made is None and isinstance(task, AddTask) and task.table_id in self.missing:
            made = ReplicationSet(self.tables[task.table_id], self.missing[task.table_id])
            self._adopt(made)
        if made is None:
            return
        before = made.state
        self._change(made, partial(_ask, made, task))
        if made.state is not before and made.state not in _RESTING and not made.has_removed:
            self.running[task.table_id] = task
            if isinstance(task, MoveTask):
                self.begun[task.table_id] = task

    # The checkpoint.

    def advance_checkpoint(self, barrier: Barrier) -> Checkpoint | None:
        """The changefeed's, or None while it cannot proceed: a table has no set yet."""
        if self.missing or not self.is_initialized:
            return None
        limit_ts = barrier.min_table_barrier_ts
        checkpoint_ts = self._checkpoints.min()
        resolved_ts = self._resolved.min()
        if checkpoint_ts is None or resolved_ts is None:  # no tables at all
            return Checkpoint(limit_ts, barrier.global_barrier_ts)
        checkpoint_ts = min(checkpoint_ts, limit_ts)
        return Checkpoint(
            Ts(checkpoint_ts), Ts(max(checkpoint_ts, min(resolved_ts, barrier.global_barrier_ts)))
        )

    def take_advanced(self) -> list[ReplicationSet]:
        """The sets that changed in any way since the last call, for the progress rows."""
        changed = [self.sets[table_id] for table_id in self._advanced if table_id in self.sets]
        self._advanced.clear()
        return changed

    def take_outbox(self) -> list[tuple[CaptureID, DispatchTableRequest]]:
        taken, self._outbox = self._outbox, []
        return taken

    # Keeping the indexes.

    def _span(self, table_id: int) -> Span:
        return self.tables.get(table_id) or Span(table_id, "", "")

    def _adopt(self, made: ReplicationSet) -> None:
        table_id = made.span.table_id
        self.sets[table_id] = made
        self.missing.pop(table_id, None)
        for capture_id in made.holders:
            self.held.setdefault(capture_id, set()).add(table_id)
        if table_id in self.tables:
            self._checkpoints.add(made.checkpoint_ts)
            self._resolved.add(made.resolved_ts)
        self._advanced[table_id] = None
        self._index(made)

    def _advance(self, made: ReplicationSet, status: TableStatus, moves: _Moves) -> None:
        if status == made.status:
            return
        table_id = status.table_id
        checkpoint_ts, resolved_ts = made.checkpoint_ts, made.resolved_ts
        made.status = status
        made.advance_checkpoint(status)
        self._advanced[table_id] = None
        if table_id in self.tables:
            move = (checkpoint_ts, made.checkpoint_ts, resolved_ts, made.resolved_ts)
            moves[move] = moves.get(move, 0) + 1

    def _move(self, moves: _Moves) -> None:
        for (checkpoint_ts, to_checkpoint_ts, resolved_ts, to_resolved_ts), n in moves.items():
            self._checkpoints.move(checkpoint_ts, to_checkpoint_ts, n)
            self._resolved.move(resolved_ts, to_resolved_ts, n)
        moves.clear()

    def _change(self, made: ReplicationSet, action: Callable[[], list[Order]]) -> None:
        """Let something happen to a set, and bring the indexes and the outbox up to it."""
        checkpoint, holders = made.checkpoint, made.holders
        orders = action()
        table_id = made.span.table_id
        self._advanced[table_id] = None
        if table_id in self.tables:
            self._checkpoints.move(checkpoint.checkpoint_ts, made.checkpoint_ts)
            self._resolved.move(checkpoint.resolved_ts, made.resolved_ts)
        if made.holders != holders:
            for capture_id in holders:
                self.held[capture_id].discard(table_id)
            for capture_id in made.holders:
                self.held.setdefault(capture_id, set()).add(table_id)
        self._index(made)
        self._outbox += [(order.capture_id, self._request(made, order)) for order in orders]

    def _index(self, made: ReplicationSet) -> None:
        table_id, state = made.span.table_id, made.state
        is_current, is_absent = table_id in self.tables, state is ReplicationState.ABSENT
        if not made.holders and (made.has_removed or not is_current):
            self._forget(made)
            return
        _keep(self.absent, table_id, None, is_in=is_absent and is_current)
        is_resting = made.is_settled or (is_absent and not made.undetermined)
        _keep(self.unsettled, table_id, made, is_in=not is_resting)
        is_dropped = not is_current and state is not ReplicationState.REMOVING
        _keep(self.dropped, table_id, None, is_in=is_dropped)
        if state in _RESTING:
            self.running.pop(table_id, None)

    def _forget(self, made: ReplicationSet) -> None:
        table_id = made.span.table_id
        del self.sets[table_id]
        for index in (self.absent, self.unsettled, self.dropped, self.running):
            index.pop(table_id, None)
        if table_id in self.tables:  # it was stopped by a mistake, or by the last owner
            self._checkpoints.remove(made.checkpoint_ts)
            self._resolved.remove(made.resolved_ts)
            self.missing[table_id] = made.checkpoint_ts

    def _request(self, made: ReplicationSet, order: Order) -> DispatchTableRequest:
        if isinstance(order, AddOrder):
            self._assignments += 1
            assert self._assignments < _MAX_ASSIGNMENTS
            return AddTable(
                span=made.span,
                is_secondary=order.is_secondary,
                checkpoint=made.checkpoint,
                fence=fence_number(self._term, self._assignments),
            )
        fence = fence_number(self._term, self._assignments)
        return RemoveTable(table_id=made.span.table_id, fence=fence)


def _ask(made: ReplicationSet, task: TableTask) -> list[Order]:
    match task:
        case AddTask():
            return made.handle_add_table(task.capture_id)
        case MoveTask():
            return made.handle_move_table(task.dest)
        case RemoveTask():
            return made.handle_remove_table()


def _keep(index: dict[int, V], table_id: int, value: V, *, is_in: bool) -> None:
    if is_in:
        index[table_id] = value
    else:
        index.pop(table_id, None)
