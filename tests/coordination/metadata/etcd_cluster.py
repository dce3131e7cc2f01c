"""A cluster over etcd for the contract suite: captures with leases."""

from __future__ import annotations

import uuid

from coordination.clock import SystemClock
from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.etcd.election import Candidate
from coordination.metadata.committer import ClientCommitter, Committer
from coordination.metadata.elector import EtcdElector
from coordination.metadata.etcd_observation import (
    EtcdCaptureObservation,
    EtcdControllerObservation,
    EtcdOwnerObservation,
)
from coordination.metadata.model import ChangefeedIdent
from coordination.metadata.observation import CaptureObservation
from coordination.metadata.querier import EtcdQuerier
from coordination.model import CaptureID, CaptureInfo, LeaseID

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
