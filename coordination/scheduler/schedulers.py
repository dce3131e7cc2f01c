"""Who is to have which span: schedulers, asked in the order of their priority.

    basic > failover > drain-capture > move-table > rebalance > balance

The first one that wants something wins the tick; all but the first two wait while as many tasks are
running as may. The schedulers look at indexes: none walks over all spans while nothing is wrong.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from itertools import chain, islice
from typing import Final, Protocol

from coordination.model import CaptureID
from coordination.scheduler.capture_manager import CaptureState, CaptureStatus
from coordination.scheduler.replication_manager import ReplicationManager
from coordination.scheduler.replication_set import ReplicationState
from coordination.scheduler.schedule_task import (
    AddTask,
    BurstBalance,
    MoveTask,
    RemoveTask,
    ScheduleTask,
)

Captures = Mapping[CaptureID, CaptureStatus]


class Scheduler(Protocol):
    @property
    def name(self) -> str:
        """For log lines: why a table goes elsewhere."""
        ...

    def schedule(
        self, captures: Captures, replication: ReplicationManager, now_s: float
    ) -> list[ScheduleTask]: ...


class BasicScheduler:
    """Adds spans that nobody has, in turns to all captures that are not ending, and removes those
    of dropped tables."""

    name: Final = "basic"

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._turn = 0

    def schedule(
        self, captures: Captures, replication: ReplicationManager, _now_s: float
    ) -> list[ScheduleTask]:
        removes = [RemoveTask(t) for t in replication.dropped if t not in replication.running]
        adds = self._adds(_able(captures), replication)
        return [BurstBalance((*removes, *adds))] if removes or adds else []

    def _adds(self, able: list[CaptureID], replication: ReplicationManager) -> list[AddTask]:
        if not able:
            return []
        adds = []
        for table_id in islice(chain(replication.absent, replication.missing), self._batch_size):
            made = replication.sets.get(table_id)
            busy = made.undetermined if made is not None else ()  # they have yet to stop it
            capture_id = self._next(able)
            if capture_id in busy:
                capture_id = self._next(able)
            if capture_id not in busy:
                adds.append(AddTask(table_id, capture_id))
        return adds

    def _next(self, able: list[CaptureID]) -> CaptureID:
        self._turn += 1
        return able[self._turn % len(able)]


class FailoverScheduler:
    """Begins to move the spans of captures that are gone from etcd. They are prepared elsewhere
    while the grace lasts, and written there when it is over: the set waits for that."""

    name: Final = "failover"

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size

    def schedule(
        self, captures: Captures, replication: ReplicationManager, _now_s: float
    ) -> list[ScheduleTask]:
        able = _able(captures)
        victims = [
            table_id
            for capture in captures.values()
            if capture.is_gone and able
            for table_id in sorted(replication.held.get(capture.id, ()))
            if replication.sets[table_id].is_settled and table_id in replication.tables
        ]
        moves = _spread(victims[: self._batch_size], able, replication)
        return [BurstBalance(tuple(moves))] if moves else []


class DrainCaptureScheduler:
    """Empties one capture at a time: the one that it was told, or one that says it is ending."""

    name: Final = "drain"

    def __init__(self, max_task_concurrency: int) -> None:
        self.target: CaptureID | None = None
        self.told: set[CaptureID] = set()  # to be drained, spans or not; they are to hear of it
        self._kept: set[CaptureID] = set()  # taken back, and not heard of since
        self._max_task_concurrency = max_task_concurrency

    def set_target(self, capture_id: CaptureID) -> bool:
        """False while another one is being drained."""
        self.told.add(capture_id)
        self._kept.discard(capture_id)
        if self.target not in (None, capture_id):
            return False
        self.target = capture_id
        return True

    def keep(self, capture_id: CaptureID) -> None:
        """Drain it no more. It may go on saying that it ends until it has heard of this."""
        self._kept.add(capture_id)
        self.told.discard(capture_id)
        if self.target == capture_id:
            self.target = None

    def schedule(
        self, captures: Captures, replication: ReplicationManager, _now_s: float
    ) -> list[ScheduleTask]:
        self._kept -= {c.id for c in captures.values() if c.state is CaptureState.INITIALIZED}
        self.told &= {c.id for c in captures.values() if c.state is not CaptureState.STOPPING}
        if self.target is None or self.target not in captures:
            self.target = _ending(captures, replication, self._kept)
        able = [capture_id for capture_id in _able(captures) if capture_id != self.target]
        if not able:
            self.told.clear()
        if self.target is None or not able:
            self.target = None
            return []
        if not replication.is_settled:
            return []
        victims = sorted(replication.held.get(self.target, ()))[: self._max_task_concurrency]
        if not victims:
            self.target = None
        return [*_spread(victims, able, replication)]


class MoveTableScheduler:
    """Moves that somebody asked for, each until it is under way or pointless."""

    name: Final = "move"

    def __init__(self) -> None:
        self.placed: dict[int, CaptureID] = {}  # what was asked for last, done or not
        self._moves: dict[int, CaptureID] = {}

    def move_table(self, table_id: int, dest: CaptureID) -> None:
        self._moves[table_id] = self.placed[table_id] = dest

    def schedule(
        self, captures: Captures, replication: ReplicationManager, _now_s: float
    ) -> list[ScheduleTask]:
        able, tasks = _able(captures), []
        for table_id, dest in list(self._moves.items()):
            made = replication.sets.get(table_id)
            if table_id not in replication.tables or dest not in able:
                del self._moves[table_id]
                self.placed.pop(table_id, None)
            elif made is None or made.state is not ReplicationState.REPLICATING:
                if made is not None and made.secondary == dest:
                    del self._moves[table_id]
            elif made.primary == dest:
                del self._moves[table_id]
            else:
                tasks.append(MoveTask(table_id, dest))
        return [*tasks]


class RebalanceScheduler:
    """Evens out all captures at once, when somebody asked for it and all is settled. It frees what
    was placed by hand."""

    name: Final = "rebalance"

    def __init__(self, rng: random.Random, placed: dict[int, CaptureID]) -> None:
        self._rng = rng
        self._placed = placed
        self.is_wanted = False

    def schedule(
        self, captures: Captures, replication: ReplicationManager, _now_s: float
    ) -> list[ScheduleTask]:
        if not self.is_wanted or not replication.is_settled or not _able(captures):
            return []
        self.is_wanted = False
        self._placed.clear()
        moves = _balance_moves(captures, replication, self._rng, self._placed)
        return [BurstBalance(tuple(moves))] if moves else []


class BalanceScheduler:
    """Evens out the captures a few spans at a time. Looks every ``interval_s``; once it has begun,
    whenever its last moves have ended. What was ``placed`` by hand stays where it was placed
    (in TiCDC it may go a minute later)."""

    name: Final = "balance"

    def __init__(
        self,
        interval_s: float,
        rng: random.Random,
        max_task_concurrency: int,
        placed: Mapping[int, CaptureID],
    ) -> None:
        self._placed = placed
        self._interval_s = interval_s
        self._rng = rng
        self._max_task_concurrency = max_task_concurrency
        self._last_s: float | None = None
        self._is_forced = False

    def schedule(
        self, captures: Captures, replication: ReplicationManager, now_s: float
    ) -> list[ScheduleTask]:
        if self._last_s is None:
            self._last_s = now_s
        is_due = self._is_forced or now_s - self._last_s >= self._interval_s
        if not is_due or not replication.is_settled:
            return []
        self._last_s = now_s
        if len(_able(captures)) < len(captures):
            return []  # somebody is ending: the drain comes first
        moves = _balance_moves(captures, replication, self._rng, self._placed)
        moves = moves[: self._max_task_concurrency]
        self._is_forced = bool(moves)
        return [*moves]


class Schedulers:
    """All of them, by priority."""

    def __init__(
        self,
        *,
        max_task_concurrency: int,
        add_table_batch_size: int,
        check_balance_interval_s: float,
        rng: random.Random,
    ) -> None:
        self.acted: str | None = None  # the name of who wanted something last
        self.drain_capture = DrainCaptureScheduler(max_task_concurrency)
        self.move_table = MoveTableScheduler()
        placed = self.move_table.placed
        self.rebalance = RebalanceScheduler(rng, placed)
        self._urgent: Final[tuple[Scheduler, ...]] = (
            BasicScheduler(add_table_batch_size),
            FailoverScheduler(add_table_batch_size),
        )
        self._others: Final[tuple[Scheduler, ...]] = (
            self.drain_capture,
            self.move_table,
            self.rebalance,
            BalanceScheduler(check_balance_interval_s, rng, max_task_concurrency, placed),
        )

    def schedule(
        self, captures: Captures, replication: ReplicationManager, now_s: float
    ) -> list[ScheduleTask]:
        for scheduler in (*self._urgent, *(() if replication.is_full else self._others)):
            if tasks := scheduler.schedule(captures, replication, now_s):
                self.acted = scheduler.name
                return tasks
        return []


def _able(captures: Captures) -> list[CaptureID]:
    """Who may be given spans."""
    return sorted(
        c.id for c in captures.values() if c.state is CaptureState.INITIALIZED and not c.is_gone
    )


def _ending(
    captures: Captures, replication: ReplicationManager, kept: Collection[CaptureID]
) -> CaptureID | None:
    """A capture that ends and still has spans; not the owner, which resigns first."""
    ending = (
        c.id
        for c in captures.values()
        if c.state is CaptureState.STOPPING
        and c.id not in kept
        and not c.is_owner
        and replication.held.get(c.id)
    )
    return min(ending, default=None)


def _spread(
    victims: list[int], able: list[CaptureID], replication: ReplicationManager
) -> list[MoveTask]:
    """Each to whoever has the fewest by then."""
    loads = {capture_id: len(replication.held.get(capture_id, ())) for capture_id in able}
    moves = []
    for table_id in victims:
        dest = min(able, key=lambda capture_id: (loads[capture_id], capture_id))
        loads[dest] += 1
        moves.append(MoveTask(table_id, dest))
    return moves


def _balance_moves(
    captures: Captures,
    replication: ReplicationManager,
    rng: random.Random,
    placed: Mapping[int, CaptureID],
) -> list[MoveTask]:
    """Take what is above the even share, ceil(spans / captures), and spread it; but for what was
    placed where it is."""
    able = _able(captures)
    share = -(-len(replication.sets) // len(able))
    victims: list[int] = []
    for capture_id in able:
        held = replication.held.get(capture_id, ())
        if len(held) > share:
            free = sorted(t for t in held if placed.get(t) != capture_id)
            victims += rng.sample(free, min(len(free), len(held) - share))
    # who is over the share is never the one with the fewest
    return _spread(victims, able, replication)
