"""The master of one job: what etcd and the captures say goes in, writes and messages come out.

    tick: etcd's workers ─► reports ─► the dead ─► check, if it is due ─► messages that are due
                                                    │
                                        WorkerManager, TaskManager, the end of a deletion

Checks are due when anything has changed, else every 30 s, and every 10 s while there is a problem
(DM's times). A message to a worker is sent when it changes, and again with each heartbeat until its
report shows that it was followed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from coordination.errors import TidelakeError
from coordination.jobmaster.captures import Captures
from coordination.jobmaster.jobs_state import JobReactorState
from coordination.jobmaster.messages import (
    CreateWorker,
    OperateTask,
    Order,
    QueryStatus,
    StopWorker,
    WorkerMessage,
    WorkerReport,
)
from coordination.jobmaster.ports import CheckpointAgent
from coordination.jobmaster.records import Job, UnitState
from coordination.jobmaster.stages import TaskStage, WorkerStage
from coordination.jobmaster.task_manager import TaskManager, TaskStatus
from coordination.jobmaster.units import local_resources, needs_ext_storage
from coordination.jobmaster.worker_manager import (
    HEARTBEAT_S,
    Unread,
    WorkerCheck,
    WorkerManager,
    WorkerStatus,
)
from coordination.model import CaptureID, JobID, TaskID, WorkerID

NORMAL_INTERVAL_S: Final = 30.0
ERROR_INTERVAL_S: Final = 10.0
WHOLE_JOB: Final = TaskID("")  # stands for it in `JobMaster.problems`


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    heartbeat_s: float = HEARTBEAT_S
    normal_interval_s: float = NORMAL_INTERVAL_S
    error_interval_s: float = ERROR_INTERVAL_S


class JobMaster:
    """One job's master in one leadership. Mutable; one thread, no clock."""

    def __init__(
        self,
        job_id: JobID,
        capture_id: CaptureID,
        checkpoints: CheckpointAgent,
        *,
        utc_now: Callable[[], str],
        pace: Pace,
    ) -> None:
        """``utc_now`` gives the time in RFC 3339, for people."""
        self.workers = WorkerManager(
            job_id, heartbeat_s=pace.heartbeat_s, retry_s=pace.error_interval_s
        )
        self.tasks = TaskManager()
        self.problems: dict[TaskID, str] = {}  # a sentence each, since the last check
        self.is_finished = False
        self.check_at = float("-inf")
        self._job_id = job_id
        self._capture_id = capture_id
        self._checkpoints = checkpoints
        self._utc_now = utc_now
        self._pace = pace
        self._seen: object = None  # what the last check went by
        self._is_waiting = False  # for what is being read or removed
        self._stopped: dict[TaskID, WorkerID] = {}
        self._cancelled: dict[TaskID, WorkerID] = {}
        self._sent: dict[WorkerID, tuple[Order, float]] = {}

    @property
    def due_at(self) -> float:
        """When the next tick is due though nothing happens; monotonic."""
        heartbeats = (at + self._pace.heartbeat_s for _, at in self._sent.values())
        return min((self.check_at, *heartbeats))

    def set_next_check_at(self, at: float) -> None:
        """Have a check take place by then; a later time than the present one changes nothing."""
        self.check_at = min(self.check_at, at)

    def tick(
        self,
        state: JobReactorState,
        captures: Captures,
        reports: Sequence[WorkerReport],
        now_s: float,
    ) -> list[WorkerMessage]:
        """Returns the messages to send; leaves the writes in `state`."""
        unit_state = state.unit_state
        if isinstance(unit_state, Unread):  # who may run is not known: nothing is begun or stopped
            self.problems = {WHOLE_JOB: f"its workers are not known: {unit_state.reason}"}
            self.check_at = now_s + self._pace.error_interval_s
            return []
        job = state.job
        self.workers.follow(unit_state, now_s)
        self._take_reports(reports, now_s)
        self._take_losses(captures)
        self._take_finished(state, unit_state)
        alive = (captures.able, captures.draining, captures.counted, captures.knows_the_dead)
        if self._seen != (job, unit_state, alive):
            self._seen = (job, unit_state, alive)
            self.set_next_check_at(now_s)
        if now_s >= self.check_at or self._is_waiting:
            self._check(state, job, captures, now_s)
        return self._due_messages(job, now_s)

    def _take_reports(self, reports: Sequence[WorkerReport], now_s: float) -> None:
        for report in reports:
            if self.workers.update_worker_status(report, now_s):
                self.set_next_check_at(now_s)
            worker = self.workers.workers.get(report.task_id)
            if worker is not None and worker.report is report:
                self.tasks.update_task_status(TaskStatus.of(report, worker.unit))

    def _take_losses(self, captures: Captures) -> None:
        for lost in self.workers.lose(captures):
            self.tasks.unschedule(lost.task_id, lost.id)
            self.check_at = float("-inf")

    def _take_finished(self, state: JobReactorState, unit_state: UnitState) -> None:
        """Have it recorded which units have finished; from etcd a new master learns it."""
        for worker in self.workers.workers.values():
            if worker.stage is not WorkerStage.FINISHED:
                continue
            if worker.report is None:
                finished = TaskStatus(
                    task_id=worker.task_id,
                    worker_id=worker.id,
                    unit=worker.unit,
                    stage=TaskStage.FINISHED,
                )
                self.tasks.update_task_status(finished)
            elif not unit_state.has_finished(unit_state.current[worker.task_id]):
                status, at = worker.report.status, self._utc_now()
                write = state.writes().finish_worker(worker.task_id, worker.id, status, at)
                state.add_group(write)

    def _check(
        self, state: JobReactorState, job: Job | Unread | None, captures: Captures, now_s: float
    ) -> None:
        checked = self.workers.check(job, captures, self._checkpoints, now_s)
        self._stopped, self._cancelled = checked.stopped, checked.cancelled
        self._is_waiting = checked.is_waiting
        self._write(state, checked)
        problems = dict(checked.problems)
        if state.unread:
            reason = next(iter(state.unread.values()))
            problems[WHOLE_JOB] = f"the job cannot be read, its workers go on: {reason}"
        if not isinstance(job, Unread):
            problems = {**self.tasks.check(job).problems, **problems}
            self.is_finished = job is not None and self.tasks.all_finished(job)
            if job is None or job.deleting:
                problems.update(self._end(state))
        self.problems = problems
        interval_s = self._pace.error_interval_s if problems else self._pace.normal_interval_s
        self.check_at = min(now_s + interval_s, checked.next_at)

    def _write(self, state: JobReactorState, checked: WorkerCheck) -> None:
        writes = state.writes()
        for worker in checked.forgotten:
            self.tasks.unschedule(worker.task_id, worker.id)
            state.add_group(writes.forget_worker(worker.task_id, worker.id))
        for new in checked.created:
            state.add_group(writes.create_worker(new, self._utc_now()))

    def _end(self, state: JobReactorState) -> dict[TaskID, str]:
        """Go on with a deletion: once no worker may run, the checkpoints go, and then the keys."""
        if not self.workers.all_tombstone:
            return {}
        try:
            if self._checkpoints.remove(self._job_id):
                state.add_group(state.writes().delete_job())
                return {}
        except TidelakeError as error:
            return {WHOLE_JOB: f"its checkpoints are not removed yet: {error}"}
        self._is_waiting = True
        return {WHOLE_JOB: "its checkpoints are being removed"}

    # What the workers are told.

    def _due_messages(self, job: Job | Unread | None, now_s: float) -> list[WorkerMessage]:
        operations = {}
        if isinstance(job, Job):
            operations = {each.task_id: each for each in self.tasks.check(job).operations}
        sent: dict[WorkerID, tuple[Order, float]] = {}
        messages = []
        for worker in self.workers.workers.values():
            order = self._order(worker, job, operations.get(worker.task_id))
            if order is None:
                continue
            last, at = self._sent.get(worker.id, (None, 0.0))
            if order != last or now_s >= at + self._pace.heartbeat_s:
                messages.append(self._message(worker, order))
                at = now_s
            sent[worker.id] = (order, at)
        self._sent = sent
        return messages

    def _order(
        self, worker: WorkerStatus, job: Job | Unread | None, operate: OperateTask | None
    ) -> Order | None:
        """What the worker is to be told now; None: nothing."""
        if not worker.may_run:
            return None
        if self._stopped.get(worker.task_id) == worker.id:
            return StopWorker(task_id=worker.task_id, worker_id=worker.id)
        if self._cancelled.get(worker.task_id) == worker.id:
            return StopWorker(task_id=worker.task_id, worker_id=worker.id, unless_online=True)
        if worker.stage is WorkerStage.CREATING and isinstance(job, Job):
            return self._create_order(worker, job)
        if operate is not None and operate.worker_id == worker.id:
            return operate
        return QueryStatus(task_id=worker.task_id, worker_id=worker.id)

    def _create_order(self, worker: WorkerStatus, job: Job) -> Order | None:
        task = job.tasks.get(worker.task_id)
        if task is None or task.cfg.mod_revision != worker.cfg_mod_revision:
            return None  # the check that is due stops it
        mode, unit, fresh = task.cfg.task_mode, worker.unit, worker.is_fresh
        return CreateWorker(
            task_id=worker.task_id,
            worker_id=worker.id,
            epoch=worker.epoch,
            unit=unit,
            task_mode=mode,
            cfg_mod_revision=worker.cfg_mod_revision,
            config=task.cfg.config,
            stage=task.stage,
            stage_number=task.stage_number,
            is_fresh=fresh,
            needs_ext_storage=needs_ext_storage(unit, is_fresh=fresh),
            resources=local_resources(self._job_id, worker.task_id, mode, unit, is_fresh=fresh),
        )

    def _message(self, worker: WorkerStatus, order: Order) -> WorkerMessage:
        return WorkerMessage(
            sender=self._capture_id, to=worker.capture_id, job_id=self._job_id, body=order
        )
