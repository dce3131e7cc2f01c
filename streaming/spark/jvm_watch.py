"""Check whether Spark's JVM answers, whether its jobs make progress, and whether they get slots.

A call to a JVM that stands still (SIGSTOP, swapped out, in a garbage collection that never ends)
does not fail: it never returns. So a thread of its own makes these calls, and may hang in them.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import SparkSession

from coordination.errors import Stop
from coordination.trust.watchdog import Watched
from streaming.spark.session import CONTEXT_GONE

ASK_EVERY_S: Final = 5.0
PART_OF_LIMIT: Final = 0.1  # a step that has taken this part of its limit has its tasks looked at
LOOKED_AT_S: Final = 15.0  # or so long
NO_SLOT_S: Final = 30.0  # a job of which no task runs waits for a slot
LAST_JOBS: Final = 4  # so many jobs of a tag are looked at; more do not run at once

Say = Callable[[str | None], None]


class JvmWatch:
    """Its thread asks the JVM every few seconds, as long as there is a ``Watched`` to follow."""

    def __init__(
        self,
        started: Callable[[], SparkSession | None],
        answers: Watched,
        check: Callable[[], None],
    ) -> None:
        """``started`` gives the session once it is up; ``answers`` is the watchdog's step for the
        JVM's answer; ``check`` makes the call, and raises Stop if the JVM is gone."""
        self._started = started
        self._answers = answers
        self._check = check
        self._lock = threading.Lock()
        self._followed: weakref.WeakKeyDictionary[Watched, str] = weakref.WeakKeyDictionary()
        self._seen: weakref.WeakKeyDictionary[Watched, object] = weakref.WeakKeyDictionary()
        self._say: weakref.WeakKeyDictionary[Watched, Say] = weakref.WeakKeyDictionary()
        # Since when none of its tasks runs, and what is said of it.
        self._idle_s: weakref.WeakKeyDictionary[Watched, float] = weakref.WeakKeyDictionary()
        self._is_beating = False

    def follow(self, watched: Watched, tag: str, say: Say = lambda _: None) -> Watched:
        """Follow a ``Watched`` whose steps run Spark jobs of that tag: as long as tasks of those
        jobs end, its step makes progress, however long it takes. ``say`` gets a sentence while such
        a job waits for slots, and then None. Returns ``watched``."""
        with self._lock:
            self._say[watched] = say
            self._followed[watched] = tag
            if not self._is_beating:
                self._is_beating = True
                threading.Thread(target=self._run, name="jvm-pulse", daemon=True).start()
        return watched

    def _run(self) -> None:
        waiting = threading.Event()
        while True:
            with self._lock:
                followed = list(self._followed.items())
                self._is_beating = bool(followed)
            if not followed:
                return
            try:
                with self._answers:
                    self._beat(followed)
            except Stop:
                with self._lock:
                    self._is_beating = False
                return
            del followed
            waiting.wait(ASK_EVERY_S)

    def _beat(self, followed: list[tuple[Watched, str]]) -> None:
        self._check()
        session = self._started()
        for watched, tag in followed:
            looked_at_s = min(watched.limit_s * PART_OF_LIMIT, LOOKED_AT_S)
            if session is None or watched.age_s < looked_at_s:
                self._has_slots(watched)
                continue
            try:
                seen = tasks(session, tag)
                self._look_for_slots(session, watched, tag)
            except CONTEXT_GONE:
                continue  # the next check finds out whether the JVM is gone
            if seen != self._seen.get(watched):
                self._seen[watched] = seen
                watched.get_on()

    def _look_for_slots(self, session: SparkSession, watched: Watched, tag: str) -> None:
        if not waits_for_slots(session, tag):
            self._has_slots(watched)
            return
        now_s = time.monotonic()
        since_s = self._idle_s.setdefault(watched, now_s)
        if now_s - since_s >= NO_SLOT_S:
            tracker = session.sparkContext._jsc.sc().statusTracker()
            at_work = [each.numRunningTasks() for each in tracker.getExecutorInfos()]
            self._say[watched](
                f"{watched.what} waits for Spark, which has run no task of its job for "
                f"{NO_SLOT_S:g} s: {session.sparkContext.master} gives it no free slot "
                f"({len(at_work)} executors and driver, with {sum(at_work)} tasks of others under "
                "way). Let the cluster give this application executors, or end others"
            )

    def _has_slots(self, watched: Watched) -> None:
        if self._idle_s.pop(watched, None) is not None:
            self._say[watched](None)


def waits_for_slots(session: SparkSession, tag: str) -> bool:
    """Whether there are jobs of that tag with tasks to run, and none of these runs."""
    tracker: Any = session.sparkContext._jsc.sc().statusTracker()
    left = 0
    for job in sorted(tracker.getJobIdsForTag(tag))[-LAST_JOBS:]:
        info = tracker.getJobInfo(job)
        if not info.isDefined() or info.get().status().toString() != "RUNNING":
            continue
        for stage in info.get().stageIds():
            of = tracker.getStageInfo(stage)
            if not of.isDefined():
                continue
            if of.get().numActiveTasks():
                return False
            left += of.get().numTasks() - of.get().numCompletedTasks()
    return left > 0


def tasks(session: SparkSession, tag: str) -> list[tuple[int, int, int]]:
    """(job, stage, number of tasks that have ended), for the last jobs of that tag."""
    tracker: Any = session.sparkContext._jsc.sc().statusTracker()
    found = []
    for job in sorted(tracker.getJobIdsForTag(tag))[-LAST_JOBS:]:
        info = tracker.getJobInfo(job)
        for stage in info.get().stageIds() if info.isDefined() else ():
            of = tracker.getStageInfo(stage)
            found.append((job, stage, of.get().numCompletedTasks() if of.isDefined() else 0))
    return found
