"""`python -m tests.simulation --seed N` replays one seed; `--seeds N` runs the first N."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable
from functools import partial

from tests.simulation.run import CHANGEFEEDS, Case, SeedFailed, run_case, shrunk


def main(module: str = CHANGEFEEDS) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--seed", type=int, help="this one alone, with its story")
    parser.add_argument("--captures", type=int, default=3, help="of that seed")
    parser.add_argument("--without", type=_numbers, default=frozenset(), help="deeds of that seed")
    parser.add_argument("--seeds", type=int, default=1000, help="so many")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--hunt", action="store_true", help="stop at the first that fails")
    parser.add_argument("--likely", type=int, default=0, help="tried before the others")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        told = Case(
            seed=arguments.seed,
            captures=arguments.captures,
            without=arguments.without,
            module=module,
        )
        return _failures(lambda: print("\n".join(run_case(told).story)))
    gc.disable()  # looking for garbage all the time takes a sixth of a seed
    started = time.monotonic()
    failed = 0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    for seed in (arguments.likely, *seeds) if arguments.hunt else seeds:
        case = Case(seed=seed, module=module)
        failed += _failures(partial(_run, case, is_told_small=not arguments.hunt))
        if failed and arguments.hunt:
            return 1
        if seed % 20 == 0:
            gc.collect()
    print(f"{arguments.seeds} seeds, {failed} failed, {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


def _numbers(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(",")))


def _run(case: Case, *, is_told_small: bool) -> None:
    try:
        run_case(case)
    except SeedFailed as error:
        raise shrunk(error) if is_told_small else error from error


def _failures(run: Callable[[], None]) -> int:
    try:
        run()
    except SeedFailed as error:
        print(error, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
