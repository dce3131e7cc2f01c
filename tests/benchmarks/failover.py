"""(e2) Three captures, twelve tables: one capture is killed, another is drained.

    kill -9 ──► lease over ──► grace over ──► each of its tables has a commit of another capture
    drain   ──► the command ──► each of its tables has a commit of another capture

The lag that it costs is the longest time that one of those tables waited between two commits;
beside it, the same of the tables that stayed where they were.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from coordination.etcd.embedded import EmbeddedEtcd
from tests.benchmarks.bench import Bench
from tests.benchmarks.captures import Cluster
from tests.benchmarks.feed import Feed
from tests.benchmarks.freshness import produce_at_rate
from tests.benchmarks.measure import ContenderFailed, Job
from tests.benchmarks.printing import new_table, number
from tests.benchmarks.workload import make_changes

TABLES = 12
RATE_PER_S = 300
SECONDS = 240
NAMES = ("capture-a", "capture-b", "capture-c")
_QUIET_S = 10.0  # before each of the two
_WARM_COMMITS = 3  # of each table, before anything is done: the first jobs of a JVM are slow
_SINCE_S = 180.0
_STEPS = (  # of a log, in the order in which they come
    "tables move",
    "caught up",
    "table given up",
    "table taken",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Tables that went to other captures; seconds."""

    what: str
    tables: int
    progress_s: float  # until the last of them went on
    lag_s: float  # the longest wait of one of them
    others_s: float  # ... of one that stayed
    steps: dict[str, list[float]]  # when the others' logs said what, from the beginning


def run(bench: Bench, results: list[HandOver]) -> None:
    folder = bench.setting.folder / "failover"
    count = RATE_PER_S * SECONDS // TABLES
    histories = {
        f"t{n:04}": make_changes(0, count, recent=False, seed=n, inserts_first=count // 4)
        for n in range(TABLES)
    }

    def work() -> None:
        feed = Feed(bench.broker, "failover", histories, rounds=count, watermark_every=RATE_PER_S)
        try:
            with EmbeddedEtcd() as etcd:
                _measured(bench, Cluster(bench.setting, feed, folder, etcd, NAMES), feed, results)
        finally:
            bench.broker.delete_topic(feed.topic)
            shutil.rmtree(folder, ignore_errors=True)

    bench.attempt("failover", work)


def _measured(bench: Bench, cluster: Cluster, feed: Feed, results: list[HandOver]) -> None:
    feed.send_creates()
    bench.say("failover: three servers and a changefeed start")
    with ExitStack() as stack:
        for job in cluster.jobs:
            stack.enter_context(job)
        cluster.await_("three captures", lambda: len(cluster.cli("capture", "list")) == 3)
        cluster.create()
        cluster.await_("tables shared by three captures", cluster.is_shared)
        (owner,) = [job for job in cluster.jobs if job.said("capture leads")]
        victim, leaver = [job for job in cluster.jobs if job is not owner]
        rows = threading.Thread(target=produce_at_rate, args=(feed, owner, RATE_PER_S))
        rows.start()
        cluster.await_("commits to all tables", lambda: _is_warm(cluster))
        time.sleep(_QUIET_S)
        bench.say("failover: kill -9")
        names, capture = _tables_of(cluster, victim), _id(victim)
        cluster.jobs.remove(victim)
        results.append(_handed_over(cluster, "kill -9", capture, names, victim.kill()))
        time.sleep(_QUIET_S)
        bench.say("failover: drain")
        names, capture, begun = _tables_of(cluster, leaver), _id(leaver), time.time()
        cluster.cli("capture", "drain", "--capture-id", capture)
        results.append(_handed_over(cluster, "drain", capture, names, begun))
        rows.join()
        cluster.await_("all changes", lambda: not np.isnan(cluster.visible()).any())
    cluster.check()


def _id(job: Job) -> str:
    return job.said("capture starts").split("capture_id=")[1].split()[0]


def _tables_of(cluster: Cluster, job: Job) -> list[str]:
    capture = _id(job)
    return [name.split(".")[-1] for name, held in cluster.holders().items() if held == capture]


def _is_warm(cluster: Cluster) -> bool:
    return all(
        sum(map(bool, cluster.holders_of_commits(name))) >= _WARM_COMMITS for name in cluster.tables
    )


def _handed_over(
    cluster: Cluster, what: str, capture: str, names: Collection[str], begun: float
) -> HandOver:
    def first(name: str) -> float | None:
        found = zip(cluster.commit_times(name), cluster.holders_of_commits(name), strict=False)
        return next((at for at, by in found if at > begun and by not in ("", capture)), None)

    deadline = time.monotonic() + _SINCE_S
    while not all(firsts := [first(name) for name in names]):
        if time.monotonic() > deadline:
            raise ContenderFailed(f"{what}: tables do not go on")
        time.sleep(0.5)
    progress_s = max(at for at in firsts if at) - begun
    time.sleep(2.0)
    others = [name for name in cluster.tables if name not in names]
    return HandOver(
        what=what,
        tables=len(names),
        progress_s=progress_s,
        lag_s=max(_longest(cluster, name, begun) for name in names),
        others_s=max(_longest(cluster, name, begun) for name in others),
        steps={
            step: sorted(at - begun for job in cluster.jobs for at in job.said_after(step, begun))
            for step in _STEPS
        },
    )


def _longest(cluster: Cluster, name: str, begun: float) -> float:
    times = cluster.commit_times(name)
    return float(np.diff(times)[times[1:] > begun].max(initial=0.0))


def tables(results: list[HandOver]) -> list[Table]:
    table = new_table(
        f"(e2) Three captures, {TABLES} tables, {RATE_PER_S:,} changes/s, seconds (aim: kill -9 to "
        "progress at most 15 with a TTL of 10, drain of 6 tables at most 10)",
        "what", "tables", "until all go on", "longest wait of one", "of one that stayed",
        *_STEPS,
    )  # fmt: skip
    for each in results:
        cells = (each.progress_s, each.lag_s, each.others_s)
        steps = (" ".join(number(at, 1) for at in found) for found in each.steps.values())
        table.add_row(each.what, str(each.tables), *(number(n, 1) for n in cells), *steps)
    return [table]
