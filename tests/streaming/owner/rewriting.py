"""What a rewrite by Spark is tried with: a mapper as an owner has it, and work that goes wrong.

``python -m tests.streaming.owner.rewriting <uri>`` adds a column with a default to the table of
orders, as an owner of its own Spark; ``TIDELAKE_FAILPOINTS`` kills it on the way.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from coordination.errors import Fenced
from coordination.trust.clock import SystemClock
from coordination.trust.watchdog import Watchdog
from sinks.merge_on_write.alter import rewrite
from sinks.merge_on_write.alter.rewrite import Part, Result
from sinks.merge_on_write.engine import MergeOnWriteEngine
from streaming.jobs.on_spark import SparkJobs
from streaming.owner.rewrite_on_spark import SparkRewriter
from tests.sinks.merge_on_write.ddls import ADD_FILLED, ddl
from tests.sinks.merge_on_write.orders import NAME

ROWS_OF_A_PART = 9


class Ground:
    """What a mapper asks its role for."""

    def __init__(self, spark: SparkSession | None, warehouse: str = "/lake") -> None:
        self.stopping = Event()
        self.is_trusted = True
        self.watchdog = Watchdog(SystemClock())
        self.asked = 0  # for Spark
        self._spark = spark
        self.context: Any = SimpleNamespace(
            changefeed=SimpleNamespace(sink=SimpleNamespace(warehouse=warehouse)),
            name="control-of-a-test",
            stream=SimpleNamespace(
                context=SimpleNamespace(engine=SimpleNamespace(jobs=self._jobs))
            ),
            trust=SimpleNamespace(check=self._check),
            watch=lambda what: self.watchdog.watch(what, 60.0),
        )

    def mapper(self, large_bytes: int = 0) -> SparkRewriter:
        return SparkRewriter(self.context, NAME, self.stopping, large_bytes=large_bytes)

    def doing(self, wrap: Callable[[Any], Callable[[Any], Any]], large_bytes: int = 0) -> Any:
        """A mapper whose work is wrapped."""
        mapper = self.mapper(large_bytes)

        def wrapped(
            work: Callable[[Part], Result], parts: Sequence[Part], size_bytes: int
        ) -> Generator[Result]:
            yield from mapper(wrap(work), parts, size_bytes)

        return wrapped

    @property
    def has_no_spark(self) -> bool:
        return self._spark is None

    def _jobs(self, _stopping: Event) -> SparkJobs:
        self.asked += 1
        assert self._spark is not None
        return SparkJobs(self._spark.sparkContext)

    def _check(self) -> None:
        if not self.is_trusted:
            raise Fenced("the lease is gone")


@dataclass(frozen=True)
class OnExecutors:
    """Does ``goes_wrong`` in one part, in a worker alone: the first ``times`` times."""

    work: Callable[[Any], Any]
    goes_wrong: Callable[[], None]
    marks: str  # a folder: one file for each time
    times: int = 1
    driver: int = field(default_factory=os.getpid)

    def __call__(self, part: Any) -> Any:
        if os.getpid() != self.driver and self._is_turn(part):
            self.goes_wrong()
        return self.work(part)

    def _is_turn(self, part: Any) -> bool:
        """The first part that is begun goes well."""
        if self._is(part, "first") or not self._is(part, "victim"):
            return False
        before = list(Path(self.marks).glob("mark*"))
        Path(self.marks, f"mark-{time.time_ns()}").touch()
        return len(before) < self.times

    def _is(self, part: Any, role: str) -> bool:
        """Whoever comes first gets the role, and has it from then on."""
        with suppress(FileExistsError), Path(self.marks, role).open("x") as file:
            file.write(repr(part))
        return Path(self.marks, role).read_text() == repr(part)


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hangs() -> None:
    time.sleep(600)


def fails() -> None:
    raise RuntimeError("a bug")


def lacks_something() -> None:
    raise ModuleNotFoundError("No module named 'pyroaring'")


def main(uri: str) -> None:
    from streaming.spark.session import SparkOnDemand

    spark = SparkOnDemand()
    ground = Ground(spark())
    engine = MergeOnWriteEngine({}, keeps_up=False)
    with patch.object(rewrite, "SLICE_ROWS", ROWS_OF_A_PART):
        print(engine.alter(ddl(uri, ADD_FILLED, map_parts=ground.mapper())), flush=True)
    engine.close()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
