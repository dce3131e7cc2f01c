"""The reactor of the elected capture: a master for each job of the cluster.

    tick: messages by job ─► each job's master ─► its writes into the state, its messages out

Masters hold nothing that a later leader would miss: what they know is in etcd, or is reported again
with the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordination.jobmaster.job_master import JobMaster, Pace
from coordination.jobmaster.jobs_state import JobReactorState, JobsReactorState
from coordination.jobmaster.messages import MessageAgent, WorkerReport
from coordination.jobmaster.ports import CheckpointAgent
from coordination.jobmaster.records import Job
from coordination.model import CaptureID, JobID


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
        messages: MessageAgent,
        *,
        utc_now: Callable[[], str],
        pace: Pace | None = None,
    ) -> None:
        """``utc_now`` gives the time in RFC 3339, for people."""
        self._capture_id = capture_id
        self._checkpoints = checkpoints
        self._messages = messages
        self._utc_now = utc_now
        self._pace = pace or Pace()
        self._led: dict[JobID, _Led] = {}

    @property
    def masters(self) -> dict[JobID, JobMaster]:
        return {job_id: led.master for job_id, led in self._led.items()}

    @property
    def due_at(self) -> float:
        """When the next tick is due though nothing happens; monotonic."""
        return min((led.master.due_at for led in self._led.values()), default=float("inf"))

    def tick(self, state: JobsReactorState, now_s: float) -> None:
        reports: dict[JobID, list[WorkerReport]] = {}
        for message in self._messages.receive():
            if isinstance(message.body, WorkerReport):
                reports.setdefault(message.job_id, []).append(message.body)
        captures = state.captures(now_s)
        self._led = {job_id: led for job_id, led in self._led.items() if job_id in state.jobs}
        for job_id, job in sorted(state.jobs.items()):
            master = self._master(job)
            self._messages.send(master.tick(job, captures, reports.get(job_id, ()), now_s))

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
