"""Which worker each task of a job needs (DM's WorkerManager): decides, and does nothing itself.

    check: the offline and the failed go ─► job deleted? stop all
                                         └► stop the unneeded ─► the outdated ─► where it is drained
                                              └► no worker, or one that has finished: create

A worker is in etcd before it is told to begin (`records.UnitStatus`), and stays there until its
capture has said that it does not run, or is surely dead. So at most one worker of a task runs, and
a new master knows all of them. DM forgets a worker whose creation was not answered; here it is told
to stop first, unless it is online by then.

The errors of one task do not keep the others waiting: they become its ``problem``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from coordination.errors import TidelakeError
from coordination.jobmaster.captures import Captures
from coordination.jobmaster.messages import WorkerReport
from coordination.jobmaster.ports import CheckpointAgent, current_unit
from coordination.jobmaster.records import Job, Task, UnitState, UnitStatus
from coordination.jobmaster.stages import WORKER_STAGES, WorkerStage
from coordination.jobmaster.units import (
    Unit,
    local_resources,
    next_unit,
    unit_sequence,
)
from coordination.model import CaptureID, JobID, TaskID, WorkerID

HEARTBEAT_S: Final = 3.0
RETRY_S: Final = 10.0  # after a worker has ended with an error


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """A worker as etcd and its reports show it. ``heard_at`` is monotonic, in seconds: when it was
    first seen in etcd, or reported last."""

    task_id: TaskID
    id: WorkerID
    unit: Unit
    capture_id: CaptureID
    epoch: int
    cfg_mod_revision: int
    is_fresh: bool
    stage: WorkerStage
    heard_at: float
    sequence: int = 0
    report: WorkerReport | None = None

    def fails_at(self, heartbeat_s: float = HEARTBEAT_S) -> float:
        """When its creation has failed, unless its capture says something: two heartbeats on."""
        return self.heard_at + 2 * heartbeat_s

    def has_failed(self, now_s: float, heartbeat_s: float = HEARTBEAT_S) -> bool:
        return self.stage is WorkerStage.CREATING and now_s >= self.fails_at(heartbeat_s)

    @property
    def may_run(self) -> bool:
        return self.stage in (WorkerStage.CREATING, WorkerStage.ONLINE)


@dataclass(frozen=True, slots=True)
class Unread:
    """The job cannot be read: nothing is known of what an operator wants (DM then stops all)."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorker:
    """A worker that is to be created. ``replaces`` is the one whose unit has finished."""

    task_id: TaskID
    unit: Unit
    is_fresh: bool
    capture_id: CaptureID
    epoch: int
    cfg_mod_revision: int
    replaces: WorkerID | None = None


@dataclass(frozen=True, slots=True)
class _Retry:
    """A task whose last worker ended though nobody had stopped it."""

    at: float  # monotonic, in seconds: no worker is created before
    error: str


