"""A thousand seeds, and the bugs that they must find. `make simulate` runs any number."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.simulation.planted import PLANTED, planted
from tests.simulation.run import SeedFailed, run_seed

SEEDS = 1000
CHUNK = 50  # of one test, so that several workers share them
# The first seed that finds a bug, where it is a late one: tried before all others.
FINDS = {
    "no_removal_grace": 49,
    "fence_unchecked": 48,
    "two_primaries_on_reconstruction": 19,
    "unseen_dead_forgotten": 126,
    "stopped_span_forgets_its_version": 62,
}


@pytest.fixture(autouse=True)
def garbage_at_the_end() -> Iterator[None]:
    """Looking for it all the time takes a sixth of a seed."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_invariant_holds_in_every_seed(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_seed(seed)


def first_failure(likely: int) -> str:
    for seed in (likely, *range(SEEDS)):
        try:
            run_seed(seed)
        except SeedFailed as error:
            return str(error)
    return "none"


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    with planted(name):
        failure = first_failure(FINDS.get(name, 0))
    assert "again: python -m tests.simulation --seed" in failure


def test_a_seed_replays() -> None:
    first, again = run_seed(3), run_seed(3)
    assert first.story == again.story
    assert first.steps == again.steps
    assert {t: each.log for t, each in first.warehouse.targets.items()} == {
        t: each.log for t, each in again.warehouse.targets.items()
    }
