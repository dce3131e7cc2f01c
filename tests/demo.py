"""``make demo``: a shop in TiDB, seen through Kafka, becomes Delta tables while you watch.

A real etcd, a real Kafka broker, the real job; only TiDB and TiCDC are played, by ``tests/shop``.
Ctrl-C or SIGTERM at any moment ends every process and removes the folder.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType

from rich.console import Console

from coordination.etcd.embedded import EmbeddedEtcd
from coordination.model import time_tso, tso_time
from tests.services.child_process import end_child, start_child
from tests.services.kafka_broker import REPOSITORY, KafkaBroker
from tests.shop import proof
from tests.shop.history import Event, HistorySettings, Transaction, history
from tests.shop.model import Model
from tests.shop.produce import command
from tests.shop.watch import Watch

TOPIC = "shop"
PARTITIONS = 3
LOOK_EVERY_S = 1.0
SPARK_STARTS_WITHIN = timedelta(seconds=15)  # the shop opens then
JOB_STOP_PATIENCE_S = 30.0
JOB_PATIENCE_S = 600.0  # after the shop has closed; seconds on a quiet machine
PIPE_WIDTH = 140
_interrupted = threading.Event()


class DemoFailed(Exception):
    """What did not come out as it must; the message is for the user."""


class Demo:
    """One run, from the first process to the proof."""

    def __init__(self, console: Console, settings: HistorySettings, folder: Path) -> None:
        self._console = console
        self._settings = settings
        self._folder = folder
        self._warehouse = folder / "warehouse"
        self._events: list[Event] = list(history(settings))
        self._target_ts = self._events[-1].commit_ts

    def run(self) -> None:
        """Raises DemoFailed with a line that says what went wrong."""
        started = time.monotonic()
        with ExitStack() as stack:
            etcd = stack.enter_context(EmbeddedEtcd())
            broker = stack.enter_context(KafkaBroker())
            self._say(f"etcd at {etcd.endpoint}, Kafka at {broker.bootstrap}")
            broker.create_topic(TOPIC, PARTITIONS)
            job = self._start_job(stack, broker, etcd)
            self._await_stream(job)
            self._start_feed(stack, broker)
            with Watch(self._console, self._warehouse, self._events) as watch:
                self._await(job, watch)
            self._console.print(watch.final_table())
            self._prove()
        self._say(f"done in {time.monotonic() - started:.0f} s")

    def _start_feed(self, stack: ExitStack, broker: KafkaBroker) -> None:
        changes = sum(len(e.changes) for e in self._events if isinstance(e, Transaction))
        self._say(
            f"the shop: {self._settings.transactions:,} transactions, {changes:,} changes of rows, "
            f"{self._settings.rate:.0f} transactions a second, over {PARTITIONS} partitions, "
            f"with replays, duplicates and disorder"
        )
        opening = tso_time(self._settings.start_ts)
        ahead_s = (opening - datetime.now(UTC)).total_seconds()
        if ahead_s < -1:
            self._say(
                f"Spark was slow to start, so the shop opens {-ahead_s:.0f} s late: each lag below "
                "is too large by that"
            )
        time.sleep(max(0.0, ahead_s))
        with _uninterrupted(), (self._folder / "feed.log").open("wb") as log:
            feed = start_child(
                command(broker.bootstrap, TOPIC, self._settings), output=log, cwd=str(REPOSITORY)
            )
            stack.callback(end_child, feed)

    def _start_job(
        self, stack: ExitStack, broker: KafkaBroker, etcd: EmbeddedEtcd
    ) -> subprocess.Popen[bytes]:
        source = (
            f"kafka://{broker.bootstrap}/{TOPIC}"
            f"?protocol=canal-json&partition-num={PARTITIONS}&enable-tidb-extension=true"
        )
        run = [
            *(
                "tidelake",
                "run",
                "--source-uri",
                source,
                "--sink-uri",
                f"delta://{self._warehouse}",
            ),
            *("--target-ts", str(self._target_ts), "--etcd", etcd.endpoint),
        ]
        self._say("$ " + " ".join(f"'{word}'" if "?" in word else word for word in run))
        with _uninterrupted(), (self._folder / "job.log").open("wb") as log:
            job = start_child(
                [sys.executable, "-m", "streaming.cli.main", *run[1:]],
                output=log,
                cwd=str(REPOSITORY),
                env=self._environment(),
            )
            stack.callback(end_child, job, patience_s=JOB_STOP_PATIENCE_S)
        return job

    def _environment(self) -> dict[str, str]:
        """Whatever the job and its JVM leave behind is in our folder, which goes."""
        temporary = self._folder / "tmp"
        temporary.mkdir()
        return {
            "SPARK_DRIVER_MEMORY": "2g",
            **os.environ,
            "TMPDIR": str(temporary),
            "SPARK_LOCAL_DIRS": str(temporary),
            "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={temporary}",
        }

    def _await_stream(self, job: subprocess.Popen[bytes]) -> None:
        """Return when the job owns its changefeed: the shop opens in front of a warm reader."""
        last = tso_time(self._target_ts)
        self._say(f"its target-ts is {self._target_ts} ({last:%H:%M:%S} UTC); Spark is starting")
        while not (self._warehouse / "_tidelake" / "changefeeds" / "_delta_log").is_dir():
            if (code := _exit_code(job, LOOK_EVERY_S)) is not None:
                raise DemoFailed(f"the job ended with exit code {code}{self._job_log()}")

    def _await(self, job: subprocess.Popen[bytes], watch: Watch) -> None:
        """Watch until the job has reached its target-ts."""
        deadline = time.monotonic() + self._settings.transactions / self._settings.rate
        while (code := _exit_code(job, LOOK_EVERY_S)) is None:
            watch.show()
            if time.monotonic() > deadline + JOB_PATIENCE_S:
                raise DemoFailed(f"the job has not reached its target-ts{self._job_log()}")
        watch.show()
        if code:
            raise DemoFailed(f"the job ended with exit code {code}{self._job_log()}")

    def _prove(self) -> None:
        if (state := proof.changefeed_state(self._warehouse)) != "finished":
            raise DemoFailed(f"the changefeed's state is {state}, not finished")
        self._say("the changefeed is finished, the job has ended with exit code 0")
        cuts = proof.ledger(self._warehouse)
        if not cuts:
            raise DemoFailed("the ledger _tidelake/snapshots is empty")
        newest = cuts[0]
        at = proof.sums(
            self._warehouse, newest["tables"][proof.ORDERS], newest["tables"][proof.PAYMENTS]
        )
        self._say(
            f"the ledger has {len(cuts)} snapshots. In the versions that it names for the newest "
            f"({newest['primary_ts']}) the shop's sums agree:"
        )
        self._say_sums(at)
        if not at.agree:
            raise DemoFailed("the sums differ at a snapshot that should be consistent")
        apart = proof.picked_apart(self._warehouse, cuts)
        if apart is None:
            raise DemoFailed("no two versions have sums that differ: the proof proves nothing")
        self._say("in versions of the same tables that are no snapshot they do not:")
        self._say_sums(apart)
        self._compare_with_model(newest)

    def _compare_with_model(self, newest: dict[str, dict[str, int]]) -> None:
        model = Model.of(self._events)
        if differences := model.differences(self._warehouse, newest["tables"]):
            raise DemoFailed("\n".join(["the Delta tables differ from the shop's:", *differences]))
        rows = sum(map(len, model.tables.values()))
        self._say(
            f"every cell of all {len(model.tables)} Delta tables ({rows:,} rows) is as in the "
            "shop's own tables"
        )

    def _say_sums(self, sums: proof.Sums) -> None:
        sign = "=" if sums.agree else "≠"
        self._say(
            f"  paid orders (orders at version {sums.orders_version}): {sums.paid:,} {sign} "
            f"{sums.payments:,} payments (payments at version {sums.payments_version})"
        )

    def _job_log(self) -> str:
        text = (self._folder / "job.log").read_text(errors="replace")
        return "; the end of its log:\n" + "\n".join(text.splitlines()[-25:])

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    console = Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)
    settings = HistorySettings(
        seed=given.seed,
        transactions=int(given.rate * given.seconds),
        rate=given.rate,
        start_ts=time_tso(datetime.now(UTC) + SPARK_STARTS_WITHIN),
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    with tempfile.TemporaryDirectory(prefix="tidelake-demo-") as folder:
        try:
            Demo(console, settings, Path(folder)).run()
        except KeyboardInterrupt:
            console.print("stopped")
            return 130
        except DemoFailed as failure:
            console.print(f"demo failed: {failure}", highlight=False, markup=False)
            return 1
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Remembered too: what is raised while logging holds its lock for a fork, Python ignores."""
    _interrupted.set()
    raise KeyboardInterrupt


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Until what has been started is known to who ends it."""

    def remember(_number: int, _frame: FrameType | None) -> None:
        _interrupted.set()

    before = {each: signal.signal(each, remember) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if _interrupted.is_set():
        raise KeyboardInterrupt


def _exit_code(process: subprocess.Popen[bytes], within_s: float) -> int | None:
    if _interrupted.is_set():
        raise KeyboardInterrupt
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the shop is open")
    parser.add_argument("--rate", type=float, default=150.0, help="transactions a second")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    sys.exit(main())
