"""Single commits of the merge-on-write engine, beside delta-rs' merge and Spark's MERGE.

    python -m tests.benchmarks.commits                 the plan that is printed first
    python -m tests.benchmarks.commits --quick         two cells
    python -m tests.benchmarks.commits --part cells --rows 10000000 --changes 200000 --key text
    python -m tests.benchmarks.commits --part kept     thousands of commits, with upkeep
    python -m tests.benchmarks.commits --part log      the log of a busy day

No broker and no decoding: a batch is Arrow in memory. Every contender commits the same batches to
a copy of the same table, and must leave the rows that they lead to, in every column.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, product
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks import commits_kept, log_day
from tests.benchmarks.commit_contenders import (
    CONTENDERS,
    CommitContender,
    MergeOnWrite,
    seconds_of,
)
from tests.benchmarks.commit_parts import PARTS, part_times
from tests.benchmarks.commit_workload import (
    KEYS,
    Digest,
    batches,
    check_digest,
    make_base,
    target_at,
)
from tests.benchmarks.measure import REPOSITORY
from tests.benchmarks.targets import copy_warehouse

OURS = "merge-on-write"
WARM_UPS = {OURS: 1, "delta-rs": 0, "spark": 1}  # ours: reads key indexes; told as first touch
CHANGES = (50, 5_000, 200_000)
ALL_PARTS = ("cells", "kept", "log")


@dataclass(frozen=True, slots=True, order=True)
class CommitCell:
    rows: int
    key: str  # of KEYS
    recent: bool
    changes: int

    @property
    def name(self) -> str:
        where = "recent" if self.recent else "uniform"
        return f"{self.changes:,} {where}, {self.key} keys, over {self.rows / 1e6:g} M"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRun:
    """One contender in one cell; of our own engine with parts."""

    cell: CommitCell
    contender: str
    seconds: list[float]  # without warm-ups
    first_s: float
    parts: dict[str, float]  # median seconds of each
    index_mb_per_million_keys: float | None
    load: float  # of the machine in the last minute


def plan() -> Iterator[tuple[CommitCell, list[str]]]:
    """Ours everywhere but in 30 M-row cells that tell nothing new; others where they take less than
    minutes."""
    for rows, key, recent, changes in product((10**6, 10**7), KEYS, (True, False), CHANGES):
        names = [OURS]
        integer, large = key == "integer", changes == CHANGES[-1]
        if (rows == 10**6 and integer) or (large and (integer or not recent)):
            names.append("delta-rs")
        if (rows == 10**6 and integer) or (large and integer):
            names.append("spark")
        yield CommitCell(rows, key, recent, changes), names
    for recent, changes in product((True, False), CHANGES):
        names = [OURS, "delta-rs"] if recent and changes == CHANGES[-1] else [OURS]
        yield CommitCell(3 * 10**7, "integer", recent, changes), names
    yield CommitCell(3 * 10**7, "text", False, CHANGES[-1]), [OURS]


QUICK = [
    (CommitCell(10**6, "integer", False, 50), [OURS, "delta-rs"]),
    (CommitCell(10**6, "integer", False, 200_000), [OURS, "delta-rs"]),
]


def rounds_of(cell: CommitCell, contender: str) -> int:
    """Timed commits: few where they take seconds."""
    if contender == OURS:
        return 7 if cell.changes == CHANGES[-1] else 20
    return 3 if cell.rows == 10**6 else 1


class CommitBench:
    """The cells, those of one table one after the other."""

    def __init__(self, folder: Path, console: Console, rounds: int | None) -> None:
        self._folder, self._console, self._rounds = folder, console, rounds
        self.runs: list[CellRun] = []
        self.failures: list[str] = []

    def run(self, cells: Iterable[tuple[CommitCell, list[str]]]) -> None:
        for (rows, key), group in groupby(cells, lambda each: (each[0].rows, each[0].key)):
            base = self._folder / f"base-{rows}-{key}"
            digest = make_base(base, key, rows)
            for cell, names in group:
                for name in names:
                    self._run(cell, name, base, digest)
            shutil.rmtree(base)

    def _run(self, cell: CommitCell, name: str, base: Path, digest: Digest) -> None:
        path = self._folder / "run" / "t"
        copy_warehouse(base, path)
        contender: CommitContender = CONTENDERS[name](target_at(path, cell.key))
        try:
            run, wanted = self._commits(cell, name, contender, digest)
            check_digest(path, cell.key, wanted)
        except Exception as error:  # noqa: BLE001 - the other cells still run
            self.failures.append(f"{cell.name}, {name}: {error}")
            self._console.print(f"FAILED {self.failures[-1]}", markup=False)
        else:
            self.runs.append(run)
            self._console.print(
                f"{cell.name}: {name} {median(run.seconds):.3f} s, first {run.first_s:.2f} s,"
                f" load {run.load:.1f}",
                highlight=False,
            )
        finally:
            contender.close()
            shutil.rmtree(path.parent)

    def _commits(
        self, cell: CommitCell, name: str, contender: CommitContender, digest: Digest
    ) -> tuple[CellRun, Digest]:
        warm_ups = WARM_UPS[name]
        count = warm_ups + (self._rounds or rounds_of(cell, name))
        seconds: list[float] = []
        parts: list[dict[str, float]] = []
        wanted = digest
        with part_times() as times:
            for batch in batches(
                cell.key, cell.rows, digest, changes=cell.changes, recent=cell.recent, count=count
            ):
                times.take()
                seconds.append(seconds_of(contender, batch))
                parts.append(times.take())
                wanted = batch.after
        ours = isinstance(contender, MergeOnWrite)
        run = CellRun(
            cell=cell,
            contender=name,
            seconds=seconds[warm_ups:],
            first_s=seconds[0],
            parts={part: median(each[part] for each in parts[warm_ups:]) for part in PARTS}
            if ours
            else {},
            index_mb_per_million_keys=contender.index_mb_per_million_keys if ours else None,
            load=os.getloadavg()[0],
        )
        return run, wanted

    def table(self) -> Table:
        table = Table(title="One commit, medians in seconds", title_justify="left")
        table.add_column("changes")
        for name in ("contender", "s", "of", "fastest", "slowest", "first", *PARTS, "rest"):
            table.add_column(name, justify="right")
        table.add_column("index MB / M keys", justify="right")
        table.add_column("load", justify="right")
        for run in self.runs:
            middle = median(run.seconds)
            parts = [f"{run.parts[part]:.3f}" for part in PARTS] if run.parts else [""] * len(PARTS)
            rest = f"{middle - sum(run.parts.values()):.3f}" if run.parts else ""
            index = run.index_mb_per_million_keys
            table.add_row(
                run.cell.name, run.contender, f"{middle:.3f}", str(len(run.seconds)),
                f"{min(run.seconds):.3f}", f"{max(run.seconds):.3f}", f"{run.first_s:.2f}",
                *parts, rest, "" if index is None else f"{index:.1f}", f"{run.load:.1f}",
            )  # fmt: skip
        return table


def log_table(share: float) -> tuple[Table, list[dict[str, Any]]]:
    """A busy table's log of a day, with tombstones kept and forgotten; grown from a share of it."""
    title = f"The log after a day: {log_day.COMMITS_A_DAY:,} commits over {log_day.FILES} files"
    table = Table(title=title, title_justify="left")
    columns = ("tombstones", "commit ms", "log GB", "number", "checkpoint s", "checkpoint MB")
    for name in (*columns, "state MB", "read s"):
        table.add_column(name, justify="right")
    found = []
    for forget in (False, True):
        day = log_day.run(share, forget=forget)
        grown = 1.0 if forget else 1 / share  # what is forgotten does not grow
        found.append({"forget": forget, "share": share, **asdict(day)})
        table.add_row(
            "forgotten" if forget else "kept", f"{day.commit_ms:.2f}",
            f"{day.log_bytes / share / 1e9:.1f}", f"{day.tombstones * grown:,.0f}",
            f"{day.checkpoint_s * grown:.2f}", f"{day.checkpoint_bytes * grown / 1e6:.1f}",
            f"{day.state_bytes * grown / 1e6:.1f}", f"{day.read_s:.2f} (of the share)",
        )  # fmt: skip
    return table, found


