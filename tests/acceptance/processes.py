"""The real program in processes of its own: started, frozen, killed, and seen to be gone.

A ``Stage`` is one changefeed with its topic, etcd and warehouse; a ``Life`` is one process of the
program on it, from start to death. While the stage is open a ``ProgressWatch`` reads every version
of the control tables; what it saw fall fails the test at the end.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.acceptance.progress_watch import ProgressWatch
from tests.looks import looks
from tests.services.child_process import start_child
from tests.services.kafka_broker import REPOSITORY, KafkaBroker
from tests.shop import proof
from tests.shop.history import Event
from tests.shop.model import Model

ON_SPARK, ON_THREADS = "streaming.cli.main", "tests.services.program_on_threads"
# Where a death is the claim, and not Spark's.
BOTH_PROGRAMS = pytest.mark.parametrize(
    "program",
    [
        pytest.param(ON_THREADS, id="threads"),
        pytest.param(ON_SPARK, id="spark", marks=pytest.mark.more),
    ],
)
PATIENCE_S = 240.0  # for things that take seconds on a quiet machine
GONE_WITHIN_S = 60.0  # a JVM whose driver was killed
STOP_WITHIN_S = 120.0
POLL_S = 0.05
TTL_S = 5
SNAPSHOTS_CHECKED = 6
# Small and quick to start: a life is a few seconds long.
JVM_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"


def await_(
    what: str,
    is_so: Callable[[], object],
    *,
    within_s: float = PATIENCE_S,
    every_s: float = POLL_S,
) -> None:
    """Poll until it is so; the assertion says what was waited for."""
    for _ in looks(within_s, every_s=every_s):
        if is_so():
            return
    raise AssertionError(f"{what}: not within {within_s:.0f} s")


class Life:
    """One process of the program, its JVM and its log."""

    def __init__(self, name: str, folder: Path, command: list[str], env: dict[str, str]) -> None:
        self.name = name
        self._marker = f"TMPDIR={folder}".encode()  # in whatever it starts, in its group or not
        self._log = folder / "log"
        self.started = time.monotonic()
        with self._log.open("wb") as log:
            self._process = start_child(command, output=log, env=env, cwd=str(folder))
        self.pid = self._process.pid

    # What it says.

    def lines(self, text: str = "") -> list[str]:
        """Its log lines with this text in them."""
        written = self._log.read_text(errors="replace").splitlines()
        return [line for line in written if text in line]

    def await_line(self, text: str, *, nth: int = 1, within_s: float = PATIENCE_S) -> str:
        """The nth line with this text; fails when the process ends without it."""
        for _ in looks(within_s, every_s=POLL_S):
            has_ended = self._process.poll() is not None
            if len(found := self.lines(text)) >= nth:
                return found[nth - 1]
            assert not has_ended, f"{self.name} ended before {text!r}:\n{self.tail()}"
        raise AssertionError(f"{self.name}: no {text!r}:\n{self.tail()}")

    def tail(self, count: int = 30) -> str:
        return "\n".join(line[:600] for line in self.lines()[-count:])

    # What is done to it.

    def kill(self, *, group: bool) -> float:
        """SIGKILL for all of it, or for the Python driver alone; the wall time of it."""
        at = time.time()
        if group:
            os.killpg(self.pid, signal.SIGKILL)
        else:
            os.kill(self.pid, signal.SIGKILL)
        self._process.wait()
        return at

    def signal_jvm(self, number: signal.Signals) -> None:
        """For its JVM alone."""
        (jvm,) = [pid for pid, name in self.processes().items() if name == "java"]
        os.kill(jvm, number)

    def signal(self, number: signal.Signals, *, group: bool = False) -> None:
        if group:
            os.killpg(self.pid, number)
        else:
            os.kill(self.pid, number)

    # How it ends.

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    @property
    def is_frozen(self) -> bool:
        """Stopped by a SIGSTOP (which the fail point ``stop`` sends to itself)."""
        return _state(self.pid) == "T"

    def await_exit(self, within_s: float = PATIENCE_S) -> int:
        """Its exit code (negative: the signal that killed it), and nothing of it is left."""
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} has not ended within {within_s:.0f} s:\n{self.tail()}"
            ) from None
        self.assert_gone()
        return code

    def assert_gone(self, within_s: float = GONE_WITHIN_S) -> None:
        """No process of its group and no JVM that it started."""
        for _ in looks(within_s, every_s=POLL_S):
            if not self.processes():
                return
        raise AssertionError(f"{self.name} left {self.processes()}:\n{self.tail()}")

    def processes(self) -> dict[int, str]:
        """pid -> name of what runs and is of this life."""
        found = {}
        for proc in Path("/proc").iterdir():
            if not proc.name.isdigit() or _state(int(proc.name)) in "ZX":
                continue
            try:
                is_ours = os.getpgid(int(proc.name)) == self.pid
                if is_ours or self._marker in (proc / "environ").read_bytes().split(b"\0"):
                    found[int(proc.name)] = (proc / "comm").read_text().strip()
            except OSError:
                continue  # it ended while we looked
        return found

    def end(self) -> None:
        """Whatever is left of it."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


