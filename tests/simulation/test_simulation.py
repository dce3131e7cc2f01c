"""Seeds (`make simulate`: any number), and a sample of the bugs that they must find (`make mutate`:
all of them)."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from tests.fakes.fake_source import FakeSource
from tests.fakes.fake_warehouse import require
from tests.simulation.invariants import Watchman
from tests.simulation.mutate import ROOT, Mutation, hunt, mutations
from tests.simulation.run import CHANGEFEEDS, JOBS, SeedFailed, run_seed

SEEDS, FURTHER_SEEDS = 12, 48  # of each kind, in make test and up to there in make test-more
SOAKED = 504
HELD_SEEDS = 10
CHUNK = 12  # of one test, so that several workers share them
SAMPLE_SEEDS = 100  # of a planted bug that is not found where it was found before


@pytest.fixture(autouse=True)
def garbage_at_the_end() -> Iterator[None]:
    """Looking for it all the time takes a sixth of a seed."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


def _chunks() -> Iterator[ParameterSet]:
    for module in (CHANGEFEEDS, JOBS):
        for first in range(0, SOAKED, CHUNK):
            kept = pytest.mark.more if first < FURTHER_SEEDS else pytest.mark.soak
            marks = [kept] if first >= SEEDS else []
            yield pytest.param(module, first, marks=marks, id=f"{module}-{first}")


@pytest.mark.parametrize(("module", "first"), [*_chunks()])
def test_every_invariant_holds_in_every_seed(module: str, first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_seed(seed, module)


def test_seeds_begin_units_of_every_kind_beside_changefeeds_that_move() -> None:
    worlds = [run_seed(seed, JOBS) for seed in range(5)]
    copies = [copy for world in worlds if world.jobs for copy in world.jobs.copies.tasks.values()]
    began = [unit.order.unit for copy in copies for unit in copy.units]
    assert {"dump", "load", "sync"} <= set(began)
    assert len(began) > 25
    assert all(feed.seen_checkpoint_ts > 0 for feed in worlds[0].feeds.values())


def test_tables_that_wait_for_an_operator_break_no_invariant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeSource, "unknown_for_s", 10.0)
    held = [seed for seed in range(HELD_SEEDS) if run_seed(seed).warehouse.waited]
    assert len(held) > HELD_SEEDS / 3


def _samples() -> Iterator[ParameterSet]:
    """Every third in make test."""
    for number, each in enumerate(each for each in mutations() if each.sample):
        yield pytest.param(each, marks=[pytest.mark.more] if number % 3 else [], id=each.name)


@pytest.mark.parametrize("mutation", mutations(), ids=lambda each: each.name)
def test_a_planted_bug_can_be_planted(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text(encoding="utf-8")
    compile(mutation.planted(text), mutation.file, "exec")


@pytest.mark.parametrize("mutation", [*_samples()])
def test_a_planted_bug_is_found(mutation: Mutation) -> None:
    outcome = hunt(mutation, SAMPLE_SEEDS)
    assert outcome.seed is not None, outcome.output


@pytest.mark.parametrize("module", [CHANGEFEEDS, JOBS], ids=["changefeeds", "jobs"])
def test_a_seed_replays(module: str) -> None:
    first, again = run_seed(3, module), run_seed(3, module)
    assert first.story == again.story
    assert first.steps == again.steps
    assert {t: each.log for t, each in first.warehouse.targets.items()} == {
        t: each.log for t, each in again.warehouse.targets.items()
    }


def test_a_seed_that_fails_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One deed of many is enough here, and one capture."""
    inner = Watchman.check

    def check(watchman: Watchman) -> None:
        inner(watchman)
        story = watchman._world.story
        require(not any("etcd is compacted" in each for each in story), "it is compacted")

    monkeypatch.setattr(Watchman, "check", check)
    failed = first_failure()
    assert len(failed.case.without) == failed.deeds - 1
    assert failed.case.captures == 1
    assert f"again: python -m {failed.case}" in str(failed)


def first_failure() -> SeedFailed:
    for seed in range(20):
        try:
            run_seed(seed)
        except SeedFailed as error:
            return error
    raise AssertionError("none fails")
