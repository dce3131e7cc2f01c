"""`python -m tests.differential.mutate`: does a random run find each bug of `mutations.toml`?

    all bugs of a server planted ──a random run──► what fails ──each bug alone──► what it fails by

One run has them all: each failure is run once more with every bug by itself, and without any. A bug
by which none of them fails was not found. A failure without a bug is none of theirs, and printed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
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
    """Those that fail with these bugs alone."""
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
    for number in failing((), server, failures) if failures else ():
        print(f"without a bug too, on {server}:\n{failures.pop(number)}", flush=True)
    found, left = set(), dict(failures)
    for bug in bugs:
        by = failing([bug], server, left) if left else set()
        if not by and len(left) < len(failures):  # what others failed by too
            by = failing([bug], server, failures)
        if by:
            found.add(bug.name)
            why = failures[min(by)].splitlines()[1][3:]
            print(f"{bug.name:30} {len(by):>4} tables  {why[:90]}", flush=True)
        left = {number: each for number, each in left.items() if number not in by}
    return found


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
