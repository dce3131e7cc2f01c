"""J1, J3 and J5 of docs/cluster.md, seen from outside. J1 to J3 are checked in `Copies` too, at
each beginning and at each chunk; J4 where an order to stop is sent (`SimJobs`)."""

from __future__ import annotations

from coordination.jobmaster.records import Job, Task
from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.units import Unit, unit_sequence
from coordination.model import JobID, TaskID
from tests.fakes.fake_units import FakeUnit, TaskKey
from tests.fakes.fake_warehouse import require
from tests.simulation.jobs.sim_jobs import JOBS, SimJobs
from tests.simulation.world import World


class JobsWatchman:
    def __init__(self, world: World, jobs: SimJobs) -> None:
        self._world = world
        self._jobs = jobs
        self._begun: set[FakeUnit] = set()
        self._done: dict[TaskKey, int] = {}

    def check(self) -> None:
        """Raises ``InvariantBroken``."""
        for (job_id, task_id, _), copy in self._jobs.copies.tasks.items():
            for unit in copy.units:
                if unit not in self._begun:
                    self._begun.add(unit)
                    if not self._jobs.copies.is_lenient():
                        self._is_recorded(job_id, task_id, unit)

    def _is_recorded(self, job_id: JobID, task_id: TaskID, unit: FakeUnit) -> None:
        """J1: the worker that begins is the one that etcd names. J3: its unit has not finished."""
        state = self._jobs.unit_state(job_id)
        status = state.current.get(task_id)
        recorded = status.worker_id if status is not None else None
        require(
            recorded == unit.order.worker_id,
            f"J1: {unit} begins, but etcd has worker {recorded}",
        )
        ended = [each for each in state.finished.get(task_id, ()) if each.epoch == unit.order.epoch]
        is_over = unit.order.unit in [each.unit for each in ended]
        require(not is_over, f"J3: {unit} begins, but etcd has its end")

    def unsettled(self) -> str:
        """J5: what is still missing for all to be well again; empty: nothing."""
        found = (self._unsettled(job_id) for job_id in JOBS)
        return next(filter(None, found), "")

    def _unsettled(self, job_id: JobID) -> str:
        jobs = self._jobs
        job = jobs.job(job_id)
        units = {unit.key[1]: unit for unit in jobs.units() if unit.key[0] == job_id}
        if job is None:
            left = [key for key in self._world.etcd._kvs if key.endswith(f"/{job_id}")]
            # A backup of etcd may know nothing of a job that has copied since.
            is_known = not self._world.lenient_until
            kept = [key for key in jobs.copies.tasks if key[0] == job_id and is_known]
            return (
                f"{job_id} was deleted, but there is {left or units or kept}"
                if (left or units or kept)
                else ""
            )
        if job.deleting:
            return f"{job_id} is not deleted"
        if units.keys() - job.tasks.keys():
            return f"{job_id} has workers of tasks that it does not have"
        missing = (self._missing(job_id, k, job, units.get(k)) for k in sorted(job.tasks))
        return next(filter(None, missing), "")

    def _missing(self, job_id: JobID, task_id: TaskID, job: Job, unit: FakeUnit | None) -> str:
        task, name = job.tasks[task_id], f"{task_id} of {job_id}"
        last = unit_sequence(task.cfg.task_mode)[-1]
        copy = self._jobs.copies.of((job_id, task_id, task.epoch))
        if last is not Unit.SYNC and last in copy.finished:
            return self._unfinished(job_id, task_id, name, last, unit)
        if unit is None or unit.order.unit is not last:
            return f"{name} does not come to its {last}"
        if unit.order.cfg_mod_revision != task.cfg.mod_revision:
            return f"{name} runs with an older configuration"
        return self._stage(name, task, unit)

    def _unfinished(
        self, job_id: JobID, task_id: TaskID, name: str, last: Unit, unit: FakeUnit | None
    ) -> str:
        ended = self._jobs.unit_state(job_id).finished.get(task_id, ())
        if unit is not None:
            return f"{name} has finished, but there is {unit}"
        return "" if last in [each.unit for each in ended] else f"{name} has not finished in etcd"

    def _stage(self, name: str, task: Task, unit: FakeUnit) -> str:
        if unit.stage is not task.stage:
            return f"{name} is {unit.stage}, not {task.stage}"
        is_moving = unit.is_under_way or task.stage is not TaskStage.RUNNING
        done = unit.copy.done.get(unit.order.unit, 0)
        before = self._done.setdefault(unit.key, done)
        return "" if is_moving or done > before else f"{name} does not get on"
