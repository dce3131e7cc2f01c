"""The owner's half of a changefeed's spans: messages and etcd's captures in, dispatches and
heartbeats out, and the changefeed's checkpoint.

    inbox ─► for this owner's revision, ID and changefeed epoch? ─► captures ─► spans
    etcd  ─► captures: new, gone
    all captures have answered ─► schedulers ─► tasks
    checkpoint, capped by the barrier and by tables that are nobody's yet ─► heartbeats

Pure; a tick costs what has changed since the last one, and 1 for each capture.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from coordination.model import CaptureID, ChangefeedID, ProcessorEpoch, Revision, TermNumber, Ts
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.capture_manager import CaptureManager, Report
from coordination.scheduler.messages import (
    Body,
    Checkpoint,
    Header,
    Message,
    Span,
    TableStatus,
    UnknownTable,
)
from coordination.scheduler.replication_manager import ReplicationManager
from coordination.scheduler.replication_set import ReplicationState
from coordination.scheduler.schedule_task import BegunMove
from coordination.scheduler.schedulers import Schedulers


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """TiCDC's ``[debug.scheduler]``, with its defaults."""

    heartbeat_tick: int = 2
    collect_stats_tick: int = 200
    max_task_concurrency: int = 10
    check_balance_interval_s: float = 60.0
    add_table_batch_size: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorInfo:
    """Who the owner is, and of what."""

    version: str
    capture_id: CaptureID
    changefeed_id: ChangefeedID
    changefeed_epoch: int
    owner_revision: Revision
    term: TermNumber  # claimed in Delta: the upper half of every fence


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanProgress:
    """A span as the progress table shows it."""

    span: Span
    state: ReplicationState
    capture_id: CaptureID | None
    epoch: ProcessorEpoch | None
    checkpoint: Checkpoint
    delta_version: int | None  # of the table at the checkpoint, as far as it was told
    status: TableStatus | None  # the last one of who writes it


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorTick:
    outbox: tuple[Message, ...]
    checkpoint: Checkpoint  # of the changefeed; what it was, while it cannot proceed
    can_proceed: bool


