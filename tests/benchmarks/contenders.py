"""The three contenders behind one port: how each is started, and when a change became readable.

All are processes of their own over the same topic. ``naive`` and ``delta-rs`` begin with a plain
table that delta-rs wrote; Tidelake with one that Tidelake made itself from the feed's CREATE
TABLE and that was then filled by the same append, which is what a user's initial load would be.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from tests.benchmarks.feed import CREATED_TARGET_TS, SCHEMA_NAME, START_TS, Feed
from tests.benchmarks.measure import Job, commits
from tests.benchmarks.targets import append_base, copy_warehouse

CHANGEFEED_ID = "bench"
BATCH_MESSAGES = 200_000  # of naive and delta-rs; smaller ones cost both of them more a change
_PREPARE_PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is the same for every run of a bench."""

    folder: Path
    broker_pid: int
    memory: str  # of naive's JVM; Tidelake has its own default
    say: Callable[[str], None] = field(repr=False)


class Contender(Protocol):
    name: str

    def prepare(self, feed: Feed, base_rows: int, warehouse: Path) -> None:
        """Make the target tables. The feed holds nothing but its CREATE TABLEs yet."""

    def job(self, feed: Feed, warehouse: Path, *, tables: Sequence[str], bounded: bool) -> Job:
        """The process, not started; ``bounded``: it ends when all that was sent is applied."""

    def ready_at(self, job: Job, warehouse: Path) -> float | None:
        """When it could begin to read: JVM, imports and sessions are behind it."""

    def visible_at(self, job: Job, feed: Feed, warehouse: Path) -> np.ndarray:
        """For each change when it could be read from Delta; nan: not yet."""


class EventContender:
    """What the two scripts share: they tell which offsets each batch ended at."""

    name: str

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._first_offsets: dict[str, dict[int, int]] = {}

    def prepare(self, feed: Feed, base_rows: int, warehouse: Path) -> None:
        self._first_offsets[feed.topic] = feed.end_offsets()
        plain = self._setting.folder / f"plain-{base_rows}"  # the same for all cells and tables
        if not plain.exists():
            append_base(plain, base_rows)
        for table in feed.tables:
            copy_warehouse(plain, warehouse / SCHEMA_NAME / table)

    def ready_at(self, job: Job, warehouse: Path) -> float | None:  # noqa: ARG002
        ready = job.events("ready")
        return ready[0]["at"] if ready else None

    def visible_at(self, job: Job, feed: Feed, warehouse: Path) -> np.ndarray:  # noqa: ARG002
        applied = {event["batch"]: event["at"] for event in job.events("applied")}
        visible = np.full(len(feed), np.nan)
        read = [event for event in job.events("read") if event["batch"] in applied]
        for event in sorted(read, key=lambda event: -event["batch"]):
            visible[is_read(feed, event["end"])] = applied[event["batch"]]
        return visible

    def _job(self, module: str, feed: Feed, warehouse: Path, *arguments: str) -> Job:
        command = [
            sys.executable, "-m", f"tests.benchmarks.{module}", "--bootstrap", feed.bootstrap,
            "--topic", feed.topic, "--warehouse", str(warehouse),
            "--start", json.dumps(self._first_offsets[feed.topic]), *arguments,
        ]  # fmt: skip
        return Job(self.name, command, self._setting.folder, self._setting.broker_pid)


class Naive(EventContender):
    """The documentation's job; ``batches`` bounds it where the whole topic would take hours."""

    name = "naive"
    batches: int | None = None

    def job(self, feed: Feed, warehouse: Path, *, tables: Sequence[str], bounded: bool) -> Job:
        return self._job(
            "naive", feed, warehouse,
            "--tables", ",".join(tables), "--memory", self._setting.memory,
            "--checkpoint", f"{warehouse}-checkpoint", "--batch", str(even_batch(feed)),
            *(["--batches", str(self.batches)] if self.batches else []),
            *([] if bounded else ["--follow"]),
        )  # fmt: skip


