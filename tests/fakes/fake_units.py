"""Units that copy nothing: a dump and a load are so many chunks, a sync goes on for ever. What they
have done lies in a `Copies`, as it would in the lake: it outlives units, captures and masters.

`Copies` refuses what no order of events may bring (J1 to J3 of docs/cluster.md): two that write one
task, a unit before the one before it has finished, a chunk twice.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from coordination.errors import TidelakeError
from coordination.jobmaster.messages import CreateWorker
from coordination.jobmaster.ports import Checkpoints, CheckpointStatus, UnitReport
from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.units import UNIT_SEQUENCE, TaskMode, Unit
from coordination.model import JobID, TaskID, WorkerID
from tests.fakes.fake_warehouse import require

CHUNKS = 4
TaskKey = tuple[JobID, TaskID, int]  # and the task's epoch


@dataclass
class Copy:
    """How far one task is."""

    done: dict[Unit, int] = field(default_factory=dict)
    finished: set[Unit] = field(default_factory=set)
    units: list[FakeUnit] = field(default_factory=list)  # in the order of their beginning

    @property
    def began(self) -> list[WorkerID]:
        return [each.order.worker_id for each in self.units]


class Copies:
    def __init__(self) -> None:
        self.lock = threading.RLock()  # for captures on threads of their own
        self.tasks: dict[TaskKey, Copy] = {}
        self.is_lenient: Callable[[], bool] = lambda: False  # etcd went back a moment ago
        self._given: set[tuple[JobID, WorkerID]] = set()  # worker IDs of units that began

    def of(self, key: TaskKey) -> Copy:
        return self.tasks.setdefault(key, Copy())

    def latest(self, job_id: JobID, task_id: TaskID) -> Copy:
        """The copy of the last task of that name."""
        found = [key for key in self.tasks if key[:2] == (job_id, task_id)]
        return self.tasks[max(found)] if found else Copy()

    def begin(self, unit: FakeUnit) -> None:
        copy, order = unit.copy, unit.order
        given = unit.key[0], order.worker_id
        if not self.is_lenient():
            require(given not in self._given, f"J1: worker {order.worker_id} begins twice")
            self._given.add(given)
        for other in self._units_of(unit.key):
            lands = other.is_under_way and not self.is_lenient()
            require(not (other.may_write or lands), f"J1: {unit} begins while {other} may write")
        copy.units.append(unit)
        sequence = UNIT_SEQUENCE[TaskMode(order.task_mode)]
        require(order.unit in sequence, f"J2: {order.unit} is no unit of {order.task_mode}")
        for earlier in sequence[: sequence.index(order.unit)]:
            is_over = earlier in copy.finished
            require(is_over, f"J2: {order.unit} begins before {earlier} has finished")
        is_last = order.unit is sequence[-1]
        is_over = order.unit in copy.finished
        require(is_last or not is_over, f"J3: {unit} begins what has finished")
        is_first = order.unit not in copy.done
        is_right = order.is_fresh == is_first or self.is_lenient()
        require(is_right, f"J3: {unit} is wrong about its checkpoint")

    def forget_ids(self) -> None:
        """etcd went back to a backup: it gives numbers away a second time."""
        self._given.clear()

    def _units_of(self, key: TaskKey) -> list[FakeUnit]:
        """All that were ever begun for a task of that name."""
        return [
            each
            for other, copy in self.tasks.items()
            if other[:2] == key[:2]
            for each in copy.units
        ]

    def land(self, unit: FakeUnit) -> None:
        """A chunk of the unit is in the lake."""
        copy, which = unit.copy, unit.order.unit
        unit.is_under_way = False
        require(self.tasks.get(unit.key) is copy, f"J1: {unit} writes after its job was deleted")
        is_newest = copy.units[-1] is unit or self.is_lenient()
        require(is_newest, f"J1: {unit} writes after {copy.units[-1]} has begun")
        copy.done[which] = copy.done.get(which, 0) + 1
        if which is not Unit.SYNC:
            require(copy.done[which] <= CHUNKS, f"J3: {unit} copies a chunk twice")
            if copy.done[which] == CHUNKS:
                copy.finished.add(which)

    def checkpoints(self, key: TaskKey) -> Checkpoints:
        copy = self.tasks.get(key, Copy())
        with self.lock:
            return {
                unit: CheckpointStatus.FINISHED
                if unit in copy.finished
                else CheckpointStatus.RUNNING
                for unit in copy.done
            }

    def remove(self, job_id: JobID) -> None:
        with self.lock:
            for key, copy in list(self.tasks.items()):
                if key[0] == job_id:
                    for unit in copy.units:
                        is_over = not unit.may_write and not unit.is_under_way
                        require(is_over, f"J1: the checkpoints of {unit} are removed under it")
                    del self.tasks[key]


class FakeUnit:
    """A `UnitHolder`, driven by `step`."""

    def __init__(
        self, units: FakeUnits, key: TaskKey, order: CreateWorker, wake: Callable[[], None]
    ) -> None:
        self.key = key
        self.order = order
        self.wake = wake
        self.stage = TaskStage.INITING
        self.error = ""
        self.is_closed = False
        self.is_closing = False
        self.is_under_way = False  # a chunk: it lands whatever becomes of the unit
        self.copy = units.copies.of(key)
        self._units = units
        self._is_paused = order.stage is TaskStage.PAUSED
        self._waits = units.dice(units.slow_steps)  # steps until it has begun, or closed

    def __str__(self) -> str:
        return f"worker {self.order.worker_id} ({self.order.unit}) on {self._units.node}"

    @property
    def may_write(self) -> bool:
        return not self.is_closed and self._units.is_trusted()

    def report(self) -> UnitReport:
        done = self.copy.done.get(self.order.unit, 0)
        return UnitReport(stage=self.stage, error=self.error, status={"chunks": done})

    def pause(self) -> None:
        if self.stage in (TaskStage.RUNNING, TaskStage.ERROR):
            self.stage, self.error = TaskStage.PAUSED, ""

    def resume(self) -> None:
        if self.stage in (TaskStage.PAUSED, TaskStage.ERROR):
            self.stage, self.error = TaskStage.RUNNING, ""

    def close(self) -> None:
        if not self.is_closing:
            self.is_closing = True
            self._waits = self._units.dice(self._units.slow_steps)

    def fail(self, error: str) -> None:
        """As when the server is gone: it waits for an operator."""
        if self.stage is TaskStage.RUNNING:
            self.stage, self.error = TaskStage.ERROR, error

    def die(self, error: str) -> None:
        """It ends of itself, with its next step."""
        if self.stage is not TaskStage.FINISHED:
            self.error = error
        self.is_closing, self._waits = True, 0

    def step(self) -> None:
        before = (self.stage, self.is_closed)
        self._step()
        if before != (self.stage, self.is_closed):
            self.wake()

    def _step(self) -> None:
        if self.is_closed or self.is_under_way:
            return
        is_over = self.order.unit in self.copy.finished
        if is_over and self.stage is TaskStage.RUNNING and not self.error:
            self.stage = TaskStage.FINISHED
        elif self._waits > 0:
            self._waits -= 1
        elif self.is_closing:
            self.is_closed = not self._units.hangs
        elif self.stage is TaskStage.INITING:
            self.stage = TaskStage.PAUSED if self._is_paused else TaskStage.RUNNING
        elif self.stage is TaskStage.RUNNING and self._may_go_on():
            self.is_under_way = True
            self._units.send(self)

    def _may_go_on(self) -> bool:
        return self._units.is_trusted() and not self._units.holds(self)


class FakeUnits:
    """`Units` of one capture."""

    def __init__(
        self,
        copies: Copies,
        node: str = "n1",
        *,
        rng: random.Random | None = None,
        is_trusted: Callable[[], bool] = lambda: True,
        send: Callable[[FakeUnit], None] | None = None,
        holds: Callable[[FakeUnit], bool] = lambda _: False,
    ) -> None:
        """``send`` has a chunk of a unit land, now or later; no chunk begins of a unit that
        ``holds`` names."""
        self.holds = holds
        self.hangs = False  # no unit ends
        self.send = send or copies.land
        self.copies = copies
        self.node = node
        self.is_trusted = is_trusted
        self.slow_steps = 0
        self.refuses = ""
        self.opened: list[FakeUnit] = []
        self._rng = rng or random.Random(0)

    def dice(self, most: int) -> int:
        return self._rng.randint(0, most)

    def open_unit(self, job_id: JobID, order: CreateWorker, wake: Callable[[], None]) -> FakeUnit:
        if self.refuses:
            raise TidelakeError(self.refuses)
        with self.copies.lock:
            unit = FakeUnit(self, (job_id, order.task_id, order.epoch), order, wake)
            self.copies.begin(unit)
            self.opened.append(unit)
        wake()
        return unit

    def step(self) -> None:
        with self.copies.lock:
            self.opened = [each for each in self.opened if not each.is_closed]
            for unit in self.opened:
                unit.step()


class FakeCheckpoints:
    """A `CheckpointAgent` on the copies. A read takes so many calls, and may fail."""

    def __init__(self, copies: Copies, rng: random.Random | None = None) -> None:
        self.fails = 0.0
        self.slow_calls = 1
        self._copies = copies
        self._rng = rng or random.Random(0)
        self._reads: dict[TaskKey, tuple[int, Checkpoints]] = {}

    def checkpoints(self, job_id: JobID, task_id: TaskID, epoch: int) -> Checkpoints | None:
        key = (job_id, task_id, epoch)
        if key not in self._reads:
            calls = self._rng.randint(1, self.slow_calls)
            self._reads[key] = (calls, self._copies.checkpoints(key))
            return None
        calls, found = self._reads.pop(key)
        if calls > 1:
            self._reads[key] = (calls - 1, found)
            return None
        self._may_fail()
        return found

    def remove(self, job_id: JobID) -> bool:
        self._may_fail()
        self._copies.remove(job_id)
        return True

    def close(self) -> None:
        """Nothing is under way."""

    def _may_fail(self) -> None:
        if self._rng.random() < self.fails:
            raise TidelakeError("the lake does not answer")
