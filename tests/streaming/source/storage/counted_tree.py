"""A folder in memory whose requests are counted as an object store counts them."""

from __future__ import annotations

import json
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from sinks.storage.table_storage import Entry, Inside

PAGE = 1_000  # keys of one answer
ROW = b'{"id":0}\r\n'


class CountedTree:
    """All files have one row, but for `metadata` and those that are put with a text."""

    uri = "s3://counted"

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self.paths = sorted(paths)
        self.texts: dict[str, bytes] = {}
        self.modified_ms: dict[str, int] = {}
        self.lists = self.reads = 0
        self._lock = threading.Lock()

    def put(self, path: str, text: bytes | None = None) -> None:
        at = bisect_left(self.paths, path)
        if self.paths[at : at + 1] != [path]:
            self.paths.insert(at, path)
        if text is not None:
            self.texts[path] = text

    def remove(self, part: str) -> None:
        """All files whose path has this in it."""
        self.paths = [each for each in self.paths if part not in each]

    def checkpoint(self, ts: int) -> None:
        self.put("metadata", json.dumps({"checkpoint-ts": ts}).encode())

    def counts(self) -> tuple[int, int]:
        """Lists and reads since the last call."""
        found = self.lists, self.reads
        self.lists = self.reads = 0
        return found

    def read(self, path: str) -> bytes:
        with self._lock:
            self.reads += 1
        if path not in self.texts and path not in self.paths[:1] and not self._is_there(path):
            raise FileNotFoundError(path)
        return self.texts.get(path, ROW)

    def read_range(self, path: str, start: int, end: int) -> bytes:
        return self.read(path)[start:end]

    def list(self, prefix: str, start_after: str = "") -> Iterator[Entry]:
        begin = max(bisect_left(self.paths, prefix), bisect_right(self.paths, start_after))
        end = bisect_left(self.paths, prefix + "\U0010ffff") if prefix else len(self.paths)
        with self._lock:
            self.lists += 1 + max(0, end - begin - 1) // PAGE
        for path in self.paths[begin:end]:
            size = len(self.texts.get(path, ROW))
            yield Entry(path, size, self.modified_ms.get(path, 0))

    def inside(self, folder: str) -> Inside:
        with self._lock:
            self.lists += 1
        prefix = f"{folder}/" if folder else ""
        at, folders, files = bisect_left(self.paths, prefix), list[str](), list[str]()
        while at < len(self.paths) and self.paths[at].startswith(prefix):
            name, slash, _ = self.paths[at].removeprefix(prefix).partition("/")
            (folders if slash else files).append(name)
            at = bisect_left(self.paths, f"{prefix}{name}0") if slash else at + 1
        return Inside(tuple(folders), tuple(files))

    def _is_there(self, path: str) -> bool:
        at = bisect_left(self.paths, path)
        return self.paths[at : at + 1] == [path]
