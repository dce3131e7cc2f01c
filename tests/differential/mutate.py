"""`python -m tests.differential.mutate`: does a random run find each bug of `mutations.toml`?

    all bugs of a server planted ──a random run──► what fails ──halves of them──► what it fails by

One run has them all: each failure is run once more without any, and with a dozen groups of them,
by which it tells the one bug that makes it fail. A bug that is told by none was not found. A
failure without a bug is none of theirs, and printed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.simulation.mutate import ROOT, Mutation, tree_with

LIST: Final = Path(__file__).with_name("mutations.toml")
SERVERS: Final = ("mariadb", "mysql")  # of a bug that names none
LINKED: Final = (".servers", ".jars")
FAILED: Final = re.compile(r"^== failure\n(?P<statements>(?:.+\n)+)", re.MULTILINE)
AGAIN: Final = re.compile(r"^== failure\n-- \w+\.f(\d+)", re.MULTILINE)


def mutations() -> list[tuple[Mutation, tuple[str, ...]]]:
    """Each with the servers of which it can be seen."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return [
        (Mutation(name=name, **each), tuple(servers))
        for name, each in listed.items()
        for servers in [each.pop("servers", SERVERS)]
    ]


def failures_with(
    planted: Sequence[Mutation], server: str, minutes: float, seed: int, jobs: int
) -> list[str]:
    """The statements of each table that failed while all of these bugs were there."""
    told = _run(
        *(planted, server, "--most-shrunk", "0", "--minutes", str(minutes)),
        *("--seed", str(seed), "--jobs", str(jobs)),
    )
    return [each["statements"] for each in FAILED.finditer(told)]


def failing(planted: Sequence[Mutation], server: str, failures: Mapping[int, str]) -> set[int]:
    """Those that fail with these bugs and no others."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, statements in failures.items():
            files.append(Path(folder) / f"f{number}.sql")
            files[-1].write_text(statements, encoding="utf-8")
        told = _run(planted, server, "--replay", *map(str, files))
    return {int(each[1]) for each in AGAIN.finditer(told)}


def _run(planted: Sequence[Mutation], server: str, *given: str) -> str:
    with tree_with(*planted) as tree:
        for name in LINKED:
            (tree / name).symlink_to((ROOT / name).resolve())
        command = [sys.executable, "-m", "tests.differential", "--server", server, *given]
        env = {**os.environ, "PYTHONPATH": str(tree)}
        run = subprocess.run(
            command, cwd=tree, env=env, capture_output=True, text=True, check=False
        )
        return run.stdout


def found_on(
    server: str, bugs: Sequence[Mutation], minutes: float, seed: int, jobs: int
) -> set[str]:
    """The names of those that a run on this server has found."""
    failures = dict(enumerate(failures_with(bugs, server, minutes, seed, jobs)))
    print(f"{server}: {len(failures)} tables failed in {minutes:g} minutes", flush=True)
    if not failures:
        return set()
    for number in failing((), server, failures):
        print(f"without a bug too, on {server}:\n{failures.pop(number)}", flush=True)
    halves = halves_of(len(bugs))
    with ThreadPoolExecutor(jobs) as pool:
        asked = pool.map(
            lambda half: failing([bugs[at] for at in sorted(half)], server, failures), halves
        )
        fails = dict(zip(halves, asked, strict=True))
    by_bug = Counter(
        bugs[at].name
        for number in failures
        if (at := the_one_bug(len(bugs), {half: number in it for half, it in fails.items()}))
        is not None
    )
    for name, count in by_bug.items():
        print(f"{name:30} {count:>4} tables", flush=True)
    return set(by_bug)


def halves_of(count: int) -> list[frozenset[int]]:
    """Groups of so many bugs, by the digits of their numbers: for each digit those that have it,
    and those that have not. So a bug is told by which groups it is in."""
    found = []
    for digit in range(max(1, (count - 1).bit_length())):
        one = frozenset(at for at in range(count) if at >> digit & 1)
        found += [one, frozenset(range(count)) - one]
    return found


def the_one_bug(count: int, fails: Mapping[frozenset[int], bool]) -> int | None:
    """The bug by which a table fails; None where it fails by several, or by two together."""
    left = set(range(count))
    for half, it_fails in fails.items():
        left &= half if it_fails else set(range(count)) - half
    return left.pop() if len(left) == 1 else None


def _together(bugs: Sequence[Mutation]) -> tuple[list[Mutation], list[Mutation]]:
    """Those that fit into one tree, and those that alter a text of theirs. Raises ValueError for
    one that fits into none."""
    texts: dict[str, str] = {}
    fit, others = [], []
    for bug in bugs:
        text = texts.get(bug.file) or (ROOT / bug.file).read_text(encoding="utf-8")
        if bug.old in text or not fit:
            texts[bug.file] = bug.planted(text)
            fit.append(bug)
        else:
            others.append(bug)
    return fit, others


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.mutate")
    parser.add_argument("names", nargs="*", help="of mutations; none: all")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each server's run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    given = parser.parse_args()
    chosen = [each for each in mutations() if not given.names or each[0].name in given.names]
    survived = {mutation.name: mutation.breaks for mutation, _ in chosen}
    for server in SERVERS:
        later = [each for each, servers in chosen if server in servers and each.name in survived]
        while later:
            bugs, later = _together(later)
            found = found_on(server, bugs, given.minutes, given.seed, given.jobs)
            survived = {name: why for name, why in survived.items() if name not in found}
    for name, breaks in survived.items():
        print(f"{name:30} survived  {breaks}")
    print(f"{len(chosen) - len(survived)} of {len(chosen)} were found")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
