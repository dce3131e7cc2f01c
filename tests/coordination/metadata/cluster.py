"""One cluster's metadata in etcd, written as its operators and its owner do."""

from __future__ import annotations

import uuid

from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.changefeed_operator import ChangefeedOperator
from coordination.metadata.changefeed_state import ChangefeedReactorState
from coordination.metadata.changefeed_writes import ChangefeedWrites
from coordination.metadata.feed_state import Decision, FeedEvent
from coordination.metadata.lookup import read_changefeed
from coordination.metadata.records import (
    NO_PROGRESS,
    NO_ROW,
    ChangefeedInfo,
    ChangefeedStatus,
    RunningError,
    ScheduleRow,
)
from coordination.model import CaptureID, CaptureInfo, ChangefeedID, LeaseID, Ts
from coordination.orchestrator.commit_once import commit_once
from coordination.orchestrator.transaction import PatchGroup

TTL_S = 60
START_TS = Ts(400)
SHOP = ChangefeedInfo(
    id=ChangefeedID("shop"), sink_uri="delta:///w", start_ts=START_TS, config={"filter": {}}
)
NAME = ChangefeedName(SHOP.id)
C1, C2 = CaptureID("c1"), CaptureID("c2")


class Cluster:
    def __init__(self, client: EtcdClient) -> None:
        self.client = client
        self.id = f"c{uuid.uuid4().hex}"
        self.operator = ChangefeedOperator(client, self.id)
        self._leases: dict[CaptureID, LeaseID] = {}

    def register(self, capture_id: CaptureID) -> CaptureInfo:
        info = CaptureInfo(
            id=capture_id, address=f"{capture_id}:8300", version="1", start_timestamp=1
        )
        lease = self._leases[capture_id] = self.client.grant(TTL_S).id
        self.client.put(keys.capture_key(self.id, capture_id), keys.dump_capture_info(info), lease)
        return info

    def kill(self, capture_id: CaptureID) -> None:
        self.client.revoke(self._leases[capture_id])

    @property
    def found(self) -> ChangefeedReactorState:
        return read_changefeed(self.client, self.id, NAME)

    @property
    def info(self) -> ChangefeedInfo:
        return self.found.known_info

    @property
    def status(self) -> ChangefeedStatus:
        return self.found.status or NO_PROGRESS

    @property
    def row(self) -> ScheduleRow:
        return self.found.schedule or NO_ROW

    def commit(self, *groups: PatchGroup) -> None:
        commit_once(self.client, groups, keys.delete_counter_key(self.id))

    def launch(self, owner: CaptureID = C1) -> Owner:
        self.commit(self.found.writes().launch(owner))
        return Owner(self, self.found.writes(by_owner=True))

    def release(self, owner: CaptureID = C1) -> None:
        self.commit(self.found.writes().release(owner))


class Owner:
    """Of one launch; each call is committed by itself."""

    def __init__(self, cluster: Cluster, writes: ChangefeedWrites) -> None:
        self._cluster = cluster
        self._writes = writes

    def decide(self, event: FeedEvent, error: RunningError | None = None) -> None:
        self._cluster.commit(self._writes.feed_event(Decision(event=event, error=error)))

    def advance(self, checkpoint_ts: int, barrier_ts: int, epoch: int) -> None:
        self._cluster.commit(
            self._writes.advance_checkpoint(Ts(checkpoint_ts), Ts(barrier_ts), epoch)
        )
