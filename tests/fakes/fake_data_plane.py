"""The data side of one capture over a source and a warehouse in memory.

Steps take virtual time, and get on when `step` is called: not while their capture is frozen. A
write is made ready, checked (fence, state, barrier), then is under way, and lands without another
look, even if its capture is frozen or dead by then: a commit that has been sent cannot be called
back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from coordination.errors import Fenced
from coordination.fence import Fence
from coordination.metadata.model import ChangefeedInfo, RunningError
from coordination.model import Ownership, Ts
from coordination.ports import (
    CaptureIdentity,
    Trouble,
    Wake,
)
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import (
    Checkpoint,
    Scan,
    Span,
    TableState,
    TableStatus,
    UnknownTable,
)
from tests.fakes.fake_owner_desk import FakeDesk
from tests.fakes.fake_source import FakeSource, ts_at
from tests.fakes.fake_warehouse import FakeWarehouse, Landing

_T = TableState


Sent = tuple[float, int, Landing]  # when it lands, in which table


@dataclass
class _Write:
    landing: Landing
    lands_at: float
    is_gone: bool = False  # somebody else sees to its landing


@dataclass
class _SpanTask:
    """One span here."""

    span: Span
    state: TableState
    checkpoint_ts: int
    added_ts: int  # the checkpoint of the request
    fence: int
    due_at: float = 0.0
    write: _Write | None = None


@dataclass
class Pace:
    """How slow a data plane is."""

    slow_s: float = 0.6  # the longest that a step takes
    commit_s: float = 2.0  # the longest that a commit takes
    long_chance: float = 0.2  # of a commit that may take so long; the others are quick
    batch_s: float | None = None  # of history in one write, so that there is a backlog


class FakeDataPlane:
    """One per process."""

    def __init__(
        self,
        source: FakeSource,
        warehouse: FakeWarehouse,
        *,
        rng: random.Random,
        now: Callable[[], float],
        pace: Pace,
    ) -> None:
        self.source = source
        self.warehouse = warehouse
        self.rng = rng
        self.now = now
        self.pace = pace
        self.replicas: list[FakeReplica] = []
        self.desks: list[FakeDesk] = []
        self.fails_at: float | None = None  # the next write after it fails, once

    def open_replica(
        self, info: ChangefeedInfo, identity: CaptureIdentity, fence: Fence, wake: Wake
    ) -> FakeReplica:
        assert all(each.is_closed() for each in self.replicas), "two replicas of one changefeed"
        self.replicas = [FakeReplica(self, info, identity, fence, wake)]
        return self.replicas[0]

    def open_desk(
        self,
        *,
        info: ChangefeedInfo,
        identity: CaptureIdentity,  # noqa: ARG002 - the port's
        ownership: Ownership,
        checkpoint_ts: Ts,
        fence: Fence,
        wake: Wake,
    ) -> FakeDesk:
        assert all(each.is_closed() for each in self.desks), "two desks of one changefeed"
        self.desks = [
            FakeDesk(
                self,
                info=info,
                ownership=ownership,
                checkpoint_ts=checkpoint_ts,
                fence=fence,
                wake=wake,
            )
        ]
        return self.desks[0]

    def step(self) -> None:
        """Let what is under way get on."""
        for replica in self.replicas:
            replica.step()
        for desk in self.desks:
            desk.step()

    @property
    def is_writing(self) -> bool:
        return any(task.write for replica in self.replicas for task in replica.spans.values())

    def freeze(self) -> list[Sent]:
        """What has been sent, and lands though nobody here gets on; the rest lands on waking."""
        return [sent for replica in self.replicas for sent in replica.take_sent()]

    def commit_at(self) -> float:
        """When a commit that is sent now lands."""
        is_long = self.rng.random() < self.pace.long_chance
        least, most = (0.6, 1.0) if is_long else (0.0, 0.1)
        return self.now() + self.rng.uniform(least, most) * self.pace.commit_s

    def delay(self) -> float:
        return self.now() + self.rng.random() * self.pace.slow_s

    def watermark_ts(self) -> int:
        """Everything below has been sent; what a capture reads is a little late."""
        return ts_at(self.now() - 0.1)


class FakeReplica:
    """See `coordination.ports.Replica`."""

    def __init__(
        self,
        plane: FakeDataPlane,
        info: ChangefeedInfo,
        identity: CaptureIdentity,
        fence: Fence,
        wake: Wake,
    ) -> None:
        self.spans: dict[int, _SpanTask] = {}
        self.barrier: Barrier | None = None
        self._plane = plane
        self._info = info
        self._identity = identity
        self._fence = fence
        self._wake = wake
        self._changed: set[int] = set()
        self._is_closing = False
        self._read_ts = int(info.start_ts)
        self._trouble: list[RunningError] = []

    # ---- the executor

    def add_table_span(
        self, span: Span, checkpoint: Checkpoint, fence: int, *, is_prepare: bool
    ) -> bool:
        task = self.spans.get(span.table_id)
        if task is None:
            assert is_prepare, "written before it is prepared"
            start_ts = max(checkpoint.checkpoint_ts, self._start_of(span.table_id))
            task = _SpanTask(
                span, _T.PREPARING, start_ts, checkpoint.checkpoint_ts, fence, self._plane.delay()
            )
            self.spans[span.table_id] = task
        else:
            task.fence = fence
            task.added_ts = checkpoint.checkpoint_ts
            start_ts = max(checkpoint.checkpoint_ts, self._start_of(span.table_id))
            task.checkpoint_ts = max(task.checkpoint_ts, start_ts)
            task.state, task.due_at = _T.REPLICATING, self._plane.delay()
        self._changed.add(span.table_id)
        return True

    def is_add_table_span_finished(self, table_id: int, *, is_prepare: bool) -> bool:
        state = self.spans[table_id].state
        return state is _T.REPLICATING or (is_prepare and state is _T.PREPARED)

    def remove_table_span(self, table_id: int) -> bool:
        task = self.spans[table_id]
        task.state, task.due_at = _T.STOPPING, self._plane.delay()
        self._changed.add(table_id)
        return True

    def is_remove_table_span_finished(self, table_id: int) -> Ts | None:
        task = self.spans[table_id]
        if task.state is not _T.STOPPED:
            return None
        del self.spans[table_id]
        self._changed.add(table_id)
        return Ts(task.checkpoint_ts)

    def get_table_span_count(self) -> int:
        return len(self.spans)

    def get_table_span_status(self, table_id: int) -> TableStatus:
        task = self.spans.get(table_id)
        if task is None:
            return TableStatus(table_id, _T.ABSENT)
        return TableStatus(
            table_id,
            task.state,
            Ts(task.checkpoint_ts),
            Ts(max(task.checkpoint_ts, self._read_ts)),
            fence=task.fence,
        )

    def take_changed(self) -> Collection[int]:
        changed, self._changed = self._changed, set()
        return changed

    def get_scan(self) -> Scan | None:
        unknown = []
        for table_id, table in self._plane.source.tables.items():
            if table_id in self._plane.warehouse.registered or not table.changes:
                continue
            first = table.changes[0]
            is_gone = table.dropped_ts is not None and table.dropped_ts in self._ran
            if first <= self._read_ts and not is_gone:
                unknown.append(UnknownTable(table.span.schema, table.span.table, Ts(first)))
        return Scan(scanned_to_ts=Ts(self._read_ts), unknown_tables=tuple(unknown))

    # ---- the rest of the port

    def set_barrier(self, barrier: Barrier | None) -> None:
        if barrier is not None:
            self.barrier = barrier

    def take_trouble(self) -> Trouble:
        trouble, self._trouble = self._trouble, []
        return Trouble(errors=tuple(trouble))

    def close(self, *, drop: bool) -> None:
        self._is_closing = True
        if drop:
            for task in self.spans.values():
                if task.write is not None and self._plane.rng.random() < 0.3:
                    task.write = None  # it was not sent yet

    def is_closed(self) -> bool:
        return self._is_closing and all(task.write is None for task in self.spans.values())

    # ---- what gets on with time

    @property
    def is_trusted(self) -> bool:
        try:
            self._fence.check()
        except Fenced:
            return False
        return True

    def writers(self) -> set[int]:
        """The tables that it writes, or may begin to write now."""
        return {
            table_id
            for table_id, task in self.spans.items()
            if task.write is not None or (task.state is _T.REPLICATING and not self._is_closing)
        }

    def step(self) -> None:
        now = self._plane.now()
        self._read_ts = max(self._read_ts, self._plane.watermark_ts() - 1)
        for table_id, task in self.spans.items():
            self._step_span(table_id, task, now)

    def _step_span(self, table_id: int, task: _SpanTask, now: float) -> None:
        if task.write is not None:
            if now >= task.write.lands_at:
                self._land(table_id, task)
            return
        if task.state is _T.PREPARING and now >= task.due_at:
            task.state = _T.PREPARED
            self._changed.add(table_id)
        elif task.state is _T.STOPPING and now >= task.due_at:
            task.state = _T.STOPPED
            self._changed.add(table_id)
        elif task.state is _T.REPLICATING and now >= task.due_at and not self._is_closing:
            self._begin_write(table_id, task)

    def _begin_write(self, table_id: int, task: _SpanTask) -> None:
        limit_ts = self._limit_ts(table_id, task)
        if limit_ts <= task.checkpoint_ts or not self._may_write():
            return
        if self._fails():
            return
        self._changed.add(table_id)
        if not self._plane.source.tables[table_id].between(task.checkpoint_ts, limit_ts):
            task.checkpoint_ts = limit_ts  # no change, no commit
            return
        landing = Landing(
            self._identity.capture_id,
            task.fence,
            task.checkpoint_ts,
            limit_ts,
            checked_at=self._plane.now(),
        )
        task.write = _Write(landing, self._plane.commit_at())
        task.due_at = task.write.lands_at + self._plane.rng.random() * self._plane.pace.slow_s

    def _limit_ts(self, table_id: int, task: _SpanTask) -> int:
        if self.barrier is None:
            return task.added_ts
        limit_ts = min(self._read_ts, self.barrier.limit_ts(table_id))
        if (batch_s := self._plane.pace.batch_s) is not None:
            limit_ts = min(limit_ts, task.checkpoint_ts + ts_at(batch_s))
        return limit_ts

    def _may_write(self) -> bool:
        return self.is_trusted

    def _fails(self) -> bool:
        plane = self._plane
        if plane.fails_at is None or plane.now() < plane.fails_at:
            return False
        plane.fails_at = None
        from coordination.metadata.model import RunningError

        error = RunningError(code="CDC:ErrKafkaSend", message=f"no broker at {plane.now():.2f}")
        self._trouble.append(error)
        return True

    def _land(self, table_id: int, task: _SpanTask) -> None:
        write = task.write
        assert write is not None
        task.write = None
        if write.is_gone:
            identity_ts = self._plane.warehouse.targets[table_id].identity_ts
        else:
            now_s = self._plane.now()
            identity_ts = self._plane.warehouse.land(table_id, write.landing, now_s)
        if identity_ts >= write.landing.limit_ts:
            task.checkpoint_ts = max(task.checkpoint_ts, min(identity_ts, 2**62))
        self._changed.add(table_id)
        self._wake()

    def take_sent(self) -> list[Sent]:
        sent = []
        for table_id, task in self.spans.items():
            if task.write is not None and self._plane.rng.random() < 0.5:
                sent.append((task.write.lands_at, table_id, task.write.landing))
                task.write = replace(task.write, is_gone=True)
        return sent

    def _start_of(self, table_id: int) -> int:
        warehouse = self._plane.warehouse
        return warehouse.start_of(table_id) if table_id in warehouse.targets else 0

    @property
    def _ran(self) -> set[int]:
        return self._plane.warehouse.ran
