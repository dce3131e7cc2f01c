"""``python -m tests.benchmarks [--quick] [--only bulk|freshness|tables|floors]``: the whole
yardstick.

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
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from rich.console import Console

from tests.benchmarks import contenders
from tests.benchmarks.bulk import Cell, Entrant, run_cell
from tests.benchmarks.floors import run_floors
from tests.benchmarks.freshness import run_freshness
from tests.benchmarks.many_tables import run_many_tables
from tests.benchmarks.measure import REPOSITORY, ContenderFailed
from tests.benchmarks.report import Report
from tests.benchmarks.targets import TablesDiffer
from tests.services.kafka_broker import KafkaBroker

PARTS = ("bulk", "freshness", "tables", "floors")
NAMES = ("naive", "delta-rs", "tidelake")
NOTES = (
    "All contenders read the same topics (2 partitions, in (a) filled beforehand), and every cell "
    "of every table was checked against the history after every run.",
    "The clock of (a) runs from 'could begin to read' (JVM, imports, session, election behind it) "
    "to the target's last commit, for all alike; 'process s' is the whole life of the process.",
    "The feed's watermarks: in each partition every 10,000 changes in (a), a second of the feed's "
    "clock; every second in (b); at each round's end in (c).",
    "Tidelake's target: made by Tidelake itself from the feed's CREATE TABLE, then filled by the "
    "same plain append that made the others' tables (sorted keys, 22 MB files).",
    "CPU and RSS are of the whole process tree (embedded etcd included); 'others' is all else on "
    "the machine but the broker and the yardstick: rows where it is large are noisy.",
    "naive and delta-rs take 200,000 messages a batch, evened out so that no tiny one is left.",
    "naive takes minutes: it runs once, and after the first cell its first batch only, with a cold "
    "JVM; in (c) over a twentieth of the tables, scaled.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of everything; figures of different sizes are not compared."""

    changes: int
    base_rows: tuple[int, ...]
    rounds: int
    freshness: tuple[int, int, int]  # rows, warm-up s, seconds
    table_rounds: int
    naive_tables: int  # 0: naive is left out there
    keys: tuple[str, ...] = ("recent", "uniform")
    parts: tuple[str, ...] = PARTS


FULL = Size(
    changes=1_000_000,
    base_rows=(1_000_000, 10_000_000),
    rounds=3,
    freshness=(1_000_000, 15, 45),
    table_rounds=3,
    naive_tables=5,
)
QUICK = Size(
    changes=150_000,
    base_rows=(1_000_000,),
    rounds=1,
    freshness=(1_000_000, 8, 15),
    table_rounds=1,
    naive_tables=0,
    keys=("recent",),
    parts=PARTS[:-1],
)


