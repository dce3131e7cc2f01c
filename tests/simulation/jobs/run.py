"""One seed of the simulation of jobs, from the first step to the last check."""

from __future__ import annotations

from tests.fakes.fake_warehouse import InvariantBroken
from tests.simulation.instruments import instruments
from tests.simulation.jobs.faults import Faults
from tests.simulation.jobs.invariants import JobsWatchman
from tests.simulation.jobs.world import JobsWorld
from tests.simulation.run import Case, SeedFailed, caught_errors, shrunk
from tests.simulation.world import STEP_S

MODULE = "tests.simulation.jobs"
FAULTY_STEPS = 160
HEALING_STEPS = 240  # J5: within a minute of virtual time all is well again


def run_job_seed(seed: int) -> JobsWorld:
    """Raises ``SeedFailed``, of a smaller case if one fails in the same way."""
    try:
        return run_job_case(Case(seed=seed, module=MODULE))
    except SeedFailed as error:
        raise shrunk(error, run_job_case) from error


def run_job_case(case: Case) -> JobsWorld:
    """Raises ``SeedFailed``."""
    world = JobsWorld(case.seed, captures=case.captures)
    faults = Faults(world, case.without)
    try:
        with caught_errors(world.errors), instruments():
            _run(world, faults)
    except Exception as error:
        raise SeedFailed(case, world, faults.deeds, error) from error
    return world


def _run(world: JobsWorld, faults: Faults) -> None:
    watchman = JobsWatchman(world)
    for _ in range(FAULTY_STEPS):
        world.step()
        watchman.check()
        faults.act()
    faults.heal()
    for _ in range(HEALING_STEPS):
        world.step()
        watchman.check()
        if not watchman.unsettled():
            return
    raise InvariantBroken(
        f"J5: {HEALING_STEPS * STEP_S:g} s after the last fault {watchman.unsettled()}"
    )
