"""A storage that goes wrong where a test tells it to: late, twice, with an error, or frozen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sinks.storage.table_storage import Entry, TableStorage

Hook = Callable[[str], None]


class FaultyStorage:
    """``before`` and ``after`` are called with the path, of a create alone; what they raise is what
    the caller gets: before the put nothing was made, after it all was.
    """

    def __init__(self, inner: TableStorage) -> None:
        self.uri = inner.uri
        self.inner = inner
        self.before: Hook = _nothing
        self.after: Hook = _nothing
        self.before_read: Hook = _nothing
        self.creates: list[str] = []
        self.deleted: list[str] = []
        self._lock = threading.Lock()

    def read(self, path: str) -> bytes:
        self.before_read(path)
        return self.inner.read(path)

    def size(self, path: str) -> int | None:
        return self.inner.size(path)

    def open_input(self, path: str) -> Any:
        return self.inner.open_input(path)

    def list(self, prefix: str, start_after: str = "") -> Iterator[Entry]:
        return self.inner.list(prefix, start_after)

    def write(self, path: str, data: Any) -> None:
        self.inner.write(path, data)

    def create(self, path: str, data: bytes) -> bool:
        with self._lock:
            self.creates.append(path)
        self.before(path)
        made = self.inner.create(path, data)
        self.after(path)
        return made

    def replace(self, path: str, data: Any) -> None:
        self.inner.replace(path, data)

    def delete(self, paths: Iterable[str]) -> None:
        wanted = list(paths)
        self.deleted += wanted
        self.inner.delete(wanted)

    def sync_folder(self, path: str) -> None:
        self.inner.sync_folder(path)


def once(hook: Hook) -> Hook:
    """The first time only."""
    left = [hook]

    def call(path: str) -> None:
        if left:
            left.pop()(path)

    return call


def failing(error: Exception) -> Hook:
    def call(_path: str) -> None:
        raise error

    return call


def _nothing(_path: str) -> None:
    pass
