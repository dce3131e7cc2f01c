"""What every engine must do for a stream: Spark and threads pass it."""

from __future__ import annotations

import gc
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streaming.jobs.port import Engine, EngineOfProcess, JobFailed, Jobs, Task

PATIENCE_S = 120.0
MIB = 1 << 20


def numbers(number: int) -> Iterator[tuple[int, int]]:
    for each in range(3):
        yield number, each


def one_of(number: int) -> list[int]:
    return [number]


def large(number: int) -> Iterator[bytes]:
    for _ in range(10):
        yield bytes([number]) * (4 * MIB)


def unsendable(_number: int) -> Iterator[Any]:
    yield threading.Lock()


@dataclass
class Counting:
    """A task that changes what it was sent."""

    count: int = 0

    def __call__(self, _number: int) -> Iterator[int]:
        self.count += 1
        yield self.count


@dataclass
class Fails:
    """Its task 1 raises behind its first result, the others write down that they were closed."""

    folder: Path

    def __call__(self, number: int) -> Iterator[int]:
        try:
            yield number
            if number == 1:
                raise ValueError("a bug of the task")
        finally:
            (self.folder / f"closed-{number}").touch()


class Left(list[Any]):
    """Garbage that only a collection finds."""


def leaves(_number: int) -> Iterator[int]:
    circle = Left([bytearray(MIB), 0])
    circle.append(circle)
    yield len(circle)


@dataclass
class Slow:
    """It goes on until it is cancelled, or for two minutes."""

    begun: Path

    def __call__(self, number: int) -> Iterator[int]:
        self.begun.touch()
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            time.sleep(0.02)
            yield number


@dataclass
class Unpicklable:
    lock: Any

    def __call__(self, number: int) -> list[int]:
        return [number]


