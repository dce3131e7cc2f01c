"""One seed, from the first step to the last check; one that fails is made smaller before it is
told.

seed ──fails──► the same without half of the deeds, a quarter, … each one ─► with fewer captures
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tests.fakes.fake_source import ts_at
from tests.fakes.fake_warehouse import InvariantBroken
from tests.simulation.faults import Faults
from tests.simulation.instruments import instruments
from tests.simulation.invariants import Watchman
from tests.simulation.world import STARTED_AT, STEP_S, ErrorCatcher, World

CHANGEFEEDS, JOBS = "tests.simulation", "tests.simulation.jobs"
CHANGEFEEDS_AT_MOST, BESIDE_JOBS = 3, 2
FAULTY_STEPS, FAULTY_STEPS_OF_JOBS = 80, 160  # a copy goes through three units
HEALING_STEPS = 240  # I9, J5: within a minute of virtual time all is well again
SETTLED_S = 1.0  # of history after the faults, that must have been applied
SHRINKING_RUNS = 80
CAPTURES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A seed, as it is or smaller."""

    seed: int
    captures: int = CAPTURES
    without: frozenset[int] = frozenset()  # numbers of deeds
    module: str = CHANGEFEEDS  # which simulation

    def __str__(self) -> str:
        """What to give to Python to see it again."""
        text = f"{self.module} --seed {self.seed}"
        if self.captures != CAPTURES:
            text += f" --captures {self.captures}"
        if self.without:
            text += f" --without {','.join(map(str, sorted(self.without)))}"
        return text


class SeedFailed(AssertionError):
    """Says which seed, how to see it again, and its story."""

    def __init__(self, case: Case, world: World, deeds: int, error: Exception) -> None:
        story = "\n".join(world.story)
        super().__init__(
            f"seed {case.seed} at {world.clock.now_s - STARTED_AT:.2f} s: {error!r}\n{story}\n"
            f"again: python -m {case}"
        )
        self.case = case
        self.deeds = deeds
        self.kind = re.sub(r"\d+", "", repr(error))  # the same bug, of whatever node and table


def run_seed(seed: int, module: str = CHANGEFEEDS) -> World:
    """Raises ``SeedFailed``, of a smaller case if one fails in the same way."""
    try:
        return run_case(Case(seed=seed, module=module))
    except SeedFailed as error:
        raise shrunk(error) from error


def run_case(case: Case) -> World:
    """Raises ``SeedFailed``."""
    has_jobs = case.module == JOBS
    world = World(
        case.seed,
        captures=case.captures,
        changefeeds=BESIDE_JOBS if has_jobs else CHANGEFEEDS_AT_MOST,
        has_jobs=has_jobs,
    )
    world.goes_on_without_the_hung = True
    faults = Faults(world, case.without)
    try:
        with caught_errors(world.errors), instruments():
            _run(world, faults)
    except Exception as error:
        raise SeedFailed(case, world, faults.deeds, error) from error
    return world


def shrunk(failed: SeedFailed) -> SeedFailed:
    """The smallest that was found in `SHRINKING_RUNS`."""
    runs = SHRINKING_RUNS
    size = failed.deeds
    while size >= 1 and runs > 0:
        left = [each for each in range(failed.deeds) if each not in failed.case.without]
        smaller = None
        for start in range(0, len(left), size):
            without = failed.case.without.union(left[start : start + size])
            runs -= 1
            smaller = smaller or _fails_alike(failed, replace(failed.case, without=without))
            if smaller is not None or runs <= 0:
                break
        failed = smaller or failed
        size = size if smaller is not None and len(left) > size else size // 2
    for captures in range(1, failed.case.captures):
        found = _fails_alike(failed, replace(failed.case, captures=captures))
        if found is not None:
            return found
    return failed


def _fails_alike(failed: SeedFailed, case: Case) -> SeedFailed | None:
    try:
        run_case(case)
    except SeedFailed as error:
        return error if error.kind == failed.kind else None
    return None


def _run(world: World, faults: Faults) -> None:
    watchman = Watchman(world)
    for _ in range(FAULTY_STEPS if world.jobs is None else FAULTY_STEPS_OF_JOBS):
        world.step()
        watchman.check()
        faults.act()
    faults.heal()
    since_ts = ts_at(world.clock.now_s + SETTLED_S)
    for _ in range(HEALING_STEPS):
        world.step()
        watchman.check()
        if not watchman.unsettled(since_ts):
            return
    raise InvariantBroken(
        f"I9: {HEALING_STEPS * STEP_S:g} s after the last fault {watchman.unsettled(since_ts)}"
    )


@contextmanager
def caught_errors(errors: list[str]) -> Iterator[None]:
    logger, catcher = logging.getLogger("coordination"), ErrorCatcher(errors)
    before = logger.level, logger.propagate
    logger.addHandler(catcher)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(catcher)
        logger.level, logger.propagate = before
