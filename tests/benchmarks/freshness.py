"""(b) Produced to readable in Delta: 1,000 changes a second over 1 M rows, on a process that
follows the topic.

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

from tests.benchmarks.bulk import TABLE
from tests.benchmarks.contenders import Contender, Setting
from tests.benchmarks.feed import SCHEMA_NAME, Feed
from tests.benchmarks.measure import ContenderFailed, Cost, Job, commits
from tests.benchmarks.targets import check
from tests.benchmarks.workload import make_changes
from tests.services.kafka_broker import KafkaBroker

RATE_PER_S = 1_000
_TICK = 10  # changes: every 10 ms
_READY_PATIENCE_S = 120.0
_CATCH_UP_PATIENCE_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Seconds from produced to readable, of the changes after the warm-up."""

    contender: str
    base_rows: int
    watermark_interval_s: float
    p50: float
    p95: float
    longest: float
    commits: int
    cost: Cost


def run_freshness(
    contender: Contender,
    broker: KafkaBroker,
    setting: Setting,
    *,
    base_rows: int,
    warm_up_s: int,
    seconds: int,
    watermark_every: int,
) -> Freshness:
    """One contender; its process starts on a quiet feed, and the warm-up is not counted."""
    folder = setting.folder / f"freshness-{contender.name}"
    total = RATE_PER_S * (warm_up_s + seconds)
    changes = make_changes(base_rows, total, recent=True, seed=5)
    setting.say(f"freshness: {contender.name}, building its table")
    feed = Feed(broker, folder.name, {TABLE: changes}, watermark_every=watermark_every)
    table = folder / "run" / SCHEMA_NAME / TABLE
    try:
        feed.send_creates()
        contender.prepare(feed, base_rows, folder / "run")
        before = len(commits(table))
        with contender.job(feed, folder / "run", tables=[TABLE], bounded=False) as job:
            await_ready(contender, job, folder / "run")
            setting.say(f"freshness: {contender.name}, {warm_up_s + seconds} s at {RATE_PER_S}/s")
            produced = _produce_at_rate(feed, job)
            visible = _await_all(contender, job, feed, folder / "run")
        check(table, changes.state())
        delays = (visible - produced)[RATE_PER_S * warm_up_s :]
        p50, p95 = np.percentile(delays, [50, 95])
        cost = job.cost(float(produced[RATE_PER_S * warm_up_s]), float(visible.max()))
        return Freshness(
            contender=contender.name,
            base_rows=base_rows,
            watermark_interval_s=watermark_every / RATE_PER_S,
            p50=float(p50),
            p95=float(p95),
            longest=float(delays.max()),
            commits=len(commits(table)) - before,
            cost=cost,
        )
    finally:
        broker.delete_topic(feed.topic)
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


def _produce_at_rate(feed: Feed, job: Job) -> np.ndarray:
    """Send everything, ten changes at a time; the time at which each was sent."""
    values = feed.encode(0, len(feed))
    produced = np.zeros(len(feed))
    start = time.time()
    for first in range(0, len(feed), _TICK):
        due = start + first / RATE_PER_S
        if (wait := due - time.time()) > 0:
            time.sleep(wait)
        produced[first : first + _TICK] = time.time()
        feed.send_encoded(values.slice(first, _TICK))
        if first % (10 * RATE_PER_S) == 0:
            job.check_alive()
    feed.close()
    return produced


def _await_all(contender: Contender, job: Job, feed: Feed, warehouse: Path) -> np.ndarray:
    deadline = time.monotonic() + _CATCH_UP_PATIENCE_S
    while np.isnan(visible := contender.visible_at(job, feed, warehouse)).any():
        job.check_alive()
        if time.monotonic() > deadline:
            late = int(np.isnan(visible).sum())
            raise ContenderFailed(f"{contender.name}: {late} changes are missing\n{job.tail()}")
        time.sleep(0.5)
    return visible
