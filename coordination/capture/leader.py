"""The reactor of the elected capture: the owner of all changefeeds, then the masters of all jobs.

    tick: owner ─► masters ─► the writes of both, under the guards of one leadership

Both see one moment of etcd, by one watch. Masters that fail by a bug are made anew after a pause:
the changefeeds go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from coordination.capture.context import SessionContext
from coordination.capture.owner.operator_jobs import NotYet, OwnerJobs
from coordination.capture.owner.owner import OwnerReactor
from coordination.jobmaster.captures import loads
from coordination.jobmaster.job_masters import JobMasters
from coordination.jobmaster.job_writes import JobNotFound
from coordination.jobmaster.jobs_state import JobsReactorState
from coordination.jobmaster.messages import WorkerMessage
from coordination.jobmaster.ports import CheckpointAgent
from coordination.metadata.records import rfc3339
from coordination.model import CaptureID, JobID, Ownership
from coordination.scheduler.messages import Message
from coordination.transport.transport import PeerMessage

logger = logging.getLogger(__name__)

MASTERS_PAUSE_S: Final = 10.0  # after the masters have failed


class LeaderReactor:
    """The reactor of one leadership, made anew each time the capture is elected. One thread.
    ``wake`` has the next tick come soon; any thread."""

    def __init__(
        self,
        role: SessionContext,
        ownership: Ownership,
        requests: OwnerJobs,
        *,
        wake: Callable[[], None],
    ) -> None:
        self.owner = OwnerReactor(role, ownership, requests, wake=wake, workers=self)
        self.masters: JobMasters | None = None
        self._checkpoints: CheckpointAgent | None = None
        self._role = role
        self._wake = wake
        leads_cluster = role.capture.leads_jobs
        self._reloads = role.capture.data_plane.open_reloads(role.trust) if leads_cluster else None
        self._masters_at = float("-inf") if role.capture.leads_jobs else float("inf")
        self._state: JobsReactorState | None = None

    @property
    def is_closed(self) -> bool:
        return self.owner.is_closed

    @property
    def due_at(self) -> float:
        """When the next tick is due though nothing happens; monotonic."""
        masters_at = self.masters.due_at if self.masters is not None else self._masters_at
        return min(self.owner.due_at, masters_at)

    def post(self, messages: Sequence[PeerMessage]) -> None:
        """Take messages from agents and executors; the next tick, which comes soon, reads them."""
        self.owner.post([each for each in messages if isinstance(each, Message)])
        if self.masters is not None:
            self.masters.post([each for each in messages if isinstance(each, WorkerMessage)])

    def take_outbox(self) -> list[PeerMessage]:
        outbox: list[PeerMessage] = [*self.owner.take_outbox()]
        if self.masters is not None:
            outbox += self.masters.take_outbox()
        return outbox

    def close(self, *, drop: bool) -> None:
        """Begin to end. The masters end at once: no later one misses what they hold."""
        self._end_masters(begin_again_at=float("inf"))
        if self._reloads is not None:
            self._reloads.close()
        self.owner.close(drop=drop)

    def tick(self, state: JobsReactorState, now_s: float) -> None:
        self._state = state
        self.owner.tick(state.cluster, now_s)
        try:
            self._tick_masters(state, now_s)
        except Exception:
            logger.exception(
                "the job masters failed, and begin anew in %g s capture_id=%s",
                *(MASTERS_PAUSE_S, self._role.id),
            )
            self._end_masters(begin_again_at=now_s + MASTERS_PAUSE_S)

    def _tick_masters(self, state: JobsReactorState, now_s: float) -> None:
        if self.masters is None:
            if now_s < self._masters_at:
                return
            self.masters = self._new_masters()
        self.masters.tick(state, now_s, draining=self.owner.draining)

    def _new_masters(self) -> JobMasters:
        role, capture = self._role, self._role.capture
        self._checkpoints = capture.data_plane.checkpoint_agent(role.trust, self._wake)
        return JobMasters(
            role.id,
            self._checkpoints,
            utc_now=lambda: rfc3339(capture.utc_now()),
            wake=self._wake,
            pace=capture.jobs_pace,
        )

    def _end_masters(self, *, begin_again_at: float) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close()
        self.masters = self._checkpoints = None
        self._masters_at = begin_again_at

    # What operators ask (`operator_jobs.Workers`).

    def count_workers(self, capture_id: CaptureID) -> int:
        """The workers that may run on the capture, as etcd has them."""
        if self._state is None:
            return 0
        return loads(self._state.unit_states()).get(capture_id, 0)

    def list_tasks(self, job_id: JobID | None) -> list[dict[str, Any]]:
        if self.masters is None or self._state is None:
            raise NotYet(f"capture {self._role.id} leads, and its job masters have not begun yet")
        jobs = self._state.jobs
        if job_id is not None and job_id not in jobs:
            raise JobNotFound(f"there is no job {job_id}")
        wanted = sorted(jobs) if job_id is None else [job_id]
        return [row for each in wanted for row in self.masters.list_tasks(jobs[each])]
