"""One life of a serving capture: a session, and the roles that trust in it.

    turn: session ─► registered? ─► messages in ─► processor ─► election ─► owner ─► messages out

                 leads ──► owner role ──election key gone, drained, term refused, failed──► ends
                   ▲                                                                       │
                   └──────── after a pause, and when nothing of it runs any more ◄─────────┘

What ends the owner role does not end the life; a lost session or capture key does, and is raised.
Registering, campaigning and resigning that etcd does not answer are tried again (cluster.md 20).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from conf.settings import SessionSettings
from coordination import deadline
from coordination.clock import Clock
from coordination.errors import CaptureSuicide, LeaseGone, TermRefused, TidelakeError, TryAgain
from coordination.etcd import keys
from coordination.etcd.client import Compare, EtcdClient, get
from coordination.etcd.election import Candidate
from coordination.etcd.identity import etcd_identity
from coordination.etcd.session import Session
from coordination.fence import Fence
from coordination.model import CaptureID, CaptureInfo, Ownership, ProcessorEpoch, Revision
from coordination.orchestrator.etcd_worker import EtcdWorker
from coordination.orchestrator.global_state import GlobalReactorState, Role
from coordination.orchestrator.reactor import GuardLost, Reactor
from coordination.owner.changefeed import OwnerContext
from coordination.owner.jobs import OwnerJobs
from coordination.owner.owner import OwnerReactor
from coordination.ports import DataPlane
from coordination.processor import CaptureRole, ProcessorReactor
from coordination.scheduler.coordinator import SchedulerSettings
from coordination.scheduler.messages import DispatchTableResponse, HeartbeatResponse, Message
from coordination.scheduler.transport import Transport

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.5
CAMPAIGN_PAUSE_S: Final = 1.0  # after an owner role has ended (TiCDC: one campaign a second)
FLUSH_INTERVAL_S: Final = 0.05  # owner-flush-interval, processor-flush-interval


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeContext:
    """What outlives a reset. Random things come in as functions: the simulation has its own."""

    client: EtcdClient
    cluster_id: str
    session: SessionSettings
    clock: Clock
    fence: Fence
    transport: Transport
    data_plane: DataPlane
    address: str
    version: str
    new_id: Callable[[], str]  # a UUID that was never used
    utc_now: Callable[[], datetime]
    rng: random.Random
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    tick_interval_s: float = FLUSH_INTERVAL_S
    is_driven: bool = False  # sessions without threads
    woken: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnerRole:
    """From a won election to its end."""

    reactor: OwnerReactor
    worker: EtcdWorker[GlobalReactorState]
    revision: Revision


class Life:
    """Made by `begin`. One thread, but for the session's, which shuts the fence by itself."""

    def __init__(
        self, context: LifeContext, jobs: OwnerJobs, role: CaptureRole, session: Session, etcd: str
    ) -> None:
        self.session = session
        self._context = context
        self._jobs = jobs
        self._role = role
        self._etcd = etcd
        self._key = keys.capture_key(context.cluster_id, role.id)
        self._registered = Revision(0)  # create-revision of the capture's key
        self._candidate = Candidate(
            context.client,
            keys.election_prefix(context.cluster_id),
            session.lease,
            role.id.encode(),
            context.woken.set,
        )
        self._campaign_at = float("-inf")
        self._owner: _OwnerRole | None = None
        self._ending: _OwnerRole | None = None
        self._must_resign = False
        self._is_stopping = False
        self._processor = ProcessorReactor(role, lambda: self.is_owner)
        self._state = self._new_state(Role.PROCESSOR)
        self._worker = self._new_worker(self._processor, self._state, self._capture_guards)

    @classmethod
    def begin(cls, context: LifeContext, jobs: OwnerJobs) -> Life:
        """A new ID, lease and epoch; the fence is open. Raises ``TryAgain``."""
        etcd = etcd_identity(context.client, context.cluster_id)
        info = CaptureInfo(
            id=CaptureID(context.new_id()),
            address=context.address,
            version=context.version,
            start_timestamp=int(context.utc_now().timestamp()),
        )
        epoch = ProcessorEpoch(context.new_id())

        def lost(reason: str) -> None:
            context.fence.shut(reason)
            context.woken.set()

        session = Session.open(
            context.client,
            context.session,
            context.clock,
            extended=context.fence.extend,
            lost=lost,
            is_driven=context.is_driven,
        )
        ownership = Ownership(
            capture_id=info.id, epoch=epoch, etcd_cluster_id=etcd, owner_revision=Revision(0)
        )
        context.fence.open(ownership, session.trusted_until)
        context.fence.extend(session.trusted_until)  # a renewal just before found it shut
        context.transport.set_self(info.id)
        role = CaptureRole(
            cluster_id=context.cluster_id,
            info=info,
            epoch=epoch,
            data_plane=context.data_plane,
            fence=context.fence,
            wake=context.woken.set,
            new_epoch=lambda: ProcessorEpoch(context.new_id()),
            utc_now=context.utc_now,
        )
        return cls(context, jobs, role, session, etcd)

    @property
    def id(self) -> CaptureID:
        return self._role.id

    @property
    def epoch(self) -> ProcessorEpoch:
        return self._role.epoch

    @property
    def processor(self) -> ProcessorReactor:
        return self._processor

    @property
    def owner(self) -> OwnerReactor | None:
        """While this capture leads."""
        return self._owner.reactor if self._owner is not None else None

    @property
    def leads_since(self) -> Revision:
        """The create-revision of the election key under which it leads; 0: it does not."""
        return self._owner.revision if self._owner is not None else Revision(0)

    @property
    def is_owner(self) -> bool:
        """Leads, or is not done with the end of it."""
        return self._owner is not None or self._ending is not None

    def turn(self) -> float:
        """One pass; the seconds until the next is of use. Raises what ends this life."""
        waits = [self.session.turn()]
        if not self.session.is_alive:  # lost a moment ago: its shutting may have come too early
            raise CaptureSuicide(self.session.reason)
        if not self._registered and not self._register():
            return min(RETRY_S, *waits)
        self._deliver(self._context.transport.receive())
        waits.append(self._turn_worker(self._worker))
        self._is_stopping |= self._processor.is_stopping
        waits.append(self._turn_owner())
        self._send()
        return min(waits)

    def stop(self) -> None:
        """Hand over what there is: resign, and let the others have the spans."""
        self._is_stopping = self._processor.is_stopping = True

    @property
    def is_drained(self) -> bool:
        """Nothing is left to hand over, or nobody is there to take it."""
        if self.is_owner or self._must_resign or not self._registered:
            return not self._registered
        if any(
            each.schedule is not None and each.schedule.owner == self.id
            for each in self._state.changefeeds.values()
        ):
            return False
        others = (each for each in self._state.captures if each != self.id)
        is_alone = all(self._state.is_gone(each) for each in others)
        return is_alone or self._processor.span_count == 0

    def close(self, *, drop: bool) -> None:
        """Begin to end all roles; no write to etcd any more."""
        self._end_owner(drop=drop, resigns=False)
        if self._ending is not None:
            self._ending.reactor.close(drop=drop)
        self._processor.close(drop=drop)
        self._worker.close()
        self._candidate.close()

    @property
    def is_closed(self) -> bool:
        is_owner_closed = self._ending is None or self._ending.reactor.is_closed
        return self._processor.is_closed and is_owner_closed

    def keep_alive(self) -> None:
        """While roles still end in order."""
        self.session.turn()

    def release(self) -> bool:
        """Give up the lease, and all keys with it; False if etcd did not take it."""
        return self.session.close()

    # registration and messages

    def _register(self) -> bool:
        client = self._context.client
        try:
            client.put(self._key, keys.dump_capture_info(self._role.info), self.session.lease)
            found = get(client, self._key)
        except TryAgain as error:
            logger.warning("could not register, trying again capture_id=%s: %s", self.id, error)
            return False
        if found is None:
            raise LeaseGone("the capture's key went as soon as it was put")
        self._registered = found.create_revision
        return True

    def _deliver(self, messages: list[Message]) -> None:
        for_owner = [each for each in messages if isinstance(each.body, _OF_AGENTS)]
        self._processor.post(each for each in messages if not isinstance(each.body, _OF_AGENTS))
        if self._owner is not None:
            self._owner.reactor.post(for_owner)

    def _send(self) -> None:
        outbox = self._processor.take_outbox()
        if self._owner is not None:
            outbox += self._owner.reactor.take_outbox()
        if outbox:
            self._context.transport.send(outbox)

    # the owner role

    def _turn_owner(self) -> float:
        now = self._context.clock.monotonic()
        if self._owner is None:
            self._jobs.carry_out(None)
        if not self._is_out_of_office(now):
            return RETRY_S
        if self._is_stopping:
            self._end_owner(drop=False, resigns=True)
            return RETRY_S
        wait_s = self._campaign(now)
        if self._owner is None:
            return wait_s
        return min(wait_s, self._lead(self._owner))

    def _is_out_of_office(self, now: float) -> bool:
        """Whether the end of the last owner role is over, its place in the queue included."""
        if self._ending is not None:
            if not self._ending.reactor.is_closed:
                return False
            self._ending = None
        if self._must_resign:
            try:
                self._candidate.resign()
            except TryAgain as error:
                logger.warning("could not resign, trying again capture_id=%s: %s", self.id, error)
                return False
            self._must_resign = False
        return now >= self._campaign_at

    def _campaign(self, now: float) -> float:
        candidate = self._candidate
        try:
            wait_s = candidate.turn(now)
        except TryAgain as error:
            logger.warning("the election is not known capture_id=%s: %s", self.id, error)
            wait_s = RETRY_S  # what is known goes on: the guards of each write decide
        if self._owner is not None and self._owner.revision != candidate.revision:
            logger.warning("the election key is gone capture_id=%s", self.id)
            self._end_owner(drop=True, resigns=False)
        elif self._owner is None and candidate.leads:
            self._owner = self._new_owner(candidate.revision)
            logger.info("capture leads capture_id=%s revision=%s", self.id, candidate.revision)
        return wait_s

    def _lead(self, owner: _OwnerRole) -> float:
        try:
            wait_s = self._turn_worker(owner.worker)
        except TermRefused as error:
            logger.warning("owner resigns capture_id=%s: %s", self.id, error)
            self._end_owner(drop=True, resigns=True)
        except GuardLost as error:
            if error.key != self._candidate.key:
                raise
            logger.warning("the election key is gone capture_id=%s", self.id)
            self._end_owner(drop=True, resigns=False)
            self._candidate.close()  # and look at once
        except TidelakeError:
            raise
        except Exception:
            logger.exception("the owner failed, it resigns capture_id=%s", self.id)
            self._end_owner(drop=True, resigns=True)
        else:
            if owner.reactor.wants_to_resign:
                self.stop()
            return wait_s
        return 0.0

    def _end_owner(self, *, drop: bool, resigns: bool) -> None:
        if self._owner is None:
            return
        self._ending, self._owner = self._owner, None
        self._ending.reactor.close(drop=drop)
        self._ending.worker.close()
        self._must_resign = resigns
        self._campaign_at = self._context.clock.monotonic() + CAMPAIGN_PAUSE_S
        self._jobs.carry_out(None)

    def _new_owner(self, revision: Revision) -> _OwnerRole:
        ownership = Ownership(
            capture_id=self.id,
            epoch=self.epoch,
            etcd_cluster_id=self._etcd,
            owner_revision=revision,
        )
        context = OwnerContext(
            role=self._role,
            ownership=ownership,
            settings=self._context.scheduler,
            rng=self._context.rng,
        )
        leads = Compare(self._candidate.key, "create", "=", revision)
        reactor = OwnerReactor(context, self._jobs)
        worker = self._new_worker(
            reactor, self._new_state(Role.OWNER), lambda: (*self._capture_guards(), leads)
        )
        return _OwnerRole(reactor=reactor, worker=worker, revision=revision)

    # workers

    def _capture_guards(self) -> tuple[Compare, ...]:
        return (Compare(self._key, "create", "=", self._registered),)

    def _new_state(self, role: Role) -> GlobalReactorState:
        grace_s = deadline.removal_grace_s(self._context.session.ttl_s)
        return GlobalReactorState(self._context.cluster_id, role=role, removal_grace_s=grace_s)

    def _new_worker(
        self,
        reactor: Reactor[GlobalReactorState],
        state: GlobalReactorState,
        guards: Callable[[], Sequence[Compare]],
    ) -> EtcdWorker[GlobalReactorState]:
        context = self._context
        return EtcdWorker(
            client=context.client,
            clock=context.clock,
            prefixes=(keys.base_prefix(context.cluster_id), keys.own_prefix(context.cluster_id)),
            reactor=reactor,
            state=state,
            guards=guards,
            tick_interval_s=context.tick_interval_s,
            delete_counter_key=keys.delete_counter_key(context.cluster_id),
            wake=context.woken.set,
        )

    def _turn_worker(self, worker: EtcdWorker[GlobalReactorState]) -> float:
        wait_s = worker.turn()
        assert wait_s is not None, "reactors of a capture do not finish by themselves"
        return wait_s


_OF_AGENTS: Final = (HeartbeatResponse, DispatchTableResponse)
