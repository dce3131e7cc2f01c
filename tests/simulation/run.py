"""One seed, from the first step to the last check."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fakes.fake_source import ts_at
from tests.fakes.fake_warehouse import InvariantBroken
from tests.simulation.faults import Faults
from tests.simulation.instruments import instruments
from tests.simulation.invariants import Watchman
from tests.simulation.world import STEP_S, ErrorCatcher, World

FAULTY_STEPS = 80
HEALING_STEPS = 240  # I9: within a minute of virtual time all is well again
SETTLED_S = 1.0  # of history after the faults, that must have been applied


class SeedFailed(AssertionError):
    """Says which seed, how to see it again, and its story."""


def run_seed(seed: int, *, is_told: bool = False) -> World:
    """Raises ``SeedFailed``."""
    world = World(seed)
    try:
        with _caught_errors(world), instruments():
            _run(world)
    except Exception as error:
        story = "\n".join(world.story)
        raise SeedFailed(
            f"seed {seed} at {world.clock.now_s - 1000:.2f} s: {error!r}\n{story}\n"
            f"again: python -m tests.simulation --seed {seed}"
        ) from error
    if is_told:
        print("\n".join(world.story))
    return world


def _run(world: World) -> None:
    watchman, faults = Watchman(world), Faults(world)
    for _ in range(FAULTY_STEPS):
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
def _caught_errors(world: World) -> Iterator[None]:
    logger, catcher = logging.getLogger("coordination"), ErrorCatcher(world)
    before = logger.level, logger.propagate
    logger.addHandler(catcher)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(catcher)
        logger.level, logger.propagate = before
