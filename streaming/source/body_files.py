"""How the bodies of blocks reach the driver where executors are threads of its JVM: by files.

A read is nearly all bodies. As results of a task they are copied five times by the JVM, whose heap
grows with a backlog up to its limit. So a task writes its bodies to a file in the driver's
temporary folder, and its results say where in it each one lies:

    task ──BodyFile──► bodies-…/xxxxxxxx ──BodyFolder──► blocks as the decoder made them
      └──────── InFile: a block without its body ──────────┘

The files of a job are deleted when it has ended, and seldom reach the disk itself. A body that
cannot be written (the disk is full) is sent along with its block, as from executors elsewhere.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from streaming.protocols.contract import Block

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InFile:
    """A block whose body lies in a file."""

    block: Block  # without its body
    path: str
    offset: int
    size: int


class BodyFile:
    """The file of one task, made with its first body. ``folder``: None if the driver cannot see the
    files of this process; then all bodies stay in their blocks."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._path = ""
        self._handle: int | None = None
        self._size = 0

    def put(self, block: Block) -> Block | InFile:
        """Write the block's body; the block itself if it has none, or if that fails."""
        body = block.body
        if body is None or self._folder is None:
            return block
        try:
            if self._handle is None:
                self._handle, self._path = tempfile.mkstemp(prefix="", dir=self._folder)
            written = 0
            while written < len(body):
                written += os.pwrite(self._handle, body[written:], self._size + written)
        except OSError:
            self._folder = None
            return block
        begin, self._size = self._size, self._size + len(body)
        return InFile(replace(block, body=None), self._path, begin, len(body))

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class BodyFolder:
    """The driver's side: the folder for the files of a reader's jobs, which come one by one.

    ``path``: None where the executors are elsewhere."""

    def __init__(self, *, is_shared: bool) -> None:
        self.path = tempfile.mkdtemp(prefix="bodies-") if is_shared else None

    def whole(self, found: Iterable[Block | InFile | T]) -> list[Block | T]:
        """The results of a job, in their order, with their bodies in memory. Raises OSError if a
        file is gone."""
        handles: dict[str, int] = {}
        results: list[Block | T] = []
        with ExitStack() as stack:
            for each in found:
                if not isinstance(each, InFile):
                    results.append(each)
                    continue
                handle = handles.get(each.path)
                if handle is None:
                    handle = handles[each.path] = os.open(each.path, os.O_RDONLY)
                    stack.callback(os.close, handle)
                body = os.pread(handle, each.size, each.offset)
                if len(body) < each.size:
                    raise OSError(f"{each.path} has lost its end")
                results.append(replace(each.block, body=body))
        return results

    def clear(self) -> None:
        """A job has ended: delete its files, also those of tasks that were done twice."""
        if self.path is not None:
            with suppress(OSError), os.scandir(self.path) as files:
                for each in files:
                    os.unlink(each)

    def close(self) -> None:
        if self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)
