"""Jobs, workers and reports as the tests make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from coordination.errors import TidelakeError
from coordination.jobmaster.captures import Captures
from coordination.jobmaster.messages import WorkerReport
from coordination.jobmaster.ports import Checkpoints
from coordination.jobmaster.records import (
    FinishedTaskStatus,
    Job,
    Task,
    TaskCfg,
    UnitState,
    UnitStatus,
)
from coordination.jobmaster.stages import TaskStage, WorkerStage
from coordination.jobmaster.units import Unit
from coordination.jobmaster.worker_manager import NewWorker
from coordination.model import CaptureID, JobID, TaskID, WorkerID

COPY = JobID("copy")
T1, T2 = TaskID("mysql-1"), TaskID("mysql-2")
A, B, C = CaptureID("a"), CaptureID("b"), CaptureID("c")
AT = "2026-11-26T10:00:00Z"


def cfg(mode: str = "all", revision: int = 0, **config: Any) -> TaskCfg:
    return TaskCfg(task_mode=mode, mod_revision=revision, config=config)


def job(*task_ids: TaskID, mode: str = "all", revision: int = 0, **fields: Any) -> Job:
    tasks = {each: Task(cfg=cfg(mode, revision)) for each in task_ids}
    return Job(tasks=tasks, mod_revision=revision, epoch=1, **fields)


def unit_status(
    task_id: TaskID,
    worker_id: int,
    unit: Unit = Unit.DUMP,
    capture: CaptureID = A,
    *,
    revision: int = 0,
    epoch: int = 0,
) -> UnitStatus:
    return UnitStatus(
        unit=unit,
        task=task_id,
        created_time="2026-01-01T00:00:00Z",
        cfg_mod_revision=revision,
        worker_id=WorkerID(worker_id),
        capture=capture,
        epoch=epoch,
        is_fresh=True,
    )


def unit_state(*current: UnitStatus, finished: Iterable[UnitStatus] = ()) -> UnitState:
    ended: dict[TaskID, tuple[FinishedTaskStatus, ...]] = {}
    for each in finished:
        status = FinishedTaskStatus(
            unit=each.unit,
            task=each.task,
            cfg_mod_revision=each.cfg_mod_revision,
            created_time=each.created_time,
            finished_time=each.created_time,
            worker_id=each.worker_id,
            epoch=each.epoch,
        )
        ended[each.task] = (*ended.get(each.task, ()), status)
    return UnitState(current={each.task: each for each in current}, finished=ended)


def report(
    task_id: TaskID,
    worker_id: int,
    stage: WorkerStage,
    sequence: int = 1,
    task_stage: TaskStage = TaskStage.RUNNING,
    **fields: Any,
) -> WorkerReport:
    return WorkerReport(
        task_id=task_id,
        worker_id=WorkerID(worker_id),
        worker_stage=stage,
        task_stage=task_stage,
        sequence=sequence,
        **fields,
    )


def captures(*able: CaptureID, **fields: Any) -> Captures:
    fields = {"counted": frozenset(able), **fields}
    return Captures(able=frozenset(able), **fields)


class FixedCheckpoints:
    """A CheckpointAgent whose reads end at once, in what the test says."""

    def __init__(self, found: Mapping[TaskID, Checkpoints] | None = None) -> None:
        self.found = dict(found or {})
        self.errors: dict[TaskID, str] = {}
        self.pending: set[TaskID] = set()  # reads that have not ended
        self.asked: list[TaskID] = []
        self.removed: list[JobID] = []
        self.remove_error = ""

    def checkpoints(self, job_id: JobID, task_id: TaskID, epoch: int) -> Checkpoints | None:
        assert (job_id, epoch) == (COPY, 0)
        self.asked.append(task_id)
        if task_id in self.errors:
            raise TidelakeError(self.errors[task_id])
        return None if task_id in self.pending else self.found.get(task_id, {})

    def remove(self, job_id: JobID) -> bool:
        if self.remove_error:
            raise TidelakeError(self.remove_error)
        self.removed.append(job_id)
        self.found.clear()
        return True

    def close(self) -> None:
        """Nothing is under way."""


def new(
    task_id: TaskID = T1, unit: Unit = Unit.DUMP, capture: CaptureID = A, **fields: object
) -> NewWorker:
    made = NewWorker(
        task_id=task_id, unit=unit, is_fresh=True, capture_id=capture, epoch=1, cfg_mod_revision=0
    )
    return replace(made, **fields)  # type: ignore[arg-type]
