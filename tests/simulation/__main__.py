"""`python -m tests.simulation --seed N` replays one seed; `--seeds N` runs the first N."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable
from functools import partial

from tests.simulation.run import Case, SeedFailed, run_case, run_seed
from tests.simulation.world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, help="this one alone, with its story")
    parser.add_argument("--captures", type=int, default=3, help="of that seed")
    parser.add_argument("--without", type=_numbers, default=frozenset(), help="deeds of that seed")
    parser.add_argument("--seeds", type=int, default=1000, help="so many")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--hunt", action="store_true", help="stop at the first that fails")
    parser.add_argument("--likely", type=int, default=0, help="tried before the others")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        case = Case(seed=arguments.seed, captures=arguments.captures, without=arguments.without)
        return _failures(lambda: run_case(case, is_told=True))
    gc.disable()  # looking for garbage all the time takes a sixth of a seed
    started = time.monotonic()
    failed = 0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    for seed in (arguments.likely, *seeds) if arguments.hunt else seeds:
        failed += _failures(partial(_run, seed, is_told_small=not arguments.hunt))
        if failed and arguments.hunt:
            return 1
        if seed % 20 == 0:
            gc.collect()
    print(f"{arguments.seeds} seeds, {failed} failed, {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


def _numbers(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(",")))


def _run(seed: int, *, is_told_small: bool) -> World:
    return run_seed(seed) if is_told_small else run_case(Case(seed=seed))


def _failures(run: Callable[[], World]) -> int:
    try:
        run()
    except SeedFailed as error:
        print(error, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
