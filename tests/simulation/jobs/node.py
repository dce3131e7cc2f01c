"""One capture of a simulation of jobs: a session, an executor with its units, perhaps masters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from coordination.errors import Fenced, LeaseGone, TryAgain
from coordination.etcd import keys
from coordination.etcd.client import Compare, Put, get
from coordination.etcd.election import Candidate
from coordination.etcd.session import Session
from coordination.jobmaster.executor import Executor
from coordination.jobmaster.job_master import Pace
from coordination.jobmaster.job_masters import JobMasters
from coordination.jobmaster.jobs_state import JobsReactorState
from coordination.jobmaster.messages import StopWorker, WorkerMessage, WorkerReport
from coordination.metadata.records import rfc3339
from coordination.model import CaptureID, CaptureInfo, ProcessorEpoch, Revision
from coordination.orchestrator.etcd_worker import EtcdWorker
from coordination.orchestrator.snapshot import GuardLost, Snapshot
from coordination.trust import deadline
from coordination.trust.fence import CaptureIdentity, Fence
from tests.fakes.fake_transport import FakeTransport
from tests.fakes.fake_units import FakeCheckpoints, FakeUnits
from tests.simulation.etcd_link import EtcdLink
from tests.simulation.world import SESSION, STEP_S, NodeClock

if TYPE_CHECKING:
    from tests.simulation.jobs.world import JobsWorld

CLUSTER = "sim"
PASSES = 2  # of the worker in one step
DRAIN_S = 10.0  # a capture that is asked to stop waits so long for its workers to go
PACE = Pace(heartbeat_s=1.0, normal_interval_s=10.0, error_interval_s=3.0)
GRACE_S = deadline.removal_grace_s(SESSION.ttl_s, SESSION.safety_margin_s)


class Life:
    """A node from one session to the next, with an ID of its own."""

    def __init__(self, node: SimNode, session: Session, capture_id: CaptureID) -> None:
        self.id = capture_id
        self.session = session
        self.registered = Revision(0)
        self.is_draining = False
        self.ends_at = float("inf")
        node.units = FakeUnits(
            node.world.copies,
            node.name,
            rng=node.rng,
            is_trusted=lambda: node.trusts(capture_id),
            send=node.world.send,
        )
        node.units.slow_steps = node.world.slow_steps
        self.executor = Executor(capture_id, node.units, lambda: None)
        self.candidate = Candidate(
            node.link,
            keys.election_prefix(CLUSTER),
            session.lease,
            capture_id.encode(),
            lambda: None,
        )


class Leading:
    """A leadership: the masters, and the worker that runs them."""

    def __init__(self, node: SimNode, life: Life) -> None:
        self.revision = life.candidate.revision
        self.masters = JobMasters(
            life.id,
            node.checkpoints,
            utc_now=lambda: rfc3339(node.world.utc_now(timedelta())),
            wake=lambda: None,
            pace=PACE,
        )
        leads = Compare(life.candidate.key, "create", self.revision)
        alive = Compare(keys.capture_key(CLUSTER, life.id), "create", life.registered)
        self.worker = EtcdWorker(
            client=node.link,
            clock=node.clock,
            snapshot=Snapshot(
                (keys.base_prefix(CLUSTER), keys.own_prefix(CLUSTER)),
                keys.delete_counter_key(CLUSTER),
                lambda: (leads, alive),
            ),
            reactor=self.masters,
            state=JobsReactorState(CLUSTER, removal_grace_s=GRACE_S),
            tick_interval_s=STEP_S * 0.8,
            wake=lambda: None,
            due_at=lambda: self.masters.due_at,
        )


class SimNode:
    """One process."""

    def __init__(self, world: JobsWorld, name: str) -> None:
        self.name = name
        self.world = world
        self.rng = world.dice(name)
        self.clock = NodeClock(world.clock, self.rng)
        self.link = EtcdLink(world.etcd, self.rng, world.clock.monotonic)
        world.links.append(self.link)
        self.fence = Fence(self.clock)
        self.agent = FakeTransport(world.network, name, lambda: None)
        self.frozen_until = self.stalled_until = 0.0
        self.is_dead = False
        self.is_stopping = False
        self.life: Life | None = None
        self.leading: Leading | None = None
        self.units = FakeUnits(world.copies, name)
        self.checkpoints = FakeCheckpoints(world.copies, self.rng)

    @property
    def is_stopped(self) -> bool:
        return self.is_stopping and self.life is None

    def trusts(self, capture_id: CaptureID) -> bool:
        """Whether that life of this node may write."""
        try:
            return self.fence.check().capture_id == capture_id and not self.is_dead
        except Fenced:
            return False

    def crash(self) -> None:
        self.is_dead = True
        self.agent.close()
        self.link.close()

    def step(self) -> None:
        now_s = self.world.clock.now_s
        if now_s < self.frozen_until:
            return
        self.link.deliver()
        self.units.step()
        if now_s < self.stalled_until:
            return
        try:
            if self.life is None:
                if not self.is_stopping:
                    self._begin()
                return
            self._live(self.life)
        except TryAgain:
            return

    def _begin(self) -> None:
        """A new session, under a new ID."""
        capture_id = CaptureID(self.world.new_id())
        session = Session(
            self.link,
            SESSION,
            self.clock,
            extended=self.fence.extend,
            lost=self.fence.shut,
            is_driven=True,
        )
        session.start()
        identity = CaptureIdentity(
            capture_id=capture_id, epoch=ProcessorEpoch(capture_id), address=self.name
        )
        self.fence.shut("a new session begins")
        self.fence.open(identity, session.trusted_until)
        self.agent.set_self(capture_id)
        self.checkpoints = FakeCheckpoints(self.world.copies, self.rng)
        self.checkpoints.slow_calls = 3
        self.life = Life(self, session, capture_id)
        self.world.lives[capture_id] = self.name

    def _live(self, life: Life) -> None:
        life.session.renew_when_due()
        if not life.session.is_alive or self.world.clock.now_s >= life.ends_at:
            self._end(life)
            return
        try:
            if not life.registered:
                self._register(life)
            self._drain(life)
            self._campaign(life)
        except LeaseGone as error:
            life.session.update(loss=str(error))
            return
        except TryAgain:
            pass
        self._deliver(life)
        self._lead(life)

    def _register(self, life: Life) -> None:
        key = keys.capture_key(CLUSTER, life.id)
        absent = Compare(key, "create", 0)
        self.link.txn((absent,), (Put(key, self._info(life), life.session.lease),))
        found = get(self.link, key)
        life.registered = found.create_revision if found is not None else Revision(0)

    def _info(self, life: Life) -> bytes:
        return keys.dump_capture_info(
            CaptureInfo(
                id=life.id,
                address=self.name,
                version="1.0.0",
                start_timestamp=1,
                is_draining=life.is_draining,
            )
        )

    def _drain(self, life: Life) -> None:
        """A node that is asked to stop gives its workers away, and then ends."""
        if not self.is_stopping or not life.registered:
            return
        if not life.is_draining:
            life.is_draining = True
            life.ends_at = self.world.clock.now_s + DRAIN_S
            self.world.drained.add(life.id)
        key = keys.capture_key(CLUSTER, life.id)
        found = get(self.link, key)
        if found is not None and found.value != self._info(life):
            same = Compare(key, "mod", found.mod_revision)
            self.link.txn((same,), (Put(key, self._info(life), life.session.lease),))
        life.executor.is_stopping = True
        if life.executor.is_closed:
            life.ends_at = self.world.clock.now_s

    def _campaign(self, life: Life) -> None:
        if not life.registered:
            return
        if life.is_draining:
            self._resign(life)
            return
        life.candidate.campaign(self.clock.monotonic())
        leading = self.leading
        if leading is not None and (
            leading.revision != life.candidate.revision or not life.candidate.leads
        ):
            self._step_down()
        if self.leading is None and life.candidate.leads:
            self.world.tell(f"{self.name} leads")
            self.checkpoints = FakeCheckpoints(self.world.copies, self.rng)
            self.checkpoints.slow_calls = 3
            self.leading = Leading(self, life)

    def _resign(self, life: Life) -> None:
        self._step_down()
        life.candidate.resign()

    def _step_down(self) -> None:
        if self.leading is not None:
            self.leading.worker.close()
            self.leading = None

    def _lead(self, life: Life) -> None:
        leading = self.leading
        if leading is None:
            return
        self.checkpoints.fails = self.world.checkpoints_fail
        try:
            for _ in range(PASSES):
                leading.worker.run_once()
        except GuardLost:
            self._step_down()
            life.candidate.close()
            return
        self._send(leading.masters.take_outbox())

    def _deliver(self, life: Life) -> None:
        inbox = self.agent.receive()
        if self.leading is not None:
            self.leading.masters.post([m for m in inbox if isinstance(m.body, WorkerReport)])
        self._send(life.executor.tick([m for m in inbox if not isinstance(m.body, WorkerReport)]))

    def _send(self, messages: Sequence[WorkerMessage]) -> None:
        for message in messages:
            if isinstance(message.body, StopWorker):
                self.world.check_cause(message.job_id, message.body)
        self.agent.send(messages)

    def _end(self, life: Life) -> None:
        """The session is over: what runs is closed, and then a new life may begin."""
        self._step_down()
        self.fence.shut("the session is over")
        life.executor.close()
        self._send(life.executor.tick(()))
        if life.executor.is_closed:
            life.candidate.close()
            life.session.close()
            self.agent.close()
            self.life = None
