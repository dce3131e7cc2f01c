"""One term of a changefeed's owner: what it does in each tick while the changefeed runs.

    once: the control writer has claimed the term ─► a Coordinator
    each tick: DDL scan, changes of tables ─► barrier ─► poll ─► checkpoint ─┬► a DDL that is due
                                                                            ├► a sync point
                                                                            └► progress rows
    barrier = min(DDL scan, pending DDL, next sync point, target-ts), never below the checkpoint

A table may wait for an operator at a DDL that cannot run. The checkpoint waits with it; the other
tables go on, and so do their DDLs, until nothing goes on any more: then the changefeed stops.

Nothing of one term is used in another: the fences of an earlier term are below this one's, and the
agents drop messages of another launch or changefeed epoch.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from coordination.capture.owner.sync_point import interval_ms, next_sync_point
from coordination.metadata.records import ChangefeedInfo
from coordination.model import NO_TS, CaptureID, CaptureInfo, Ts, lowest
from coordination.ports import Advance, Claim, ControlWriter, DdlScan
from coordination.scheduler.barrier import Barrier, PendingDdl, compute_barrier
from coordination.scheduler.coordinator import Coordinator, CoordinatorInfo, CoordinatorTick
from coordination.scheduler.messages import Checkpoint, Message
from coordination.scheduler.schedulers import SchedulerSettings

RECORD_S: Final = 1.0  # between two records of progress
# A capture ID that stands for captures that may have died before this owner could see them. It
# never answers, so the coordinator assigns nothing while it is listed as alive.
UNSEEN: Final = CaptureID("")


@dataclass(frozen=True, slots=True, kw_only=True)
class TermTick:
    """The result of a tick. ``is_known``: the checkpoint comes from reports of the spans and may be
    written to etcd; else it is only the stored one."""

    outbox: tuple[Message, ...]
    checkpoint_ts: Ts
    others_ts: Ts  # the same without the tables that wait for an operator
    min_table_barrier_ts: Ts
    is_known: bool
    awaits: str = ""


class Term:
    """One run of a changefeed, under one term. One thread. `tick` may raise what `ControlWriter`
    and `Coordinator` raise."""

    def __init__(
        self,
        info: ChangefeedInfo,
        control: ControlWriter,
        *,
        capture: CaptureInfo,
        launch: int,
        settings: SchedulerSettings,
        rng: random.Random,
        placed: dict[int, CaptureID] | None = None,
    ) -> None:
        """``capture`` is the owner's own. ``placed``: see `Schedulers`. Raises ``ConfigError``."""
        self.coordinator: Coordinator | None = None  # until the term is claimed
        self.epoch = info.epoch
        self.control = control
        self._info = info
        self._capture = capture
        self._launch = launch
        self._settings = settings
        self._rng = rng
        self._placed = placed
        self._interval_ms = interval_ms(info.config)
        self._published_ts = NO_TS  # the next sync point is the first one above it
        self._is_on_grid = True
        self._record_at = float("-inf")
        self._recorded: Checkpoint | None = None
        self.due_at = float("-inf")  # when the next tick is due though nothing happens; monotonic
        self._recorded_sync_ts = NO_TS
        self._due: PendingDdl | None = None
        self._is_finished = False
        self._has_caught_up = False  # the control writer says so
        self._was_caught_up = False  # as of the last tick
        self._awaits = ""

    @property
    def is_caught_up(self) -> bool:
        """Whether everything in Kafka was read, everything due was written, and every span is at
        work: nothing is left that could fail."""
        coordinator = self.coordinator
        if coordinator is None or not self._has_caught_up:
            return False
        has_spans = bool(coordinator.replication.tables)
        return coordinator.replication.is_settled and (
            not has_spans or bool(low_water_positions(coordinator))
        )

    def tick(
        self,
        inbox: Sequence[Message],
        alive: Collection[CaptureID],
        now_s: float,
        *,
        unreached: Collection[CaptureID] = (),
        gone: Collection[CaptureID] = (),
    ) -> TermTick | None:
        """One tick; None until the term is claimed. ``alive`` contains UNSEEN as long as a capture
        that died before this owner could see it may still write. ``unreached`` are captures that
        have never had a span, ``gone`` the dead captures within their grace."""
        coordinator = self.coordinator
        if coordinator is None:
            claim = self.control.claimed()
            if claim is None:
                return None
            if 0 < self._info.target_ts <= claim.checkpoint_ts:
                return _ended_before(claim)
            coordinator = self.coordinator = self._begin(claim)
        # The scan before the changes, which then have the tables of every DDL that has run.
        scan = self.control.ddl_scan()
        self._take_changes(coordinator)
        if not self._is_on_grid:
            self._find_grid(coordinator, scan)
        barrier = self._barrier(coordinator, scan)
        ticked = coordinator.poll(
            inbox,
            alive,
            barrier,
            now_s,
            unreached=unreached,
            gone=gone,
            held=held_tables(scan),
        )
        if held_tables(scan):  # the others go on over sync points: no barrier may fall back to one
            self._published_ts = max(self._published_ts, barrier.global_barrier_ts)
        if ticked.can_proceed:
            self._proceed(coordinator, ticked, scan, now_s)
        self.due_at = self._next_due_at(ticked, scan)
        return TermTick(
            outbox=tuple(each for each in ticked.outbox if each.to != UNSEEN),
            checkpoint_ts=ticked.checkpoint.checkpoint_ts,
            others_ts=ticked.others_ts,
            min_table_barrier_ts=barrier.min_table_barrier_ts,
            is_known=ticked.can_proceed and self._may_tell(ticked.checkpoint.checkpoint_ts),
            awaits=self._awaits,
        )

    def _next_due_at(self, ticked: CoordinatorTick, scan: DdlScan) -> float:
        was_caught_up, self._was_caught_up = self._was_caught_up, self.is_caught_up
        if was_caught_up != self._was_caught_up:  # the state may follow from it
            return float("-inf")
        is_waiting = ticked.is_awaiting or bool(scan.pending) or not ticked.can_proceed
        if is_waiting or not self._may_tell(ticked.checkpoint.checkpoint_ts):
            return float("-inf")
        return float("inf") if ticked.checkpoint == self._recorded else self._record_at

    def _may_tell(self, checkpoint_ts: Ts) -> bool:
        """Whether etcd may be told this checkpoint. The target-ts is told only after the control
        tables have the end: once etcd has it, the changefeed is finished and its writer closed."""
        return self._is_finished or not 0 < self._info.target_ts <= checkpoint_ts

    def _begin(self, claim: Claim) -> Coordinator:
        checkpoint_ts = claim.checkpoint_ts
        # A sync point at the checkpoint itself may be unpublished: its owner may have died then.
        self._published_ts = Ts(max(claim.published_ts, checkpoint_ts - 1, NO_TS))
        self._is_on_grid = self._interval_ms is None or checkpoint_ts > NO_TS
        coordinator = Coordinator(
            CoordinatorInfo(
                version=self._capture.version,
                capture_id=self._capture.id,
                changefeed_id=self._info.id,
                changefeed_epoch=self._info.epoch,
                launch=self._launch,
                term=claim.term,
            ),
            self._settings,
            checkpoint_ts=checkpoint_ts,
            rng=self._rng,
            placed=self._placed,
        )
        for table in claim.tables:
            coordinator.add_table(table.span, table.start_ts)
        return coordinator

    def _find_grid(self, coordinator: Coordinator, scan: DdlScan) -> None:
        """For a changefeed that starts at TSO 0: skip the sync points before its first table.
        Otherwise every one since 1970 would be taken, with no table to read at it."""
        replication = coordinator.replication
        known = [*replication.missing.values()]
        known += [made.checkpoint_ts for made in replication.sets.values()]
        self._is_on_grid = bool(known)
        known += [ddl.commit_ts for ddl in scan.pending]
        first_ts = min(known, default=scan.position_ts)
        self._published_ts = Ts(max(self._published_ts, first_ts - 1))

    def _take_changes(self, coordinator: Coordinator) -> None:
        changes = self.control.take_changes()
        for table_id in changes.removed:
            coordinator.replication.remove_table(table_id)
        for table in changes.added:
            coordinator.add_table(table.span, table.start_ts)
        if changes.published_ts is not None:
            self._published_ts = Ts(max(self._published_ts, changes.published_ts))
        self._is_finished = changes.is_finished
        self._has_caught_up, self._awaits = changes.is_caught_up, changes.awaits

    @property
    def _sync_point_ts(self) -> Ts | None:
        if self._interval_ms is None:
            return None
        return next_sync_point(self._published_ts, self._interval_ms)

    def _barrier(self, coordinator: Coordinator, scan: DdlScan) -> Barrier:
        """The barrier of this tick. It stays at the checkpoint until the owner's reader says how
        far it has searched the topics for DDLs and tables (docs/cluster.md 4)."""
        return compute_barrier(
            checkpoint_ts=coordinator.checkpoint.checkpoint_ts,
            ddl_scan_ts=scan.position_ts,
            pending_ddls=scan.pending,
            next_sync_point_ts=None if held_tables(scan) else self._sync_point_ts,
            target_ts=self._info.target_ts or None,
        )

    def _nothing_goes_on(self, coordinator: Coordinator, others_ts: Ts, scan: DdlScan) -> bool:
        """Whether tables wait for an operator, and there are no others, or these may not go on."""
        held = held_tables(scan)
        is_over = 0 < self._info.target_ts <= others_ts
        is_over |= held.issuperset(coordinator.replication.tables)
        return bool(held) and is_over and others_ts >= scan.pending[0].commit_ts

    def _proceed(
        self, coordinator: Coordinator, ticked: CoordinatorTick, scan: DdlScan, now_s: float
    ) -> None:
        due = first_due(scan.pending, ticked.others_ts)
        if due is None and self._nothing_goes_on(coordinator, ticked.others_ts, scan):
            due = scan.pending[0]
        is_news = due is not None and due != self._due  # it needs what its tables report
        self._due = due
        self._record(coordinator, ticked, scan, now_s, is_news=is_news, is_ddl_due=due is not None)
        if due is not None:
            self.control.run_ddl(due)

    def _record(
        self,
        coordinator: Coordinator,
        ticked: CoordinatorTick,
        scan: DdlScan,
        now_s: float,
        *,
        is_news: bool,
        is_ddl_due: bool,
    ) -> None:
        checkpoint_ts = ticked.checkpoint.checkpoint_ts
        is_all_known = not is_ddl_due and scan.position_ts >= checkpoint_ts
        is_sync_point = (
            is_all_known
            and checkpoint_ts == self._sync_point_ts
            and coordinator.replication.is_reported(checkpoint_ts)
        )
        is_news |= is_sync_point and checkpoint_ts > self._recorded_sync_ts
        finished = 0 < self._info.target_ts <= checkpoint_ts
        if now_s < self._record_at and not is_news and not finished:
            return  # never at the end: the control writer is closed right after it
        self._record_at = now_s + RECORD_S
        self._recorded = ticked.checkpoint
        if is_sync_point:
            self._recorded_sync_ts = checkpoint_ts
        self.control.record(
            Advance(
                checkpoint_ts=checkpoint_ts,
                resolved_ts=ticked.checkpoint.resolved_ts,
                spans=coordinator.take_progress(),
                source_positions=low_water_positions(coordinator),
                read_positions=read_positions(coordinator),
                finished=finished,
                sync_point_ts=checkpoint_ts if is_sync_point else None,
            )
        )


