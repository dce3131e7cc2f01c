"""The owner's half of a changefeed's scheduling: it takes the agents' messages and etcd's list of
captures, and returns dispatches, heartbeats and the changefeed's checkpoint.

    inbox ─► for this owner's launch, ID and changefeed epoch? ─► captures ─► spans
    etcd  ─► captures: new, gone
    all captures have answered ─► schedulers ─► tasks
    checkpoint, capped by the barrier ─► heartbeats

Pure; the work of a tick grows with the number of changes since the last one, and of captures.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from coordination.model import CaptureID, ChangefeedID, ProcessorEpoch, TermNumber, Ts
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.capture_manager import CaptureManager
from coordination.scheduler.messages import Body, Checkpoint, Message, Span
from coordination.scheduler.replication_manager import ReplicationManager
from coordination.scheduler.replication_set import ReplicationSet, ReplicationState
from coordination.scheduler.schedulers import Schedulers, SchedulerSettings
from coordination.scheduler.table_status import TableStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorInfo:
    """The owner, and the changefeed and term for which it schedules."""

    version: str
    capture_id: CaptureID
    changefeed_id: ChangefeedID
    changefeed_epoch: int
    launch: int
    term: TermNumber  # claimed in Delta: the upper half of every fence


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanProgress:
    """A span as its row in the progress table shows it."""

    span: Span
    state: ReplicationState
    capture_id: CaptureID | None
    epoch: ProcessorEpoch | None
    checkpoint: Checkpoint
    delta_version: int | None  # of the table at the checkpoint, if it was reported
    status: TableStatus | None  # the last one of the capture that writes it


class SpansProgress(Sequence[SpanProgress]):
    """The progress of many spans. A span's progress is made when it is asked for, on any thread:
    the owner's tick makes none of a million."""

    def __init__(
        self, sets: Sequence[ReplicationSet], epochs: Mapping[CaptureID, ProcessorEpoch | None]
    ) -> None:
        self._sets = sets
        self._epochs = epochs

    def __len__(self) -> int:
        return len(self._sets)

    @overload
    def __getitem__(self, place: int) -> SpanProgress: ...
    @overload
    def __getitem__(self, place: slice) -> SpansProgress: ...
    def __getitem__(self, place: int | slice) -> SpanProgress | SpansProgress:
        if isinstance(place, slice):
            return SpansProgress(self._sets[place], self._epochs)
        span_set = self._sets[place]
        return SpanProgress(
            span=span_set.span,
            state=span_set.state,
            capture_id=span_set.primary,
            epoch=self._epochs.get(span_set.primary) if span_set.primary is not None else None,
            checkpoint=span_set.checkpoint,
            delta_version=span_set.delta_version,
            status=span_set.status,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorTick:
    outbox: tuple[Message, ...]
    checkpoint: Checkpoint  # of the changefeed; the last one, while it cannot proceed
    others_ts: Ts  # ... without the tables that wait for an operator
    can_proceed: bool
    is_awaiting: bool  # of the captures: an answer, a span's way to them, rows' way to their tables


class Coordinator:
    """See the module's picture. One thread. Made anew for every term."""

    def __init__(
        self,
        info: CoordinatorInfo,
        settings: SchedulerSettings,
        *,
        checkpoint_ts: Ts,
        rng: random.Random,
        placed: dict[int, CaptureID] | None = None,
    ) -> None:
        """``checkpoint_ts`` is the changefeed's stored checkpoint; `add_table` adds the tables.
        ``placed``: see `Schedulers`; the next term goes on with it."""
        self.info = info
        self.captures = CaptureManager(
            owner_id=info.capture_id, heartbeat_tick=settings.heartbeat_tick
        )
        self.replication = ReplicationManager(
            term=info.term, max_task_concurrency=settings.max_task_concurrency
        )
        self.schedulers = Schedulers(settings, rng, placed=placed)
        self.checkpoint = Checkpoint(checkpoint_ts, checkpoint_ts)  # of the last tick
        self.others_ts = checkpoint_ts  # of it too, without the tables that wait for an operator

    def add_table(self, span: Span, start_ts: Ts) -> None:
        """Add a table of the changefeed, applied up to ``start_ts`` (from its progress row, or the
        commit-ts of its creation). Does nothing if the table is known already."""
        self.replication.add_table(span, max(start_ts, self.checkpoint.checkpoint_ts))

    def poll(
        self,
        inbox: Sequence[Message],
        alive: Iterable[CaptureID],
        barrier: Barrier,
        now_s: float,
        *,
        unreached: Collection[CaptureID] = (),
        gone: Collection[CaptureID] = (),
        held: Collection[int] = (),
    ) -> CoordinatorTick:
        """One tick. ``alive``: the captures in etcd, and dead captures within their grace
        (docs/cluster.md 18), which are ``gone``. ``unreached``: captures to which no owner's
        message has ever come. ``held``: tables that wait for an operator. Raises
        MultiplePrimaries."""
        replication = self.replication
        news = self.captures.handle_messages(filter(self._is_ours, inbox))
        removed = self.captures.handle_alive_captures(alive, unreached, gone)
        if replication.is_initialized:
            for capture_id, statuses in news:
                replication.handle_report(capture_id, statuses)
            for capture_id in removed:
                replication.handle_capture_removed(capture_id)
        if self.captures.is_all_initialized:
            captures = self.captures.initialized
            if not replication.is_initialized:
                reported = {c.id: c.view.statuses for c in captures.values()}
                replication.initialize(reported, self.checkpoint.checkpoint_ts)
            replication.handle_schedule(self.schedulers.schedule(captures, replication, now_s))
        can_proceed = self._advance_checkpoint(barrier, held)
        bodies: list[tuple[CaptureID, Body]] = [*replication.take_outbox()]
        # Unsettled spans are asked about in every heartbeat: an order that was lost is sent again
        # only when a report shows that it was not followed.
        asked: dict[CaptureID, list[int]] = {}
        for table_id in replication.unsettled:
            for capture_id in replication.sets[table_id].holders:
                asked.setdefault(capture_id, []).append(table_id)
        is_awaiting = self._is_awaiting(barrier)
        bodies += self.captures.next_heartbeats(
            asked, self.schedulers.draining, barrier, now_s, is_awaiting=is_awaiting
        )
        # Not to captures that were removed in this very tick.
        outbox = [self._message(*each) for each in bodies if each[0] in self.captures.captures]
        return CoordinatorTick(
            outbox=tuple(outbox),
            checkpoint=self.checkpoint,
            can_proceed=can_proceed,
            is_awaiting=is_awaiting,
            others_ts=self.others_ts,
        )

    # What the owner asks for between ticks.

    def drain_capture(self, capture_id: CaptureID) -> int:
        """Begin to drain a capture, or go on with it. Returns how many spans it still has; 1 while
        the number is not known.

        The owner's own capture is not drained here: it resigns first (docs/cluster.md 15).
        """
        if not self.captures.is_all_initialized or not self.replication.is_initialized:
            return 1
        if len(self.captures.captures) > 1 and capture_id != self.info.capture_id:
            self.schedulers.drain_capture(capture_id)
        return len(self.replication.held.get(capture_id, ()))

    def take_progress(self) -> SpansProgress:
        """The spans that changed since the last call."""
        epochs = {each.id: each.epoch for each in self.captures.captures.values()}
        return SpansProgress(self.replication.sets.take_changed(), epochs)

    # The parts of a tick.

    def _is_ours(self, message: Message) -> bool:
        info = self.info
        return (
            message.to == info.capture_id
            and message.changefeed_id == info.changefeed_id
            and message.launch == info.launch
            and message.changefeed_epoch == info.changefeed_epoch
        )

    def _advance_checkpoint(self, barrier: Barrier, held: Collection[int]) -> bool:
        """Move the checkpoint on. False while it cannot proceed: a table has no set yet."""
        new = self.replication.advance_checkpoint(barrier)
        if new is None:
            return False
        old = self.checkpoint
        self.checkpoint = Checkpoint(
            max(new.checkpoint_ts, old.checkpoint_ts), max(new.resolved_ts, old.resolved_ts)
        )
        others_ts = self.replication.others_ts(barrier, held) if held else new.checkpoint_ts
        self.others_ts = max(others_ts, self.checkpoint.checkpoint_ts)
        return True

    def _is_awaiting(self, barrier: Barrier) -> bool:
        return (
            not self.captures.is_at_rest
            or not self.replication.is_settled
            or bool(self.schedulers.moves or self.schedulers.draining)
            or self.checkpoint.checkpoint_ts < barrier.min_table_barrier_ts
            # While one table waits, the others are on their way.
            or (bool(barrier.table_barriers) and self.others_ts < barrier.global_barrier_ts)
        )

    def _message(self, to: CaptureID, body: Body) -> Message:
        return Message(
            version=self.info.version,
            launch=self.info.launch,
            processor_epoch=self.captures.captures[to].epoch or ProcessorEpoch(""),
            changefeed_epoch=self.info.changefeed_epoch,
            sender=self.info.capture_id,
            to=to,
            changefeed_id=self.info.changefeed_id,
            body=body,
        )
