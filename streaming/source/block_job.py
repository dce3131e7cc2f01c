"""One job whose tasks make blocks, and what a task returns."""

from __future__ import annotations

from coordination.errors import TryAgain
from streaming.jobs.port import JobFailed, Jobs, Task
from streaming.protocols.contract import Block
from streaming.source.body_files import BodyFolder
from streaming.source.task_results import ReadFailure, Result


class ReadFailed(TryAgain):
    """A read failed for a reason that is not the source's, or was cancelled. It is tried again for
    a while."""


class BlockJob:
    """Runs jobs one after the other, for one thread, except for ``cancel``. ``name`` is shown in
    Spark's UI; an error calls the source ``source``."""

    def __init__(self, jobs: Jobs, *, name: str, source: str) -> None:
        self._jobs = jobs
        self._name = name
        self._source = source
        self._tag = f"read-{name}"
        self._bodies = BodyFolder(is_shared=jobs.are_within)

    def close(self) -> None:
        self._bodies.close()

    def cancel(self) -> None:
        """Called from another thread: cancels the job of ``run``, which then raises ReadFailed
        soon. Never raises."""
        self._jobs.cancel(self._tag)

    @property
    def tasks(self) -> int:
        """How many run side by side."""
        return self._jobs.tasks

    @property
    def folder(self) -> str | None:
        """Where tasks put the bodies of their blocks (`body_files.BodyFile`)."""
        return self._bodies.path

    def run(self, task: Task[Result], count: int, what: str) -> list[Block | ReadFailure]:
        """The results of ``count`` tasks, in their order. ``what``: the job's description. Raises
        ReadFailed, ExecutorsUnfit."""
        try:
            what = f"{self._name}: {what}"
            return self._whole(self._jobs.run(task, count, what=what, tags=(self._tag,)))
        except JobFailed as error:
            raise ReadFailed(f"reading {self._source} failed: {error}") from error
        finally:
            self._bodies.clear()

    def _whole(self, found: list[Result]) -> list[Block | ReadFailure]:
        try:
            return self._bodies.whole(found)
        except OSError as error:
            raise ReadFailed(f"the result of a read of {self._source} is gone: {error}") from error
