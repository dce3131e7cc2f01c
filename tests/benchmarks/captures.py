"""(e) Two captures on this machine: what each decodes, how far the tables lag, and a planned move.

Eight tables get changes at a steady rate; in the middle one of them is moved to the other capture.
Its pause is the longest time between two of its commits from the move on; that of the others
beside it tells whether they were moved too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from coordination.etcd.embedded import EmbeddedEtcd
from tests.benchmarks.bench import Bench
from tests.benchmarks.contenders import CHANGEFEED_ID, Setting, Tidelake
from tests.benchmarks.cycles import facts_of
from tests.benchmarks.feed import SCHEMA_NAME, START_TS, Feed
from tests.benchmarks.freshness import produce_at_rate
from tests.benchmarks.measure import REPOSITORY, ContenderFailed, Cost, Job, commits
from tests.benchmarks.printing import COST_COLUMNS, cost_cells, new_table, number
from tests.benchmarks.targets import check
from tests.benchmarks.workload import make_changes

TABLES = 8
RATE_PER_S = 1_000
_PATIENCE_S = 600.0
_CLI_PATIENCE_S = 120.0
_AFTER_MOVE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One of the two; ``rows``: that it decoded (nan where its log does not say)."""

    name: str
    rows: float
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoCaptures:
    """One run. Seconds."""

    captures: list[Capture]
    lag_p50: float
    lag_p95: float
    lag_max: float
    move_s: float  # the command itself
    pause_s: float  # of the moved table
    usual_s: float  # median time between two commits of a table
    others_pause_s: float  # the longest of another table meanwhile


