"""Which capture is to have which span: several schedulers, asked in the order of their priority.

    basic > failover > drain-capture > move-table > rebalance > balance

The first one that has tasks gets the tick. All but the first two wait while the greatest allowed
number of tasks runs. They use indexes: none walks over all spans while there is nothing to do.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

from coordination.model import CaptureID
from coordination.scheduler.capture_manager import CaptureState, CaptureStatus
from coordination.scheduler.replication_manager import ReplicationManager, Schedule, ScheduleTask
from coordination.scheduler.replication_set import ReplicationState

Captures = Mapping[CaptureID, CaptureStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """TiCDC's ``[debug.scheduler]``, with its defaults."""

    heartbeat_tick: int = 2
    max_task_concurrency: int = 10
    check_balance_interval_s: float = 60.0
    add_table_batch_size: int = 50


class View(NamedTuple):
    """What the schedulers look at in one tick."""

    captures: Captures
    able: list[CaptureID]  # those of them that may be given spans
    replication: ReplicationManager


class Schedulers:
    """Mutable; one thread."""

    def __init__(
        self,
        settings: SchedulerSettings,
        rng: random.Random,
        *,
        placed: dict[int, CaptureID] | None = None,
    ) -> None:
        """``placed``: where an operator wants which table, in an earlier term of this owner too.
        It is changed here."""
        self.drain_target: CaptureID | None = None
        self.drain_asked: set[CaptureID] = set()  # heartbeats tell them, even those without spans
        self.moves: dict[int, CaptureID] = {}  # asked for by operators, and not begun yet
        # By an operator, moved yet or not: not balanced, and given back there.
        self.placed = placed if placed is not None else {}
        self.rebalance_is_wanted = False
        self._settings = settings
        self._rng = rng
        self._turn = 0
        self._kept: set[CaptureID] = set()  # drain taken back, but they still report Stopping
        self._balanced_at: float | None = None
        self._is_balancing = False

    def schedule(  # noqa: PLR0911 - one per scheduler
        self, captures: Captures, replication: ReplicationManager, now_s: float
    ) -> Schedule:
        able = sorted(
            c.id for c in captures.values() if c.state is CaptureState.INITIALIZED and not c.is_gone
        )
        view = View(captures, able, replication)
        if tasks := self._add_and_remove(view):
            return Schedule("basic", tasks, is_burst=True)
        if tasks := self._fail_over(view):
            return Schedule("failover", tasks, is_burst=True)
        if replication.is_full:
            return Schedule("", ())
        if tasks := self._drain(view):
            return Schedule("drain", tasks)
        if tasks := self._move(view):
            return Schedule("move", tasks)
        if tasks := self._rebalance(view):
            return Schedule("rebalance", tasks, is_burst=True)
        return Schedule("balance", self._balance(view, now_s))

    # What operators ask for.

    def move_table(self, table_id: int, dest: CaptureID) -> None:
        self.moves[table_id] = self.placed[table_id] = dest

    def drain_capture(self, capture_id: CaptureID) -> None:
        """Drain a capture; it waits while another one is being drained."""
        self.drain_asked.add(capture_id)
        self._kept.discard(capture_id)
        if self.drain_target is None:
            self.drain_target = capture_id

    def keep_capture(self, capture_id: CaptureID) -> None:
        """Stop draining a capture. Until it has heard of that, it may still report Stopping."""
        self._kept.add(capture_id)
        self.drain_asked.discard(capture_id)
        if self.drain_target == capture_id:
            self.drain_target = None

    @property
    def draining(self) -> set[CaptureID]:
        """The captures whose heartbeats say that they are being drained."""
        target = self.drain_target
        return self.drain_asked if target is None else {*self.drain_asked, target}

    # The schedulers.

    def _add_and_remove(self, view: View) -> list[ScheduleTask]:
        """Assigns the spans that no capture has, in turn to the captures that may be given spans;
        and stops the spans of dropped tables."""
        replication = view.replication
        tasks = [ScheduleTask(table_id, None) for table_id in replication.dropped]
        if not view.able:
            return tasks
        batch_size = self._settings.add_table_batch_size
        for table_id in islice(chain(replication.absent, replication.missing), batch_size):
            span_set = replication.sets.get(table_id)
            busy = span_set.undetermined if span_set is not None else ()  # must stop it first
            dest = self.placed.get(table_id)
            if dest is None or dest not in view.able or dest in busy:
                dest = self._next(view.able)
            if dest in busy:
                dest = self._next(view.able)
            if dest not in busy:
                tasks.append(ScheduleTask(table_id, dest))
        return tasks

    def _next(self, able: list[CaptureID]) -> CaptureID:
        self._turn += 1
        return able[self._turn % len(able)]

    def _fail_over(self, view: View) -> list[ScheduleTask]:
        """Begins to move the spans of captures that are gone from etcd. Other captures prepare the
        spans while the grace lasts, and write them when it is over: the set waits for that."""
        replication = view.replication
        victims = [
            table_id
            for capture in view.captures.values()
            if capture.is_gone and view.able
            for table_id in sorted(replication.held.get(capture.id, ()))
            if replication.sets[table_id].is_settled and table_id in replication.tables
        ]
        return _spread(victims[: self._settings.add_table_batch_size], view.able, replication)

    def _drain(self, view: View) -> list[ScheduleTask]:
        """Moves the spans away from one capture at a time: one that an operator wants drained, or
        one that reports Stopping (not the owner, which resigns first)."""
        captures, replication = view.captures.values(), view.replication
        self._kept -= {c.id for c in captures if c.state is CaptureState.INITIALIZED}
        self.drain_asked &= {c.id for c in captures if c.state is not CaptureState.STOPPING}
        if self.drain_target not in view.captures:
            ending = (
                c.id
                for c in captures
                if c.state is CaptureState.STOPPING
                and c.id not in self._kept
                and not c.is_owner
                and replication.held.get(c.id)
            )
            self.drain_target = min(ending, default=None)
        able = [capture_id for capture_id in view.able if capture_id != self.drain_target]
        if not able:
            self.drain_asked.clear()
        if self.drain_target is None or not able:
            self.drain_target = None
            return []
        if not replication.is_settled:
            return []
        victims = sorted(replication.held.get(self.drain_target, ()))
        if not victims:
            self.drain_target = None
        return _spread(victims[: self._settings.max_task_concurrency], able, replication)

    def _move(self, view: View) -> list[ScheduleTask]:
        """The moves that operators asked for, each until it has begun or cannot be done: the table
        or the capture is gone, or the table is there already."""
        replication, tasks = view.replication, []
        for table_id, dest in list(self.moves.items()):
            span_set = replication.sets.get(table_id)
            if table_id not in replication.tables or dest not in view.able:
                del self.moves[table_id]
                self.placed.pop(table_id, None)
            elif span_set is None or span_set.state is not ReplicationState.REPLICATING:
                if span_set is not None and span_set.secondary == dest:
                    del self.moves[table_id]
            elif span_set.primary == dest:
                del self.moves[table_id]
            else:
                tasks.append(ScheduleTask(table_id, dest))
        return tasks

    def _rebalance(self, view: View) -> list[ScheduleTask]:
        """Spreads the spans evenly, all at once, when an operator asked for it and all is settled.
        Tables that an operator had moved may be moved away again."""
        if not self.rebalance_is_wanted or not view.replication.is_settled or not view.able:
            return []
        self.rebalance_is_wanted = False
        self.placed.clear()
        return self._even_out(view)

    def _balance(self, view: View, now_s: float) -> list[ScheduleTask]:
        """Spreads the spans evenly, a few at a time. It checks once per interval and, after it has
        begun, whenever its last moves have ended. Tables that an operator has moved stay where they
        are (in TiCDC they may be moved away a minute later)."""
        if self._balanced_at is None:
            self._balanced_at = now_s
        interval_s = self._settings.check_balance_interval_s
        is_due = self._is_balancing or now_s - self._balanced_at >= interval_s
        if not is_due or not view.replication.is_settled:
            return []
        self._balanced_at = now_s
        if len(view.able) < len(view.captures):
            return []  # a capture is ending: it is drained first
        moves = self._even_out(view)[: self._settings.max_task_concurrency]
        self._is_balancing = bool(moves)
        return moves

    def _even_out(self, view: View) -> list[ScheduleTask]:
        """Moves the spans above the even share, ceil(spans / captures), to the captures with the
        fewest; not those that an operator has moved to where they are."""
        share = -(-len(view.replication.sets) // len(view.able))
        victims: list[int] = []
        for capture_id in view.able:
            held = view.replication.held.get(capture_id, ())
            if len(held) > share:
                free = sorted(t for t in held if self.placed.get(t) != capture_id)
                victims += self._rng.sample(free, min(len(free), len(held) - share))
        # A capture above the share never has the fewest spans, so it gets none of these.
        return _spread(victims, view.able, view.replication)


def _spread(
    victims: Sequence[int], able: list[CaptureID], replication: ReplicationManager
) -> list[ScheduleTask]:
    """Tasks that move each span to the capture that has the fewest spans by then."""
    loads = {capture_id: len(replication.held.get(capture_id, ())) for capture_id in able}
    tasks = []
    for table_id in victims:
        dest = min(able, key=lambda capture_id: (loads[capture_id], capture_id))
        loads[dest] += 1
        tasks.append(ScheduleTask(table_id, dest))
    return tasks