def scaled(size: Size, scale: float) -> Size:
    """The same shape, smaller: for trying the yardstick itself."""

    def small(count: int, least: int) -> int:
        return max(int(count * scale) // 1_000 * 1_000, least)

    rows, warm_up, seconds = size.freshness
    return Size(
        changes=small(size.changes, 5_000),
        base_rows=tuple(small(count, 20_000) for count in size.base_rows),
        rounds=size.rounds,
        freshness=(small(rows, 20_000), min(warm_up, 5), min(seconds, 10)),
        table_rounds=1,
        naive_tables=min(size.naive_tables, 2),
        keys=size.keys,
        parts=size.parts,
    )


class Bench:
    """The parts, in turn; one that fails is reported and the others still run."""

    def __init__(
        self, size: Size, names: list[str], broker: KafkaBroker, setting: contenders.Setting
    ) -> None:
        self._size, self._broker, self._setting = size, broker, setting
        kinds = {
            "naive": contenders.Naive,
            "delta-rs": contenders.DeltaRs,
            "tidelake": contenders.Tidelake,
        }
        self._contenders = {name: kinds[name](setting) for name in names}
        self.report = Report(notes=[*NOTES])

    def bulk(self) -> None:
        for base_rows, keys in product(self._size.base_rows, self._size.keys):
            cell = Cell(keys=keys, base_rows=base_rows, changes=self._size.changes)
            is_first = not self.report.bulk
            entrants = [self._entrant(name, is_first=is_first) for name in self._contenders]
            self.report.bulk[cell] = runs = []
            self._guarded(
                lambda cell=cell, entrants=entrants, runs=runs: runs.extend(
                    run_cell(cell, entrants, self._broker, self._setting)
                )
            )

    def _entrant(self, name: str, *, is_first: bool) -> Entrant:
        contender = self._contenders[name]
        if not isinstance(contender, contenders.Naive):
            return Entrant(contender=contender, rounds=self._size.rounds)
        contender.batches = None if is_first else 1
        note = f"first {contender.batches} batch(es) only" if contender.batches else ""
        return Entrant(contender=contender, rounds=1, note=note)

    def freshness(self) -> None:
        rows, warm_up_s, seconds = self._size.freshness
        for name, contender in self._contenders.items():
            if name != "naive":
                self._guarded(
                    lambda contender=contender: self.report.freshness.append(
                        run_freshness(
                            contender,
                            self._broker,
                            self._setting,
                            base_rows=rows,
                            warm_up_s=warm_up_s,
                            seconds=seconds,
                            watermark_every=1_000,
                        )
                    )
                )

    def tables(self) -> None:
        for contender in self._contenders.values():
            size, rounds = {}, self._size.table_rounds
            if isinstance(contender, contenders.Naive):
                if not self._size.naive_tables:
                    continue
                contender.batches = None  # (a) has cut it short
                size, rounds = {"only_tables": self._size.naive_tables}, 1
            self._guarded(
                lambda contender=contender, size=size, rounds=rounds: (
                    self.report.many_tables.append(
                        run_many_tables(
                            contender, self._broker, self._setting, rounds=rounds, **size
                        )
                    )
                )
            )

    def floors(self) -> None:
        self._guarded(
            lambda: self.report.floors.extend(
                run_floors(self._broker, self._setting, self._size.changes, self._size.base_rows[0])
            )
        )

    def _guarded(self, part: Callable[[], None]) -> None:
        try:
            part()
        except (ContenderFailed, TablesDiffer) as error:
            self.report.failures.append(str(error))
            self._setting.say(f"FAILED: {error}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("--quick", action="store_true", help="150 k changes over 1 M rows, once")
    parser.add_argument("--only", choices=PARTS, action="append", help="some parts (repeatable)")
    parser.add_argument("--contender", choices=NAMES, action="append", help="some contenders")
    parser.add_argument("--scale", type=float, default=1.0, help="to try the yardstick itself")
    parser.add_argument("--rounds", type=int, help="of (a), instead of 3 (quick: 1)")
    parser.add_argument("--memory", default="8g", help="of each contender's JVM")
    parser.add_argument("--output", type=Path, help="the JSON file (default: in bench-results/)")
    args = parser.parse_args()
    size = QUICK if args.quick else FULL
    if args.scale < 1:
        size = scaled(size, args.scale)
    if args.rounds:
        size = replace(size, rounds=args.rounds)
    name = "bench-quick.json" if args.quick else "bench.json"
    output = args.output or REPOSITORY / "bench-results" / name
    console = Console(width=None if sys.stdout.isatty() else 220)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return run(args, size, output, console)


def run(args: argparse.Namespace, size: Size, output: Path, console: Console) -> int:
    """All the parts that were asked for; the exit code says whether all of them were measured."""
    started = time.monotonic()

    def say(message: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - started), 60)
        console.print(f"{minutes:2}:{seconds:02} {message}", highlight=False, markup=False)

    folder = Path(tempfile.mkdtemp(prefix="tidelake-bench-"))
    try:
        say("starting a broker")
        with KafkaBroker(heap="1g") as broker:
            setting = contenders.Setting(
                folder=folder, broker_pid=broker.pid, memory=args.memory, say=say
            )
            bench = Bench(size, args.contender or list(NAMES), broker, setting)
            for part in args.only or size.parts:
                getattr(bench, part)()
                bench.report.write(output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    bench.report.show(console)
    say(f"written to {output}")
    return 1 if bench.report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