@dataclass(slots=True)
class WorkerCheck:
    """What one check has decided."""

    forgotten: list[WorkerStatus] = field(default_factory=list)
    created: list[NewWorker] = field(default_factory=list)
    stopped: dict[TaskID, WorkerID] = field(default_factory=dict)
    cancelled: dict[TaskID, WorkerID] = field(default_factory=dict)  # to stop unless online
    problems: dict[TaskID, str] = field(default_factory=dict)
    is_waiting: bool = False  # for checkpoints that are being read
    next_at: float = float("inf")  # monotonic, in seconds: when the next check is due at last


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What a check goes by, beside the job."""

    captures: Captures
    checkpoints: CheckpointAgent
    now_s: float


class WorkerManager:
    """Mutable; one thread, no clock. The tasks' workers are in `workers`."""

    def __init__(
        self, job_id: JobID, *, heartbeat_s: float = HEARTBEAT_S, retry_s: float = RETRY_S
    ) -> None:
        self.workers: dict[TaskID, WorkerStatus] = {}
        self._job_id = job_id
        self._heartbeat_s = heartbeat_s
        self._retry_s = retry_s
        self._retries: dict[TaskID, _Retry] = {}
        self._last_at: dict[TaskID, CaptureID] = {}  # where staged files may lie

    # What is known of the workers.

    def follow(self, unit_state: UnitState, now_s: float) -> None:
        """Take over etcd's list of workers. What was reported of them stays."""
        for task_id in self.workers.keys() - unit_state.current.keys():
            del self.workers[task_id]
        for task_id, status in unit_state.current.items():
            known = self.workers.get(task_id)
            if known is None or known.id != status.worker_id:
                self.workers[task_id] = _first_seen(unit_state, status, now_s)
            self._last_at[task_id] = status.capture

    def update_worker_status(self, report: WorkerReport, now_s: float) -> bool:
        """Take a report. Whether it was news: a late one, or one on an earlier worker, is not."""
        known = self.workers.get(report.task_id)
        if (
            known is None
            or known.id != report.worker_id
            or report.sequence < known.sequence
            or report.worker_stage not in WORKER_STAGES[known.stage]
        ):
            return False
        self.workers[report.task_id] = replace(
            known,
            stage=report.worker_stage,
            heard_at=now_s,
            sequence=report.sequence,
            report=report,
        )
        if report.worker_stage is not WorkerStage.OFFLINE:
            self._retries.pop(report.task_id, None)
        elif report.error:
            self._retries[report.task_id] = _Retry(now_s + self._retry_s, report.error)
        return report.worker_stage is not known.stage

    def lose(self, captures: Captures) -> list[WorkerStatus]:
        """Take note of captures that are dead; returns the workers that were lost with them."""
        lost = [
            each
            for each in self.workers.values()
            if each.may_run and captures.is_lost(each.capture_id)
        ]
        for each in lost:
            self.workers[each.task_id] = replace(each, stage=WorkerStage.OFFLINE)
        return lost

    @property
    def all_tombstone(self) -> bool:
        """Whether no worker may run any more."""
        return not any(each.may_run for each in self.workers.values())

    # What is to be done about them.

    def check(
        self,
        job: Job | Unread | None,
        captures: Captures,
        checkpoints: CheckpointAgent,
        now_s: float,
    ) -> WorkerCheck:
        """Look at all tasks once. ``job`` None: it was deleted. A worker that is stopped or
        cancelled is to be told so until it is offline."""
        done = WorkerCheck()
        self._forget_where(done, lambda each: each.stage is WorkerStage.OFFLINE)
        if isinstance(job, Unread):
            return done
        self._cancel_failed(done, now_s)
        if job is None or job.deleting:
            self._stop(done, self._living(done))
            self._forget_where(done, lambda each: not each.may_run)
            return done
        self._stop_unneeded(done, job)
        self._stop(done, self._outdated(done, job))
        self._stop(done, self._drained(done, captures))
        look = _Look(captures=captures, checkpoints=checkpoints, now_s=now_s)
        for task_id, task in sorted(job.tasks.items()):
            try:
                self._schedule(done, task_id, task, look)
            except TidelakeError as error:
                done.problems[task_id] = str(error)
        return done

    def _forget_where(self, done: WorkerCheck, is_over: Callable[[WorkerStatus], bool]) -> None:
        for worker in [each for _, each in sorted(self.workers.items()) if is_over(each)]:
            del self.workers[worker.task_id]
            done.forgotten.append(worker)

    def _cancel_failed(self, done: WorkerCheck, now_s: float) -> None:
        for worker in self.workers.values():
            if worker.stage is not WorkerStage.CREATING:
                continue
            if not worker.has_failed(now_s, self._heartbeat_s):
                done.next_at = min(done.next_at, worker.fails_at(self._heartbeat_s))
            else:
                done.cancelled[worker.task_id] = worker.id
                done.problems[worker.task_id] = (
                    f"capture {worker.capture_id} does not answer, which was to begin the unit "
                    f"{worker.unit}"
                )

    def _living(self, done: WorkerCheck) -> Iterator[WorkerStatus]:
        """The workers that may run, and are not to stop yet."""
        for worker in list(self.workers.values()):
            if worker.may_run and worker.task_id not in done.stopped:
                yield worker

    def _stop(self, done: WorkerCheck, workers: Iterable[WorkerStatus]) -> None:
        done.stopped.update({each.task_id: each.id for each in workers})

    def _stop_unneeded(self, done: WorkerCheck, job: Job) -> None:
        """The tasks that an update of the job has taken out, be they there again by now."""

        def is_unneeded(worker: WorkerStatus) -> bool:
            task = job.tasks.get(worker.task_id)
            return task is None or task.epoch != worker.epoch

        self._forget_where(done, lambda each: is_unneeded(each) and not each.may_run)
        self._stop(done, filter(is_unneeded, self._living(done)))

    def _outdated(self, done: WorkerCheck, job: Job) -> Iterator[WorkerStatus]:
        for worker in self._living(done):
            task = job.tasks[worker.task_id]
            if task.cfg.mod_revision != worker.cfg_mod_revision:
                yield worker

    def _drained(self, done: WorkerCheck, captures: Captures) -> Iterator[WorkerStatus]:
        """What runs on a capture that drains while another one could have it. (DM has no drain.)"""
        for worker in self._living(done):
            if worker.capture_id in captures.draining and captures.able:
                yield worker

    def _schedule(self, done: WorkerCheck, task_id: TaskID, task: Task, look: _Look) -> None:
        """Have a worker created if the task has none, or one whose unit has finished."""
        worker = self.workers.get(task_id)
        mode = task.cfg.task_mode
        unit_sequence(mode)  # an unknown mode is told even while a worker runs
        replaces = None
        if worker is None:
            if (retry := self._retries.get(task_id)) is not None:
                done.problems[task_id] = f"its last worker ended: {retry.error}"
                if look.now_s < retry.at:
                    done.next_at = min(done.next_at, retry.at)
                    return
            found = look.checkpoints.checkpoints(self._job_id, task_id, task.epoch)
            if found is None:
                done.is_waiting = True
                return
            unit, fresh = current_unit(mode, found)
        elif worker.stage is WorkerStage.FINISHED:
            after = next_unit(mode, worker.unit)
            if after is None:
                return
            unit, fresh, replaces = after, True, worker.id
        else:
            return
        staged = local_resources(self._job_id, task_id, mode, unit, is_fresh=fresh)
        chosen = look.captures.place(self._last_at.get(task_id) if staged else None)
        if chosen is None:
            done.problems[task_id] = f"no capture is there that may run the unit {unit}"
            return
        done.created.append(
            NewWorker(
                task_id=task_id,
                unit=unit,
                is_fresh=fresh,
                capture_id=chosen,
                epoch=task.epoch,
                cfg_mod_revision=task.cfg.mod_revision,
                replaces=replaces,
            )
        )


def _first_seen(unit_state: UnitState, status: UnitStatus, now_s: float) -> WorkerStatus:
    has_finished = unit_state.has_finished(status)
    return WorkerStatus(
        task_id=status.task,
        id=status.worker_id,
        unit=status.unit,
        capture_id=status.capture,
        epoch=status.epoch,
        cfg_mod_revision=status.cfg_mod_revision,
        is_fresh=status.is_fresh,
        stage=WorkerStage.FINISHED if has_finished else WorkerStage.CREATING,
        heard_at=now_s,
    )
