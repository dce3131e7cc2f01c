"""Whether the tasks of a job are in the stages that an operator wants (DM's TaskManager): expected
stages beside reported ones, and what to tell the workers (`stages.OPERATIONS`). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from coordination.jobmaster.messages import OperateTask, WorkerReport
from coordination.jobmaster.records import Job
from coordination.jobmaster.stages import TaskStage, operation
from coordination.jobmaster.units import TaskMode, Unit
from coordination.model import TaskID, WorkerID

# A job ends of itself in these modes, when this unit has finished for all of its tasks.
LAST_UNITS: Final[Mapping[str, Unit]] = {TaskMode.FULL: Unit.LOAD, TaskMode.DUMP: Unit.DUMP}
NO_WORKER: Final = WorkerID(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """A task as its worker reports it; without a worker ``UNSCHEDULED``."""

    task_id: TaskID
    worker_id: WorkerID = NO_WORKER
    unit: Unit | None = None
    stage: TaskStage = TaskStage.UNSCHEDULED
    stage_number: int = 0
    sequence: int = 0
    error: str = ""

    @classmethod
    def of(cls, report: WorkerReport, unit: Unit) -> TaskStatus:
        return cls(
            task_id=report.task_id,
            worker_id=report.worker_id,
            unit=unit,
            stage=report.task_stage,
            stage_number=report.stage_number,
            sequence=report.sequence,
            error=report.error,
        )


@dataclass(slots=True)
class TaskCheck:
    operations: list[OperateTask] = field(default_factory=list)
    problems: dict[TaskID, str] = field(default_factory=dict)


class TaskManager:
    """Mutable; one thread, no clock."""

    def __init__(self) -> None:
        self.tasks: dict[TaskID, TaskStatus] = {}

    def task_status(self, task_id: TaskID) -> TaskStatus:
        return self.tasks.get(task_id, TaskStatus(task_id=task_id))

    def update_task_status(self, status: TaskStatus) -> None:
        """Take a status over; one that is older than what is known changes nothing."""
        known = self.task_status(status.task_id)
        if (status.worker_id, status.sequence) >= (known.worker_id, known.sequence):
            self.tasks[status.task_id] = status

    def unschedule(self, task_id: TaskID, worker_id: WorkerID) -> None:
        """The task's worker is offline. What is known of a later worker stays."""
        known = self.task_status(task_id)
        if worker_id >= known.worker_id:
            self.tasks[task_id] = TaskStatus(
                task_id=task_id, worker_id=worker_id, sequence=known.sequence, error=known.error
            )

    def check(self, job: Job | None) -> TaskCheck:
        """What is to be told to the workers; the tasks that the job does not have are dropped.
        ``job`` None, or one that is being deleted: all are."""
        done = TaskCheck()
        if job is None or job.deleting:
            self.tasks.clear()
            return done
        for task_id in self.tasks.keys() - job.tasks.keys():
            del self.tasks[task_id]
        for task_id, task in sorted(job.tasks.items()):
            status = self.task_status(task_id)
            if status.stage is TaskStage.UNSCHEDULED:
                done.problems[task_id] = "no worker of it is online"
                continue
            op = operation(
                task.stage,
                status.stage,
                expected_number=task.stage_number,
                followed_number=status.stage_number,
            )
            if op is not None:
                done.operations.append(
                    OperateTask(
                        task_id=task_id,
                        worker_id=status.worker_id,
                        op=op,
                        stage_number=task.stage_number,
                    )
                )
        return done

    def all_finished(self, job: Job) -> bool:
        """Whether the job has come to its end; a job with a task that syncs never does."""

        def has_ended(task_id: TaskID, task_mode: str) -> bool:
            status = self.task_status(task_id)
            is_last = status.unit is not None and status.unit is LAST_UNITS.get(task_mode)
            return is_last and status.stage is TaskStage.FINISHED

        return bool(job.tasks) and all(
            has_ended(task_id, task.cfg.task_mode) for task_id, task in job.tasks.items()
        )
