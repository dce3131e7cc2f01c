"""Rows that a DDL writes anew: by one process, and by Spark's executors on the same cores."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from tests.benchmarks.bench import Bench
from tests.benchmarks.bulk import rows_text
from tests.benchmarks.commit_workload import check_digest, make_base
from tests.benchmarks.measure import Cost, Job
from tests.benchmarks.printing import grouped, middle, new_table, number
from tests.benchmarks.targets import copy_warehouse

KEY = "integer"
MASTER = "local[2]"
TIMES = (1, 5)  # the rows of the other DDLs
ROUNDS = 2
WAYS = ("one process", "Spark")
_PATIENCE_S = 1_800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """An ADD COLUMN with a default. The table was checked. ``way``: of WAYS."""

    way: str
    rows: int
    parts: int
    seconds: float
    cost: Cost


def measured(bench: Bench, base_rows: int) -> Iterator[Rewrite]:
    folder = bench.setting.folder / "rewrites"
    try:
        for rows in (each * base_rows for each in TIMES):
            bench.say(f"rewrite: a table of {rows_text(rows)} rows")
            digest = make_base(folder / "base", KEY, rows)
            for round_ in range(ROUNDS):
                for way in WAYS if round_ % 2 == 0 else WAYS[::-1]:
                    copy_warehouse(folder / "base", folder / "run")
                    found = _measured(bench, folder / "run", way, rows)
                    bench.say(
                        f"rewrite by {way}: {found.seconds:.1f} s, {found.cost.cpu_s:.1f} CPU"
                    )
                    check_digest(folder / "run", KEY, digest)
                    shutil.rmtree(folder / "run")
                    yield found
            shutil.rmtree(folder / "base")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(bench: Bench, path: Path, way: str, rows: int) -> Rewrite:
    command = [sys.executable, "-m", "tests.benchmarks.rewrite_job", str(path), way]
    setting = bench.setting
    environment = {"SPARK_MASTER": MASTER}
    with Job("rewrite", command, setting.folder, setting.broker_pid, environment) as job:
        job.wait(_PATIENCE_S)
    (event,) = job.events("rewrite")
    first, last = event["first"], event["last"]
    return Rewrite(
        way=way,
        rows=rows,
        parts=event["parts"],
        seconds=last - first,
        cost=job.cost(first, last),
    )


def table_of(results: list[Rewrite]) -> Table:
    table = new_table(
        f"(g) An ADD COLUMN with a default, rows written anew, {MASTER}, medians",
        "rows", "by", "parts", "seconds", "x one process", "CPU s", "x one process",
        "CPU s of others", "peak MB of workers", "of the driver",
    )  # fmt: skip
    groups = grouped(results, lambda each: (each.rows, each.way))
    for (rows, way), mine in groups.items():
        one = groups.get((rows, WAYS[0]), mine)
        seconds, cpu_s = middle(mine, lambda r: r.seconds), middle(mine, lambda r: r.cost.cpu_s)
        table.add_row(
            rows_text(rows),
            way,
            str(mine[0].parts),
            number(seconds, 1),
            number(middle(one, lambda r: r.seconds) / seconds, 2),
            number(cpu_s, 1),
            number(cpu_s / middle(one, lambda r: r.cost.cpu_s), 2),
            number(middle(mine, lambda r: r.cost.others_cpu_s), 1),
            number(middle(mine, lambda r: r.cost.peak_rss_mb_of["workers"]), 0),
            number(middle(mine, lambda r: r.cost.peak_rss_mb_of["driver"]), 0),
        )
    return table