def _ended_before(claim: Claim) -> TermTick:
    """The tick of a changefeed that is at its target-ts already: it needs no Coordinator."""
    return TermTick(
        outbox=(),
        checkpoint_ts=claim.checkpoint_ts,
        others_ts=claim.checkpoint_ts,
        min_table_barrier_ts=claim.checkpoint_ts,
        is_known=True,
    )


def held_tables(scan: DdlScan) -> set[int]:
    """The IDs of the tables that wait for an operator."""
    return {each for ddl in scan.pending if ddl.is_held for each in ddl.table_ids or ()}


def first_due(pending: Sequence[PendingDdl], reached_ts: Ts) -> PendingDdl | None:
    """The DDL to run now: the first in order that waits for no operator, if all tables have reached
    it that do not either; else None. So DDLs run one at a time."""
    first = next((each for each in pending if not each.is_held), None)
    return first if first is not None and first.commit_ts <= reached_ts else None


def read_positions(coordinator: Coordinator) -> dict[str, int]:
    """Up to which offset of each partition the captures that hold spans have read the source and
    are done with it: the least of the captures. Empty: not known now."""
    return lowest(_read_to(coordinator).values())


def low_water_positions(coordinator: Coordinator) -> dict[str, int]:
    """From which offset of each partition the source would have to be read again after a restart
    now, except for spans that hold unapplied rows: their progress rows have their own low water.
    Empty: not known now.

    It is known only while every span is settled on a capture that has said how far it has read. A
    partition that was added counts once all of them read it."""
    replication, read_to = coordinator.replication, _read_to(coordinator)
    if not replication.is_settled or replication.sets.primaries - read_to.keys():
        return {}
    reads = read_to.values()
    return {p: at for p, at in lowest(reads).items() if all(p in read for read in reads)}


def _read_to(coordinator: Coordinator) -> dict[CaptureID, Mapping[str, int]]:
    """How far the captures with spans have read, by capture."""
    primaries = coordinator.replication.sets.primaries
    captures = coordinator.captures.captures.items()
    return {
        each: capture.read_positions
        for each, capture in captures
        if each in primaries and capture.read_positions is not None
    }
