"""`python -m tests.simulation.mutate`: does some seed find each bug of each `mutations.toml`?

Each is planted into a copy of the tree, where the simulation runs in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.simulation.run import CHANGEFEEDS, JOBS

ROOT: Final = Path(__file__).resolve().parents[2]
COPIED: Final = ("conf", "coordination", "sinks", "streaming", "tests")
LISTS: Final = {  # of each simulation
    CHANGEFEEDS: Path(__file__).with_name("mutations.toml"),
    JOBS: Path(__file__).parent / "jobs/mutations.toml",
}
FOUND: Final = re.compile(r"^seed (\d+) at .*", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """See the head of `mutations.toml`."""

    name: str
    breaks: str
    file: str
    old: str
    new: str
    seed: int = 0
    sample: bool = False
    module: str = CHANGEFEEDS

    def planted(self, text: str) -> str:
        """Raises ``ValueError`` unless the old text stands there once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} has its text {text.count(self.old)} times")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``seed`` None: it survived, or ``output`` says what else went wrong."""

    seed: int | None
    output: str
    seconds: float


def mutations() -> list[Mutation]:
    return [
        Mutation(name=name, module=module, **each)
        for module, path in LISTS.items()
        for name, each in tomllib.loads(path.read_text(encoding="utf-8")).items()
    ]


def hunt(mutation: Mutation, seeds: int) -> Outcome:
    """Run seeds until one fails."""
    started = time.monotonic()
    with tree_with(mutation) as tree:
        command = [sys.executable, "-m", mutation.module, "--hunt"]
        command += ["--seeds", str(seeds), "--likely", str(mutation.seed)]
        run = subprocess.run(
            command,
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    found = FOUND.search(run.stdout)
    output = found[0] if found else run.stderr.strip() or run.stdout
    return Outcome(
        seed=int(found[1]) if found else None, output=output, seconds=time.monotonic() - started
    )


@contextmanager
def tree_with(*mutations: Mutation) -> Iterator[Path]:
    """A copy, with its compiled files, so that only what is changed is compiled."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = Path(folder)
        for top in COPIED:
            shutil.copytree(ROOT / top, tree / top, ignore=shutil.ignore_patterns("data"))
        for each in mutations:
            path = tree / each.file
            path.write_text(each.planted(path.read_text(encoding="utf-8")), encoding="utf-8")
        yield tree


def _keep(found: Mapping[str, int]) -> None:
    """As what each is tried with first."""
    for path in LISTS.values():
        text = path.read_text(encoding="utf-8")
        for name, seed in found.items():
            text = re.sub(rf"(\[{name}\]\n)(seed = \d+\n)?", rf"\g<1>seed = {seed}\n", text)
        path.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutate")
    parser.add_argument("names", nargs="*", help="of mutations; none: all")
    parser.add_argument("--seeds", type=int, default=1000, help="so many at most for each")
    parser.add_argument("--jobs", type=int, default=2, help="so many at a time")
    parser.add_argument("--keep", action="store_true", help="the seeds, in each mutations.toml")
    arguments = parser.parse_args()
    chosen = [each for each in mutations() if not arguments.names or each.name in arguments.names]
    for mutation in chosen:  # before hours are spent on the others
        mutation.planted((ROOT / mutation.file).read_text(encoding="utf-8"))
    found: dict[str, int] = {}
    print(f"{'bug':34} {'found at':>9} {'seconds':>8}  by")
    with ThreadPoolExecutor(arguments.jobs) as pool:
        outcomes = pool.map(lambda each: hunt(each, arguments.seeds), chosen)
        for mutation, outcome in zip(chosen, outcomes, strict=True):
            at = "survived"
            if outcome.seed is not None:
                at, found[mutation.name] = f"seed {outcome.seed}", outcome.seed
            why = outcome.output.partition(": ")[2] if outcome.seed is not None else mutation.breaks
            print(f"{mutation.name:34} {at:>9} {outcome.seconds:8.1f}  {why[:110]}", flush=True)
    print(f"{len(found)} of {len(chosen)} were found")
    if arguments.keep:
        _keep(found)
    return 0 if len(found) == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
