"""One Spark job whose tasks make blocks, and what a task returns. It is on an RDD: a DataFrame
would cost three times as much, since each job of one is analysed and planned anew, and its results
are copied row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
from pyspark.errors import PySparkException

from coordination.errors import TryAgain
from sinks.spark.jvm_errors import line
from streaming.protocols.contract import Block
from streaming.source.body_files import BodyFolder
from streaming.source.task_results import ReadFailure, Result
from streaming.spark.executors import unfit
from streaming.spark.spark_conf import is_within

_DESCRIPTION: Final = "spark.job.description"

# The number of the task, and nothing else.
Task = Callable[[int, Iterable[int]], Iterator[Result]]


class ReadFailed(TryAgain):
    """A read failed for a reason that is not the source's, or was cancelled. It is tried again for
    a while."""


class BlockJob:
    """Runs jobs one after the other, for one thread, except for ``cancel``. ``name`` is shown in
    Spark's UI; an error calls the source ``source``."""

    def __init__(self, spark: SparkContext, *, name: str, source: str) -> None:
        self._spark = spark
        self._name = name
        self._source = source
        self._tag = f"read-{name}"
        self._numbers: dict[int, RDD[int]] = {}  # an empty RDD by its number of partitions
        self._bodies = BodyFolder(is_shared=is_within(spark.master or ""))

    def close(self) -> None:
        self._bodies.close()

    def cancel(self) -> None:
        """Called from another thread: cancels the job of ``run``, which then raises ReadFailed
        soon."""
        self._spark.cancelJobsWithTag(self._tag)

    @property
    def tasks(self) -> int:
        """How many run side by side."""
        return max(1, self._spark.defaultParallelism)

    @property
    def folder(self) -> str | None:
        """Where tasks put the bodies of their blocks (`body_files.BodyFile`)."""
        return self._bodies.path

    def run(self, task: Task, count: int, what: str) -> list[Block | ReadFailure]:
        """The results of ``count`` tasks, in their order. ``what``: the job's description. Raises
        ReadFailed, ExecutorsUnfit."""
        context = self._spark
        try:
            with self._described(what):
                if count not in self._numbers:
                    self._numbers[count] = context.parallelize([], count)
                found = self._numbers[count].mapPartitionsWithIndex(task).collect()
            return self._whole(found)
        except (PySparkException, Py4JError) as error:
            if lack := unfit(str(error), context.pythonExec):
                raise lack from error
            raise ReadFailed(f"reading {self._source} failed: {line(error)}") from error
        finally:
            self._bodies.clear()

    def _whole(self, found: list[Result]) -> list[Block | ReadFailure]:
        try:
            return self._bodies.whole(found)
        except OSError as error:
            raise ReadFailed(f"the result of a read of {self._source} is gone: {error}") from error

    @contextmanager
    def _described(self, what: str) -> Iterator[None]:
        """Describe the job, for Spark's UI, and tag it so that it can be cancelled."""
        context = self._spark
        before = context.getLocalProperty(_DESCRIPTION)
        context.setJobDescription(f"{self._name}: {what}")
        context.addJobTag(self._tag)
        try:
            yield
        finally:
            context.removeJobTag(self._tag)
            context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]
