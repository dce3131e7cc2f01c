"""`python -m tests.differential.mutate`: does a random run find each bug of `mutations.toml`?

Each is planted into a copy of the tree. What a run finds there is run once more without the bug: a
failure that stays is none of it, and is printed whole.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.simulation.mutate import ROOT, Mutation, tree_with

LIST: Final = Path(__file__).with_name("mutations.toml")
SERVERS: Final = ("mariadb", "mysql")  # of a bug that names none: one after the other
LINKED: Final = (".servers", ".jars")
FAILED: Final = re.compile(r"^== failure\n(?P<statements>(?:.+\n)+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    server: str
    seconds: float
    by: str


def mutations() -> list[tuple[Mutation, tuple[str, ...]]]:
    """Each with the servers of which it can be seen."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return [
        (Mutation(name=name, **each), tuple(servers))
        for name, each in listed.items()
        for servers in [each.pop("servers", SERVERS)]
    ]


def hunt(mutation: Mutation, servers: tuple[str, ...], minutes: float, seed: int) -> Found | None:
    """``minutes``: on all servers together."""
    begun = time.monotonic()
    with tree_with(mutation) as tree:
        for name in LINKED:
            (tree / name).symlink_to((ROOT / name).resolve())
        for server in servers:
            told = _run(
                tree,
                server,
                *("--hunt", "--jobs", "1", "--minutes", str(minutes / len(servers))),
                *("--seed", str(seed)),
            )
            for failure in FAILED.finditer(told):
                if _is_of_the_bug(failure["statements"], server):
                    by = failure["statements"].splitlines()[1][3:]
                    return Found(server=server, seconds=time.monotonic() - begun, by=by)
    return None


def _is_of_the_bug(statements: str, server: str) -> bool:
    """Whether the program without it has the rows right."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql", encoding="utf-8") as file:
        file.write(statements)
        file.flush()
        told = _run(ROOT, server, "--replay", file.name)
    if "\n0 failures" in f"\n{told}":
        return True
    print(f"without the bug too, on {server}:\n{statements}", flush=True)
    return False


def _run(tree: Path, server: str, *given: str) -> str:
    command = [sys.executable, "-m", "tests.differential", "--server", server, *given]
    env = {**os.environ, "PYTHONPATH": str(tree)}
    return subprocess.run(
        command, cwd=tree, env=env, capture_output=True, text=True, check=False
    ).stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.mutate")
    parser.add_argument("names", nargs="*", help="of mutations; none: all")
    parser.add_argument("--minutes", type=float, default=10.0, help="so many at most for each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="so many at a time")
    given = parser.parse_args()
    chosen = [each for each in mutations() if not given.names or each[0].name in given.names]
    for mutation, _ in chosen:  # before hours are spent on the others
        mutation.planted((ROOT / mutation.file).read_text(encoding="utf-8"))
    print(f"{'bug':30} {'on':>10} {'seconds':>7}  by", flush=True)
    count = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        found = pool.map(lambda each: hunt(*each, given.minutes, given.seed), chosen)
        for (mutation, _), one in zip(chosen, found, strict=True):
            count += one is not None
            line = f"{'survived':>10} {'':>7}  {mutation.breaks}"
            if one is not None:
                line = f"{one.server:>10} {one.seconds:7.0f}  {one.by[:90]}"
            print(f"{mutation.name:30} {line}", flush=True)
    print(f"{count} of {len(chosen)} were found")
    return 0 if count == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
