"""(c) 100 tables x 50 rows: seconds from a round's first message until every table can be read at
its end.

The processes follow the topic; round 0 is a warm-up. Naive runs over a few of the tables and
its figure is scaled up, since it takes a Spark MERGE per table one after the other.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.benchmarks.contenders import Contender, Setting
from tests.benchmarks.feed import SCHEMA_NAME, Feed
from tests.benchmarks.freshness import await_ready
from tests.benchmarks.measure import ContenderFailed, Cost, Job
from tests.benchmarks.targets import check
from tests.benchmarks.workload import make_changes
from tests.services.kafka_broker import KafkaBroker

TABLES = 100
ROWS_PER_ROUND = 50
BASE_ROWS = 1_000
_ROUND_PATIENCE_S = 400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyTables:
    """One contender's rounds."""

    contender: str
    note: str
    tables: int  # that it really had
    seconds: tuple[float, ...]  # of each round, for TABLES tables
    cost: Cost

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))


def run_many_tables(
    contender: Contender,
    broker: KafkaBroker,
    setting: Setting,
    *,
    rounds: int,
    only_tables: int = TABLES,
) -> ManyTables:
    """A warm-up round and ``rounds`` that count, one after the other."""
    folder = setting.folder / f"tables-{contender.name}"
    names = [f"t{n:03}" for n in range(TABLES)]
    total = ROWS_PER_ROUND * (rounds + 1)
    changes = {
        name: make_changes(BASE_ROWS, total, recent=False, seed=n) for n, name in enumerate(names)
    }
    setting.say(f"{TABLES} tables: {contender.name}, building them")
    per_round = TABLES * ROWS_PER_ROUND
    feed = Feed(broker, folder.name, changes, watermark_every=per_round, rounds=rounds + 1)
    mine = names[:only_tables]
    warehouse = folder / "run"
    try:
        feed.send_creates()
        contender.prepare(feed, BASE_ROWS, warehouse)
        times = []
        with contender.job(feed, warehouse, tables=mine, bounded=False) as job:
            await_ready(contender, job, warehouse)
            first = time.time()
            for number in range(rounds + 1):
                times.append(_round(contender, job, feed, warehouse, only_tables))
                setting.say(f"{TABLES} tables: {contender.name}, round {number}: {times[-1]:.1f} s")
            cost = job.cost(first, time.time())
        for name in mine:
            check(warehouse / SCHEMA_NAME / name, changes[name].state())
        return _result(contender, times[1:], only_tables, cost)
    finally:
        broker.delete_topic(feed.topic)
        shutil.rmtree(folder, ignore_errors=True)


def _result(
    contender: Contender, times: Sequence[float], only_tables: int, cost: Cost
) -> ManyTables:
    scale = TABLES / only_tables
    return ManyTables(
        contender=contender.name,
        note="" if scale == 1 else f"{only_tables} tables, scaled",
        tables=only_tables,
        seconds=tuple(seconds * scale for seconds in times),
        cost=cost,
    )


def _round(contender: Contender, job: Job, feed: Feed, warehouse: Path, only_tables: int) -> float:
    first, count = feed.sent, TABLES * ROWS_PER_ROUND
    values = feed.encode(first, first + count)
    start = time.time()
    feed.send_encoded(values)
    feed.flush()
    mine = np.flatnonzero(feed.table_index[first : first + count] < only_tables) + first
    deadline = time.monotonic() + _ROUND_PATIENCE_S
    while np.isnan(visible := contender.visible_at(job, feed, warehouse)[mine]).any():
        job.check_alive()
        if time.monotonic() > deadline:
            raise ContenderFailed(f"{contender.name}: a round did not end\n{job.tail()}")
        time.sleep(0.2)
    return float(visible.max()) - start
