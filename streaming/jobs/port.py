"""The port to what runs tasks.

EngineOfProcess ──of_stream()──► Engine ──jobs()────► Jobs ──run(task, count)──► results, in order
                                    └────ticking()──► foreach_batch, again and again, on one thread
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from coordination.errors import TryAgain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

R = TypeVar("R")

# Called with the task's number. It is pickled, and runs elsewhere: what it changes is lost.
Task = Callable[[int], Iterator[R]]
# The frame and the number of a batch. It must not raise, as that would end the query.
ForeachBatch = Callable[[Any, int], None]


class JobFailed(TryAgain):
    """A job failed for a reason that is not its tasks', or was cancelled."""


class Jobs(Protocol):
    """Runs jobs. Thread-safe."""

    @property
    def tasks(self) -> int:
        """How many run side by side."""
        ...

    @property
    def are_within(self) -> bool:
        """Whether tasks see this machine: its files, and this process's environment."""
        ...

    def run(
        self, task: Task[R], count: int, *, what: str, tags: Sequence[str], needs: str = ""
    ) -> list[R]:
        """The results of the tasks 0 to ``count`` - 1, in their order; blocks. A task that raises
        fails the job, of which no result is given then.

        ``what`` describes the job to an operator; ``cancel`` knows it by any of its ``tags``.
        ``needs``: what an executor's Python must have, for the message of ExecutorsUnfit. Raises
        JobFailed, ExecutorsUnfit.
        """
        ...

    def cancel(self, tag: str) -> None:
        """The jobs of this tag that run now raise JobFailed soon; a job that begins later does not.
        Never raises."""
        ...


class Ticks(Protocol):
    """A query that calls ``foreach_batch``."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802 - Spark's name

    def exception(self) -> BaseException | None:
        """Why it ended, where it ended by itself."""
        ...


class Engine(Protocol):
    """What one stream runs on."""

    def jobs(self, stopping: threading.Event | None = None) -> Jobs:
        """As soon as jobs can run, which is before there is a session. Blocks until then; raises
        Stop as soon as ``stopping`` is set meanwhile, and TidelakeError where the engine does not
        start."""
        ...

    def ticking(
        self, stopping: threading.Event, *, name: str, foreach_batch: ForeachBatch
    ) -> AbstractContextManager[Ticks]:
        """Within the context ``foreach_batch`` is called again and again, on one thread; a call
        that is under way when the context ends is not waited for. Blocks and raises as ``jobs``."""
        ...

    def session(self, stopping: threading.Event | None = None) -> SparkSession:
        """For the engine that writes by MERGE. Blocks and raises as ``jobs``."""
        ...

    def cancel(self, tag: str) -> None:
        """See `Jobs.cancel`; it starts nothing."""
        ...


class EngineOfProcess(Protocol):
    """What all streams of a process share."""

    @property
    def started(self) -> SparkSession | None:
        """The session whose JVM is watched; None while there is none."""
        ...

    def begin(self) -> None:
        """Start it, without waiting."""
        ...

    def of_stream(self) -> Engine: ...
