"""A cluster over etcd for the contract suite: captures with leases, and two ways to commit."""

from __future__ import annotations

import threading
import uuid

from coordination.clock import SystemClock
from coordination.errors import TidelakeError, TryAgain
from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.etcd.election import Candidate
from coordination.metadata.committer import ClientCommitter, Committer, PostedCommitter
from coordination.metadata.elector import EtcdElector
from coordination.metadata.etcd_roles import (
    EtcdCaptureObservation,
    EtcdControllerObservation,
    EtcdOwnerObservation,
)
from coordination.metadata.model import ChangefeedIdent
from coordination.metadata.observation import CaptureObservation
from coordination.metadata.querier import EtcdQuerier
from coordination.model import CaptureID, CaptureInfo, LeaseID
from coordination.orchestrator.etcd_worker import EtcdWorker
from coordination.orchestrator.global_state import GlobalReactorState, Role

TTL_S = 60


class EtcdCluster:
    def __init__(self, client: EtcdClient) -> None:
        self.client = client
        self.id = f"c{uuid.uuid4().hex}"
        self.querier = EtcdQuerier(client, self.id)
        self.committer: Committer = ClientCommitter(client, keys.delete_counter_key(self.id))
        self.electors: list[EtcdElector] = []
        self._leases: dict[CaptureID, LeaseID] = {}

    def capture(self, name: str) -> EtcdCaptureObservation:
        info = CaptureInfo(
            id=CaptureID(name), address=f"{name}:8300", version="1", start_timestamp=1
        )
        lease = self.client.grant(TTL_S).id
        key = keys.capture_key(self.id, info.id)
        self.client.put(key, keys.dump_capture_info(info), lease)
        self._leases[info.id] = lease
        candidate = Candidate(
            self.client, keys.election_prefix(self.id), lease, info.id.encode(), lambda: None
        )
        self.electors.append(EtcdElector(self.client, self.id, info, candidate, SystemClock()))
        return EtcdCaptureObservation(self.electors[-1], self.querier, self.id, self.committer)

    def kill(self, capture: CaptureObservation) -> None:
        self.client.revoke(self._leases[capture.self_info().id])

    def operator(self) -> EtcdControllerObservation:
        return EtcdControllerObservation(self.querier, self.id, self.committer)

    def operate(self, ident: ChangefeedIdent) -> EtcdOwnerObservation:
        return EtcdOwnerObservation.for_operator(self.querier, self.id, self.committer, ident.name)


class Coordination:
    """A coordination thread: an EtcdWorker whose reactor writes what others post."""

    def __init__(self, cluster: EtcdCluster) -> None:
        guards = [lambda: [each.guard for each in cluster.electors if each.guard]]
        self.posted = PostedCommitter(self._wake, guards[0], answer_s=5.0)
        self._worker = EtcdWorker(
            client=cluster.client,
            clock=SystemClock(),
            prefixes=[keys.base_prefix(cluster.id), keys.own_prefix(cluster.id)],
            reactor=self,
            state=GlobalReactorState(
                cluster.id,
                role=Role.OWNER,
                removal_grace_s=5.0,
                on_update=self.posted.observe,
            ),
            guards=guards[0],
            tick_interval_s=0.005,
            delete_counter_key=keys.delete_counter_key(cluster.id),
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="coordination", daemon=True)
        self._thread.start()

    def tick(self, state: GlobalReactorState, _now_s: float) -> None:
        self.posted.settle()
        state.add_group(*self.posted.take_groups())

    def stop(self) -> None:
        self._stopping.set()
        self._worker.notify()
        self._thread.join(5)

    def _wake(self) -> None:
        self._worker.notify()

    def _run(self) -> None:
        error: TidelakeError = TryAgain("the coordination thread has ended")
        try:
            self._worker.run(self._stopping.is_set)
        except TidelakeError as raised:
            error = raised
        self.posted.close(error)
