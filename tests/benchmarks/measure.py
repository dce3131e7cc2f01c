"""Runs a contender as a process tree and says what it cost; reads what a Delta log tells.

CPU and RSS are those of the whole tree by kind of process, sampled: what a process used in its
last quarter of a second may be missed. RSS is summed, so pages shared by two processes (the
workers', which are forked) count twice.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import psutil

from tests.services.child_process import start_child

REPOSITORY = Path(__file__).resolve().parents[2]
KINDS = ("driver", "jvm", "executors", "workers", "etcd")  # driver: the Python process
_SAMPLE_S = 0.25
_FORKED_S = 1.0  # a younger process may be a fork that still is a copy of its parent
_STOP_PATIENCE_S = 40.0  # the program promises 30
_TAIL_BYTES = 1_500
_ERROR = re.compile(r"(Error|Exception|Caused by|ERROR)\b")
_ERROR_LINES = 8


def _time_of(line: str) -> float:
    return datetime.fromisoformat(line.split()[0]).timestamp()


class ContenderFailed(RuntimeError):
    """A contender ended with an error, or did not end."""


def tell(event: str, **fields: Any) -> None:
    """In a contender's process: one event for the yardstick."""
    sys.stdout.write(json.dumps({"bench": event, "at": time.time(), **fields}) + "\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a stretch of a run used."""

    cpu_s_of: dict[str, float]  # by kind, of the contender's process tree
    peak_rss_mb_of: dict[str, float]  # by kind, each at its own peak
    peak_rss_mb: float  # of all at once
    broker_cpu_s: float
    others_cpu_s: float  # of everything else but the yardstick itself

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu_s_of.values())


def kind_of(process: psutil.Process, root: int) -> str:
    """One of KINDS."""
    if process.pid == root:
        return "driver"
    name = process.name()
    if name == "java":
        is_executor = any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
        return "executors" if is_executor else "jvm"
    is_etcd = name == "etcd" or process.ppid() == root  # etcd's guard is a Python process too
    return "etcd" if is_etcd else "workers"


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
        self._broker, self._me = psutil.Process(broker_pid), psutil.Process()
        self._cpu_by_pid: dict[int, tuple[str, float]] = {}
        self._samples: list[_Sample] = []
        self._stopping = threading.Event()
        self._tree: dict[int, psutil.Process] = {}

    def __enter__(self) -> Job:
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

    def kill(self) -> float:
        """SIGKILL for its whole group; the wall time of it."""
        at = time.time()
        os.killpg(self._process.pid, signal.SIGKILL)
        return at

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
        said = self.said(text)
        return _time_of(said) if said else None

    def said(self, text: str) -> str:
        """Its first log line with this text in it; empty: there is none yet."""
        lines = self.log.read_text(errors="replace").splitlines()
        return next((line for line in lines if text in line), "")

    def said_after(self, text: str, at: float) -> list[float]:
        """The times of its log lines with this text in them, from this time on."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [said for line in lines if text in line and (said := _time_of(line)) >= at]

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
        at = np.array([sample.at for sample in self._samples])
        inside = (at >= first - _SAMPLE_S) & (at <= last + _SAMPLE_S)

        def used(values: Iterable[float]) -> float:
            totals = list(values)
            return float(np.interp(last, at, totals) - np.interp(first, at, totals))

        rss = {k: np.array([sample.rss_mb_of[k] for sample in self._samples]) for k in KINDS}
        own = {k: used(sample.cpu_s_of[k] for sample in self._samples) for k in KINDS}
        broker = used(sample.broker_s for sample in self._samples)
        idle = used(sample.broker_s + sample.me_s for sample in self._samples) + sum(own.values())
        return Cost(
            cpu_s_of=own,
            peak_rss_mb_of={k: float(values[inside].max(initial=0)) for k, values in rss.items()},
            peak_rss_mb=float(sum(rss.values())[inside].max(initial=0)),
            broker_cpu_s=broker,
            others_cpu_s=max(used(sample.busy_s for sample in self._samples) - idle, 0.0),
        )

    def _sample(self) -> None:
        root = psutil.Process(self._process.pid)
        while True:
            rss = dict.fromkeys(KINDS, 0.0)
            try:
                for process in [root, *root.children(recursive=True)]:
                    self._tree[process.pid] = process
            except psutil.NoSuchProcess:
                pass
            for pid, process in self._tree.items():
                try:
                    with process.oneshot():
                        kind = kind_of(process, root.pid)
                        self._cpu_by_pid[pid] = kind, _cpu_of(process)
                        if time.time() - process.create_time() > _FORKED_S:
                            rss[kind] += process.memory_info().rss / 1e6
                except psutil.Error:
                    continue  # it has ended: its last sample stands
            cpu = dict.fromkeys(KINDS, 0.0)
            for kind, seconds in self._cpu_by_pid.values():
                cpu[kind] += seconds
            self._samples.append(
                _Sample(time.time(), cpu, rss, _cpu_of(self._broker), _cpu_of(self._me), _busy_s())
            )
            if self._stopping.wait(_SAMPLE_S):
                return


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    cpu_s_of: dict[str, float]
    rss_mb_of: dict[str, float]
    broker_s: float
    me_s: float
    busy_s: float  # the whole machine


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
    capture: str  # that it names as its writer; empty: none


def commits(table: Path) -> list[Commit]:
    """The commits of a Delta table on local disk, oldest first."""
    found = []
    for name in sorted(os.listdir(table / "_delta_log")) if (table / "_delta_log").is_dir() else []:
        if len(name) == 25 and name.endswith(".json") and name[:20].isdigit():
            path = table / "_delta_log" / name
            found.append(_commit(path, path.stat().st_mtime))
    return found


@cache
def _commit(path: Path, at: float) -> Commit:
    """Read once: who polls a thousand tables would take a core from whom it measures."""
    txns, capture = {}, ""
    with path.open() as lines:
        for line in lines:
            if line.startswith('{"commitInfo"'):
                signed = json.loads(line)["commitInfo"].get("userMetadata") or "{}"
                capture = json.loads(signed).get("capture", "")
            if line.startswith('{"txn"'):
                txn = json.loads(line)["txn"]
                txns[txn["appId"]] = txn["version"]
    return Commit(int(path.stem), at, txns, capture)
