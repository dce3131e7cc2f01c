"""The spans that a capture holds. The coordination thread adds and removes them; the data threads
(the worker and the stream's threads) read and commit them, and report their progress here.

    add (prepare) ──► PREPARING ──prepared──► PREPARED ──add (write), opened──► REPLICATING
    remove ─────────► STOPPING ──no commit of it is under way──► STOPPED ──seen──► (gone)

The data threads *publish* the progress of all spans together with how far they have read, in one
call. The agent sees it in one piece too, when it next asks what has changed. So the two belong
together in a heartbeat: the read position, which is the low water of spans that hold nothing back,
is never ahead of the statuses of these spans.

An *assignment* is one stay of a span on this capture, from its add until it is gone, with its
current fence. Every call of a data thread names an assignment, and has no effect when that
assignment is not the span's current one any more.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from coordination.model import NO_TS, TableName, Ts
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import Checkpoint, Span
from coordination.scheduler.table_status import TableState, TableStatus
from streaming.apply.commit_guard import CommitWithdrawn
from streaming.apply.letters.dead_letter_writer import DeadLetterWriter
from streaming.changefeed.replicated_table import PAUSED, ReplicatedTable

LEAVING = (TableState.STOPPING, TableState.STOPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the data threads are to do with a span now."""

    id: int  # a new one each time that the span comes to this capture
    span: Span
    fence: int
    state: TableState
    is_to_write: bool
    checkpoint_ts: Ts  # everything at or below is applied, by this capture or an earlier one

    @property
    def name(self) -> TableName:
        return self.span.name


class AppliedSpan(NamedTuple):
    """How far a span is: the part of its `TableStatus` that the data threads know."""

    checkpoint_ts: Ts
    resolved_ts: Ts
    delta_version: int | None = None
    dead_letters: int = 0
    engine: str | None = None
    source_positions: Mapping[str, int] | None = None
    dropped_columns: Mapping[str, int] | None = None
    is_paused: bool = False
    null_dates: Mapping[str, int] | None = None
    is_blocked: bool = False
    error: str | None = None
    identity_ts: Ts = NO_TS

    @classmethod
    def of(
        cls,
        table: ReplicatedTable,
        *,
        at_ts: Ts,
        resolved: Ts,
        low_water: Mapping[str, int] | None,
        letters: DeadLetterWriter,
    ) -> AppliedSpan:
        """The state of a table at this checkpoint; with too many dead letters it waits for an
        operator."""
        stopped = letters.stops(table.name)
        return cls(
            checkpoint_ts=at_ts,
            resolved_ts=resolved,
            delta_version=table.version_at_checkpoint,
            dead_letters=letters.counts.get(table.name, 0),
            engine=table.engine or None,
            source_positions=low_water,
            dropped_columns=table.dropped or None,
            null_dates=table.null_dates or None,
            is_paused=table.state == PAUSED,
            is_blocked=table.is_blocked or stopped is not None,
            error=table.error or stopped,
            identity_ts=table.identity or NO_TS,
        )


@dataclass(slots=True, kw_only=True)
class _HeldSpan:
    assignment: Assignment
    applied: AppliedSpan
    is_committing: bool = False  # between the last check and the end of a commit


