"""A job and the state of its units as etcd stores them: JSON with DM's field names, and in
lower-case names what DM does not have.

    job         Tasks: by task ID {Cfg, Stage}; Deleting; ModRevision
    unit-state  CurrentUnitStatus: by task ID the present worker
                FinishedUnitStatus: by task ID the units that have finished, in their order

A task is one upstream of a job, and its ID is that source's ID. `coordination/metadata/records.py`
reads and writes the records, and keeps fields of a later release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import index
from typing import Any, ClassVar

from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.units import Unit
from coordination.metadata.records import Record, record_reader
from coordination.model import CaptureID, TaskID, WorkerID


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCfg(Record):
    """What a task is to do. ``mod_revision`` is the job's one in which this was last changed."""

    JSON_NAMES: ClassVar[Mapping[str, str]] = {
        "task_mode": "TaskMode",
        "mod_revision": "ModRevision",
    }
    READ: ClassVar[Mapping[str, Any]] = {"mod_revision": index}

    task_mode: str
    mod_revision: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Record):
    """A task as an operator wants it. ``stage_number`` counts how often an operator has set the
    stage. ``epoch`` tells apart tasks that were added one after another under one name: a later one
    does not go on from the checkpoints of an earlier one."""

    JSON_NAMES: ClassVar[Mapping[str, str]] = {"cfg": "Cfg", "stage": "Stage"}
    READ: ClassVar[Mapping[str, Any]] = {
        "cfg": record_reader(TaskCfg),
        "stage": TaskStage,
        "stage_number": index,
    }

    cfg: TaskCfg
    stage: TaskStage = TaskStage.RUNNING
    stage_number: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Record):
    """``epoch`` tells apart jobs that were created one after another under one name."""

    JSON_NAMES: ClassVar[Mapping[str, str]] = {
        "tasks": "Tasks",
        "deleting": "Deleting",
        "mod_revision": "ModRevision",
    }
    READ: ClassVar[Mapping[str, Any]] = {
        "tasks": lambda found: {TaskID(k): record_reader(Task)(each) for k, each in found.items()},
        "mod_revision": index,
        "deleting": bool,
    }

    tasks: Mapping[TaskID, Task] = field(default_factory=dict)
    deleting: bool = False
    mod_revision: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStatus(Record):
    """The present worker of a task. It is written before the worker is told to begin, so that any
    later master knows which worker may run, and where."""

    JSON_NAMES: ClassVar[Mapping[str, str]] = {
        "unit": "Unit",
        "task": "Task",
        "created_time": "CreatedTime",
        "cfg_mod_revision": "CfgModRevision",
    }
    READ: ClassVar[Mapping[str, Any]] = {
        "unit": Unit,
        "worker_id": index,
        "cfg_mod_revision": index,
        "is_fresh": bool,
    }

    unit: Unit
    task: TaskID
    created_time: str  # RFC 3339
    cfg_mod_revision: int
    worker_id: WorkerID
    capture: CaptureID
    epoch: int  # the task's
    is_fresh: bool  # the unit began from nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTaskStatus(Record):
    """A unit that has finished, and what it says of itself."""

    JSON_NAMES: ClassVar[Mapping[str, str]] = {
        "unit": "Unit",
        "task": "Task",
        "stage": "Stage",
        "cfg_mod_revision": "CfgModRevision",
        "status": "Status",
        "created_time": "CreatedTime",
    }
    READ: ClassVar[Mapping[str, Any]] = {
        "unit": Unit,
        "stage": TaskStage,
        "cfg_mod_revision": index,
        "worker_id": index,
    }

    unit: Unit
    task: TaskID
    stage: TaskStage = TaskStage.FINISHED
    cfg_mod_revision: int
    status: Mapping[str, Any] = field(default_factory=dict)
    created_time: str
    finished_time: str
    worker_id: WorkerID
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState(Record):
    JSON_NAMES: ClassVar[Mapping[str, str]] = {
        "finished": "FinishedUnitStatus",
        "current": "CurrentUnitStatus",
    }
    READ: ClassVar[Mapping[str, Any]] = {
        "finished": lambda found: {
            TaskID(k): tuple(record_reader(FinishedTaskStatus)(each) for each in ended)
            for k, ended in found.items()
        },
        "current": lambda found: {
            TaskID(k): record_reader(UnitStatus)(each) for k, each in found.items()
        },
    }

    finished: Mapping[TaskID, tuple[FinishedTaskStatus, ...]] = field(default_factory=dict)
    current: Mapping[TaskID, UnitStatus] = field(default_factory=dict)

    def has_finished(self, status: UnitStatus) -> bool:
        """Whether the worker's unit has finished."""
        ended = self.finished.get(status.task, ())
        return any(each.worker_id == status.worker_id for each in ended)
