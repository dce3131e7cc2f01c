"""(a) Kafka to Delta: changes per second over a topic that was filled beforehand.

*whole* runs from the start of the process to the target's last commit; *steady* from the end of
the first 200,000 changes to the last commit. Both are read off the target's own log afterwards
(which changes a commit holds, and when its file was written), which costs nothing meanwhile.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from rich.table import Table

from tests.benchmarks.bench import Bench
from tests.benchmarks.contenders import Contender, Naive
from tests.benchmarks.feed import SCHEMA_NAME, WATERMARK_EVERY, Feed
from tests.benchmarks.measure import ContenderFailed, Cost, commits
from tests.benchmarks.printing import (
    COST_COLUMNS,
    cost_cells,
    each_k,
    grouped,
    middle,
    new_table,
    number,
)
from tests.benchmarks.sizes import Stage
from tests.benchmarks.targets import check, copy_warehouse
from tests.benchmarks.workload import make_changes

TABLE = "orders"
STEADY_FROM = 200_000  # changes: the first ones are the start's
NAIVE_BATCHES = 2  # of 200,000, the first with a cold JVM; the whole topic would take an hour
_RUN_PATIENCE_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRun:
    """One contender, once. Its table was checked."""

    keys: str  # recent or uniform
    base_rows: int
    changes: int  # in the topic
    contender: str
    applied: int
    note: str
    whole_s: float
    steady_rate: float  # nan: all came in one commit
    ready_s: float  # from the process's start until it could begin to read
    first_commit_s: float  # from the process's start
    commits: int
    cost: Cost  # from the process's start to the last commit

    @property
    def whole_rate(self) -> float:
        return self.applied / self.whole_s if not self.note else math.nan


def rows_text(count: int) -> str:
    """``1 M``, ``200 k``, ``500``."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:g} {unit}"
    return str(count)


def steady_rate(visible: np.ndarray, steady_from: int = STEADY_FROM) -> float:
    """Changes per second after the commit that holds the ``steady_from``-th change."""
    at = np.sort(visible)
    if len(at) <= steady_from:
        return math.nan
    begun = at[steady_from - 1]
    rest = int((at > begun).sum())
    return rest / float(at[-1] - begun) if rest else math.nan


def run(bench: Bench, results: list[BulkRun]) -> None:
    """A topic per kind of keys and size of the target, its stages one after the other."""
    for (base_rows, stages), keys in product(bench.size.bulk.items(), bench.size.keys):
        what = f"{keys} over {rows_text(base_rows)}"

        def work(
            base_rows: int = base_rows,
            stages: tuple[Stage, ...] = stages,
            keys: str = keys,
            what: str = what,
        ) -> None:
            bench.say(f"bulk, {what}: the history")
            changes = make_changes(base_rows, stages[-1].changes, recent=keys == "recent")
            feed = Feed(bench.broker, what.replace(" ", "-"), {TABLE: changes})
            folder = bench.setting.folder / feed.topic
            try:
                results.extend(_runs(bench, feed, stages, folder, keys))
            finally:
                bench.broker.delete_topic(feed.topic)
                shutil.rmtree(folder, ignore_errors=True)

        bench.attempt(f"bulk, {what}", work)


def _runs(
    bench: Bench, feed: Feed, stages: tuple[Stage, ...], folder: Path, keys: str
) -> Iterator[BulkRun]:
    """The order of the contenders turns from round to round."""
    everyone = bench.contenders()
    base_rows = feed.changes[TABLE].base_rows
    feed.send_creates()
    for contender in everyone:
        bench.say(f"{feed.topic}: the table of {contender.name}")
        contender.prepare(feed, base_rows, folder / contender.name)
    for stage in stages:
        bench.say(f"{feed.topic}: producing {rows_text(stage.changes)} changes")
        is_last = stage is stages[-1] or stage.changes % WATERMARK_EVERY != 0
        feed.send(stage.changes - feed.sent, close=is_last)
        feed.flush()
        for number_ in range(max(stage.rounds(each.name) for each in everyone)):
            turn = number_ % len(everyone)
            for contender in [*everyone[turn:], *everyone[:turn]]:
                if number_ < stage.rounds(contender.name):
                    run_ = measured(contender, feed, folder, keys)
                    bench.say(
                        f"{feed.topic}: {rows_text(stage.changes)} changes, round {number_ + 1}, "
                        f"{contender.name}: whole {run_.whole_rate:,.0f}/s, "
                        f"steady {run_.steady_rate:,.0f}/s {run_.note}"
                    )
                    yield run_