class AssignedSpans:
    """Thread-safe; nothing blocks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, _HeldSpan] = {}
        self._names: set[TableName] = set()  # of the spans in `_held`
        self._changed: set[int] = set()
        self._barrier: Barrier | None = None
        self._read_positions: Mapping[str, int] | None = None
        # Published and not adopted yet, by table ID: the assignment's ID and what was applied.
        self._new_applied: dict[int, tuple[int, AppliedSpan]] = {}
        self._new_positions: Mapping[str, int] | None = None
        self._ids = itertools.count(1)
        self.changes = 0  # counts the coordination thread's calls that changed something

    # Called by the coordination thread.

    def add(self, span: Span, checkpoint: Checkpoint, fence: int, *, is_prepare: bool) -> None:
        """Begin to prepare a span, or to write one that is assigned already. Ignored while an older
        table of the same name is still here, while the span is leaving, and when the call is a
        repeat."""
        with self._lock:
            held = self._held.get(span.table_id)
            if held is None:
                if span.name in self._names:
                    return
                self._names.add(span.name)
                self._held[span.table_id] = _HeldSpan(
                    assignment=Assignment(
                        id=next(self._ids),
                        span=span,
                        fence=fence,
                        state=TableState.PREPARING,
                        is_to_write=not is_prepare,
                        checkpoint_ts=checkpoint.checkpoint_ts,
                    ),
                    applied=AppliedSpan(
                        checkpoint_ts=checkpoint.checkpoint_ts, resolved_ts=checkpoint.resolved_ts
                    ),
                )
            elif is_prepare or held.assignment.is_to_write or held.assignment.state in LEAVING:
                return
            else:
                at_ts = Ts(max(held.assignment.checkpoint_ts, checkpoint.checkpoint_ts))
                held.assignment = replace(
                    held.assignment, fence=fence, checkpoint_ts=at_ts, is_to_write=True
                )
                if held.applied.checkpoint_ts < at_ts:
                    resolved_ts = Ts(max(at_ts, held.applied.resolved_ts))
                    held.applied = AppliedSpan(checkpoint_ts=at_ts, resolved_ts=resolved_ts)
            self.changes += 1
            self._changed.add(span.table_id)

    def remove(self, table_id: int) -> None:
        """The span is STOPPED at once; if a commit of it is under way, when that ends."""
        with self._lock:
            held = self._held.get(table_id)
            self.changes += 1
            if held is not None and held.assignment.state not in LEAVING:
                self._leave(held)

    def _leave(self, held: _HeldSpan) -> None:
        state = TableState.STOPPING if held.is_committing else TableState.STOPPED
        held.assignment = replace(held.assignment, state=state)
        self._changed.add(held.assignment.span.table_id)

    def take_stopped(self, table_id: int) -> TableStatus | None:
        """The last status of a stopped span, which is forgotten by this call; None if it has not
        stopped. For other spans this call shows nothing new: the agent may have looked at them
        already."""
        with self._lock:
            if (news := self._new_applied.pop(table_id, None)) is not None:
                self._adopt_one(table_id, *news)
            held = self._held.get(table_id)
            if held is None or held.assignment.state is not TableState.STOPPED:
                return None
            self.changes += 1
            del self._held[table_id]
            self._names.discard(held.assignment.name)
            self._changed.add(table_id)
            return _status(table_id, held)

    def count(self) -> int:
        with self._lock:
            return len(self._held)

    def status(self, table_id: int) -> TableStatus:
        with self._lock:
            held = self._held.get(table_id)
            if held is None:
                return TableStatus(table_id, TableState.ABSENT)
            return _status(table_id, held)

    def take_changed(self) -> Collection[int]:
        with self._lock:
            self._adopt()
            changed, self._changed = self._changed, set()
            return changed

    def read_positions(self) -> Mapping[str, int] | None:
        with self._lock:
            return self._read_positions

    def set_barrier(self, barrier: Barrier | None) -> bool:
        """Whether this changed the barrier. None changes nothing."""
        with self._lock:
            if barrier is None or barrier == self._barrier:
                return False
            self.changes += 1
            self._barrier = barrier
            return True

    def _adopt(self) -> None:
        """Make visible the progress that was published since the last call."""
        news, self._new_applied = self._new_applied, {}
        for table_id, (assignment_id, applied) in news.items():
            self._adopt_one(table_id, assignment_id, applied)
        if self._new_positions is not None:
            self._read_positions, self._new_positions = self._new_positions, None

    def _adopt_one(self, table_id: int, assignment_id: int, applied: AppliedSpan) -> None:
        held = self._held.get(table_id)
        if held is None or held.assignment.id != assignment_id or held.applied == applied:
            return
        at_ts = max(applied.checkpoint_ts, held.applied.checkpoint_ts)
        held.applied = applied._replace(checkpoint_ts=Ts(at_ts))
        self._changed.add(table_id)

    # Called by the data threads.

    def assignments(self) -> list[Assignment]:
        """The assignments of the spans that are not leaving."""
        with self._lock:
            held = (each.assignment for each in self._held.values())
            return [each for each in held if each.state not in LEAVING]

    def prepared(self, assignment: Assignment) -> None:
        with self._lock:
            held = self._current(assignment)
            if held is not None and held.assignment.state is TableState.PREPARING:
                held.assignment = replace(held.assignment, state=TableState.PREPARED)
                self._changed.add(assignment.span.table_id)

    def opened(self, assignment: Assignment, applied: AppliedSpan) -> None:
        """The span's table was opened as its log has it: from here on it may be written."""
        with self._lock:
            held = self._current(assignment)
            if held is not None and held.assignment.state is TableState.PREPARED:
                held.assignment = replace(held.assignment, state=TableState.REPLICATING)
                held.applied = applied
                # Published before the table was opened: older than what its log says.
                self._new_applied.pop(assignment.span.table_id, None)
                self._changed.add(assignment.span.table_id)

    def limit(self, assignment: Assignment) -> Ts | None:
        """Up to which ts the barrier allows writes of the span; None: no write at all."""
        with self._lock:
            held = self._current(assignment)
            is_ours = held is not None and held.assignment.state is TableState.REPLICATING
            if not is_ours or self._barrier is None:
                return None
            return self._barrier.limit_ts(assignment.span.table_id)

    def begin_commit(self, assignment: Assignment, limit: Ts) -> None:
        """Raises CommitWithdrawn unless the span is still written under this assignment and fence,
        and the barrier allows ``limit``."""
        with self._lock:
            held = self._current(assignment)
            if held is None or held.assignment.state is not TableState.REPLICATING:
                raise CommitWithdrawn("the span is not ours any more")
            if held.assignment.fence != assignment.fence:
                raise CommitWithdrawn(
                    f"fence {assignment.fence} is not its {held.assignment.fence}"
                )
            barrier = self._barrier
            allowed = None if barrier is None else barrier.limit_ts(assignment.span.table_id)
            if allowed is None or limit > allowed:
                raise CommitWithdrawn(f"the limit fell to {allowed}")
            held.is_committing = True

    def end_commit(self, assignment: Assignment, applied: AppliedSpan) -> None:
        """No commit of the span is under way any more; ``applied`` is how far the span is now."""
        with self._lock:
            held = self._current(assignment)
            if held is None or not held.is_committing:
                return
            held.is_committing = False
            self._new_applied[assignment.span.table_id] = (assignment.id, applied)
            if held.assignment.state is TableState.STOPPING:
                self._leave(held)

    def publish(
        self, applied: Iterable[tuple[Assignment, AppliedSpan]], read_positions: Mapping[str, int]
    ) -> bool:
        """Publish how far spans are, with how far was read by then. Returns whether the agent has
        anything new to report.

        The read position does not count while a span that is written here is not among them: a
        writer that begins anew has not all of its rows, and its status is from before.
        """
        with self._lock:
            before = len(self._new_applied)
            written = (each.assignment for each in self._held.values())
            missing = {each.id for each in written if each.state is TableState.REPLICATING}
            for assignment, each in applied:
                missing.discard(assignment.id)
                held = self._current(assignment)
                is_here = held is not None and held.assignment.state is not TableState.STOPPED
                if is_here and held is not None and held.applied != each:
                    self._new_applied[assignment.span.table_id] = (assignment.id, each)
            last = self._read_positions if self._new_positions is None else self._new_positions
            self._new_positions = last if missing else read_positions
            is_news = len(self._new_applied) > before or self._new_positions != last
            return is_news or bool(self._changed)

    def _current(self, assignment: Assignment) -> _HeldSpan | None:
        held = self._held.get(assignment.span.table_id)
        return held if held is not None and held.assignment.id == assignment.id else None


def _status(table_id: int, held: _HeldSpan) -> TableStatus:
    return TableStatus(
        table_id=table_id,
        state=held.assignment.state,
        fence=held.assignment.fence,
        **held.applied._asdict(),
    )