class Stage:
    """One changefeed: a context manager, which ends its lives and then says what fell."""

    def __init__(
        self,
        broker: KafkaBroker,
        etcd_endpoint: str,
        folder: Path,
        *,
        ttl_s: int = TTL_S,
        program: str = ON_SPARK,
    ) -> None:
        self.topic = f"shop-{uuid.uuid4().hex[:8]}"
        self.warehouse = folder / "warehouse"
        self._broker = broker
        self._etcd_endpoint = etcd_endpoint
        self._folder = folder
        self._ttl_s = ttl_s
        self._program = program
        self.lives: list[Life] = []
        self.watch = ProgressWatch(self.warehouse)

    def __enter__(self) -> Stage:
        self._broker.create_topic(self.topic)
        self.watch.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for life in self.lives:
            life.end()
        self.watch.stop()
        if kind is None:
            self.watch.assert_nothing_fell()

    @property
    def cluster_id(self) -> str:
        return self.topic  # an etcd is shared by several tests

    @property
    def source_uri(self) -> str:
        return (
            f"kafka://{self._broker.bootstrap}/{self.topic}"
            "?protocol=canal-json&partition-num=3&enable-tidb-extension=true"
        )

    def start(
        self,
        name: str = "",
        *,
        target_ts: int | None = None,
        source_uri: str | None = None,
        etcd_endpoint: str | None = None,
        given: Mapping[str, str] | None = None,
        program: str | None = None,
        **settings: object,
    ) -> Life:
        """``max_batch_messages=5`` becomes TIDELAKE_MAX_BATCH_MESSAGES; ``given``: variables as
        they are; ``program``: another one than the stage's."""
        name = f"{len(self.lives) + 1}-{name}".rstrip("-")
        folder = self._folder / name
        folder.mkdir()
        command = [
            *(sys.executable, "-m", program or self._program, "run", "--changefeed-id", "shop"),
            *(
                "--source-uri",
                source_uri or self.source_uri,
                "--sink-uri",
                f"delta://{self.warehouse}",
            ),
            *("--etcd", etcd_endpoint or self._etcd_endpoint, "--cluster-id", self.cluster_id),
            *(("--target-ts", str(target_ts)) if target_ts is not None else ()),
        ]
        margins = {"capture_session_ttl": self._ttl_s, "session_safety_margin_s": 1.0}
        env = environment(folder, **margins | settings) | dict(given or {})
        life = Life(name, folder, command, env)
        self.lives.append(life)
        return life

    def await_checkpoint(self, ts: int, life: Life) -> None:
        """Until the changefeed's row is there; fails when this life ends before it is."""

        def is_there() -> bool:
            assert not life.is_over, f"{life.name} ended:\n{life.tail()}"
            return self.watch.checkpoint >= ts

        try:
            await_(f"checkpoint {ts}, {self.watch.checkpoint} is seen", is_there)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{life.tail()}") from None

    def await_progress(self, life: Life) -> None:
        """Until the checkpoint is higher than it is now."""
        self.await_checkpoint(self.watch.checkpoint + 1, life)

    def assert_equal(self, events: Iterable[Event]) -> None:
        """Tables and a few published snapshots are the model's, row for row."""
        events = list(events)
        assert Model.of(events).differences(self.warehouse) == []
        assert self.watch.sightings, "no version of progress was ever seen"
        cuts = proof.ledger(self.warehouse)
        assert cuts, "no snapshot was published"
        dice = random.Random(len(cuts))
        for cut in [cuts[0], *dice.sample(cuts, min(len(cuts), SNAPSHOTS_CHECKED - 1))]:
            then = Model.of(events, cut["primary_ts"])
            assert then.differences(self.warehouse, cut["tables"]) == [], cut["primary_ts"]


def environment(folder: Path, **settings: object) -> dict[str, str]:
    """Of a life: small, alone, and with everything it leaves behind in its folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDELAKE_")}
    return {
        **kept,
        "PYTHONPATH": str(REPOSITORY),
        "SPARK_DRIVER_MEMORY": "1g",
        "SPARK_MASTER": "local[2]",
        "SPARK_LOCAL_DIRS": str(folder),
        "TMPDIR": str(folder),
        "JDK_JAVA_OPTIONS": f"{JVM_OPTIONS} -Djava.io.tmpdir={folder}",
        **{f"TIDELAKE_{name.upper()}": str(value) for name, value in settings.items()},
    }


def time_of(line: str) -> float:
    """The wall time of a log line."""
    return datetime.fromisoformat(line.split()[0]).astimezone(UTC).timestamp()


def field(line: str, name: str) -> str:
    return line.split(f"{name}=")[1].split()[0]


def identities(lives: Iterable[Life]) -> Iterator[tuple[str, str]]:
    """Capture ID and epoch of every capture that these processes were, in their order."""
    for life in lives:
        for line in life.lines("capture starts"):
            yield field(line, "capture_id"), field(line, "epoch")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
