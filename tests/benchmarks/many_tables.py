"""(c) 100 tables x 50 rows, 1,000 tables x 5 rows: seconds from a round's first message until
every table can be read at its end.

The processes follow the topic; round 0 is a warm-up. Naive runs over a few of the 100 tables and
its figure is scaled up, since it takes a Spark MERGE per table one after the other.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from tests.benchmarks.bench import Bench
from tests.benchmarks.contenders import Contender, Naive, Tidelake
from tests.benchmarks.cycles import CyclePart, cycle_parts, cycle_table
from tests.benchmarks.feed import SCHEMA_NAME, Feed
from tests.benchmarks.freshness import await_ready
from tests.benchmarks.measure import ContenderFailed, Cost, Job
from tests.benchmarks.printing import COST_COLUMNS, cost_cells, new_table
from tests.benchmarks.targets import check
from tests.benchmarks.workload import make_changes

BASE_ROWS = 1_000
_NAIVE_AT_MOST = 100  # tables: above, it is left out
_ROUND_PATIENCE_S = 400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyTables:
    """One contender's rounds."""

    tables: int
    changes: int  # of each table in a round
    contender: str
    note: str
    seconds: list[float]  # of each round, for all tables
    cost: Cost  # of all rounds, with the warm-up
    parts: list[CyclePart]

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))


def run(bench: Bench, results: list[ManyTables]) -> None:
    for tables_, changes in bench.size.tables:
        for contender in bench.contenders():
            only = tables_
            if isinstance(contender, Naive):
                only = bench.size.naive_tables if tables_ <= _NAIVE_AT_MOST else 0
            if isinstance(contender, Tidelake):
                contender = Tidelake(bench.setting, log_level="DEBUG")

            def work(
                contender: Contender = contender,
                tables_: int = tables_,
                changes: int = changes,
                only: int = only,
            ) -> None:
                results.append(_Rounds(bench, contender, tables_, changes, only).run())

            if only:
                bench.attempt(f"{tables_} tables, {contender.name}", work)


class _Rounds:
    """A warm-up round and those that count, one after the other."""

    def __init__(
        self, bench: Bench, contender: Contender, tables_: int, changes: int, only: int
    ) -> None:
        self._bench, self._contender = bench, contender
        self._tables, self._changes, self._only = tables_, changes, only
        self._rounds = 1 if isinstance(contender, Naive) else bench.size.table_rounds
        self._topic = f"tables-{tables_}-{contender.name}"
        self._folder = bench.setting.folder / self._topic
        self._warehouse = self._folder / "run"

    def run(self) -> ManyTables:
        names = [f"t{n:04}" for n in range(self._tables)]
        total = self._changes * (self._rounds + 1)
        histories = {
            name: make_changes(BASE_ROWS, total, recent=False, seed=n)
            for n, name in enumerate(names)
        }
        self._bench.say(f"{self._topic}: building the tables")
        feed = Feed(
            self._bench.broker,
            self._topic,
            histories,
            watermark_every=self._tables * self._changes,
            rounds=self._rounds + 1,
        )
        try:
            feed.send_creates()
            self._contender.prepare(feed, BASE_ROWS, self._warehouse)
            mine = names[: self._only]
            with self._contender.job(feed, self._warehouse, tables=mine, bounded=False) as job:
                await_ready(self._contender, job, self._warehouse)
                first, times = time.time(), []
                for number in range(self._rounds + 1):
                    times.append(self._round(job, feed))
                    self._bench.say(f"{self._topic}: round {number}: {times[-1]:.1f} s")
                cost = job.cost(first, time.time())
            for name in mine:
                path = self._warehouse / SCHEMA_NAME / name
                check(path, histories[name].state(), BASE_ROWS)
            return self._result(times[1:], cost, cycle_parts(job.log))
        finally:
            self._bench.broker.delete_topic(feed.topic)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _result(self, times: list[float], cost: Cost, parts: list[CyclePart]) -> ManyTables:
        scale = self._tables / self._only
        return ManyTables(
            tables=self._tables,
            changes=self._changes,
            contender=self._contender.name,
            note="" if scale == 1 else f"{self._only} tables, scaled",
            seconds=[seconds * scale for seconds in times],
            cost=cost,
            parts=parts,
        )

    def _round(self, job: Job, feed: Feed) -> float:
        first, count = feed.sent, self._tables * self._changes
        values = feed.encode(first, first + count)
        start = time.time()
        feed.send_encoded(values)
        feed.flush()
        mine = np.flatnonzero(feed.table_index[first : first + count] < self._only) + first
        deadline = time.monotonic() + _ROUND_PATIENCE_S
        while np.isnan(visible := self._visible(job, feed, self._warehouse)[mine]).any():
            job.check_alive()
            if time.monotonic() > deadline:
                raise ContenderFailed(f"{self._contender.name}: a round did not end\n{job.tail()}")
            time.sleep(0.2)
        return float(visible.max()) - start

    def _visible(self, job: Job, feed: Feed, warehouse: Path) -> np.ndarray:
        return self._contender.visible_at(job, feed, warehouse)


def tables(results: list[ManyTables]) -> list[Table]:
    table = new_table(
        "(c) Many tables, seconds a round (aims: 100 x 50 at most 1 s, 1,000 x 5 at most 8 s)",
        "tables x changes", "contender", "median s", "each round", *COST_COLUMNS, "note",
    )  # fmt: skip
    for each in results:
        table.add_row(
            f"{each.tables:,} x {each.changes}",
            each.contender,
            f"{each.median:.2f}",
            " ".join(f"{seconds:.2f}" for seconds in each.seconds),
            *cost_cells([each.cost]),
            each.note,
        )
    cycles = [
        cycle_table(f"(c) A cycle's parts with {each.tables:,} tables", each.parts)
        for each in results
        if each.parts
    ]
    return [table, *cycles]