class DeltaRs(EventContender):
    """The script of the peer run, with its best settings."""

    name = "delta-rs"

    def job(self, feed: Feed, warehouse: Path, *, tables: Sequence[str], bounded: bool) -> Job:
        return self._job(
            "delta_rs", feed, warehouse, "--tables", ",".join(tables),
            "--batch", str(even_batch(feed)),
            *(["--end", json.dumps(feed.end_offsets())] if bounded else []),
        )  # fmt: skip


class Tidelake:
    """The program as a user starts it, embedded etcd and all.

    ``log_level`` DEBUG: it tells each cycle's parts (cycles.py); ``master``: Spark's.
    """

    name = "tidelake"

    def __init__(
        self, setting: Setting, *, log_level: str = "INFO", master: str | None = None
    ) -> None:
        self._setting, self._log_level, self._master = setting, log_level, master

    def prepare(self, feed: Feed, base_rows: int, warehouse: Path) -> None:
        with self._job(feed, warehouse, CREATED_TARGET_TS) as job:
            job.wait(_PREPARE_PATIENCE_S)
        for table in feed.tables:
            append_base(warehouse / SCHEMA_NAME / table, base_rows)

    def job(self, feed: Feed, warehouse: Path, *, tables: Sequence[str], bounded: bool) -> Job:
        assert list(tables) == feed.tables, "a changefeed replicates all tables"
        return self._job(feed, warehouse, feed.target_ts if bounded else None)

    def ready_at(self, job: Job, warehouse: Path) -> float | None:  # noqa: ARG002
        return job.said_at("spark is up")

    def visible_at(self, job: Job, feed: Feed, warehouse: Path) -> np.ndarray:
        return self.read_at(feed, warehouse, job.started_at)

    @staticmethod
    def read_at(feed: Feed, warehouse: Path, since: float) -> np.ndarray:
        """From the identities in the tables' own logs."""
        visible = np.full(len(feed), np.nan)
        order = np.argsort(feed.table_index, kind="stable")
        bounds = np.searchsorted(feed.table_index[order], np.arange(len(feed.tables) + 1))
        for n, table in enumerate(feed.tables):
            reached = [
                (limit, commit.at)
                for commit in commits(warehouse / SCHEMA_NAME / table)
                for app, limit in commit.txns.items()
                if app.startswith(f"tidelake/{CHANGEFEED_ID}/") and commit.at > since
            ]
            mine = order[bounds[n] : bounds[n + 1]]
            for limit, at in sorted(reached, reverse=True):
                visible[mine[feed.commits[mine] <= limit]] = at
        visible[feed.offsets < 0] = np.nan
        return visible

    def _job(self, feed: Feed, warehouse: Path, target_ts: int | None) -> Job:
        command = [
            sys.executable, "-m", "streaming.cli.main", "run",
            "--source-uri", feed.source_uri, "--sink-uri", f"delta://{warehouse}",
            "--changefeed-id", CHANGEFEED_ID, "--start-ts", str(START_TS), "--etcd", "embedded",
            "--log-level", self._log_level,
            *([] if target_ts is None else ["--target-ts", str(target_ts)]),
        ]  # fmt: skip
        spark = {}
        if self._master:  # executors in other processes: with the packages of this one
            spark = {"SPARK_MASTER": self._master, "PYSPARK_PYTHON": sys.executable}
        return Job(self.name, command, self._setting.folder, self._setting.broker_pid, spark)


def even_batch(feed: Feed) -> int:
    """About BATCH_MESSAGES; no batch of a few watermarks is left that costs a whole MERGE."""
    messages = sum(feed.end_offsets().values())
    batches = max(round(messages / BATCH_MESSAGES), 1)
    return max(math.ceil(messages / batches * 1.005), BATCH_MESSAGES)


def is_read(feed: Feed, end: dict[str, int] | dict[int, int]) -> np.ndarray:
    """Mask of the changes below these offsets."""
    bounds = np.zeros(feed.partition_count, dtype=np.int64)
    for partition, offset in end.items():
        bounds[int(partition)] = offset
    return (feed.offsets >= 0) & (feed.offsets < bounds[feed.partitions])
