"""The JVM is asked on a thread that may hang with it; tasks that end are progress."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from coordination.errors import Stop
from coordination.trust.clock import SystemClock
from coordination.trust.watchdog import Watchdog
from streaming.spark import jvm_watch
from streaming.spark.jvm_watch import JvmWatch, tasks, waits_for_slots
from tests.fakes.fake_clock import FakeClock

WHEN_S = 60.0


def await_(is_so: Callable[[], object]) -> None:
    until = time.monotonic() + WHEN_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_jvm_that_never_answers_hangs():
    clock = FakeClock()
    watchdog, answer, asked = Watchdog(clock), threading.Event(), threading.Event()

    def check() -> None:
        asked.set()
        assert answer.wait(WHEN_S)

    pulse = JvmWatch(lambda: None, watchdog.watch("Spark's JVM", 60.0), check)
    followed = pulse.follow(watchdog.watch("applying", 600.0), "a-tag")
    assert asked.wait(WHEN_S)
    assert watchdog.overdue() == ""
    clock.advance(61.0)
    assert watchdog.overdue().startswith("Spark's JVM hangs")
    answer.set()
    await_(lambda: watchdog.overdue() == "")
    del followed


def pulses() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "jvm-pulse"}


def test_it_is_asked_as_long_as_somebody_is_followed():
    watchdog, asked = Watchdog(SystemClock()), list[int]()
    others = pulses()  # of other tests, which may end late

    def gone() -> None:
        asked.append(1)
        raise Stop("Spark's JVM has ended")

    pulse = JvmWatch(lambda: None, watchdog.watch("Spark's JVM", 60.0), gone)
    one = pulse.follow(watchdog.watch("applying", 600.0), "a-tag")
    await_(lambda: len(asked) == 1)
    await_(lambda: not pulses() - others)
    two = pulse.follow(watchdog.watch("reading", 600.0), "a-tag")
    await_(lambda: len(asked) == 2)
    del one, two


def test_a_context_that_is_stopped_just_then_has_no_tasks_to_count():
    clock = FakeClock()
    watchdog = Watchdog(clock)
    stopped: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))
    pulse = JvmWatch(lambda: stopped, watchdog.watch("Spark's JVM", 60.0), lambda: None)
    applying = watchdog.watch("applying", 600.0)
    with applying:
        clock.advance(500.0)
        pulse._beat([(applying, "a-tag")])
        assert applying.age_s == 500.0


def test_tasks_of_a_tags_jobs_are_counted(spark: SparkSession):
    tag = "jvm-pulse-test"
    assert tasks(spark, tag) == []
    spark.sparkContext.addJobTag(tag)
    try:
        assert spark.range(0, 100, 1, 3).count() == 100
    finally:
        spark.sparkContext.removeJobTag(tag)
    await_(lambda: sum(ended for _, _, ended in tasks(spark, tag)) >= 3)


def test_a_job_that_gets_no_slot_says_so_until_it_has_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Spark says so at level WARN, which is not logged: nothing told of it for ten minutes."""
    monkeypatch.setattr(jvm_watch, "NO_SLOT_S", 0.0)
    context, go_on = spark.sparkContext, str(tmp_path / "go on")

    def hold(_: object) -> list[int]:
        while not os.path.exists(go_on):
            time.sleep(0.05)
        return [1]

    def job(tag: str) -> threading.Thread:
        def run() -> None:
            context.addJobTag(tag)
            context.parallelize([], context.defaultParallelism).mapPartitions(hold).collect()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def running() -> int:
        tracker: Any = context._jsc.sc().statusTracker()
        return sum(each.numRunningTasks() for each in tracker.getExecutorInfos())

    said: list[str | None] = []
    clock = FakeClock()
    watchdog = Watchdog(clock)
    pulse = JvmWatch(lambda: spark, watchdog.watch("Spark's JVM", 60.0), lambda: None)
    reading = watchdog.watch("reading of shop", 600.0)
    pulse._say[reading] = said.append  # as `follow` does, without its thread
    first = job("holds")
    try:
        await_(lambda: running() >= context.defaultParallelism)
        second = job("waits")
        await_(lambda: waits_for_slots(spark, "waits"))
        reading.step()
        pulse._beat([(reading, "waits")])
        assert said == [], "it has just begun"
        clock.advance(20.0)
        pulse._beat([(reading, "waits")])
        assert (said[0] or "").startswith("reading of shop waits for Spark, which has run no task")
        assert "gives it no free slot" in (said[0] or "")
    finally:
        Path(go_on).touch()
    first.join()
    second.join()
    pulse._beat([(reading, "waits")])
    assert said[-1] is None


def test_a_connection_that_breaks_within_a_look_ends_no_pulse(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jvm_watch, "ASK_EVERY_S", 0.01)
    clock, asked = FakeClock(), list[int]()
    watchdog = Watchdog(clock)

    class Broken:
        @property
        def sparkContext(self) -> Any:  # noqa: N802 - Spark's
            raise ConnectionResetError

    spark: Any = Broken()
    pulse = JvmWatch(lambda: spark, watchdog.watch("Spark's JVM", 60.0), lambda: asked.append(1))
    applying = watchdog.watch("applying", 1.0)
    applying.step()
    clock.advance(0.9)
    followed = pulse.follow(applying, "a-tag")
    await_(lambda: len(asked) > 2)
    del followed
