"""The jobs of a world, what their units have copied, and their operator, who hears no more of etcd
than anybody else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from coordination.errors import TidelakeError
from coordination.etcd import keys
from coordination.jobmaster.job_master import Pace
from coordination.jobmaster.job_operator import JobOperator
from coordination.jobmaster.messages import StopWorker, WorkerMessage
from coordination.jobmaster.records import Job, TaskCfg, UnitState
from coordination.jobmaster.units import TaskMode
from coordination.metadata.errors import BrokenValue
from coordination.metadata.records import load
from coordination.model import CaptureID, JobID, TaskID
from coordination.transport.transport import PeerMessage
from tests.fakes.fake_units import Copies, FakeUnit
from tests.fakes.fake_warehouse import require
from tests.simulation.etcd_link import EtcdLink
from tests.simulation.feeds import CLUSTER

if TYPE_CHECKING:
    from tests.simulation.world import World

JOBS = (JobID("copy"), JobID("follow"))
TASKS = tuple(TaskID(f"mysql-{number}") for number in (1, 2, 3))
PACE = Pace(heartbeat_s=1.0, normal_interval_s=10.0, error_interval_s=3.0)


class SimJobs:
    """``longest_s``: the longest that a chunk is under way; ``quiet_s``: what it has to land before
    a successor begins."""

    def __init__(self, world: World, *, longest_s: float, quiet_s: float) -> None:
        self.copies = Copies()
        self.copies.is_lenient = lambda: world.clock.now_s < world.lenient_until + quiet_s
        self.seen_draining: set[CaptureID] = set()
        self.good: dict[JobID, Job] = {}  # the last that could be read
        self._world = world
        self._rng = rng = world.dice("jobs")
        self._sent: list[tuple[float, FakeUnit]] = []
        self._commit_s = rng.choice((0.2, 1.0, longest_s))
        world.pace.unit_steps = rng.choice((0, 2, 6))
        world.pace.checkpoint_calls = 3
        world.network.sees = self._check_cause
        self.operator = JobsOperator(world, world.dice("operator of jobs"))
        for job_id in JOBS[: rng.choice((1, 1, 2))]:
            self.operator.create(job_id)

    def send(self, unit: FakeUnit) -> None:
        """A chunk of a unit is under way. It lands whatever becomes of its capture; while that
        lives it may take as long as the quiet time lets it."""
        take_s = self._rng.choice((0.0, self._commit_s / 2, self._commit_s))
        self._sent.append((self._world.clock.now_s + take_s, unit))

    def step(self) -> None:
        for at, unit in [each for each in self._sent if each[0] <= self._world.clock.now_s]:
            self._sent.remove((at, unit))
            self.copies.land(unit)
        for job_id in JOBS:
            self.job(job_id)
        self._draining()

    def units(self) -> Iterator[FakeUnit]:
        """Those of living captures."""
        for capture in self._world.captures:
            for units in capture.plane.unit_sets:
                yield from (each for each in units.opened if not each.is_closed)

    # What lies in etcd, seen from outside.

    def job(self, job_id: JobID) -> Job | None:
        """The job, or the last good value of it."""
        value = self._world.value(keys.job_key(CLUSTER, job_id))
        if value is None:
            self.good.pop(job_id, None)
            return None
        with suppress(BrokenValue):
            self.good[job_id] = load(Job, value)
        return self.good.get(job_id)

    def unit_state(self, job_id: JobID) -> UnitState:
        value = self._world.value(keys.unit_state_key(CLUSTER, job_id))
        return UnitState() if value is None else load(UnitState, value)

    def _check_cause(self, message: PeerMessage) -> None:
        """J4: a worker is stopped only for a cause, and what was a cause once stays one."""
        if not isinstance(message, WorkerMessage) or not isinstance(message.body, StopWorker):
            return
        job_id, order = message.job_id, message.body
        if order.unless_online or self.copies.is_lenient():
            return
        job = self.job(job_id)
        status = self.unit_state(job_id).current.get(order.task_id)
        if job is None or job.deleting or status is None or status.worker_id != order.worker_id:
            return
        task = job.tasks.get(order.task_id)
        is_outdated = task is None or task.cfg.mod_revision != status.cfg_mod_revision
        require(
            is_outdated or status.capture in self._draining(),
            f"J4: worker {order.worker_id} of {order.task_id} is stopped without a cause",
        )

    def _draining(self) -> set[CaptureID]:
        """Captures that were asked to give all away, by themselves or by an operator."""
        for capture in self._world.captures:
            inner = capture.server.capture
            if inner is not None and capture.is_stopping:
                self.seen_draining.add(inner.id)
            if capture.owner is not None:
                self.seen_draining |= capture.owner.draining
        return self.seen_draining


class JobsOperator:
    """What is refused is left alone; what has no answer may come yet."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.link = EtcdLink(world.etcd, rng, world.clock.monotonic)
        world.links.append(self.link)
        self.orders = JobOperator(self.link, CLUSTER)
        self._rng = rng
        self._edits = 0

    def create(self, job_id: JobID) -> bool:
        tasks = TASKS[: self._rng.randint(1, len(TASKS))]
        wanted = {each: TaskCfg(task_mode=self._mode()) for each in tasks}
        return self.attempt(lambda: self.orders.create(job_id, wanted))

    def update(self, job_id: JobID, job: Job, rng: random.Random) -> bool:
        """Some tasks change, one may come or go."""
        wanted = {each: task.cfg for each, task in job.tasks.items()}
        for task_id in TASKS:
            self._edits += 1
            fate = rng.random()
            if task_id not in wanted:
                if fate < 0.4:
                    wanted[task_id] = TaskCfg(task_mode=self._mode())
            elif fate < 0.2 and len(wanted) > 1:
                del wanted[task_id]
            elif fate < 0.6:
                mode = wanted[task_id].task_mode
                longer = "all" if mode in ("dump", "full") and fate < 0.4 else mode
                wanted[task_id] = TaskCfg(task_mode=longer, config={"edit": self._edits})
        return self.attempt(lambda: self.orders.update(job_id, wanted))

    def swap(self, job_id: JobID, job: Job, rng: random.Random) -> bool:
        """A task is taken out, and another one of its name comes in, both at once."""
        wanted = {each: task.cfg for each, task in job.tasks.items()}
        gone = rng.choice(sorted(wanted))
        kept = {each: cfg for each, cfg in wanted.items() if each != gone}
        is_out = self.attempt(lambda: self.orders.update(job_id, kept))
        later = {**kept, gone: TaskCfg(task_mode=self._mode())}
        return self.attempt(lambda: self.orders.update(job_id, later)) and is_out

    def settle(self) -> None:
        """What is under way happens now, and every job that is there runs."""
        self.link.lost_answers = 0.0
        self.link.land(at_once=True)
        for job_id in JOBS:
            self.attempt(lambda job_id=job_id: self.orders.resume(job_id))

    def _mode(self) -> str:
        # load&sync needs files that another task has staged
        return self._rng.choice([each for each in TaskMode if each is not TaskMode.LOAD_SYNC]).value

    def attempt(self, what: Callable[[], object]) -> bool:
        try:
            what()
        except TidelakeError:
            return False
        return True
