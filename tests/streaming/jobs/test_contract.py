"""Both engines do what the port says."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from coordination.errors import TidelakeError
from streaming.jobs.on_spark import SparkJobs, SparkOfProcess, SparkOfStream
from streaming.jobs.on_threads import ThreadsOfProcess
from streaming.spark.session import SparkOnDemand
from tests.contracts.jobs_contract import PATIENCE_S, Batch, Dies, JobsContract
from tests.test_tidy import PRODUCT, ROOT


@pytest.mark.spark
class TestSpark(JobsContract):
    @pytest.fixture(autouse=True)
    def _spark(self, spark: SparkSession) -> None:
        self.spark = SparkOnDemand(lambda: spark)

    def process(self) -> SparkOfProcess:
        return SparkOfProcess(self.spark)

    def dying(self) -> Dies:
        return Dies()


class Ends:
    """A thread cannot be killed; what ends it comes to the same."""

    def __call__(self, number: int) -> Iterator[int]:
        if number == 1:
            sys.exit(3)
        yield number


class TestThreads(JobsContract):
    def process(self) -> ThreadsOfProcess:
        return ThreadsOfProcess()

    def dying(self) -> Ends:
        return Ends()

    def test_there_is_no_session(self) -> None:
        assert self.process().started is None
        with pytest.raises(TidelakeError, match="needs a life on Spark"):
            self.process().of_stream().session()

    def test_ticks_may_come_late(self) -> None:
        process, batch = ThreadsOfProcess(ticks_are_late=True), Batch()
        engine = process.of_stream()
        with engine.ticking(threading.Event(), name="late", foreach_batch=batch) as query:
            assert not batch.come.acquire(timeout=0.1)
            assert query.isActive
            process.tick()
            assert batch.come.acquire(timeout=PATIENCE_S)

    def test_ticks_that_never_come_end_with_the_context(self) -> None:
        batch = Batch()
        engine = ThreadsOfProcess(ticks_are_late=True).of_stream()
        with engine.ticking(threading.Event(), name="never", foreach_batch=batch) as query:
            pass
        query._thread.join(PATIENCE_S)
        assert not query.isActive
        assert not batch.numbers


def test_jobs_of_a_context_that_was_stopped_meanwhile_need_no_cancelling() -> None:
    """A JVM that hung is killed while a role that leaves cancels its jobs."""
    context: Any = SimpleNamespace(_jsc=None, master="local[1]")
    context.cancelJobsWithTag = lambda tag: context._jsc.cancelJobsWithTag(tag)
    own = SparkOfStream(Mock())
    own._session = Mock(sparkContext=context)
    own.cancel("a-tag")
    SparkJobs(context).cancel("a-tag")


def test_nothing_in_the_product_leads_to_threads() -> None:
    """Spark is its only engine: tests hand the other one in."""
    text = {path.as_posix(): (ROOT / path).read_text() for path in PRODUCT}
    assert [path for path, each in text.items() if "on_threads import" in each] == []
    assert [path for path, each in text.items() if "ThreadsOfProcess" in each] == [
        "streaming/jobs/on_threads.py"
    ]
