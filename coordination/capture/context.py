"""What a capture works with: in all sessions of its process, and in the present session."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final

from conf.settings import SessionSettings
from coordination.etcd import keys
from coordination.etcd.client import Compare, EtcdClient
from coordination.jobmaster.job_master import Pace
from coordination.metadata.global_state import GlobalReactorState
from coordination.metadata.records import RunningError
from coordination.metadata.running_errors import running_error
from coordination.metadata.version import tidelake_version
from coordination.model import CaptureID, CaptureInfo, ProcessorEpoch, Revision
from coordination.orchestrator.etcd_worker import REST_S, EtcdWorker, Reactor, S
from coordination.orchestrator.snapshot import Snapshot
from coordination.ports import DataPlane
from coordination.scheduler.schedulers import SchedulerSettings
from coordination.transport.transport import Transport
from coordination.trust import deadline
from coordination.trust.clock import Clock
from coordination.trust.fence import CaptureIdentity, Fence, Trust
from coordination.trust.watchdog import Watchdog

FLUSH_INTERVAL_S: Final = 0.05  # owner-flush-interval, processor-flush-interval


def new_uuid() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureContext:
    """What stays the same when the capture is reset. Randomness and time are given as functions
    and objects, since the simulation has its own."""

    client: EtcdClient
    cluster_id: str
    session: SessionSettings
    clock: Clock
    fence: Fence
    watchdog: Watchdog
    transport: Transport
    data_plane: DataPlane
    address: str
    version: str = field(default_factory=tidelake_version)
    new_id: Callable[[], str] = new_uuid  # one that was never used
    utc_now: Callable[[], datetime] = lambda: datetime.now(UTC)  # for texts that people read
    rng: random.Random = field(default_factory=random.Random)
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    tick_interval_s: float = FLUSH_INTERVAL_S
    rest_s: float = REST_S
    is_driven: bool = False  # sessions have no threads; the simulation drives them
    removal_grace_s: float | None = None  # None: computed from the session's TTL
    tries_again: bool = True  # whether a changefeed is tried again after an error, or has failed
    leads_jobs: bool = True  # False: the scope is that of a `run`, which has no jobs
    jobs_pace: Pace = field(default_factory=Pace)
    # Asked after the capture is registered, with the create-revision of its key. False: not yet.
    admit: Callable[[CaptureID, Revision], bool] = lambda _capture_id, _registered: True
    woken: threading.Event = field(default_factory=threading.Event)  # wakes the coordination thread

    @property
    def grace_s(self) -> float:
        """For how long the tables of a dead capture are kept from others."""
        if self.removal_grace_s is not None:
            return self.removal_grace_s
        return deadline.removal_grace_s(self.session.ttl_s, self.session.safety_margin_s)

    def new_state(self) -> GlobalReactorState:
        return GlobalReactorState(self.cluster_id, removal_grace_s=self.grace_s)

    def new_worker(
        self,
        reactor: Reactor[S],
        state: S,
        guards: Callable[[], Sequence[Compare]],
        due_at: Callable[[], float],
    ) -> EtcdWorker[S]:
        return EtcdWorker(
            client=self.client,
            clock=self.clock,
            snapshot=Snapshot(
                (keys.base_prefix(self.cluster_id), keys.own_prefix(self.cluster_id)),
                keys.delete_counter_key(self.cluster_id),
                guards,
            ),
            reactor=reactor,
            state=state,
            tick_interval_s=self.tick_interval_s,
            rest_s=self.rest_s,
            due_at=due_at,
            wake=self.woken.set,
            unanswered=partial(self.fence.unanswered, object()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    """What the roles of a capture (owner, processor) work with in one session."""

    capture: CaptureContext
    info: CaptureInfo
    epoch: ProcessorEpoch
    etcd: str  # identifies the etcd: revisions are compared only if this is equal

    @property
    def id(self) -> CaptureID:
        return self.info.id

    @property
    def identity(self) -> CaptureIdentity:
        return CaptureIdentity(capture_id=self.id, epoch=self.epoch, address=self.info.address)

    @property
    def trust(self) -> Trust:
        return Trust(self.capture.fence, self.identity)

    @property
    def end_within_s(self) -> float:
        """How long a replica or a control writer may take to close before this capture ends, in
        seconds."""
        return self.capture.session.stall_timeout_s

    def new_epoch(self) -> ProcessorEpoch:
        return ProcessorEpoch(self.capture.new_id())

    def report(self, error: Exception, code: str) -> RunningError:
        """The error as it is reported in etcd; ``code`` is used if it has no code of its own."""
        return running_error(error, code=code, address=self.info.address, at=self.capture.utc_now())