class Coordinator:
    """See the module's picture. One thread. An owner makes a new one for every term."""

    def __init__(
        self,
        info: CoordinatorInfo,
        settings: SchedulerSettings,
        *,
        checkpoint_ts: Ts,
        rng: random.Random,
    ) -> None:
        """``checkpoint_ts``: the changefeed's, as stored. The tables are told by `add_table`."""
        self.info = info
        self.captures = CaptureManager(
            owner_id=info.capture_id,
            heartbeat_tick=settings.heartbeat_tick,
            collect_stats_tick=settings.collect_stats_tick,
        )
        self.replication = ReplicationManager(
            term=info.term, max_task_concurrency=settings.max_task_concurrency
        )
        self._schedulers = Schedulers(
            max_task_concurrency=settings.max_task_concurrency,
            add_table_batch_size=settings.add_table_batch_size,
            check_balance_interval_s=settings.check_balance_interval_s,
            rng=rng,
        )
        self._checkpoint = Checkpoint(checkpoint_ts, checkpoint_ts)
        self._begun: list[BegunMove] = []
        self._unknown: dict[tuple[str, str], UnknownTable] = {}

    @property
    def checkpoint(self) -> Checkpoint:
        """Of the changefeed, as of the last tick."""
        return self._checkpoint

    def add_table(self, span: Span, start_ts: Ts) -> None:
        """The changefeed has this table, applied up to ``start_ts`` as far as is known (its
        progress row, or the commit-ts that made it). Again: nothing happens."""
        self.replication.add_table(span, max(start_ts, self._checkpoint.checkpoint_ts))
        self._unknown.pop((span.schema, span.table), None)

    def remove_table(self, table_id: int) -> None:
        """The table was dropped."""
        self.replication.remove_table(table_id)

    def poll(
        self,
        inbox: Sequence[Message],
        alive: Iterable[CaptureID],
        barrier: Barrier,
        now_s: float,
        *,
        unreached: Collection[CaptureID] = (),
        gone: Collection[CaptureID] = (),
    ) -> CoordinatorTick:
        """One tick. ``alive`` are the captures of etcd whose grace is not over (docs/cluster.md
        18): ``gone`` those of them whose keys are no more, ``unreached`` those that no owner has
        ever reached. Raises MultiplePrimaries."""
        reports = self.captures.handle_messages(filter(self._is_ours, inbox))
        for report in reports:
            self._note_unknown(report.capture_id)
        removed = self.captures.handle_alive_captures(alive, unreached, gone)
        was_initialized = self.replication.is_initialized
        if was_initialized:
            for report in reports:
                self._report(report)
            for capture_id in removed:
                self.replication.handle_capture_removed(capture_id)
        if self.captures.is_all_initialized:
            self._schedule(now_s, is_first=not was_initialized)
        checkpoint = self._advance_checkpoint(barrier)
        bodies: list[tuple[CaptureID, Body]] = [*self.replication.take_outbox()]
        bodies += self.captures.next_heartbeats(self._asked(), self._draining(), barrier)
        return CoordinatorTick(
            outbox=tuple(
                message for to, body in bodies if (message := self._message(to, body)) is not None
            ),
            checkpoint=self._checkpoint,
            can_proceed=checkpoint is not None,
        )

    # Asked for from outside.

    def move_table(self, table_id: int, dest: CaptureID) -> None:
        self._schedulers.move_table.move_table(table_id, dest)

    def rebalance(self) -> None:
        self._schedulers.rebalance.is_wanted = True

    def drain_capture(self, capture_id: CaptureID) -> int:
        """Begin to drain it, or go on; how many spans it still has (1 while that is not known).

        The owner itself is not drained: it resigns first (docs/cluster.md 15)."""
        if not self.captures.is_all_initialized or not self.replication.is_initialized:
            return 1
        remaining = len(self.replication.held.get(capture_id, ()))
        if len(self.captures.captures) > 1 and capture_id != self.info.capture_id:
            self._schedulers.drain_capture.set_target(capture_id)
        return remaining

    def keep_capture(self, capture_id: CaptureID) -> None:
        """Drain it no more."""
        self._schedulers.drain_capture.keep(capture_id)

    def take_moves(self) -> list[BegunMove]:
        """Those that have begun since the last call."""
        begun, self._begun = self._begun, []
        return begun

    def take_progress(self) -> list[SpanProgress]:
        """The spans that changed since the last call."""
        return [
            SpanProgress(
                span=made.span,
                state=made.state,
                capture_id=made.primary,
                epoch=self._epoch(made.primary),
                checkpoint=made.checkpoint,
                delta_version=made.delta_version,
                status=made.status,
            )
            for made in self.replication.take_advanced()
        ]

    def unregistered_tables(self) -> list[UnknownTable]:
        """What the captures' scans met and no `add_table` has named. The checkpoint waits below
        the first commit-ts of each (docs/cluster.md 4)."""
        return [self._unknown[name] for name in sorted(self._unknown)]

    # The parts of a tick.

    def _is_ours(self, message: Message) -> bool:
        header, info = message.header, self.info
        return (
            message.to == info.capture_id
            and message.changefeed_id == info.changefeed_id
            and header.owner_revision == info.owner_revision
            and header.changefeed_epoch == info.changefeed_epoch
        )

    def _report(self, report: Report) -> None:
        if report.is_restart:
            statuses = {status.table_id: status for status in report.statuses}
            self.replication.handle_capture_restarted(report.capture_id, statuses)
        self.replication.handle_report(report.capture_id, report.statuses)

    def _note_unknown(self, capture_id: CaptureID) -> None:
        """Kept until it is registered, whatever becomes of the capture that met it."""
        scan = self.captures.captures[capture_id].scan
        for table in scan.unknown_tables if scan is not None else ():
            name = (table.schema, table.table)
            known = self._unknown.get(name, table)
            # at or below the checkpoint: an old list, of a table that was registered and dropped
            is_old = table.commit_ts <= self._checkpoint.checkpoint_ts
            if not is_old and not self.replication.has_table(*name):
                self._unknown[name] = min(known, table, key=lambda t: t.commit_ts)

    def _scan_limit_ts(self) -> Ts | None:
        """Nothing above has been searched for tables by anybody; below the first that is nobody's.

        None where no capture says how far it has read."""
        scans = [c.scan.scanned_to_ts for c in self.captures.captures.values() if c.scan]
        limits = [max(scans)] if scans else []
        limits += [Ts(table.commit_ts - 1) for table in self._unknown.values()]
        return min(limits, default=None)

    def _schedule(self, now_s: float, *, is_first: bool) -> None:
        captures, replication = self.captures.initialized, self.replication
        if is_first:
            reported = {c.id: c.view.statuses for c in captures.values()}
            replication.initialize(reported, self._checkpoint.checkpoint_ts)
        replication.handle_tasks(self._schedulers.schedule(captures, replication, now_s))
        for task in replication.begun.values():
            origin = replication.sets[task.table_id].primary or CaptureID("")
            why = self._schedulers.acted or ""
            self._begun.append(BegunMove(task.table_id, origin, task.dest, why))
        replication.begun.clear()

    def _advance_checkpoint(self, barrier: Barrier) -> Checkpoint | None:
        new = self.replication.advance_checkpoint(barrier)
        if new is not None:
            limit_ts, old = self._scan_limit_ts(), self._checkpoint
            checkpoint_ts = new.checkpoint_ts if limit_ts is None else min(new[0], limit_ts)
            self._checkpoint = Checkpoint(
                Ts(max(checkpoint_ts, old.checkpoint_ts)), max(new.resolved_ts, old.resolved_ts)
            )
        return new

    def _asked(self) -> dict[CaptureID, list[int]]:
        """What is under way is asked for in every heartbeat: answers are what resends hang on."""
        asked: dict[CaptureID, list[int]] = {}
        for table_id, made in self.replication.unsettled.items():
            for capture_id in made.holders:
                asked.setdefault(capture_id, []).append(table_id)
        return asked

    def _draining(self) -> set[CaptureID]:
        drain = self._schedulers.drain_capture
        return drain.told if drain.target is None else {*drain.told, drain.target}

    def _epoch(self, capture_id: CaptureID | None) -> ProcessorEpoch | None:
        capture = None if capture_id is None else self.captures.captures.get(capture_id)
        return None if capture is None else capture.epoch

    def _message(self, to: CaptureID, body: Body) -> Message | None:
        capture = self.captures.captures.get(to)
        if capture is None:  # gone in this very tick
            return None
        return Message(
            header=Header(
                version=self.info.version,
                owner_revision=self.info.owner_revision,
                processor_epoch=capture.epoch or ProcessorEpoch(""),
                changefeed_epoch=self.info.changefeed_epoch,
            ),
            sender=self.info.capture_id,
            to=to,
            changefeed_id=self.info.changefeed_id,
            body=body,
        )
