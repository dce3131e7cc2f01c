"""Units that copy nothing: a dump and a load are so many chunks, a sync goes on for ever. What they
have done lies in a `Copies`, as it would in the lake: it outlives units, captures and masters.

`Copies` refuses what no order of events may bring: two that write one task, a unit before the one
before it has finished, a chunk twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coordination.errors import TidelakeError
from coordination.jobmaster.messages import CreateWorker
from coordination.jobmaster.ports import Checkpoints, CheckpointStatus, UnitReport
from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.units import UNIT_SEQUENCE, TaskMode, Unit
from coordination.model import JobID, TaskID, WorkerID
from tests.fakes.fake_warehouse import InvariantBroken, require

CHUNKS = 4
BEFORE = {Unit.DUMP: None, Unit.LOAD: Unit.DUMP, Unit.SYNC: Unit.LOAD}
TaskKey = tuple[JobID, TaskID]


@dataclass
class Copy:
    """How far one task is."""

    done: dict[Unit, int] = field(default_factory=dict)
    finished: set[Unit] = field(default_factory=set)
    began: list[WorkerID] = field(default_factory=list)  # workers, in the order of their beginning
    writer: FakeUnit | None = None


class Copies:
    def __init__(self) -> None:
        self.tasks: dict[TaskKey, Copy] = {}

    def of(self, key: TaskKey) -> Copy:
        return self.tasks.setdefault(key, Copy())

    def begin(self, unit: FakeUnit) -> None:
        copy, order = self.of(unit.key), unit.order
        require(order.worker_id not in copy.began, f"J1: worker {order.worker_id} begins twice")
        copy.began.append(order.worker_id)
        sequence = UNIT_SEQUENCE[TaskMode(order.task_mode)]
        require(order.unit in sequence, f"J2: {order.unit} is no unit of {order.task_mode}")
        for earlier in sequence[: sequence.index(order.unit)]:
            is_over = earlier in copy.finished or order.unit in copy.done
            require(is_over, f"J2: {order.unit} begins before {earlier} has finished")
        is_first = order.unit not in copy.done
        require(order.is_fresh == is_first, f"J3: {order.unit} takes its checkpoint for another")
        require(order.unit not in copy.finished, f"J3: {order.unit} is begun after its end")

    def write(self, unit: FakeUnit) -> None:
        """One chunk."""
        copy = self.of(unit.key)
        other = copy.writer
        if other is not None and other is not unit and other.may_write:
            raise InvariantBroken(f"J1: {other} and {unit} both write {unit.key[1]}")
        copy.writer = unit
        copy.done[unit.order.unit] = copy.done.get(unit.order.unit, 0) + 1

    def checkpoints(self, key: TaskKey) -> Checkpoints:
        copy = self.tasks.get(key, Copy())
        return {
            unit: CheckpointStatus.FINISHED if unit in copy.finished else CheckpointStatus.RUNNING
            for unit in copy.done
        }

    def remove(self, job_id: JobID) -> None:
        for key, copy in list(self.tasks.items()):
            if key[0] == job_id:
                writer = copy.writer
                is_over = writer is None or not writer.may_write
                require(is_over, f"J1: {writer} writes while its checkpoints are removed")
                del self.tasks[key]


class FakeUnit:
    """A `UnitHolder`, driven by `step`."""

    def __init__(self, units: FakeUnits, key: TaskKey, order: CreateWorker) -> None:
        self.key = key
        self.order = order
        self.stage = TaskStage.INITING
        self.error = ""
        self.is_closed = False
        self.is_closing = False
        self._units = units
        self._is_paused = order.stage is TaskStage.PAUSED
        self._waits = units.dice(units.slow_steps)  # steps until it has begun, or closed

    def __str__(self) -> str:
        return f"worker {self.order.worker_id} ({self.order.unit}) on {self._units.node}"

    @property
    def may_write(self) -> bool:
        return not self.is_closed and self._units.is_trusted()

    def report(self) -> UnitReport:
        done = self._units.copies.of(self.key).done.get(self.order.unit, 0)
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
        """It ends of itself."""
        if self.stage is not TaskStage.FINISHED:
            self.error = error
        self.is_closed = True

    def step(self) -> None:
        if self.is_closed:
            return
        if self._waits > 0:
            self._waits -= 1
        elif self.is_closing:
            self.is_closed = True
        elif self.stage is TaskStage.INITING:
            self.stage = TaskStage.PAUSED if self._is_paused else TaskStage.RUNNING
        elif self.stage is TaskStage.RUNNING and self._units.is_trusted():
            self._write()

    def _write(self) -> None:
        copy, unit = self._units.copies.of(self.key), self.order.unit
        self._units.copies.write(self)
        if unit is not Unit.SYNC and copy.done[unit] >= CHUNKS:
            copy.finished.add(unit)
            self.stage = TaskStage.FINISHED


class FakeUnits:
    """`Units` of one capture."""

    def __init__(
        self,
        copies: Copies,
        node: str = "n1",
        *,
        rng: random.Random | None = None,
        is_trusted: Callable[[], bool] = lambda: True,
    ) -> None:
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
        unit = FakeUnit(self, (job_id, order.task_id), order)
        self.copies.begin(unit)
        self.opened.append(unit)
        wake()
        return unit

    def step(self) -> None:
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

    def checkpoints(self, job_id: JobID, task_id: TaskID) -> Checkpoints | None:
        key = (job_id, task_id)
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

    def _may_fail(self) -> None:
        if self._rng.random() < self.fails:
            raise TidelakeError("the lake does not answer")


def done(copies: Copies, job_id: JobID, task_id: TaskID) -> Mapping[Unit, int]:
    return copies.of((job_id, task_id)).done