def chosen(args: argparse.Namespace) -> list[tuple[CommitCell, list[str]]]:
    """The cells of the arguments; without any, the plan."""
    given = (args.rows, args.key, args.keys, args.changes)
    if args.quick:
        return QUICK
    if not any(given) and not args.contender:
        return list(plan())
    names = args.contender or [OURS, "delta-rs"]
    if not any(given):
        kept = ((cell, [n for n in each if n in names]) for cell, each in plan())
        return [(cell, each) for cell, each in kept if each]
    rows, key = args.rows or [10**6], args.key or ["integer"]
    recent = [each == "recent" for each in args.keys or ["uniform"]]
    cells = product(rows, key, recent, args.changes or [CHANGES[-1]])
    return [(CommitCell(*each), names) for each in cells]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.commits")
    parser.add_argument("--quick", action="store_true", help="two cells, a few seconds")
    parser.add_argument("--part", choices=ALL_PARTS, action="append", help="some (repeatable)")
    parser.add_argument("--rows", type=int, action="append", help="of the table")
    parser.add_argument("--changes", type=int, action="append", help="of one commit")
    parser.add_argument("--key", choices=KEYS, action="append")
    parser.add_argument("--keys", choices=("recent", "uniform"), action="append")
    parser.add_argument("--contender", choices=CONTENDERS, action="append")
    parser.add_argument("--rounds", type=int, help="timed commits in a cell")
    parser.add_argument("--share", type=float, default=0.02, help="of the log's day")
    parser.add_argument("--kept", default="2000x50,200x5000", help="commits x changes, with upkeep")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "bench-results/commits.json")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return run(args, Console(width=None if sys.stdout.isatty() else 220))


def run(args: argparse.Namespace, console: Console) -> int:
    parts: Sequence[str] = args.part or (("cells",) if args.quick else ALL_PARTS)
    folder = Path(tempfile.mkdtemp(prefix="tidelake-commits-"))
    results: dict[str, Any] = {}
    bench = CommitBench(folder, console, args.rounds)
    try:
        if "cells" in parts:
            cells = chosen(args)
            for cell, names in cells:
                console.print(f"  {cell.name}: {', '.join(names)}", highlight=False)
            bench.run(cells)
            results["cells"] = [asdict(each) for each in bench.runs]
            console.print(bench.table())
        if "kept" in parts:
            wanted = [tuple(map(int, each.split("x"))) for each in args.kept.split(",")]
            rows = (args.rows or [10**6])[0]
            kept = [
                commits_kept.run(
                    folder,
                    rows,
                    commits=commits,
                    changes=changes,
                    with_spark="spark" in (args.contender or CONTENDERS),
                    say=console.print,
                )
                for commits, changes in wanted
            ]
            results["kept"] = [asdict(each) for each in kept]
            console.print(commits_kept.table(kept))
        if "log" in parts:
            table, results["log"] = log_table(args.share)
            console.print(table)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps({**results, "failures": bench.failures}, indent=1) + "\n")
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
