"""Jobs over captures in virtual time: masters, executors and EtcdWorkers as in the product, on
fakes of all else. Everything that is random comes from the seed."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from coordination.errors import TidelakeError
from coordination.etcd import keys
from coordination.jobmaster.job_operator import JobOperator
from coordination.jobmaster.messages import StopWorker
from coordination.jobmaster.records import Job, TaskCfg, UnitState
from coordination.jobmaster.units import TaskMode
from coordination.metadata.errors import BrokenValue
from coordination.metadata.records import load
from coordination.model import CaptureID, JobID, TaskID
from tests.fakes.fake_etcd import FakeEtcd
from tests.fakes.fake_transport import FakeNetwork
from tests.fakes.fake_units import Copies, FakeUnit
from tests.fakes.fake_warehouse import InvariantBroken, require
from tests.simulation.etcd_link import EtcdLink
from tests.simulation.jobs.node import CLUSTER, SimNode
from tests.simulation.world import LONG_S, MAX_TXN_OPS, STARTED_AT, STEP_S, SimClock

JOBS = (JobID("copy"), JobID("shop"))
TASKS = tuple(TaskID(f"mysql-{number}") for number in (1, 2, 3))


class JobsWorld:
    def __init__(self, seed: int, *, captures: int = 3) -> None:
        self.seed = seed
        self.clock = SimClock()
        self.etcd = FakeEtcd(self.clock, max_txn_ops=MAX_TXN_OPS)
        self.links: list[EtcdLink] = []  # of the dead too
        self.network = FakeNetwork(self.dice("network"))
        self.copies = Copies()
        self.rng = self.dice("world")
        self.slow_steps = self.rng.choice((0, 2, 6))
        self.commit_s = self.rng.choice((0.2, 1.0, LONG_S))
        self.checkpoints_fail = 0.0
        self.nodes: list[SimNode] = []
        self.lives: dict[CaptureID, str] = {}  # every capture ID, and its node
        self.drained: set[CaptureID] = set()
        self.good: dict[JobID, Job] = {}  # the last that could be read
        self.sent: list[tuple[float, FakeUnit]] = []
        self.steps = 0
        self.story: list[str] = []
        self.errors: list[str] = []
        self._ids = self._names = 0
        self.operator = JobsOperator(self, self.dice("operator"))
        for job_id in JOBS[: self.rng.choice((1, 1, 2))]:
            self.operator.create(job_id)
        for _ in range(captures):
            self.start_node()

    def dice(self, whose: str) -> random.Random:
        return random.Random(f"{self.seed} {whose}")

    def new_id(self) -> str:
        self._ids += 1
        return str(uuid.UUID(int=self.rng.getrandbits(96) << 32 | self._ids))

    def utc_now(self, wrong_by: timedelta) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.clock.now_s) + wrong_by

    def tell(self, what: str) -> None:
        self.story.append(f"{self.clock.now_s - STARTED_AT:6.2f} s  {what}")

    def start_node(self) -> SimNode:
        self._names += 1
        node = SimNode(self, f"n{self._names}")
        self.nodes.append(node)
        return node

    def step(self) -> None:
        self.steps += 1
        self.clock.now_s = STARTED_AT + self.steps * STEP_S
        self.etcd.expire_leases()
        for link in self.links:
            link.land()
        self.network.advance_to(self.clock.now_s)
        for at, unit in [each for each in self.sent if each[0] <= self.clock.now_s]:
            self.sent.remove((at, unit))
            self.copies.land(unit)
        self.nodes = [each for each in self.nodes if not each.is_stopped and not each.is_dead]
        for node in self.rng.sample(self.nodes, len(self.nodes)):
            node.step()
        for job_id in JOBS:
            self.job(job_id)
        if self.errors:
            raise InvariantBroken(f"an unexpected error was logged: {self.errors[0]}")

    def send(self, unit: FakeUnit) -> None:
        """A chunk of a unit is under way. It lands whatever becomes of its capture; while that
        lives it may take as long as the quiet time lets it."""
        take_s = self.rng.choice((0.0, self.commit_s / 2, self.commit_s))
        self.sent.append((self.clock.now_s + take_s, unit))

    @property
    def leader(self) -> SimNode | None:
        leading = (each for each in self.nodes if each.leading is not None)
        return next(leading, None)

    # What lies in etcd, seen from outside.

    def value(self, key: str) -> bytes | None:
        kv = self.etcd._kvs.get(key)
        return kv.value if kv else None

    def job(self, job_id: JobID) -> Job | None:
        """The job, or the last good value of it."""
        value = self.value(keys.job_key(CLUSTER, job_id))
        if value is None:
            self.good.pop(job_id, None)
            return None
        with suppress(BrokenValue):
            self.good[job_id] = load(Job, value)
        return self.good.get(job_id)

    def unit_state(self, job_id: JobID) -> UnitState:
        value = self.value(keys.unit_state_key(CLUSTER, job_id))
        return UnitState() if value is None else load(UnitState, value)

    def check_cause(self, job_id: JobID, order: StopWorker) -> None:
        """J4: a worker is stopped only for a cause, and what was a cause once stays one."""
        if order.unless_online:
            return
        job = self.job(job_id)
        status = self.unit_state(job_id).current.get(order.task_id)
        if job is None or job.deleting or status is None or status.worker_id != order.worker_id:
            return
        task = job.tasks.get(order.task_id)
        is_outdated = task is None or task.cfg.mod_revision != status.cfg_mod_revision
        is_drained = status.capture in self.drained
        require(
            is_outdated or is_drained,
            f"J4: worker {order.worker_id} of {order.task_id} is stopped without a cause",
        )


class JobsOperator:
    """What is refused is left alone; what has no answer may come yet."""

    def __init__(self, world: JobsWorld, rng: random.Random) -> None:
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

    def _mode(self) -> str:
        # load&sync needs files that another task has staged
        return self._rng.choice([each for each in TaskMode if each is not TaskMode.LOAD_SYNC]).value

    def attempt(self, what: Callable[[], object]) -> bool:
        try:
            what()
        except TidelakeError:
            return False
        return True
