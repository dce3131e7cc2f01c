"""Jobs whose tasks run one by one, where they are asked for: reads without Spark."""

from __future__ import annotations

from collections.abc import Sequence

from streaming.jobs.port import R, Task


class JobsHere:
    """``are_within``: whether bodies of blocks go by files, as where executors are the driver's."""

    def __init__(self, tasks: int = 1, *, are_within: bool = True) -> None:
        self.tasks = tasks
        self.are_within = are_within
        self.count = 0  # of the jobs

    def run(
        self,
        task: Task[R],
        count: int,
        *,
        what: str,  # noqa: ARG002
        tags: Sequence[str],  # noqa: ARG002
        needs: str = "",  # noqa: ARG002
    ) -> list[R]:
        self.count += 1
        return [found for number in range(count) for found in task(number)]

    def cancel(self, tag: str) -> None: ...
