"""(f) What is serial in the driver: CPU-µs a row of each kind of process, for one table, for 200
partitions and for 1,000 tables, on threads and on executors of one core each.

More executors than the machine has cores show no speed, but what they cost: the driver's share is
what one changefeed cannot exceed on any cluster.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pyspark
from rich.table import Table

from tests.benchmarks.bench import Bench
from tests.benchmarks.bulk import BulkRun, measured
from tests.benchmarks.contenders import Tidelake
from tests.benchmarks.feed import Feed
from tests.benchmarks.measure import KINDS
from tests.benchmarks.printing import new_table, number
from tests.benchmarks.workload import Changes, make_changes

MASTERS = ("local[8]", "local-cluster[1,1,1024]", "local-cluster[2,1,1024]",
           "local-cluster[4,1,1024]")  # fmt: skip
_ROWS = 1_000_000  # in all tables of a shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How the same changes come."""

    name: str
    tables: int
    partitions: int


SHAPES = (
    Shape(name="one table", tables=1, partitions=2),
    Shape(name="200 partitions", tables=1, partitions=200),
    Shape(name="1,000 tables", tables=1_000, partitions=2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """One shape on one master, once."""

    shape: str
    master: str
    run: BulkRun

    def micros(self, kind: str) -> float:
        """CPU-µs a row, start included."""
        return 1e6 * self.run.cost.cpu_s_of[kind] / self.run.applied


def run(bench: Bench, results: list[Scaling]) -> None:
    before = _work_folders()
    try:
        _run(bench, results)
    finally:
        for folder in _work_folders() - before:
            shutil.rmtree(folder, ignore_errors=True)


def _work_folders() -> set[Path]:
    """Where a local cluster's executors log: Spark puts them beside itself, and keeps them."""
    return set((Path(pyspark.__file__).parent / "work").glob("app-*"))


def _run(bench: Bench, results: list[Scaling]) -> None:
    for shape in SHAPES:
        topic = shape.name.replace(" ", "-").replace(",", "")
        folder = bench.setting.folder / topic

        def work(shape: Shape = shape, topic: str = topic) -> None:
            bench.say(f"scaling, {shape.name}: topic and tables")
            histories = _histories(bench.size.scaling_changes, shape.tables)
            feed = Feed(
                bench.broker,
                topic,
                histories,
                rounds=_rounds(histories),
                partitions=shape.partitions,
            )
            folder = bench.setting.folder / topic
            feed.send_creates()
            base_rows = next(iter(histories.values())).base_rows
            Tidelake(bench.setting).prepare(feed, base_rows, folder / Tidelake.name)
            feed.send()
            for master in MASTERS:

                def one(master: str = master) -> None:
                    run_ = measured(Tidelake(bench.setting, master=master), feed, folder)
                    results.append(Scaling(shape=shape.name, master=master, run=run_))
                    bench.say(
                        f"scaling, {shape.name} on {master}: {run_.steady_rate:,.0f}/s, "
                        f"driver {results[-1].micros('driver'):.1f} CPU-µs a row"
                    )

                bench.attempt(f"scaling, {shape.name} on {master}", one)

        try:
            bench.attempt(f"scaling, {shape.name}", work)
        finally:
            bench.broker.delete_topic(topic)
            shutil.rmtree(folder, ignore_errors=True)


def _histories(count: int, tables_: int) -> dict[str, Changes]:
    rows = min(_ROWS, 2 * count) // tables_
    return {
        f"t{n:04}": make_changes(rows, count // tables_, recent=True, seed=n)
        for n in range(tables_)
    }


def _rounds(histories: dict[str, Changes]) -> int:
    """Changes of all tables are mixed in time."""
    return max(len(next(iter(histories.values()))) // 5, 1) if len(histories) > 1 else 1


def tables(results: list[Scaling]) -> list[Table]:
    table = new_table(
        "(f) Scaling: CPU-µs a row by kind of process (start included), once each",
        "shape", "master", "steady changes/s", "whole s", *KINDS, "broker", "peak MB",
    )  # fmt: skip
    for each in results:
        table.add_row(
            each.shape,
            each.master,
            number(each.run.steady_rate, 0),
            number(each.run.whole_s),
            *(number(each.micros(kind)) for kind in KINDS),
            number(1e6 * each.run.cost.broker_cpu_s / each.run.applied),
            number(each.run.cost.peak_rss_mb, 0),
        )
    return [table]
