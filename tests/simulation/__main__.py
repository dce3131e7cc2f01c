"""`python -m tests.simulation --seed N` replays one seed; `--seeds N` runs the first N."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.run import SeedFailed, run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, help="this one alone, with its story")
    parser.add_argument("--seeds", type=int, default=1000, help="so many")
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _report(arguments.seed, is_told=True)
    started = time.monotonic()
    failed = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        failed += _report(seed, is_told=False)
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
