"""``python -m tests.benchmarks [PART …] [--quick]``: the yardstick, whole or in parts.

It starts a broker, runs one contender at a time and leaves nothing behind but ``bench-
results/*.json``.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks import (
    backlogs,
    bulk,
    captures,
    csv_files,
    ddl,
    dead_letters,
    failover,
    floors,
    freshness,
    idle,
    many_tables,
    protocols,
    report,
    scaling,
    storage,
)
from tests.benchmarks.bench import CONTENDERS, Bench
from tests.benchmarks.contenders import Setting
from tests.benchmarks.measure import REPOSITORY
from tests.benchmarks.sizes import FULL, QUICK, Size, scaled
from tests.services.kafka_broker import KafkaBroker


@dataclass(frozen=True, slots=True)
class Part:
    """``run`` adds its results one by one, so that what was measured outlasts a failure."""

    run: Callable[[Bench, list[Any]], None]
    tables: Callable[[list[Any]], list[Table]]


PARTS = {
    "bulk": Part(bulk.run, bulk.tables),
    "freshness": Part(freshness.run, freshness.tables),
    "tables": Part(many_tables.run, many_tables.tables),
    "floors": Part(floors.run, floors.tables),
    "captures": Part(captures.run, captures.tables),
    "failover": Part(failover.run, failover.tables),
    "scaling": Part(scaling.run, scaling.tables),
    "backlogs": Part(backlogs.run, backlogs.tables),
    "idle": Part(idle.run, idle.tables),
    "csv": Part(csv_files.run, csv_files.tables),
    "garbage": Part(dead_letters.run, dead_letters.tables),
    "ddl": Part(ddl.run, ddl.tables),
    "protocols": Part(protocols.run, protocols.tables),
    "storage": Part(storage.run, storage.tables),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="500 k changes over 1 M rows, once")
    parser.add_argument("--contender", choices=CONTENDERS, action="append", help="some contenders")
    parser.add_argument("--scale", type=float, default=1.0, help="to try the bench itself")
    parser.add_argument("--rows", type=int, action="append", help="of (a): some sizes of the table")
    parser.add_argument("--memory", default="8g", help="of naive's JVM")
    parser.add_argument("--output", type=Path, help="the JSON file (default: in bench-results/)")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return run(args, size_of(args))


def size_of(args: argparse.Namespace) -> Size:
    size = QUICK if args.quick else FULL
    if args.rows:
        for rows in set(size.bulk) - set(args.rows):
            del size.bulk[rows]
    return scaled(size, args.scale) if args.scale < 1 else size


def run(args: argparse.Namespace, size: Size) -> int:
    """All the parts that were asked for; the exit code says whether all of them were measured."""
    console = Console(width=None if sys.stdout.isatty() else 240)
    started = time.monotonic()

    def say(message: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - started), 60)
        console.print(f"{minutes:2}:{seconds:02} {message}", highlight=False, markup=False)

    names = args.parts or size.parts or list(PARTS)
    name = "-".join(["bench", *args.parts, *(["quick"] if args.quick else [])])
    output = args.output or REPOSITORY / "bench-results" / f"{name}.json"
    folder = Path(tempfile.mkdtemp(prefix="tidelake-bench-"))
    found: dict[str, list[Any]] = {name: [] for name in names}
    try:
        say("starting a broker")
        with KafkaBroker(heap="1g", jvm=()) as broker:
            setting = Setting(folder=folder, broker_pid=broker.pid, memory=args.memory, say=say)
            bench = Bench(
                size=size, names=args.contender or list(CONTENDERS), broker=broker, setting=setting
            )
            for name, results in found.items():
                PARTS[name].run(bench, results)
                report.write(output, found, bench.failures)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name, results in found.items():
        for table in PARTS[name].tables(results) if results else []:
            console.print(table)
    for note in report.NOTES:
        console.print(f"· {note}", highlight=False)
    for failure in bench.failures:
        console.print(f"[red]FAILED[/red] {failure.splitlines()[0]} (more above)", highlight=False)
    say(f"written to {output}")
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