class Batch:
    """What a query calls."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.threads: set[int] = set()
        self.come = threading.Semaphore(0)
        self.end: BaseException | None = None

    def __call__(self, _tick: object, number: int) -> None:
        self.numbers.append(number)
        self.threads.add(threading.get_ident())
        self.come.release()
        if self.end is not None:
            raise self.end
        time.sleep(0.01)


def run(jobs: Jobs, task: Task[Any], count: int = 2, tag: str = "a-tag") -> list[Any]:
    return jobs.run(task, count, what="a job of the tests", tags=(tag,))


def await_(is_so: Callable[[], object]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.01)


class JobsContract(ABC):
    """``process`` gives what the streams of a process share; ``dying`` a task whose executor ends
    amid it."""

    @abstractmethod
    def process(self) -> EngineOfProcess: ...

    @abstractmethod
    def dying(self) -> Task[int]: ...

    @pytest.fixture
    def engine(self) -> Engine:
        process = self.process()
        process.begin()
        return process.of_stream()

    @pytest.fixture
    def jobs(self, engine: Engine) -> Jobs:
        return engine.jobs()

    def test_results_come_in_the_order_of_tasks(self, jobs: Jobs) -> None:
        assert run(jobs, numbers, 5) == [(task, each) for task in range(5) for each in range(3)]
        assert run(jobs, one_of, 40) == list(range(40))
        assert run(jobs, one_of, 1) == [0]

    def test_so_many_run_side_by_side(self, jobs: Jobs) -> None:
        assert jobs.tasks >= 1
        assert jobs.are_within

    def test_results_larger_than_a_slice_of_memory_come_whole(self, jobs: Jobs) -> None:
        found = run(jobs, large)
        assert [(len(each), each[0], each[-1]) for each in found] == [
            (4 * MIB, number, number) for number in (0, 1) for _ in range(10)
        ]

    def test_a_task_is_sent_and_what_it_changes_is_lost(self, jobs: Jobs) -> None:
        task = Counting()
        assert run(jobs, task, 3) == [1, 1, 1]
        assert task.count == 0

    def test_a_task_or_result_that_cannot_be_sent_fails(self, jobs: Jobs) -> None:
        with pytest.raises(Exception, match="pickle"):
            run(jobs, Unpicklable(threading.Lock()))
        with pytest.raises(JobFailed, match="pickle"):
            run(jobs, unsendable)
        assert run(jobs, one_of) == [0, 1]

    def test_a_task_fails_and_the_job_with_it_in_one_line(self, jobs: Jobs, tmp_path: Path) -> None:
        with pytest.raises(JobFailed, match="a bug of the task") as caught:
            run(jobs, Fails(tmp_path), 3)
        assert "\n" not in str(caught.value)
        assert (tmp_path / "closed-1").exists()
        assert run(jobs, one_of) == [0, 1]

    def test_an_executor_ends_amid_a_task(self, jobs: Jobs) -> None:
        with pytest.raises(JobFailed):
            run(jobs, self.dying())
        assert run(jobs, one_of) == [0, 1]

    def test_a_job_is_cancelled_by_its_tag_and_others_go_on(
        self, jobs: Jobs, tmp_path: Path
    ) -> None:
        ends: list[object] = []

        def slow() -> None:
            try:
                ends.append(run(jobs, Slow(tmp_path / "begun"), 1, tag="slow"))
            except JobFailed as error:
                ends.append(error)

        thread = threading.Thread(target=slow)
        thread.start()
        await_((tmp_path / "begun").exists)
        jobs.cancel("another-tag")
        assert run(jobs, one_of, 1) == [0]
        assert not ends
        while thread.is_alive():  # a cancel amid the job's begin may come too early
            jobs.cancel("slow")
            thread.join(0.1)
        (end,) = ends
        assert isinstance(end, JobFailed)
        assert run(jobs, one_of, 2, tag="slow") == [0, 1], (
            "a job that begins later is not cancelled"
        )

    def test_nothing_is_cancelled_where_nothing_runs(self, engine: Engine, jobs: Jobs) -> None:
        engine.cancel("a-tag")
        jobs.cancel("a-tag")
        assert run(jobs, one_of) == [0, 1]

    def test_what_a_task_leaves_behind_is_not_this_process_s_to_keep(self, jobs: Jobs) -> None:
        """A worker of Spark freezes its garbage, and collects none: that is not to come here."""
        frozen = gc.get_freeze_count()
        for _ in range(20):
            assert run(jobs, leaves) == [3, 3]
        gc.collect()
        assert gc.isenabled()
        assert gc.get_freeze_count() <= frozen  # what others froze may die
        assert not any(isinstance(each, Left) for each in gc.get_objects())

    def test_jobs_of_several_threads(self, jobs: Jobs) -> None:
        found: dict[int, list[Any]] = {}
        threads = [
            threading.Thread(
                target=lambda n=n: found.update({n: run(jobs, one_of, n, tag=f"t{n}")})
            )
            for n in range(1, 6)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(PATIENCE_S)
        assert found == {n: list(range(n)) for n in range(1, 6)}

    def test_a_query_calls_again_and_again_on_one_thread_until_its_context_ends(
        self, engine: Engine
    ) -> None:
        batch = Batch()
        with engine.ticking(threading.Event(), name="ticks", foreach_batch=batch) as query:
            for _ in range(3):
                assert batch.come.acquire(timeout=PATIENCE_S)
            assert query.isActive
        assert batch.numbers[:3] == [0, 1, 2]
        assert len(batch.threads) == 1
        assert threading.get_ident() not in batch.threads
        await_(lambda: not query.isActive)
        count = len(batch.numbers)
        time.sleep(0.1)
        assert len(batch.numbers) == count

    def test_a_query_that_raises_has_ended_and_says_why(self, engine: Engine) -> None:
        batch = Batch()
        batch.end = ValueError("not in a batch")
        with engine.ticking(threading.Event(), name="raises", foreach_batch=batch) as query:
            await_(lambda: not query.isActive)
            assert "not in a batch" in str(query.exception())
        assert batch.numbers == [0]

    def test_queries_of_one_name_in_two_streams(self) -> None:
        process, one, other = self.process(), Batch(), Batch()
        stopping = threading.Event()
        with (
            process.of_stream().ticking(stopping, name="same", foreach_batch=one),
            process.of_stream().ticking(stopping, name="same", foreach_batch=other),
        ):
            assert one.come.acquire(timeout=PATIENCE_S)
            assert other.come.acquire(timeout=PATIENCE_S)

    def test_jobs_run_in_a_batch(self, engine: Engine, jobs: Jobs) -> None:
        found: list[int] = []
        has_run = threading.Event()

        def foreach_batch(_tick: object, _number: int) -> None:
            if not has_run.is_set():
                found.extend(run(jobs, one_of))
                has_run.set()

        with engine.ticking(threading.Event(), name="jobs", foreach_batch=foreach_batch):
            assert has_run.wait(PATIENCE_S)
        assert found == [0, 1]


class Dies:
    """Its process ends."""

    def __call__(self, number: int) -> Iterator[int]:
        if number == 1:
            os._exit(3)
        yield number
