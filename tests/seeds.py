"""Seeds of random tests: a few in `make test`, and in `make soak` as many as its time allows.

    @pytest.mark.seeds(40)              a test of one ``seed``: 0 to 39; in a soak `chosen_seeds`
    @pytest.mark.seeds(10, 30)          the same; 10 to 39 in `make test-more` alone
    for seed in hunted_seeds(): ...     a soak's own loop

``SEEDS=5000 FIRST=20000 make soak`` takes these seeds of each, however long they take.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

SOAKED = 2_000
AT_MOST_S = 120.0  # of one test with all its seeds, unless SEEDS says how many

_begun: dict[str, float] = {}


def chosen_seeds(count: int = SOAKED) -> range:
    first = int(os.environ.get("FIRST", "10000"))
    return range(first, first + int(os.environ.get("SEEDS", str(count))))


def hunted_seeds(count: int = SOAKED) -> Iterator[int]:
    begun_s = time.monotonic()
    for seed in chosen_seeds(count):
        if is_up(begun_s):
            print(f"up to seed {seed}: its time is up")
            return
        yield seed


def is_up(begun_s: float) -> bool:
    return "SEEDS" not in os.environ and time.monotonic() - begun_s > AT_MOST_S


def give_seeds(metafunc: pytest.Metafunc) -> None:
    """To a test that is marked so."""
    mark = metafunc.definition.get_closest_marker("seeds")
    if mark is None:
        return
    is_soak = metafunc.config.option.markexpr == "soak"
    soaked = chosen_seeds() if is_soak else ()
    count, further = (*mark.args, 0)[:2]
    more = range(count, count + further)
    found = [
        *range(count),
        *(pytest.param(each, marks=pytest.mark.more) for each in more),
        *(pytest.param(each, marks=pytest.mark.soak) for each in soaked),
    ]
    metafunc.parametrize("seed", found)


def end_in_time(item: pytest.Item) -> None:
    """Skip the seeds for which a soak has no time."""
    if item.get_closest_marker("seeds") and item.get_closest_marker("soak"):
        test = item.nodeid.partition("[")[0]
        if is_up(_begun.setdefault(test, time.monotonic())):
            pytest.skip("its time is up")
