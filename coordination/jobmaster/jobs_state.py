"""The jobs of a cluster as etcd has them, beside its captures; and the writes that a tick wants.

A value that cannot be read stops nobody: the last good value counts, and without one the job is
`Unread`. (DM takes a failed read for a deletion, and stops all workers.)
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from coordination.etcd import keys
from coordination.etcd.client import EtcdClient, KeyValue
from coordination.jobmaster.captures import Captures, loads
from coordination.jobmaster.job_writes import JobWrites
from coordination.jobmaster.records import Job, UnitState
from coordination.jobmaster.worker_manager import Unread
from coordination.metadata.errors import BrokenValue
from coordination.metadata.global_state import GlobalReactorState
from coordination.metadata.records import load
from coordination.model import CaptureID, JobID
from coordination.orchestrator.transaction import PatchGroup

logger = logging.getLogger(__name__)


class JobReactorState:
    """One job; belongs to one thread. A read without a reactor (`read_jobs`) returns it too."""

    def __init__(self, cluster_id: str, job_id: JobID) -> None:
        self.id = job_id
        self.unread: dict[str, str] = {}  # the keys whose value cannot be read: why
        self._cluster_id = cluster_id
        self._job: Job | None = None
        self._unit_state: UnitState | None = None
        self._groups: list[PatchGroup] = []

    @property
    def is_empty(self) -> bool:
        """Whether etcd has no key of this job."""
        return self._job is None and self._unit_state is None and not self.unread

    @property
    def job(self) -> Job | Unread | None:
        """None: there is none any more, only workers of it."""
        reason = self.unread.get(keys.job_key(self._cluster_id, self.id))
        return self._job if self._job is not None or reason is None else Unread(reason)

    @property
    def unit_state(self) -> UnitState | Unread:
        reason = self.unread.get(keys.unit_state_key(self._cluster_id, self.id))
        return self._unit_state or (UnitState() if reason is None else Unread(reason))

    def writes(self) -> JobWrites:
        epoch = self._job.epoch if self._job is not None else 0
        return JobWrites(cluster_id=self._cluster_id, job_id=self.id, epoch=epoch)

    def update(self, key: str, kv: KeyValue | None) -> None:
        """Take over a key of this job (`kv` None: deleted). Raises ``BrokenValue``; the value
        before it then stays."""
        try:
            if key == keys.job_key(self._cluster_id, self.id):
                self._job = None if kv is None else load(Job, kv.value)
            else:
                self._unit_state = None if kv is None else load(UnitState, kv.value)
        except BrokenValue as error:
            self.unread[key] = str(error)
            raise
        self.unread.pop(key, None)

    def add_group(self, *groups: PatchGroup) -> None:
        """Have the groups written after this tick, in their order, each wholly or not at all."""
        self._groups += groups

    def take_patches(self) -> list[PatchGroup]:
        taken, self._groups = self._groups, []
        return taken


class JobsReactorState:
    """The state that the job masters work on; belongs to one thread."""

    def __init__(self, cluster_id: str, *, removal_grace_s: float) -> None:
        self.cluster = GlobalReactorState(cluster_id, removal_grace_s=removal_grace_s)
        self.jobs: dict[JobID, JobReactorState] = {}
        self._cluster_id = cluster_id

    def update(self, key: str, kv: KeyValue | None) -> None:
        job_id = keys.job_of_key(self._cluster_id, key)
        if job_id is None:
            self.cluster.update(key, kv)
            return
        job = self.jobs.setdefault(job_id, JobReactorState(self._cluster_id, job_id))
        try:
            job.update(key, kv)
        except BrokenValue as error:
            logger.warning("a value in etcd is not understood key=%s: %s", key, error)
        if job.is_empty:
            del self.jobs[job_id]

    def update_pending_change(self, now_s: float) -> None:
        self.cluster.update_pending_change(now_s)

    def take_patches(self) -> list[PatchGroup]:
        groups = self.cluster.take_patches()
        for _, job in sorted(self.jobs.items()):
            groups += job.take_patches()
        return groups

    def captures(self, now_s: float, draining: Collection[CaptureID] = ()) -> Captures:
        """The captures now; ``now_s`` is monotonic. ``draining``: those that are to be drained and
        may not have said so in etcd yet."""
        alive = {
            k: each for k, each in self.cluster.captures.items() if not self.cluster.is_gone(k)
        }
        leaving = frozenset(k for k, each in alive.items() if each.is_draining or k in draining)
        return Captures(
            able=frozenset(alive) - leaving,
            draining=leaving,
            counted=frozenset(self.cluster.captures),
            knows_the_dead=self.cluster.knows_the_dead(now_s),
            loads=loads(self.unit_states()),
        )

    def unit_states(self) -> Mapping[JobID, UnitState]:
        """Those that can be read."""
        found = ((job_id, job.unit_state) for job_id, job in self.jobs.items())
        return {job_id: state for job_id, state in found if isinstance(state, UnitState)}


def read_jobs(client: EtcdClient, cluster_id: str) -> dict[JobID, JobReactorState]:
    """All jobs, read in one request, in the order of their names. Blocks."""
    state = JobsReactorState(cluster_id, removal_grace_s=0.0)
    for kv in client.range(keys.own_prefix(cluster_id), prefix=True).kvs:
        state.update(kv.key, kv)
    return dict(sorted(state.jobs.items()))
