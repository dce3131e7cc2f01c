"""(b) Produced to readable in Delta: 1,000 changes a second, on a process that follows the topic.

A change counts as produced when it is handed to the producer, and as readable when the commit
that holds it stands in the log. Tidelake waits for the watermark (here TiCDC's own interval), so
half of that interval is in its median by design; delta-rs commits whatever has come, with no
state that all tables share.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from tests.benchmarks.bench import Bench
from tests.benchmarks.bulk import TABLE, rows_text
from tests.benchmarks.contenders import Contender, Naive, Tidelake
from tests.benchmarks.cycles import CyclePart, cycle_parts, cycle_table
from tests.benchmarks.feed import SCHEMA_NAME, Feed
from tests.benchmarks.measure import ContenderFailed, Cost, Job, commits
from tests.benchmarks.printing import COST_COLUMNS, cost_cells, new_table, number
from tests.benchmarks.targets import check
from tests.benchmarks.workload import make_changes

RATE_PER_S = 1_000
_WATERMARK_EVERY = 1_000  # changes: a second
_TICK = 10  # changes: every 10 ms
_READY_PATIENCE_S = 180.0
_CATCH_UP_PATIENCE_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Seconds from produced to readable, of the changes after the warm-up."""

    contender: str
    base_rows: int
    p50: float
    p95: float
    longest: float
    commits: int
    cost: Cost
    parts: list[CyclePart]


def run(bench: Bench, results: list[Freshness]) -> None:
    """Each contender over each size; naive would need minutes for a batch."""
    for base_rows in bench.size.freshness_rows:
        for contender in bench.contenders():
            if isinstance(contender, Naive):
                continue
            if isinstance(contender, Tidelake):
                contender = Tidelake(bench.setting, log_level="DEBUG")

            def work(contender: Contender = contender, base_rows: int = base_rows) -> None:
                results.append(_freshness(bench, contender, base_rows))

            bench.attempt(f"freshness, {contender.name}, {rows_text(base_rows)}", work)


def _freshness(bench: Bench, contender: Contender, base_rows: int) -> Freshness:
    """Its process starts on a quiet feed, and the warm-up is not counted."""
    warm_up_s, seconds = bench.size.freshness_s
    topic = f"freshness-{contender.name}-{base_rows}"
    folder = bench.setting.folder / topic
    changes = make_changes(base_rows, RATE_PER_S * (warm_up_s + seconds), recent=True, seed=5)
    bench.say(f"{topic}: building its table")
    feed = Feed(bench.broker, topic, {TABLE: changes}, watermark_every=_WATERMARK_EVERY)
    table = folder / "run" / SCHEMA_NAME / TABLE
    try:
        feed.send_creates()
        contender.prepare(feed, base_rows, folder / "run")
        before = len(commits(table))
        with contender.job(feed, folder / "run", tables=[TABLE], bounded=False) as job:
            await_ready(contender, job, folder / "run")
            bench.say(f"{topic}: {warm_up_s + seconds} s at {RATE_PER_S}/s")
            produced = produce_at_rate(feed, job, RATE_PER_S)
            visible = await_all(contender, job, feed, folder / "run")
        check(table, changes.state(), base_rows)
        delays = (visible - produced)[RATE_PER_S * warm_up_s :]
        p50, p95 = np.percentile(delays, [50, 95])
        return Freshness(
            contender=contender.name,
            base_rows=base_rows,
            p50=float(p50),
            p95=float(p95),
            longest=float(delays.max()),
            commits=len(commits(table)) - before,
            cost=job.cost(float(produced[RATE_PER_S * warm_up_s]), float(visible.max())),
            parts=cycle_parts(job.log),
        )
    finally:
        bench.broker.delete_topic(feed.topic)
        shutil.rmtree(folder, ignore_errors=True)


def await_ready(contender: Contender, job: Job, warehouse: Path) -> None:
    """Blocks until a process that follows the topic waits for messages."""
    deadline = time.monotonic() + _READY_PATIENCE_S
    while contender.ready_at(job, warehouse) is None:
        job.check_alive()
        if time.monotonic() > deadline:
            raise ContenderFailed(f"{contender.name}: not ready\n{job.tail()}")
        time.sleep(0.2)
    time.sleep(5.0)  # "ready" comes before the first poll


def produce_at_rate(feed: Feed, job: Job, rate_per_s: int) -> np.ndarray:
    """Send everything, ten changes at a time; the time at which each was sent."""
    values = feed.encode(0, len(feed))
    produced = np.zeros(len(feed))
    start = time.time()
    for first in range(0, len(feed), _TICK):
        due = start + first / rate_per_s
        if (wait := due - time.time()) > 0:
            time.sleep(wait)
        produced[first : first + _TICK] = time.time()
        feed.send_encoded(values[first : first + _TICK])
        if first % (10 * rate_per_s) == 0:
            job.check_alive()
    feed.close()
    return produced


def await_all(contender: Contender, job: Job, feed: Feed, warehouse: Path) -> np.ndarray:
    """When each change became readable."""
    deadline = time.monotonic() + _CATCH_UP_PATIENCE_S
    while np.isnan(visible := contender.visible_at(job, feed, warehouse)).any():
        job.check_alive()
        if time.monotonic() > deadline:
            late = int(np.isnan(visible).sum())
            raise ContenderFailed(f"{contender.name}: {late} changes are missing\n{job.tail()}")
        time.sleep(0.5)
    return visible


def tables(results: list[Freshness]) -> list[Table]:
    table = new_table(
        f"(b) Produced to readable at {RATE_PER_S:,} changes/s, a watermark each second "
        "(aim: p50 at most 0.8 s, p95 at most 1.3 s)",
        "contender", "rows", "p50 s", "p95 s", "longest s", "commits", *COST_COLUMNS,
    )  # fmt: skip
    for each in results:
        table.add_row(
            each.contender,
            rows_text(each.base_rows),
            *(number(value, 2) for value in (each.p50, each.p95, each.longest)),
            str(each.commits),
            *cost_cells([each.cost]),
        )
    cycles = [
        cycle_table(f"(b) A cycle's parts over {rows_text(each.base_rows)} rows", each.parts)
        for each in results
        if each.parts
    ]
    return [table, *cycles]
