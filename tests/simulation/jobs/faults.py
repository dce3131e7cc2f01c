"""What is done to a world of jobs, by the dice of its seed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from random import Random

from coordination.etcd import keys
from coordination.etcd.client import delete
from coordination.model import JobID, Revision, TaskID
from tests.simulation.jobs.node import CLUSTER, SimNode
from tests.simulation.jobs.world import JOBS, JobsWorld

MAX_NODES = 4


class Faults:
    """`act` after each step while faults last; `heal` ends them all. Each deed has a number and
    dice of its own: those of ``without`` are left out, and the others stay as they are."""

    def __init__(self, world: JobsWorld, without: Collection[int] = ()) -> None:
        self.deeds = 0  # so far
        self.world = world
        self._without = without
        self.dice = dice = world.dice("faults")
        self._chance = dice.choice((0.05, 0.15, 0.3))
        self._later: list[tuple[float, Callable[[], None]]] = []
        deeds: list[Callable[[], None]] = [
            self.crash,
            self.crash_two,
            self.freeze,
            self.stall,
            self.cut_etcd,
            self.cut_pair,
            self.lose_answers,
            self.delay_watches,
            self.stop,
            self.start,
            self.delete_owner_key,
            self.compact,
            self.etcd_down,
            self.break_job,
            self.fail_unit,
            self.kill_unit,
            self.refuse_units,
            self.fail_checkpoints,
            self.pause,
            self.update,
            self.swap,
            self.stop_job,
            self.create_job,
            self.doubt_operator,
        ]
        # each seed has its favourites, so that what is rare in general is dense in some
        self._deeds = dice.sample(deeds, dice.randrange(4, len(deeds)))
        self._do(self._trouble_the_network)

    def _trouble_the_network(self) -> None:
        network, rng = self.world.network, self.dice
        if rng.random() < 0.8:
            network.loss = rng.choice((0.0, 0.1, 0.3))
            network.double = rng.choice((0.0, 0.2, 0.5))
            network.late = rng.choice((0.0, 0.1, 0.4))
            network.late_s = rng.choice((1.0, 4.0, 12.0))

    def act(self) -> None:
        now_s = self.world.clock.now_s
        due = [deed for at, deed in self._later if at <= now_s]
        self._later = [each for each in self._later if each[0] > now_s]
        for deed in due:
            deed()
        if self.dice.random() < self._chance:
            self._do(self.dice.choice(self._deeds))

    def _do(self, deed: Callable[[], None]) -> None:
        number, self.deeds = self.deeds, self.deeds + 1
        if number not in self._without:
            self._rolling(self.world.dice(f"deed {number}"), deed)

    def _rolling(self, dice: Random, deed: Callable[[], None]) -> None:
        before, self.dice = self.dice, dice
        deed()
        self.dice = before

    def after(self, seconds: float, deed: Callable[[], None]) -> None:
        dice = Random(self.dice.getrandbits(64))
        self._later.append((self.world.clock.now_s + seconds, partial(self._rolling, dice, deed)))

    def heal(self) -> None:
        """All faults end; what was scheduled as their end happens now."""
        world = self.world
        for _, deed in self._later:
            deed()
        self._later.clear()
        network = world.network
        network.loss = network.double = network.late = 0.0
        network.cuts.clear()
        world.etcd.down = False
        world.checkpoints_fail = 0.0
        world.slow_steps = 1
        for node in world.nodes:
            node.frozen_until = node.stalled_until = 0.0
            node.units.refuses, node.units.slow_steps = "", 1
            node.link.lost_answers = 0.0
            node.link.heal_if_cut()
        world.operator.link.lost_answers = 0.0
        world.operator.link.land(at_once=True)
        for job_id in JOBS:
            world.operator.attempt(partial(world.operator.orders.resume, job_id))
        while sum(not each.is_stopping for each in world.nodes) < 2:
            world.start_node()
        world.tell("all faults end")

    # captures

    def crash(self) -> None:
        if (node := self._one_writing()) is not None:
            self._kill(node)

    def _kill(self, node: SimNode) -> None:
        self.world.tell(f"{node.name} is killed")
        node.crash()
        self.world.nodes.remove(node)
        self.after(self.dice.random() * 6, self.start)

    def crash_two(self) -> None:
        """The leader too, so that who leads next has never seen the other one."""
        if len(self.world.nodes) > 2:
            self.crash()
            if self.world.leader is not None:
                self._kill(self.world.leader)

    def freeze(self) -> None:
        if (node := self._one()) is not None:
            seconds = self.dice.choice((0.5, 2.0, 9.0, 13.0))
            self.world.tell(f"{node.name} is frozen for {seconds} s")
            node.frozen_until = self.world.clock.now_s + seconds

    def stall(self) -> None:
        if (node := self._one_writing()) is not None:
            seconds = self.dice.choice((1.0, 3.0, 9.0))
            self.world.tell(f"{node.name} stalls for {seconds} s")
            node.stalled_until = self.world.clock.now_s + seconds

    def stop(self) -> None:
        node = self._one()
        if node is not None and len(self.world.nodes) > 1:
            self.world.tell(f"{node.name} is asked to stop")
            node.is_stopping = True
            self.after(1.0, self.start)

    def start(self) -> None:
        if len(self.world.nodes) < MAX_NODES:
            self.world.tell(f"{self.world.start_node().name} starts")

    # etcd and the network

    def cut_etcd(self) -> None:
        node = self._one_writing()
        if node is not None and not node.link.is_cut:
            self.world.tell(f"{node.name} is cut off from etcd")
            node.link.cut()
            self.after(self.dice.random() * 8, node.link.heal_if_cut)

    def cut_pair(self) -> None:
        world = self.world
        if len(world.nodes) > 1:
            pair = frozenset(each.name for each in self.dice.sample(world.nodes, 2))
            world.tell(f"nothing passes between {sorted(pair)}")
            world.network.cuts.add(pair)
            self.after(self.dice.random() * 12, lambda: world.network.cuts.discard(pair))

    def lose_answers(self) -> None:
        if (node := self._one()) is not None:
            self.world.tell(f"{node.name} loses answers of etcd")
            node.link.lost_answers = 0.3
            self.after(3.0, lambda: setattr(node.link, "lost_answers", 0.0))

    def delay_watches(self) -> None:
        if (node := self._one()) is not None:
            self.world.tell(f"{node.name} hears late of what changes in etcd")
            node.link.late_watches = 0.9
            self.after(2.0, lambda: setattr(node.link, "late_watches", 0.3))

    def delete_owner_key(self) -> None:
        if self.world.etcd.down:
            return
        found = self.world.etcd.range(keys.election_prefix(CLUSTER), prefix=True).kvs
        if found:
            first = min(found, key=lambda kv: kv.create_revision)
            self.world.tell("the leader's election key is deleted by hand")
            delete(self.world.etcd, first.key)

    def compact(self) -> None:
        etcd = self.world.etcd
        etcd.compact(Revision(etcd._revision))
        self.world.tell("etcd is compacted")

    def etcd_down(self) -> None:
        etcd = self.world.etcd
        etcd.down = True
        self.world.tell("etcd is down")
        self.after(self.dice.random() * 5, lambda: setattr(etcd, "down", False))

    def break_job(self) -> None:
        """Somebody writes what is no job, and puts it right later."""
        world, job_id = self.world, self._job_id()
        good = world.job(job_id)
        key = keys.job_key(CLUSTER, job_id)
        before = world.value(key)
        if world.etcd.down or good is None or before is None or before == b"{":
            return
        world.tell(f"{job_id} cannot be read")
        world.etcd.put(key, b"{")

        def mend() -> None:
            if world.value(key) == b"{":
                world.tell(f"{job_id} can be read again")
                was_down, world.etcd.down = world.etcd.down, False
                world.etcd.put(key, before)
                world.etcd.down = was_down

        self.after(self.dice.random() * 8, mend)

    # units

    def fail_unit(self) -> None:
        self._to_units("fails", lambda unit: unit.fail("the binlog is purged"))

    def kill_unit(self) -> None:
        self._to_units("ends of itself", lambda unit: unit.die("out of memory"))

    def _to_units(self, what: str, deed: Callable[..., None]) -> None:
        node = self._one()
        units = node.units.opened if node is not None else []
        if units:
            unit = self.dice.choice(units)
            self.world.tell(f"{unit} {what}")
            deed(unit)

    def refuse_units(self) -> None:
        if (node := self._one()) is not None:
            self.world.tell(f"{node.name} cannot begin units")
            units = node.units
            units.refuses = "the user may not SELECT"
            self.after(self.dice.random() * 6, lambda: setattr(units, "refuses", ""))

    def fail_checkpoints(self) -> None:
        world = self.world
        world.tell("checkpoints cannot be read")
        world.checkpoints_fail = 0.7
        self.after(self.dice.random() * 6, lambda: setattr(world, "checkpoints_fail", 0.0))

    # the operator

    def pause(self) -> None:
        operator, job_id = self.world.operator, self._job_id()
        tasks = self._some_tasks(job_id)
        if operator.attempt(lambda: operator.orders.pause(job_id, tasks)):
            self.world.tell(f"{job_id} is paused: {', '.join(tasks) or 'all'}")
        resume = partial(operator.orders.resume, job_id, self._some_tasks(job_id))
        self.after(self.dice.random() * 6, lambda: operator.attempt(resume) and None)

    def _some_tasks(self, job_id: JobID) -> list[TaskID]:
        job = self.world.job(job_id)
        tasks = sorted(job.tasks) if job is not None else []
        return self.dice.sample(tasks, self.dice.randint(0, len(tasks)))

    def update(self) -> None:
        job_id = self._job_id()
        job = self.world.job(job_id)
        if job is not None and self.world.operator.update(job_id, job, self.dice):
            self.world.tell(f"{job_id} is updated")

    def swap(self) -> None:
        job_id = self._job_id()
        job = self.world.job(job_id)
        if job is not None and job.tasks and self.world.operator.swap(job_id, job, self.dice):
            self.world.tell(f"{job_id} has another task of the same name")

    def stop_job(self) -> None:
        operator, job_id = self.world.operator, self._job_id()
        if operator.attempt(lambda: operator.orders.stop(job_id)):
            self.world.tell(f"{job_id} is stopped")
        for _ in range(3):
            self.after(self.dice.random() * 10, partial(self._create, job_id))

    def create_job(self) -> None:
        self._create(self._job_id())

    def _create(self, job_id: JobID) -> None:
        if self.world.operator.create(job_id):
            self.world.tell(f"{job_id} is created")

    def doubt_operator(self) -> None:
        link = self.world.operator.link
        self.world.tell("the operator loses answers of etcd")
        link.lost_answers = 0.3
        self.after(6.0, lambda: setattr(link, "lost_answers", 0.0))

    # how

    def _job_id(self) -> JobID:
        return self.dice.choice(JOBS)

    def _one(self) -> SimNode | None:
        """Any, but more often the leader than its share."""
        world = self.world
        if not world.nodes:
            return None
        if world.leader is not None and self.dice.random() < 0.3:
            return world.leader
        return self.dice.choice(world.nodes)

    def _one_writing(self) -> SimNode | None:
        """One with a chunk under way, if there is one: that is where it hurts."""
        writing = [
            each for each in self.world.nodes if any(u.is_under_way for u in each.units.opened)
        ]
        return self.dice.choice(writing) if writing else self._one()
