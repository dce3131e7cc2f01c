"""Jobs in etcd: the only place that builds writes of a job and of its unit state.

A write to an existing job first reads the job. It is refused unless the job, at the commit, is the
one that the caller has read (its ``epoch``). A worker's record is changed only by writes that name
that worker. A group is written wholly or not at all: for an operator a refusal is an error, after a
tick the group is dropped and the next tick decides again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from coordination.etcd import keys
from coordination.jobmaster.records import (
    FinishedTaskStatus,
    Job,
    Task,
    TaskCfg,
    UnitState,
    UnitStatus,
)
from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.units import extends, unit_sequence
from coordination.jobmaster.worker_manager import NewWorker
from coordination.metadata.changefeed_writes import NextEpoch
from coordination.metadata.errors import MetadataError
from coordination.metadata.record_patch import deleted, record_patch
from coordination.metadata.records import dump
from coordination.model import JobID, TaskID, WorkerID
from coordination.orchestrator.transaction import Patch, PatchGroup

# So that a job, and its unit state with three units of each task, fit into transactions.
MAX_TASKS: Final = 200
MAX_JOB_BYTES: Final = 1024 * 1024
MAX_STATUS_BYTES: Final = 1024


class JobNotFound(MetadataError):
    """There is no job of that name, or it was deleted and perhaps created anew since."""


class JobExists(MetadataError):
    """The name is taken; a job that is being deleted keeps it until its workers have ended."""


class JobUpdateRefused(MetadataError):
    """The job, or one of its tasks, cannot be changed so."""


class WorkerChanged(MetadataError):
    """The task has another worker by now."""


def create_job(cluster_id: str, job_id: JobID, tasks: Mapping[TaskID, TaskCfg]) -> PatchGroup:
    """Creates the job, with all tasks to run. Raises ``UnknownTaskMode``; the commit raises
    ``JobExists``."""
    for cfg in tasks.values():
        unit_sequence(cfg.task_mode)
    epoch = NextEpoch(cluster_id)

    def made(old: Job | None) -> Job:
        if old is not None:
            raise JobExists(f"a job {job_id} exists, or its workers have not ended yet")
        running = {
            each: Task(cfg=replace(cfg, mod_revision=0), epoch=epoch.value)
            for each, cfg in tasks.items()
        }
        return _fitting(job_id, Job(tasks=running, epoch=epoch.value))

    def empty(old: UnitState | None) -> UnitState:
        if old is not None:
            raise JobExists(f"the workers of an earlier job {job_id} have not ended yet")
        return UnitState()

    return (
        epoch.patch,
        record_patch(keys.job_key(cluster_id, job_id), Job, made),
        record_patch(keys.unit_state_key(cluster_id, job_id), UnitState, empty),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWrites:
    """The writes to one job, for as long as it is the one with that epoch. Pure: each method
    returns a group of patches. All commits raise ``JobNotFound`` if the job is another one."""

    cluster_id: str
    job_id: JobID
    epoch: int

    # What an operator changes.

    def update_stages(self, task_ids: Iterable[TaskID], stage: TaskStage) -> PatchGroup:
        """Set the stage of these tasks; of all, if none is named."""
        named = tuple(task_ids)

        def change(job: Job) -> Job:
            self._check_not_deleting(job)
            missing = sorted(set(named) - job.tasks.keys())
            if missing:
                raise JobUpdateRefused(f"job {self.job_id} has no task {', '.join(missing)}")
            changed = {
                each: replace(task, stage=stage, stage_number=task.stage_number + 1)
                for each, task in job.tasks.items()
                if each in named or not named
            }
            return replace(job, tasks={**job.tasks, **changed})

        return (self._job(change),)

    def update_config(self, tasks: Mapping[TaskID, TaskCfg]) -> PatchGroup:
        """Replace the tasks' configuration. A task keeps its stage, and if its configuration is the
        same, its worker too. (DM starts all workers of the job again.) A mode may only become one
        that begins with the same units."""
        for cfg in tasks.values():
            unit_sequence(cfg.task_mode)
        epoch = NextEpoch(self.cluster_id)

        def change(job: Job) -> Job:
            self._check_not_deleting(job)
            revision = job.mod_revision + 1
            updated = {
                task_id: self._updated(task_id, job.tasks[task_id], cfg, revision)
                if task_id in job.tasks
                else Task(cfg=replace(cfg, mod_revision=revision), epoch=epoch.value)
                for task_id, cfg in tasks.items()
            }
            return _fitting(self.job_id, replace(job, tasks=updated, mod_revision=revision))

        return (epoch.patch, self._job(change))

    def mark_deleting(self) -> PatchGroup:
        """Have the master stop the workers, and then delete the job."""
        return (self._job(lambda job: replace(job, deleting=True)),)

    # What the job's master changes.

    def create_worker(self, new: NewWorker, created_time: str) -> PatchGroup:
        """Give the task a new worker, with an ID that no worker has had. Refused unless the task is
        as it was, and has no worker but the finished one that is replaced."""
        worker_id = NextEpoch(self.cluster_id)

        def change(state: UnitState) -> UnitState:
            current = state.current.get(new.task_id)
            if (current.worker_id if current is not None else None) != new.replaces:
                raise WorkerChanged(f"the task {new.task_id} has another worker")
            status = UnitStatus(
                unit=new.unit,
                task=new.task_id,
                created_time=created_time,
                cfg_mod_revision=new.cfg_mod_revision,
                worker_id=WorkerID(worker_id.value),
                capture=new.capture_id,
                epoch=new.epoch,
                is_fresh=new.is_fresh,
            )
            ended = {
                task_id: each
                for task_id, each in state.finished.items()
                if task_id != new.task_id or each[-1].epoch == new.epoch
            }
            return replace(state, current={**state.current, new.task_id: status}, finished=ended)

        def check(job: Job) -> Job:
            task = job.tasks.get(new.task_id)
            found = (task.epoch, task.cfg.mod_revision) if task is not None else None
            if job.deleting or found != (new.epoch, new.cfg_mod_revision):
                raise JobUpdateRefused(f"the task {new.task_id} was changed")
            return job

        return (self._job(check), worker_id.patch, self._unit_state(change))

    def finish_worker(
        self, task_id: TaskID, worker_id: WorkerID, status: Mapping[str, Any], at: str
    ) -> PatchGroup:
        """Record that the worker's unit has finished. A unit has one entry: that of its last run.
        A status of more than ``MAX_STATUS_BYTES`` is left out."""
        is_short = len(json.dumps(status)) <= MAX_STATUS_BYTES

        def change(state: UnitState) -> UnitState:
            current = state.current.get(task_id)
            if current is None or current.worker_id != worker_id or state.has_finished(current):
                return state
            ended = FinishedTaskStatus(
                unit=current.unit,
                task=task_id,
                cfg_mod_revision=current.cfg_mod_revision,
                status=status if is_short else {},
                created_time=current.created_time,
                finished_time=at,
                worker_id=worker_id,
                epoch=current.epoch,
            )
            others = [each for each in state.finished.get(task_id, ()) if each.unit != ended.unit]
            return replace(state, finished={**state.finished, task_id: (*others, ended)})

        return (self._known_job(), self._unit_state(change))

    def forget_worker(self, task_id: TaskID, worker_id: WorkerID) -> PatchGroup:
        """Take out a worker that does not run. A task that the job does not have any more loses
        what has finished, too."""
        tasks: set[TaskID] = set()

        def look(job: Job | None) -> Job | None:
            tasks.clear()
            tasks.update(job.tasks if job is not None else ())
            return job

        def change(state: UnitState) -> UnitState:
            current = state.current.get(task_id)
            if current is None or current.worker_id != worker_id:
                return state
            left = {each: status for each, status in state.current.items() if each != task_id}
            finished = {k: each for k, each in state.finished.items() if k in tasks or k in left}
            return replace(state, current=left, finished=finished)

        job = record_patch(self._job_key, Job, look, is_compared=True)
        return (job, self._unit_state(change))

    def delete_job(self) -> PatchGroup:
        """Delete the job's keys. Refused while one of its workers may run."""

        def check(job: Job | None) -> Job | None:
            if job is not None and (job.epoch != self.epoch or not job.deleting):
                raise JobUpdateRefused(f"job {self.job_id} is not being deleted")
            return job

        def check_ended(state: UnitState | None) -> UnitState | None:
            if state is not None and state.current:
                raise JobUpdateRefused(f"workers of job {self.job_id} may run")
            return state

        return (
            record_patch(self._job_key, Job, check),
            self._unit_state_patch(check_ended),
            deleted(self._job_key),
            deleted(self._unit_state_key),
        )

    @property
    def _job_key(self) -> str:
        return keys.job_key(self.cluster_id, self.job_id)

    @property
    def _unit_state_key(self) -> str:
        return keys.unit_state_key(self.cluster_id, self.job_id)

    def _known_job(self) -> Patch:
        return self._job(lambda job: job)

    def _job(self, change: Callable[[Job], Job]) -> Patch:
        def known(old: Job | None) -> Job:
            if old is None or old.epoch != self.epoch:
                raise JobNotFound(f"there is no job {self.job_id}, or it was created anew")
            return change(old)

        return record_patch(self._job_key, Job, known, is_compared=True)

    def _unit_state(self, change: Callable[[UnitState], UnitState]) -> Patch:
        return self._unit_state_patch(lambda old: change(old or UnitState()))

    def _unit_state_patch(self, change: Callable[[UnitState | None], UnitState | None]) -> Patch:
        return record_patch(self._unit_state_key, UnitState, change)

    def _check_not_deleting(self, job: Job) -> None:
        if job.deleting:
            raise JobUpdateRefused(f"job {self.job_id} is being deleted")

    def _updated(self, task_id: TaskID, old: Task, cfg: TaskCfg, revision: int) -> Task:
        if not extends(cfg.task_mode, old.cfg.task_mode):
            raise JobUpdateRefused(
                f"task {task_id} of job {self.job_id} has task-mode {old.cfg.task_mode!r}, which "
                f"cannot become {cfg.task_mode!r}: stop the job and start it anew"
            )
        if replace(cfg, mod_revision=old.cfg.mod_revision) == old.cfg:
            return old
        return replace(old, cfg=replace(cfg, mod_revision=revision))


def _fitting(job_id: JobID, job: Job) -> Job:
    """The job; raises ``JobUpdateRefused`` if it is too large for a transaction."""
    size = len(dump(job))
    if len(job.tasks) > MAX_TASKS or size > MAX_JOB_BYTES:
        raise JobUpdateRefused(
            f"job {job_id} has {len(job.tasks)} tasks and {size} bytes of configuration, but at "
            f"most {MAX_TASKS} and {MAX_JOB_BYTES} are possible: make several jobs of it"
        )
    return job