class Cluster:
    """Servers on one etcd, and one changefeed."""

    def __init__(
        self,
        setting: Setting,
        feed: Feed,
        folder: Path,
        etcd: EmbeddedEtcd,
        names: Sequence[str] = ("capture-a", "capture-b"),
    ) -> None:
        self._feed, self._warehouse = feed, folder / "warehouse"
        self._to = ["--etcd", etcd.endpoint, "--cluster-id", feed.topic]
        server = [sys.executable, "-m", "streaming.cli.main", "server", *self._to]
        options = ["--addr", "127.0.0.1:0", "--log-level", "DEBUG"]
        self.jobs = [
            Job(name, [*server, *options], setting.folder, setting.broker_pid) for name in names
        ]

    def create(self) -> None:
        uris = [
            "--source-uri", self._feed.source_uri, "--sink-uri", f"delta://{self._warehouse}",
            "--start-ts", str(START_TS), "--changefeed-id", CHANGEFEED_ID,
        ]  # fmt: skip
        self.cli("changefeed", "create", *uris)

    def cli(self, *arguments: str) -> list[dict[str, Any]]:
        """The rows that the real command prints."""
        done = subprocess.run(
            [sys.executable, "-m", "streaming.cli.main", *arguments, *self._to, "--format", "json"],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=_CLI_PATIENCE_S,
            check=False,
        )
        if done.returncode:
            raise ContenderFailed(f"{arguments}: {done.stdout}{done.stderr}")
        rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
        return rows

    def holders(self) -> dict[str, str]:
        """table -> capture, of those that are replicated now."""
        rows = self.cli("processor", "list", "--changefeed-id", CHANGEFEED_ID)
        return {row["table"]: row["capture"] for row in rows if row["state"] == "replicating"}

    def await_(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not is_so():
            for job in self.jobs:
                job.check_alive()
            if time.monotonic() > deadline:
                raise ContenderFailed(f"{what}: not within {_PATIENCE_S:.0f} s")
            time.sleep(1.0)

    def is_shared(self) -> bool:
        """Each capture has as many of the tables as any other."""
        held, tables = list(self.holders().values()), len(self._feed.tables)
        share = tables // len(self.jobs)
        return len(held) == tables and all(held.count(each) == share for each in set(held))

    def visible(self) -> np.ndarray:
        """For each change when it could be read; nan: not yet."""
        return Tidelake.read_at(self._feed, self._warehouse, self.jobs[0].started_at)

    def commit_times(self, table: str) -> np.ndarray:
        return np.array([commit.at for commit in commits(self._warehouse / SCHEMA_NAME / table)])

    def holders_of_commits(self, table: str) -> list[str]:
        """The capture of each of its commits, as far as they say: those of rows do."""
        return [commit.capture for commit in commits(self._warehouse / SCHEMA_NAME / table)]

    @property
    def tables(self) -> list[str]:
        return self._feed.tables

    def check(self) -> None:
        for name, changes in self._feed.changes.items():
            check(self._warehouse / SCHEMA_NAME / name, changes.state(), 0)


class _Move(threading.Thread):
    """Moves the first table to the capture that does not have it, when its time has come."""

    def __init__(self, cluster: Cluster, after_s: float) -> None:
        super().__init__(name="move")
        self._cluster, self._after_s = cluster, after_s
        self.table, self.at, self.took_s = "", 0.0, 0.0
        self.error: Exception | None = None

    def run(self) -> None:
        time.sleep(self._after_s)
        try:
            holders = self._cluster.holders()
            name = min(holders)
            other = next(each for each in holders.values() if each != holders[name])
            self.table, self.at = name.split(".")[-1], time.time()
            where = ("--table", name, "--capture-id", other)
            self._cluster.cli("table", "move", "--changefeed-id", CHANGEFEED_ID, *where)
            self.took_s = time.time() - self.at
            self._cluster.await_("the move", lambda: self._cluster.holders().get(name) == other)
        except Exception as error:  # noqa: BLE001 - told by the main thread
            self.error = error


def run(bench: Bench, results: list[TwoCaptures]) -> None:
    folder = bench.setting.folder / "captures"
    count = RATE_PER_S * bench.size.captures_s // TABLES
    histories = {
        f"t{n:04}": make_changes(0, count, recent=False, seed=n, inserts_first=count // 4)
        for n in range(TABLES)
    }

    def work() -> None:
        feed = Feed(bench.broker, "captures", histories, rounds=count, watermark_every=RATE_PER_S)
        try:
            with EmbeddedEtcd() as etcd:
                cluster = Cluster(bench.setting, feed, folder, etcd)
                results.append(_measured(bench, cluster, feed))
        finally:
            bench.broker.delete_topic(feed.topic)
            shutil.rmtree(folder, ignore_errors=True)

    bench.attempt("captures", work)


def _measured(bench: Bench, cluster: Cluster, feed: Feed) -> TwoCaptures:
    feed.send_creates()
    bench.say("captures: two servers and a changefeed start")
    with cluster.jobs[0] as first, cluster.jobs[1] as second:
        cluster.await_("two captures", lambda: len(cluster.cli("capture", "list")) == 2)
        cluster.create()
        cluster.await_("tables shared between two captures", cluster.is_shared)
        bench.say(f"captures: {bench.size.captures_s} s at {RATE_PER_S}/s, a move in the middle")
        move = _Move(cluster, bench.size.captures_s / 2)
        move.start()
        produced = produce_at_rate(feed, first, RATE_PER_S)
        move.join()
        if move.error is not None:
            raise ContenderFailed(f"move: {move.error}")
        cluster.await_("all changes", lambda: not np.isnan(cluster.visible()).any())
        visible = cluster.visible()
        costs = [job.cost(float(produced[0]), float(visible.max())) for job in (first, second)]
    cluster.check()
    lags = visible - produced
    pauses = {name: _pause(cluster.commit_times(name), move.at) for name in feed.tables}
    gaps = np.concatenate([np.diff(cluster.commit_times(name)) for name in feed.tables])
    return TwoCaptures(
        captures=[
            Capture(name=job.name, rows=_decoded(job), cost=cost)
            for job, cost in zip(cluster.jobs, costs, strict=True)
        ],
        lag_p50=float(np.percentile(lags, 50)),
        lag_p95=float(np.percentile(lags, 95)),
        lag_max=float(lags.max()),
        move_s=move.took_s,
        pause_s=pauses[move.table],
        usual_s=float(np.median(gaps)),
        others_pause_s=max(pause for name, pause in pauses.items() if name != move.table),
    )


def _pause(times: np.ndarray, moved_at: float) -> float:
    """The longest time between two commits that ends after the move."""
    after = (times[1:] > moved_at) & (times[1:] < moved_at + _AFTER_MOVE_S)
    return float(np.diff(times)[after].max(initial=0.0))


def _decoded(job: Job) -> float:
    rows = [float(facts["rows"]) for facts in facts_of(job.log, "took a read") if "rows" in facts]
    return sum(rows) if rows else float("nan")


def tables(results: list[TwoCaptures]) -> list[Table]:
    table = new_table(
        f"(e) Two captures, {TABLES} tables, {RATE_PER_S:,} changes/s, one move, seconds (aim: the "
        "moved table pauses at most 3 s, the others do not)",
        "lag p50", "lag p95", "longest lag", "the move's command", "pause of the table",
        "longest pause of another", "usual time between commits",
    )  # fmt: skip
    each_one = new_table("(e) Each of the captures", "capture", "rows decoded", *COST_COLUMNS)
    for each in results:
        cells = (each.lag_p50, each.lag_p95, each.lag_max, each.move_s, each.pause_s)
        more = (each.others_pause_s, each.usual_s)
        table.add_row(*(number(value, 2) for value in (*cells, *more)))
        for capture in each.captures:
            each_one.add_row(capture.name, number(capture.rows, 0), *cost_cells([capture.cost]))
    return [table, each_one]
