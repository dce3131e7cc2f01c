"""(a) Kafka to Delta: changes per second over a topic that was filled beforehand.

The clock starts when the contender could begin to read (its JVM, imports and sessions are up) and
stops at the target's last commit, for all alike; the whole life of the process stands beside it.
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
from tests.benchmarks.measure import ContenderFailed, Cost, commits
from tests.benchmarks.targets import check, copy_warehouse
from tests.benchmarks.workload import make_changes
from tests.services.kafka_broker import KafkaBroker

TABLE = "orders"
_RUN_PATIENCE_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One line of the table: which keys, over how many rows."""

    keys: str  # recent or uniform
    base_rows: int
    changes: int

    @property
    def name(self) -> str:
        return f"{self.keys} over {rows_text(self.base_rows)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A contender in a cell: in how many of the rounds it runs."""

    contender: Contender
    rounds: int
    note: str = ""  # what is not as for the others


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One contender, once. Its table was checked."""

    contender: str
    note: str
    changes: int
    seconds: float
    process_s: float  # from the start of the process to its end
    first_commit_s: float
    commits: int
    cost: Cost

    @property
    def rate(self) -> float:
        return self.changes / self.seconds


def rows_text(count: int) -> str:
    """``1 M``, ``200 k``, ``500``."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:g} {unit}"
    return str(count)


def run_cell(
    cell: Cell, entrants: Sequence[Entrant], broker: KafkaBroker, setting: Setting
) -> list[Run]:
    """Prepare the cell and run its rounds, the order of contenders turning from round to round."""
    folder = setting.folder / cell.name.replace(" ", "-")
    changes = make_changes(cell.base_rows, cell.changes, recent=cell.keys == "recent")
    setting.say(f"{cell.name}: building tables and the topic")
    feed = Feed(broker, folder.name, {TABLE: changes})
    runs = []
    try:
        feed.send_creates()
        for entrant in entrants:
            entrant.contender.prepare(feed, cell.base_rows, folder / entrant.contender.name)
        feed.send()
        for number in range(max(entrant.rounds for entrant in entrants)):
            turn = number % len(entrants)
            for entrant in [*entrants[turn:], *entrants[:turn]]:
                if number < entrant.rounds:
                    setting.say(f"{cell.name}: round {number + 1}, {entrant.contender.name}")
                    runs.append(_run(entrant, feed, folder))
                    setting.say(
                        f"{cell.name}: round {number + 1}, {entrant.contender.name}: "
                        f"{runs[-1].rate:,.0f} changes/s {entrant.note}"
                    )
    finally:
        broker.delete_topic(feed.topic)
        shutil.rmtree(folder, ignore_errors=True)
    return runs


def _run(entrant: Entrant, feed: Feed, folder: Path) -> Run:
    contender = entrant.contender
    warehouse = folder / "run"
    table = warehouse / SCHEMA_NAME / TABLE
    copy_warehouse(folder / contender.name, warehouse)
    before = len(commits(table))
    try:
        with contender.job(feed, warehouse, tables=feed.tables, bounded=True) as job:
            job.wait(_RUN_PATIENCE_S)
        visible = contender.visible_at(job, feed, warehouse)
        ready = contender.ready_at(job, warehouse)
        read = ~np.isnan(visible)
        if ready is None or not (read.all() or (entrant.note and read.any())):
            raise ContenderFailed(
                f"{contender.name}: {int(read.sum())} of {len(read)} changes were applied\n"
                f"{job.tail()}"
            )
        check(table, feed.changes[TABLE].state(read))
        first, last = float(np.nanmin(visible)), float(np.nanmax(visible))
        return Run(
            contender=contender.name,
            note=entrant.note,
            changes=int(read.sum()),
            seconds=last - ready,
            process_s=job.ended_at - job.started_at,
            first_commit_s=first - ready,
            commits=len(commits(table)) - before,
            cost=job.cost(ready, last),
        )
    finally:
        shutil.rmtree(warehouse, ignore_errors=True)
        shutil.rmtree(f"{warehouse}-checkpoint", ignore_errors=True)
        time.sleep(1.0)  # the disk settles: the next one starts on a quiet machine
