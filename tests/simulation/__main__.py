"""`python -m tests.simulation --seed N` replays one seed; `--seeds N` runs the first N."""

from __future__ import annotations

import argparse
import gc
import sys
import time

from tests.simulation.run import SeedFailed, run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, help="this one alone, with its story")
    parser.add_argument("--seeds", type=int, default=1000, help="so many")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--hunt", action="store_true", help="stop at the first that fails")
    parser.add_argument("--likely", type=int, default=0, help="tried before the others")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _report(arguments.seed, is_told=True)
    gc.disable()  # looking for garbage all the time takes a sixth of a seed
    started = time.monotonic()
    failed = 0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    for seed in (arguments.likely, *seeds) if arguments.hunt else seeds:
        failed += _report(seed, is_told=False)
        if failed and arguments.hunt:
            return 1
        if seed % 20 == 0:
            gc.collect()
    print(f"{arguments.seeds} seeds, {failed} failed, {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


def _report(seed: int, *, is_told: bool) -> int:
    try:
        run_seed(seed, is_told=is_told)
    except SeedFailed as error:
        print(error, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
