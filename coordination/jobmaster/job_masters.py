"""The reactor of the elected capture: a master for each job of the cluster.

    post ─► tick: reports by job ─► each job's master ─► its writes into the state ─► take_outbox

Masters hold nothing that a later leader would miss: what they know is in etcd, or is reported again
with the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from coordination.jobmaster.job_master import JobMaster, Pace
from coordination.jobmaster.jobs_state import JobReactorState, JobsReactorState
from coordination.jobmaster.messages import WorkerMessage, WorkerReport
from coordination.jobmaster.ports import CheckpointAgent
from coordination.jobmaster.records import Job, Task
from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.worker_manager import WorkerStatus
from coordination.model import CaptureID, JobID, TaskID

MAX_REPORTS: Final = 10_000  # of one job that are kept while the masters do not tick


@dataclass(frozen=True, slots=True)
class _Led:
    """A master, and the job that it was made for."""

    epoch: int
    master: JobMaster


class JobMasters:
    """The reactor of one leadership, made anew each time the capture is elected. One thread."""

    def __init__(
        self,
        capture_id: CaptureID,
        checkpoints: CheckpointAgent,
        *,
        utc_now: Callable[[], str],
        wake: Callable[[], None],
        pace: Pace | None = None,
    ) -> None:
        """``utc_now`` gives the time in RFC 3339, for people. ``wake`` has the next tick come soon;
        any thread."""
        self._capture_id = capture_id
        self._checkpoints = checkpoints
        self._utc_now = utc_now
        self._wake = wake
        self._pace = pace or Pace()
        self._led: dict[JobID, _Led] = {}
        self._reports: dict[JobID, list[WorkerReport]] = {}
        self._outbox: list[WorkerMessage] = []

    def post(self, messages: Sequence[WorkerMessage]) -> None:
        """Take reports of executors; the next tick, which comes soon, reads them. More than
        ``MAX_REPORTS`` of a job are dropped: they are made again."""
        for message in messages:
            reports = self._reports.setdefault(message.job_id, [])
            if isinstance(message.body, WorkerReport) and len(reports) < MAX_REPORTS:
                reports.append(message.body)
        if messages:
            self._wake()

    def take_outbox(self) -> list[WorkerMessage]:
        taken, self._outbox = self._outbox, []
        return taken

    @property
    def masters(self) -> dict[JobID, JobMaster]:
        return {job_id: led.master for job_id, led in self._led.items()}

    @property
    def due_at(self) -> float:
        """When the next tick is due though nothing happens; monotonic."""
        return min((led.master.due_at for led in self._led.values()), default=float("inf"))

    def tick(
        self, state: JobsReactorState, now_s: float, draining: Collection[CaptureID] = ()
    ) -> None:
        """``draining``: captures that an operator has the owner drain."""
        captures = state.captures(now_s, draining)
        self._led = {job_id: led for job_id, led in self._led.items() if job_id in state.jobs}
        for job_id, job in sorted(state.jobs.items()):
            reports = self._reports.get(job_id, ())
            self._outbox += self._master(job).tick(job, captures, reports, now_s)
        self._reports.clear()

    def list_tasks(self, job: JobReactorState) -> list[dict[str, Any]]:
        """The tasks of a job for people, in the order of their names: what is wanted, what its
        worker has reported, and what keeps it. A row without a task says what keeps the whole
        job."""
        led = self._led.get(job.id)
        tasks = job.job.tasks if isinstance(job.job, Job) else {}
        if led is None:
            return []
        problems, workers = led.master.problems, led.master.workers.workers
        names = sorted({*tasks, *workers, *problems})
        return [
            _row(job.id, each, tasks.get(each), workers.get(each), problems.get(each, ""))
            for each in names
        ]

    def _master(self, job: JobReactorState) -> JobMaster:
        """The job's master; a new one for a job that was created anew under the name."""
        led = self._led.get(job.id)
        epoch = job.job.epoch if isinstance(job.job, Job) else led.epoch if led is not None else 0
        if led is None or epoch != led.epoch:
            led = _Led(epoch, self._new_master(job.id))
            self._led[job.id] = led
        return led.master

    def _new_master(self, job_id: JobID) -> JobMaster:
        return JobMaster(
            job_id, self._capture_id, self._checkpoints, utc_now=self._utc_now, pace=self._pace
        )


def _row(
    job_id: JobID, task_id: TaskID, task: Task | None, worker: WorkerStatus | None, problem: str
) -> dict[str, Any]:
    """``wanted`` is empty for a task that the job does not have any more."""
    report = worker.report if worker is not None else None
    return {
        "job": job_id,
        "task": task_id,
        "mode": task.cfg.task_mode if task is not None else "",
        "wanted": task.stage if task is not None else "",
        "stage": report.task_stage if report is not None else TaskStage.UNSCHEDULED,
        "unit": worker.unit if worker is not None else "",
        "worker": worker.id if worker is not None else None,
        "worker_stage": worker.stage if worker is not None else "",
        "capture": worker.capture_id if worker is not None else None,
        "error": report.error if report is not None else "",
        "problem": problem,
        "status": dict(report.status) if report is not None else {},
    }
