"""Jobs on threads of this process, for tests: the same tasks, without a JVM.

No setting leads here: Spark is the engine of the product, and a test that wants threads hands them
in. What is about Spark, executors or a process is tested on Spark (docs/contributing.md).
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from pyspark import cloudpickle

from coordination.errors import TidelakeError
from streaming.jobs.port import ForeachBatch, JobFailed, R, Task

# Shared by all streams, as Spark's workers are: what a thread keeps open, the next task finds.
_workers = ThreadPoolExecutor(4, thread_name_prefix="task")


class ThreadJobs:
    """Tasks and results are pickled as Spark does it: what cannot be sent fails here too, and what
    a task changes in what it was sent is lost."""

    are_within = True

    def __init__(self, tasks: int = 2) -> None:
        self.tasks = tasks
        self._lock = threading.Lock()
        self._running: list[tuple[frozenset[str], threading.Event]] = []

    def run(
        self,
        task: Task[R],
        count: int,
        *,
        what: str,  # noqa: ARG002 - nobody looks
        tags: Sequence[str],
        needs: str = "",  # noqa: ARG002 - its Python is this one
    ) -> list[R]:
        sent, over = _sent(task), threading.Event()
        running = (frozenset(tags), over)
        with self._lock:
            self._running.append(running)
        try:
            begun = [_workers.submit(_results, sent, number, over) for number in range(count)]
            try:
                for each in begun:
                    each.result()
            finally:
                over.set()  # where one has failed the others need not go on
                wait(begun)
            return [result for each in begun for result in pickle.loads(each.result())]
        except (Exception, SystemExit) as error:
            raise JobFailed(f"{type(error).__name__}: {error}") from error
        finally:
            with self._lock:
                self._running.remove(running)

    def cancel(self, tag: str) -> None:
        with self._lock:
            for tags, over in self._running:
                if tag in tags:
                    over.set()


def _results(sent: bytes, number: int, over: threading.Event) -> bytes:
    found = []
    results = iter(pickle.loads(sent)(number))
    try:
        for each in results:
            _check(over)
            found.append(each)
    finally:
        if isinstance(results, Generator):
            results.close()
    _check(over)
    return _sent(found)


def _sent(value: object) -> bytes:
    sent: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return sent


def _check(over: threading.Event) -> None:
    if over.is_set():
        raise JobFailed("the job was cancelled")


class ThreadTicks:
    """A thread that calls ``foreach_batch``, from when ``ready`` is set."""

    def __init__(self, foreach_batch: ForeachBatch, name: str, ready: threading.Event) -> None:
        self._foreach_batch = foreach_batch
        self._ready = ready
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"ticks of {name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._ready.wait()
        number = 0
        try:
            while not self._over.is_set():
                self._foreach_batch(None, number)
                number += 1
        except BaseException as error:  # noqa: BLE001 - who looks at the query gets it
            self._error = error

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return self._thread.is_alive()

    def exception(self) -> BaseException | None:
        return self._error

    def stop(self) -> None:
        self._over.set()
        self._ready.set()


class ThreadsOfStream:
    def __init__(self, jobs: ThreadJobs, ready: threading.Event) -> None:
        self._jobs = jobs
        self._ready = ready

    def jobs(self, stopping: threading.Event | None = None) -> ThreadJobs:  # noqa: ARG002
        return self._jobs

    @contextmanager
    def ticking(
        self,
        stopping: threading.Event,  # noqa: ARG002 - it is there at once
        *,
        name: str,
        foreach_batch: ForeachBatch,
    ) -> Iterator[ThreadTicks]:
        ticks = ThreadTicks(foreach_batch, name, self._ready)
        try:
            yield ticks
        finally:
            ticks.stop()

    def session(self, stopping: threading.Event | None = None) -> Any:  # noqa: ARG002
        raise TidelakeError("there is no Spark here: this test's claim needs a life on Spark")

    def cancel(self, tag: str) -> None:
        self._jobs.cancel(tag)


class ThreadsOfProcess:
    """``ticks_are_late``: until `tick` is called no query ticks, as while Spark's session comes
    up."""

    started = None

    def __init__(self, tasks: int = 2, *, ticks_are_late: bool = False) -> None:
        self._jobs = ThreadJobs(tasks)
        self._ready = threading.Event()
        if not ticks_are_late:
            self._ready.set()

    def begin(self) -> None: ...

    def tick(self) -> None:
        self._ready.set()

    def of_stream(self) -> ThreadsOfStream:
        return ThreadsOfStream(self._jobs, self._ready)
