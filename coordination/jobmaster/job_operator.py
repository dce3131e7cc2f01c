"""What an operator does with jobs, from any machine: written to etcd at once. The job's master sees
the change in etcd and follows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.jobmaster.job_writes import JobNotFound, JobWrites, create_job
from coordination.jobmaster.jobs_state import JobReactorState, read_jobs
from coordination.jobmaster.records import TaskCfg
from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.worker_manager import Unread
from coordination.metadata.errors import BrokenValue
from coordination.model import JobID, TaskID
from coordination.orchestrator.commit_once import commit_once
from coordination.orchestrator.transaction import PatchGroup


class JobOperator:
    """When a call returns, its change is written; if it is refused, it raises an error of
    `job_writes.py`. ``TryAgain`` means that it may have been written or not: read before you call
    again. Blocks for requests to etcd; may be called on any thread."""

    def __init__(self, client: EtcdClient, cluster_id: str) -> None:
        self._client = client
        self._cluster_id = cluster_id

    def create(self, job_id: JobID, tasks: Mapping[TaskID, TaskCfg]) -> None:
        """Raises ``JobExists``, ``UnknownTaskMode``."""
        self._commit(create_job(self._cluster_id, job_id, tasks))

    def pause(self, job_id: JobID, task_ids: Iterable[TaskID] = ()) -> None:
        """Pause these tasks, or all. Raises ``JobNotFound``, as do the methods below."""
        self._commit(self._writes(job_id).update_stages(task_ids, TaskStage.PAUSED))

    def resume(self, job_id: JobID, task_ids: Iterable[TaskID] = ()) -> None:
        """Run these tasks again, or all; a task that an error holds tries again."""
        self._commit(self._writes(job_id).update_stages(task_ids, TaskStage.RUNNING))

    def update(self, job_id: JobID, tasks: Mapping[TaskID, TaskCfg]) -> None:
        """Replace the configuration of all tasks. Raises ``JobUpdateRefused``."""
        self._commit(self._writes(job_id).update_config(tasks))

    def stop(self, job_id: JobID) -> None:
        """Have the workers stopped, and then the job deleted with its checkpoints."""
        self._commit(self._writes(job_id).mark_deleting())

    def read(self, job_id: JobID) -> JobReactorState:
        """The job as it is in etcd now."""
        found = read_jobs(self._client, self._cluster_id).get(job_id)
        if found is None or found.job is None:
            raise JobNotFound(f"there is no job {job_id}")
        return found

    def _writes(self, job_id: JobID) -> JobWrites:
        found = self.read(job_id)
        if isinstance(found.job, Unread):
            raise BrokenValue(f"job {job_id} cannot be read: {found.job.reason}")
        return found.writes()

    def _commit(self, group: PatchGroup) -> None:
        commit_once(self._client, (group,), keys.delete_counter_key(self._cluster_id))
