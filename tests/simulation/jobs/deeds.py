"""What is done to the jobs of a world, by the dice of its seed, beside all other faults."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from coordination.etcd import keys
from coordination.metadata.records import dump
from coordination.model import JobID, TaskID
from tests.simulation.feeds import CLUSTER
from tests.simulation.jobs.sim_jobs import JOBS, SimJobs

if TYPE_CHECKING:
    from tests.simulation.faults import Faults
    from tests.simulation.world import SimCapture

BROKEN = b"{"


class JobDeeds:
    def __init__(self, faults: Faults, jobs: SimJobs) -> None:
        self._faults = faults
        self._world = faults.world
        self._jobs = jobs

    @property
    def all(self) -> list[Callable[[], None]]:
        return [
            self.break_job,
            self.fail_unit,
            self.kill_unit,
            self.kill_who_copies,
            self.refuse_units,
            self.fail_checkpoints,
            self.pause,
            self.update,
            self.swap,
            self.stop_job,
            self.create_job,
            self.doubt_operator,
        ]

    def heal(self) -> None:
        pace = self._world.pace
        pace.checkpoints_fail, pace.unit_steps = 0.0, 1
        for capture in self._world.captures:
            for units in capture.plane.unit_sets:
                units.refuses, units.slow_steps = "", 1
        self._mend_jobs()
        self._jobs.operator.settle()

    def _mend_jobs(self) -> None:
        """A backup of etcd may have brought a broken one back."""
        for job_id in JOBS:
            key, good = keys.job_key(CLUSTER, job_id), self._jobs.job(job_id)
            if self._world.value(key) == BROKEN and good is not None:
                self._world.etcd.put(key, dump(good))

    def break_job(self) -> None:
        """Somebody writes what is no job, and puts it right later."""
        world, job_id = self._world, self._job_id()
        good = self._jobs.job(job_id)
        key = keys.job_key(CLUSTER, job_id)
        before = world.value(key)
        if world.etcd.down or good is None or before is None or before == BROKEN:
            return
        world.tell(f"{job_id} cannot be read")
        world.etcd.put(key, BROKEN)

        def mend() -> None:
            if world.value(key) == BROKEN:
                world.tell(f"{job_id} can be read again")
                was_down, world.etcd.down = world.etcd.down, False
                world.etcd.put(key, before)
                world.etcd.down = was_down

        self._after(8, mend)

    # units

    def fail_unit(self) -> None:
        self._to_units("fails", lambda unit: unit.fail("the binlog is purged"))

    def kill_unit(self) -> None:
        self._to_units("ends of itself", lambda unit: unit.die("out of memory"))

    def _to_units(self, what: str, deed: Callable[..., None]) -> None:
        units = list(self._jobs.units())
        if units:
            unit = self._dice.choice(units)
            self._world.tell(f"{unit} {what}")
            deed(unit)

    def kill_who_copies(self) -> None:
        """A capture with a chunk under way: that is where it hurts."""
        copying = [each for each in self._world.captures if _copies(each)]
        if copying:
            self._faults.kill(self._dice.choice(copying))

    def refuse_units(self) -> None:
        world = self._world
        if not world.captures:
            return
        capture = self._dice.choice(world.captures)
        world.tell(f"{capture.node} cannot begin units")
        sets = list(capture.plane.unit_sets)
        for units in sets:
            units.refuses = "the user may not SELECT"

        def let() -> None:
            for units in sets:
                units.refuses = ""

        self._after(6, let)

    def fail_checkpoints(self) -> None:
        pace = self._world.pace
        self._world.tell("checkpoints cannot be read")
        pace.checkpoints_fail = 0.7
        self._after(6, lambda: setattr(pace, "checkpoints_fail", 0.0))

    # the operator

    def pause(self) -> None:
        operator, job_id = self._jobs.operator, self._job_id()
        tasks = self._some_tasks(job_id)
        if operator.attempt(lambda: operator.orders.pause(job_id, tasks)):
            self._world.tell(f"{job_id} is paused: {', '.join(tasks) or 'all'}")
        resume = partial(operator.orders.resume, job_id, self._some_tasks(job_id))
        self._after(6, lambda: operator.attempt(resume) and None)

    def _some_tasks(self, job_id: JobID) -> list[TaskID]:
        job = self._jobs.job(job_id)
        tasks = sorted(job.tasks) if job is not None else []
        return self._dice.sample(tasks, self._dice.randint(0, len(tasks)))

    def update(self) -> None:
        job_id = self._job_id()
        job = self._jobs.job(job_id)
        if job is not None and self._jobs.operator.update(job_id, job, self._dice):
            self._world.tell(f"{job_id} is updated")

    def swap(self) -> None:
        job_id = self._job_id()
        job = self._jobs.job(job_id)
        if job is not None and job.tasks and self._jobs.operator.swap(job_id, job, self._dice):
            self._world.tell(f"{job_id} has another task of the same name")

    def stop_job(self) -> None:
        operator, job_id = self._jobs.operator, self._job_id()
        if operator.attempt(lambda: operator.orders.stop(job_id)):
            self._world.tell(f"{job_id} is stopped")
        for _ in range(3):
            self._after(10, partial(self._create, job_id))

    def create_job(self) -> None:
        self._create(self._job_id())

    def _create(self, job_id: JobID) -> None:
        if self._jobs.operator.create(job_id):
            self._world.tell(f"{job_id} is created")

    def doubt_operator(self) -> None:
        link = self._jobs.operator.link
        self._world.tell("the operator of jobs loses answers of etcd")
        link.lost_answers = 0.3
        self._faults.after(6.0, lambda: setattr(link, "lost_answers", 0.0))

    # how

    @property
    def _dice(self) -> Random:
        return self._faults.dice

    def _after(self, most_s: float, deed: Callable[[], None]) -> None:
        self._faults.after(self._dice.random() * most_s, deed)

    def _job_id(self) -> JobID:
        return self._dice.choice(JOBS)


def _copies(capture: SimCapture) -> bool:
    return any(unit.is_under_way for units in capture.plane.unit_sets for unit in units.opened)
