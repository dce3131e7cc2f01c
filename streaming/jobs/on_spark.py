"""Jobs on Spark's executors: one stage on an RDD. A DataFrame would cost three times as much, since
each job of one is analysed and planned anew, and its results are copied row by row."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sinks.spark.jvm_errors import line
from streaming.jobs.executors import NEEDS, unfit
from streaming.jobs.port import ForeachBatch, JobFailed, R, Task, Ticks
from streaming.spark.python_worker import InWorker
from streaming.spark.session import CONTEXT_GONE, SparkOnDemand, configure
from streaming.spark.spark_conf import is_within
from streaming.spark.ticking_query import ticking_query

_DESCRIPTION: Final = "spark.job.description"


class SparkJobs:
    """See the port. ``what`` is shown in Spark's UI."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._numbers: dict[int, RDD[int]] = {}  # an empty RDD by its number of partitions
        self.are_within = is_within(context.master or "")

    @property
    def tasks(self) -> int:
        return max(1, self._context.defaultParallelism)

    def run(
        self, task: Task[R], count: int, *, what: str, tags: Sequence[str], needs: str = ""
    ) -> list[R]:
        try:
            with self._described(what, tags):
                numbers = self._numbers.get(count)
                if numbers is None:
                    numbers = self._numbers[count] = self._context.parallelize([], count)
                return numbers.mapPartitionsWithIndex(InWorker(task)).collect()
        except (PySparkException, Py4JError) as error:
            if lack := unfit(str(error), self._context.pythonExec, needs or NEEDS):
                raise lack from error
            raise JobFailed(line(error)) from error

    def cancel(self, tag: str) -> None:
        with suppress(*CONTEXT_GONE):
            self._context.cancelJobsWithTag(tag)

    @contextmanager
    def _described(self, what: str, tags: Sequence[str]) -> Iterator[None]:
        """Describe and tag the jobs of this thread."""
        context = self._context
        before = context.getLocalProperty(_DESCRIPTION)
        context.setJobDescription(what)
        for tag in tags:
            context.addJobTag(tag)
        try:
            yield
        finally:
            for tag in tags:
                context.removeJobTag(tag)
            context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]


class SparkOfProcess:
    """The engine of the product."""

    def __init__(self, spark: SparkOnDemand) -> None:
        self._spark = spark

    @property
    def started(self) -> SparkSession | None:
        return self._spark.started

    def begin(self) -> None:
        self._spark.begin()

    def of_stream(self) -> SparkOfStream:
        return SparkOfStream(self._spark)


class SparkOfStream:
    """Each stream has a session of its own, since queries of the same name cannot share one. Spark
    starts with the first call that needs it."""

    def __init__(self, spark: SparkOnDemand) -> None:
        self._spark = spark
        self._lock = threading.Lock()
        self._session: SparkSession | None = None

    def jobs(self, stopping: threading.Event | None = None) -> SparkJobs:
        return SparkJobs(self._spark.context(stopping))

    @contextmanager
    def ticking(
        self, stopping: threading.Event, *, name: str, foreach_batch: ForeachBatch
    ) -> Iterator[Ticks]:
        session = self.session(stopping)
        with ticking_query(session, name=name, foreach_batch=foreach_batch) as query:
            yield query

    def session(self, stopping: threading.Event | None = None) -> SparkSession:
        base = self._spark(stopping)
        with self._lock:
            if self._session is None:
                session = base.newSession()
                configure(session)
                self._session = session
            return self._session

    def cancel(self, tag: str) -> None:
        if (session := self._session) is not None:
            with suppress(*CONTEXT_GONE):
                session.sparkContext.cancelJobsWithTag(tag)
