"""Runs random DDLs on one server and compares every cell with the server's own.

python -m tests.differential --server mysql --seed 7 --minutes 10
python -m tests.differential --server mysql --replay FILE
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.differential.coverage import Coverage
from tests.differential.one_run import MOST_SHRUNK, SERVERS, run_one
from tests.differential.run import TABLES


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.differential", description=__doc__)
    parser.add_argument("--server", choices=SERVERS, default="mariadb")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side: most of one waits")
    parser.add_argument(
        "--replay", type=Path, nargs="+", help="a file of statements, one a line; or several"
    )
    parser.add_argument("--most-shrunk", type=int, default=MOST_SHRUNK, help="of the failures")
    parser.add_argument("--coverage", type=Path, help="a file to add what was covered to, as JSON")
    parser.add_argument("--holds", action="store_true", help="tell of each table that is held")
    given = parser.parse_args()
    begun = time.monotonic()
    if given.replay or given.jobs == 1:
        found = [run_one(given, given.seed)]
    else:
        spawned = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(given.jobs, mp_context=spawned) as pool:
            seeds = [given.seed * 1000 + job for job in range(given.jobs)]
            found = list(pool.map(run_one, [given] * given.jobs, seeds))
    if not given.replay:
        coverage = Coverage(given.server)
        for each in found:
            coverage.counts.update(each.coverage.counts)
        print(coverage.table())
        if given.coverage:
            coverage.write(given.coverage)
        print(f"{coverage.summary()} in {time.monotonic() - begun:.0f} s")
    failures = sum(len(each.failures) for each in found)
    print(f"{failures} failures, {sum(len(each.holds) for each in found)} held")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
