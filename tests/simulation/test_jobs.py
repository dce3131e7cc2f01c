"""Seeds of jobs; `test_simulation.py` has the bugs that they must find."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.fakes.fake_warehouse import require
from tests.simulation.jobs.invariants import JobsWatchman
from tests.simulation.jobs.run import MODULE, run_job_seed
from tests.simulation.run import SeedFailed

SEEDS = 100  # more in make soak
SOAKED = 500
CHUNK = 50  # of one test


@pytest.fixture(autouse=True)
def garbage_at_the_end() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.mark.parametrize(
    "first",
    [
        *range(0, SEEDS, CHUNK),
        *(pytest.param(n, marks=pytest.mark.soak) for n in range(SEEDS, SOAKED, CHUNK)),
    ],
)
def test_every_invariant_of_jobs_holds_in_every_seed(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_job_seed(seed)


def test_a_seed_of_jobs_replays() -> None:
    first, again = run_job_seed(3), run_job_seed(3)
    assert first.story == again.story
    assert first.steps == again.steps


def test_seeds_begin_units_of_every_kind() -> None:
    began = [
        unit.order.unit
        for seed in range(10)
        for copy in run_job_seed(seed).copies.tasks.values()
        for unit in copy.units
    ]
    assert {"dump", "load", "sync"} <= set(began)
    assert len(began) > 50


def test_a_seed_of_jobs_that_fails_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = JobsWatchman.check

    def check(watchman: JobsWatchman) -> None:
        inner(watchman)
        story = watchman._world.story
        require(not any("etcd is compacted" in each for each in story), "it is compacted")

    monkeypatch.setattr(JobsWatchman, "check", check)
    failed = _first_failure()
    assert len(failed.case.without) == failed.deeds - 1
    assert f"again: python -m {MODULE} --seed" in str(failed)


def _first_failure() -> SeedFailed:
    for seed in range(20):
        try:
            run_job_seed(seed)
        except SeedFailed as error:
            return error
    raise AssertionError("none fails")
