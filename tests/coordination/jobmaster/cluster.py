"""A master and executors on an etcd and a network without faults; a test steps it."""

from __future__ import annotations

import random
import threading
import uuid

from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.jobmaster.executor import Executor
from coordination.jobmaster.job_master import JobMaster
from coordination.jobmaster.job_masters import JobMasters
from coordination.jobmaster.job_operator import JobOperator
from coordination.jobmaster.jobs_state import JobsReactorState
from coordination.model import CaptureID, CaptureInfo, JobID, LeaseID, TaskID
from coordination.orchestrator.etcd_worker import EtcdWorker
from coordination.orchestrator.snapshot import Snapshot
from tests.coordination.jobmaster.jobs import COPY, T1
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_transport import FakeNetwork, FakeTransport
from tests.fakes.fake_units import Copies, Copy, FakeCheckpoints, FakeUnits

STEP_S = 0.25
TTL_S = 3600
GRACE_S = 5.0
PATIENCE = 1000


class Node:
    """One capture: its executor and units."""

    def __init__(self, cluster: Cluster, capture_id: CaptureID) -> None:
        self.id = capture_id
        self.is_alive = True
        self.agent = FakeTransport(cluster.network, capture_id, lambda: None)
        self.agent.set_self(capture_id)
        self.units = FakeUnits(cluster.copies, capture_id, is_trusted=lambda: self.is_alive)
        self.executor = Executor(capture_id, self.units, lambda: None)

    def step(self) -> None:
        if self.is_alive:
            self.units.step()
            self.agent.send(self.executor.tick(self.agent.receive()))


class Cluster:
    def __init__(self, client: EtcdClient, captures: str = "ab") -> None:
        self.client = client
        self.id = f"c{uuid.uuid4().hex}"
        self.clock = FakeClock()
        self.network = FakeNetwork(random.Random(0))
        self.copies = Copies()
        self.checkpoints = FakeCheckpoints(self.copies)
        self.operator = JobOperator(client, self.id)
        self.nodes: dict[CaptureID, Node] = {}
        self._leases: dict[CaptureID, LeaseID] = {}
        self._woken = threading.Event()
        for each in captures:
            self.start(CaptureID(each))
        self.lead()

    def start(self, capture_id: CaptureID, *, is_draining: bool = False) -> None:
        if capture_id not in self.nodes:
            self.nodes[capture_id] = Node(self, capture_id)
            self._leases[capture_id] = self.client.grant(TTL_S).id
        info = CaptureInfo(
            id=capture_id,
            address=f"{capture_id}:8300",
            version="1",
            start_timestamp=1,
            is_draining=is_draining,
        )
        key = keys.capture_key(self.id, capture_id)
        self.client.put(key, keys.dump_capture_info(info), self._leases[capture_id])

    def kill(self, capture_id: CaptureID) -> None:
        """It dies, and its lease ends."""
        self.nodes[capture_id].is_alive = False
        self.nodes.pop(capture_id).agent.close()
        self.client.revoke(self._leases.pop(capture_id))

    def lead(self) -> None:
        """Another master leads, which knows nothing but what is in etcd."""
        if hasattr(self, "worker"):
            self.worker.close()
        self.agent = FakeTransport(self.network, "master", lambda: None)
        self.agent.set_self(CaptureID("master"))
        self.reactor = JobMasters(
            CaptureID("master"),
            self.checkpoints,
            utc_now=lambda: f"at {self.clock.monotonic():g}",
            wake=lambda: None,
        )
        self.state = JobsReactorState(self.id, removal_grace_s=GRACE_S)
        self.worker = EtcdWorker(
            client=self.client,
            clock=self.clock,
            snapshot=Snapshot(
                (keys.base_prefix(self.id), keys.own_prefix(self.id)),
                keys.delete_counter_key(self.id),
            ),
            reactor=self.reactor,
            state=self.state,
            tick_interval_s=STEP_S / 2,
            wake=self._woken.set,
        )

    def step(self, seconds: float = STEP_S) -> None:
        for _ in range(max(1, round(seconds / STEP_S))):
            self.clock.advance(STEP_S)
            self.network.advance_to(self.clock.monotonic())
            self.reactor.post(self.agent.receive())
            for _ in range(2):
                self.worker.run_once()
                self._see_etcd()
            self.agent.send(self.reactor.take_outbox())
            for node in list(self.nodes.values()):
                node.step()

    def _see_etcd(self) -> None:
        """A real etcd's events come in their own time: wait for them."""
        for _ in range(PATIENCE):
            self._woken.clear()
            if _shown(self.state) == _shown(self._read()):
                return
            self._woken.wait(0.05)
            self.worker.run_once()
        raise AssertionError("the worker does not see what is in etcd")

    def _read(self) -> JobsReactorState:
        state = JobsReactorState(self.id, removal_grace_s=0.0)
        prefixes = (keys.base_prefix(self.id), keys.own_prefix(self.id))
        for kv in self.client.range(prefixes, prefix=True).kvs:
            state.update(kv.key, kv)
        return state

    @property
    def master(self) -> JobMaster:
        return self.reactor.masters[COPY]

    def copy(self, task_id: TaskID = T1, job_id: JobID = COPY) -> Copy:
        return self.copies.latest(job_id, task_id)

    def where(self) -> dict[TaskID, tuple[CaptureID, str, str]]:
        """Each task's worker: its capture, unit and stage."""
        return {
            task_id: (each.capture_id, each.unit.value, each.stage.value)
            for task_id, each in sorted(self.master.workers.workers.items())
        }


def _shown(state: JobsReactorState) -> tuple[object, ...]:
    """What of etcd a master goes by."""
    jobs = {
        job_id: each.unread or (each.job, each.unit_state) for job_id, each in state.jobs.items()
    }
    found = state.cluster.captures.items()
    return jobs, {name: each for name, each in found if not state.cluster.is_gone(name)}
