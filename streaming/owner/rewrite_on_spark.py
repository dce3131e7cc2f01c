"""Parts of a table that is written anew: done by this process while the table is small, else by
Spark's executors, each by a job of one task.

There is a job for each part, not one for all. So the inputs of a part's task are freed as it ends,
the rest can be shown, and a part that failed is done again by itself. The results come in the order
of parts. Some parts are under way at a time; the rest is begun as results are taken.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from itertools import count
from threading import Event, Thread
from typing import Any, Final
from urllib.parse import urlsplit

from coordination.errors import Stop, TryAgain
from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName
from sinks.merge_on_write.alter.rewrite import Part, Result, one_by_one
from sinks.storage.open_storage import store_variables
from streaming.jobs.executors import ExecutorsUnfit
from streaming.jobs.port import JobFailed, Jobs
from streaming.owner.rewrite_task import RewriteFailure, RewriteTask
from streaming.stream.role_context import RoleContext

logger = logging.getLogger(__name__)

LARGE_BYTES: Final = 256 << 20  # of data files: some ten seconds of one process
LOOK_S: Final = 0.5  # between two looks whether to go on
SAY_S: Final = 10.0  # between two lines that say how far it is
NEEDS: Final = (
    "to write rows anew it needs all that Tidelake's wheel depends on (docs/data-plane.md, Where "
    "executors are elsewhere)"
)
TRIES: Final = 4  # of a part whose task died; Spark's own number
_numbers = count()


class SparkRewriter:
    """A ``sinks.merge_on_write.alter.rewrite.PartMapper`` for one table of a changefeed."""

    def __init__(
        self,
        context: RoleContext,
        name: TableName,
        stopping: Event,
        *,
        large_bytes: int = LARGE_BYTES,
    ) -> None:
        self._context = context
        self._name = name
        self._stopping = stopping
        self._large_bytes = large_bytes

    def __call__(
        self, work: Callable[[Part], Result], parts: Sequence[Part], size_bytes: int
    ) -> Generator[Result]:
        """See the port. Raises Stop and Fenced between two parts, and TryAgain for a part that has
        failed `TRIES` times. A part that takes longer than the watchdog allows counts as hanging.
        """
        step = self._context.watch(f"the rewrite of {self._name}")
        begun_s = said_s = time.monotonic()
        with step, closing(self._results(work, parts, size_bytes)) as results:
            for done, result in enumerate(results, 1):
                step.get_on()
                failpoint(Failpoint.AMID_REWRITE)
                if (now_s := time.monotonic()) - said_s >= SAY_S:
                    said_s = now_s
                    logger.info(
                        "writes rows anew table=%s done=%d parts=%d lasts_s=%.0f",
                        self._name, done, len(parts), now_s - begun_s,
                    )  # fmt: skip
                yield result
                self._check()

    def _check(self) -> None:
        if self._stopping.is_set():
            raise Stop("asked to stop while rows were written anew")
        self._context.trust.check()

    def _results(
        self, work: Callable[[Part], Result], parts: Sequence[Part], size_bytes: int
    ) -> Generator[Result]:
        done = 0
        if len(parts) > 1 and size_bytes >= self._large_bytes:
            jobs = self._context.stream.context.engine.jobs(self._stopping)
            try:
                if self._is_seen_by(jobs):
                    with closing(self._by_jobs(jobs, work, parts)) as results:
                        for each in results:
                            yield each
                            done += 1
            except ExecutorsUnfit as why:
                logger.warning("one process writes rows anew table=%s: %s", self._name, why)
        yield from one_by_one(work, parts[done:], size_bytes)

    def _is_seen_by(self, jobs: Jobs) -> bool:
        """Executors on other machines have other disks."""
        scheme = urlsplit(self._context.changefeed.sink.warehouse).scheme
        return jobs.are_within or scheme not in ("", "file")

    def _by_jobs(
        self, jobs: Jobs, work: Callable[[Part], Result], parts: Sequence[Part]
    ) -> Generator[Result]:
        job_tag = self._context.name
        tag = f"{job_tag}-rewrite-{next(_numbers)}"
        of_parts = _PartJobs(jobs, work, tags=(job_tag, tag), what=f"{self._name} written anew")
        # Where there are three cores or more one is left to the reads of other tables.
        at_once = max(2, jobs.tasks - 1)
        logger.info(
            "Spark writes rows anew table=%s parts=%d at_once=%d", self._name, len(parts), at_once
        )
        pool = ThreadPoolExecutor(at_once, thread_name_prefix="parts")
        begun: deque[Future[Any]] = deque()
        try:
            for number, part in enumerate(parts):
                begun.append(pool.submit(of_parts.run, part, f"{number + 1} of {len(parts)}"))
                if len(begun) == 2 * at_once:
                    yield self._next_of(begun)
            while begun:
                yield self._next_of(begun)
        finally:
            of_parts.over.set()
            pool.shutdown(wait=False, cancel_futures=True)
            if any(not each.done() for each in begun):
                Thread(
                    target=_cancel, args=(jobs, tag, list(begun)), name="parts-end", daemon=True
                ).start()

    def _next_of(self, begun: deque[Future[Any]]) -> Any:
        """Blocks for the first part. If the caller ends meanwhile, the part is still there, to be
        cancelled."""
        while not begun[0].done():
            self._check()
            wait([begun[0]], LOOK_S)
        found = begun.popleft().result()
        if isinstance(found, RewriteFailure):
            raise found.error
        return found


def _cancel(jobs: Jobs, tag: str, begun: Sequence[Future[Any]]) -> None:
    """Until the last job has ended: one call does not end a job that is about to begin."""
    while not all(each.done() for each in begun):
        jobs.cancel(tag)
        wait(begun, LOOK_S)


class _PartJobs:
    """Runs the jobs of one rewrite, on as many threads as call it. ``over``: begin none again."""

    def __init__(
        self, jobs: Jobs, work: Callable[[Any], Any], *, tags: Sequence[str], what: str
    ) -> None:
        self.over = Event()
        self._jobs = jobs
        self._work = work
        self._tags = tags
        self._what = what
        self._environment = store_variables()

    def run(self, part: Any, place: str) -> Any:
        """The result of the part, or a RewriteFailure. Raises ExecutorsUnfit and TryAgain."""
        task = RewriteTask(work=self._work, part=part, environment=self._environment)
        what = f"{self._what}: part {place}"
        for number in range(1, TRIES + 1):
            try:
                (found,) = self._jobs.run(task, 1, what=what, tags=self._tags, needs=NEEDS)
            except JobFailed as error:
                if number == TRIES or self.over.is_set():
                    raise TryAgain(f"{what} failed: {error}") from error
                logger.info("%s failed, again: %s", what, error)
            else:
                return found
        raise AssertionError
