"""Reads of a storage without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streaming.source.task_results import Result


class OneByOne:
    """In place of `BlockJob`."""

    tasks, folder = 2, None

    def __init__(self, *_: object, **__: object) -> None: ...

    def run(self, task: Any, count: int, _what: str) -> Iterator[Result]:
        for number in range(count):
            yield from task(number, iter(()))

    def close(self) -> None: ...