def measured(contender: Contender, feed: Feed, folder: Path, keys: str = "recent") -> BulkRun:
    """One run over a fresh copy of the contender's tables, checked."""
    warehouse = folder / "run"
    paths = {name: warehouse / SCHEMA_NAME / name for name in feed.tables}
    copy_warehouse(folder / contender.name, warehouse)
    before = sum(len(commits(path)) for path in paths.values())
    note = ""
    if isinstance(contender, Naive):
        contender.batches = NAIVE_BATCHES
        note = f"{NAIVE_BATCHES} batches alone"
    try:
        with contender.job(feed, warehouse, tables=feed.tables, bounded=True) as job:
            job.wait(_RUN_PATIENCE_S)
        visible = contender.visible_at(job, feed, warehouse)
        ready = contender.ready_at(job, warehouse)
        read = ~np.isnan(visible)
        if ready is None or not (read[: feed.sent].all() or (note and read.any())):
            raise ContenderFailed(
                f"{contender.name}: {int(read.sum())} of {feed.sent} changes were applied\n"
                f"{job.tail()}"
            )
        for n, (name, path) in enumerate(paths.items()):
            changes = feed.changes[name]
            check(path, changes.state(read[feed.table_index == n]), changes.base_rows)
        first, last = float(np.nanmin(visible)), float(np.nanmax(visible))
        return BulkRun(
            keys=keys,
            base_rows=sum(each.base_rows for each in feed.changes.values()),
            changes=feed.sent,
            contender=contender.name,
            applied=int(read.sum()),
            note=note,
            whole_s=last - job.started_at,
            steady_rate=steady_rate(visible[read], min(STEADY_FROM, feed.sent // 3)),
            ready_s=ready - job.started_at,
            first_commit_s=first - job.started_at,
            commits=sum(len(commits(path)) for path in paths.values()) - before,
            cost=job.cost(job.started_at, last),
        )
    finally:
        shutil.rmtree(warehouse, ignore_errors=True)
        shutil.rmtree(f"{warehouse}-checkpoint", ignore_errors=True)
        time.sleep(1.0)  # the disk settles: the next one starts on a quiet machine


def tables(results: list[BulkRun]) -> list[Table]:
    """Speed, and what it cost."""
    speed = new_table(
        "(a) Kafka to Delta, changes/s, medians (aims, steady: 1.3 x delta-rs at 1 M rows, 5 x at "
        "10 M, 10 x naive; 30 M rows no slower than 1 M by a fifth; whole: 1.0 x at 1 M rows)",
        "keys over rows", "changes", "contender", "steady", "each round", "whole", "each round",
        "steady: x delta-rs", "x naive", "x 1 M rows", "whole: x delta-rs", "ready s",
        "first commit s", "commits", "note",
    )  # fmt: skip
    cost = new_table(
        "(a) What it cost from the process's start to the last commit, medians",
        "keys over rows", "changes", "contender", *COST_COLUMNS, "CPU-µs a change",
    )  # fmt: skip
    groups = grouped(results, lambda run: (run.keys, run.base_rows, run.changes, run.contender))
    steady = {key: middle(mine, lambda run: run.steady_rate) for key, mine in groups.items()}
    whole = {key: middle(mine, lambda run: run.whole_rate) for key, mine in groups.items()}
    for key, mine in groups.items():
        keys, rows, changes, name = key
        smallest = min(each[1] for each in groups)
        peer, small = (keys, rows, changes, "delta-rs"), (keys, smallest, changes, name)
        head = (f"{keys} over {rows_text(rows)}", rows_text(changes), name)
        speed.add_row(
            *head,
            number(steady[key], 0),
            each_k(run.steady_rate for run in mine),
            number(whole[key], 0),
            each_k(run.whole_rate for run in mine),
            number(steady[key] / steady.get(peer, math.nan), 2),
            number(steady[key] / steady.get((*key[:3], "naive"), math.nan), 2),
            number(steady[key] / steady.get(small, math.nan), 2),
            number(whole[key] / whole.get(peer, math.nan), 2),
            number(middle(mine, lambda run: run.ready_s)),
            number(middle(mine, lambda run: run.first_commit_s)),
            number(middle(mine, lambda run: run.commits), 0),
            mine[0].note,
        )
        micros = middle(mine, lambda run: 1e6 * run.cost.cpu_s / run.applied)
        cost.add_row(*head, *cost_cells([run.cost for run in mine]), number(micros))
    return [speed, cost]
