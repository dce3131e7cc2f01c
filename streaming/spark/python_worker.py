"""The work that each Python worker process of Spark does once. Imports neither Spark nor gRPC:
executors import it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa


def first_task(_number: int, nothing: Iterable[Any]) -> list[Any]:
    """A task that reads nothing. Its worker is there when the first read comes."""
    settle()
    return list(nothing)


@dataclass(frozen=True, slots=True)
class InWorker:
    """A task as the function for ``mapPartitionsWithIndex`` on an RDD of one partition per task."""

    task: Callable[[int], Iterable[Any]]

    def __call__(self, number: int, nothing: Iterable[Any]) -> Iterable[Any]:
        list(nothing)  # Spark reuses a worker process only if it has read all its input
        settle()
        return self.task(number)


@cache
def settle() -> None:
    """Done once in each worker process. Spark makes a worker collect garbage after every task, and
    to look through all that was imported took longer than a small read: freeze that. Meanwhile
    nothing is collected: Python would look through all messages again for every few hundred new
    ones, a tenth of a read's work, and find nothing.

    glibc keeps freed memory for the next chunk. Arrow's own pool gives it back, and the kernel
    clears it anew for each chunk."""
    pa.set_cpu_count(1)  # the other cores run other tasks
    pa.set_memory_pool(pa.system_memory_pool())
    gc.freeze()
    gc.disable()
