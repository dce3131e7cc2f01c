"""Runs a contender as a process tree and says what it cost; reads what a Delta log tells.

CPU is that of the whole tree (driver, JVM, embedded etcd), sampled: what a process used in its
last quarter of a second may be missed. RSS is summed over the tree, so pages shared by two
processes count twice.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import psutil

from tests.services.child_process import start_child

REPOSITORY = Path(__file__).resolve().parents[2]
_SAMPLE_S = 0.25
_STOP_PATIENCE_S = 40.0  # the program promises 30
_TAIL_BYTES = 1_500
_ERROR = re.compile(r"(Error|Exception|Caused by|ERROR)\b")
_ERROR_LINES = 8


class ContenderFailed(RuntimeError):
    """A contender ended with an error, or did not end."""


def tell(event: str, **fields: Any) -> None:
    """In a contender's process: one event for the yardstick."""
    sys.stdout.write(json.dumps({"bench": event, "at": time.time(), **fields}) + "\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a stretch of a run used."""

    cpu_s: float  # of the contender's process tree
    others_cpu_s: float  # of everything else but the broker and the yardstick itself
    peak_rss_mb: float


class Job:
    """A contender's process tree while it runs. Leaving the block ends all of it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        broker_pid: int,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.name, self._command = name, list(command)
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self.log = folder / f"{name}.log"
        self._aside = [psutil.Process(broker_pid), psutil.Process()]
        self._cpu_by_pid: dict[int, float] = {}
        self._samples: list[tuple[float, float, float, float]] = []  # at, own, others, rss
        self._stopping = threading.Event()
        self._tree: dict[int, psutil.Process] = {}

    def __enter__(self) -> Job:
        self._busy_before = _busy_s() - sum(map(_cpu_of, self._aside))
        with self.log.open("wb") as output:
            self._process = start_child(
                self._command, output=output, env=self._environment, cwd=str(REPOSITORY)
            )
        self.started_at = time.time()
        self._sampler = threading.Thread(target=self._sample, name=f"sample-{self.name}")
        self._sampler.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """SIGTERM to the root, SIGKILL to what is left of the tree. Stopping twice is fine."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._stopping.set()
        self._sampler.join()
        psutil.wait_procs(list(self._tree.values()), timeout=5)
        for process in self._tree.values():
            if process.is_running():  # the PID is not somebody else's by now
                process.kill()
        self._process.wait()

    def wait(self, patience_s: float) -> None:
        """Returns when it has ended well; raises ContenderFailed otherwise."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise ContenderFailed(
                f"{self.name}: not done after {patience_s:.0f} s\n{self.tail()}"
            ) from None
        self.ended_at = time.time()
        if code:
            raise ContenderFailed(f"{self.name}: exit code {code}\n{self.tail()}")

    def check_alive(self) -> None:
        """Raise ContenderFailed if it has ended."""
        if self._process.poll() is not None:
            raise ContenderFailed(f"{self.name}: ended too early\n{self.tail()}")

    def said_at(self, text: str) -> float | None:
        """The time of its first log line with this text in it."""
        lines = self.log.read_text(errors="replace").splitlines()
        said = next((line for line in lines if text in line), None)
        return datetime.fromisoformat(said.split()[0]).timestamp() if said else None

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What it told so far."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            if line.startswith('{"bench"') and line.endswith("}"):
                event = json.loads(line)
                if event["bench"] == kind:
                    found.append(event)
        return found

    def tail(self) -> str:
        """The lines of its log that name an error, and the end of it."""
        text = self.log.read_text(errors="replace")
        named = [line for line in text.splitlines() if _ERROR.search(line)][:_ERROR_LINES]
        return "\n".join([*named, "…", text[-_TAIL_BYTES:]])

    def cost(self, first: float, last: float) -> Cost:
        """Between two times (of ``time.time``)."""
        at, own, others, rss = (np.array(column) for column in zip(*self._samples, strict=True))
        inside = (at >= first - _SAMPLE_S) & (at <= last + _SAMPLE_S)
        return Cost(
            cpu_s=float(np.interp(last, at, own) - np.interp(first, at, own)),
            others_cpu_s=float(np.interp(last, at, others) - np.interp(first, at, others)),
            peak_rss_mb=float(rss[inside].max(initial=0)) / 1e6,
        )

    def _sample(self) -> None:
        root = psutil.Process(self._process.pid)
        aside_before = self._busy_before
        while True:
            rss = 0.0
            try:
                for process in [root, *root.children(recursive=True)]:
                    self._tree[process.pid] = process
            except psutil.NoSuchProcess:
                pass
            for pid, process in self._tree.items():
                try:
                    with process.oneshot():
                        self._cpu_by_pid[pid] = _cpu_of(process)
                        rss += process.memory_info().rss
                except psutil.Error:
                    continue  # it has ended: its last sample stands
            own = sum(self._cpu_by_pid.values())
            others = _busy_s() - sum(map(_cpu_of, self._aside)) - aside_before - own
            self._samples.append((time.time(), own, max(others, 0.0), rss))
            if self._stopping.wait(_SAMPLE_S):
                return


def _cpu_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as the log's folder shows it."""

    version: int
    at: float  # when its file was written
    txns: dict[str, int]  # transaction identities


def commits(table: Path) -> list[Commit]:
    """The commits of a Delta table on local disk, oldest first."""
    found = []
    for name in sorted(os.listdir(table / "_delta_log")) if (table / "_delta_log").is_dir() else []:
        if len(name) == 25 and name.endswith(".json") and name[:20].isdigit():
            found.append(_commit(table / "_delta_log" / name))
    return found


def _commit(path: Path) -> Commit:
    txns = {}
    with path.open() as lines:
        for line in lines:
            if line.startswith('{"txn"'):
                txn = json.loads(line)["txn"]
                txns[txn["appId"]] = txn["version"]
    return Commit(int(path.stem), path.stat().st_mtime, txns)
