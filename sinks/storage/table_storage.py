"""A table's folder, local or on an object store: the few operations that commits need.

Paths are relative to the table and decoded (``_delta_log/00000000000000000000.json``). All
operations block and raise ``OSError`` or a subclass: ``FileNotFoundError`` for a missing file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

TEMPORARY_SUFFIX = ".tidelake.tmp"  # of temporary files: a killed process may leave one behind


@dataclass(frozen=True, slots=True)
class Entry:
    path: str
    size: int  # bytes
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Inside:
    """The names directly beneath a folder, in order."""

    folders: tuple[str, ...]
    files: tuple[str, ...]


class ReadStorage(Protocol):
    """Reads and lists a folder of another writer. Thread-safe."""

    uri: str

    def read(self, path: str) -> bytes:
        """The whole file. Raises FileNotFoundError."""
        ...

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """The bytes from ``start`` to before ``end``; fewer where the file is shorter (it must be
        longer than ``start``). Raises FileNotFoundError."""
        ...

    def list(self, prefix: str, start_after: str = "") -> Iterator[Entry]:
        """As of `TableStorage`."""
        ...

    def inside(self, folder: str) -> Inside:
        """The folders and files directly beneath a folder; nothing where there is none."""
        ...


class TableStorage(Protocol):
    """Reads, lists and writes one table's folder. Thread-safe."""

    uri: str

    def read(self, path: str) -> bytes:
        """The whole file. Raises FileNotFoundError."""
        ...

    def size(self, path: str) -> int | None:
        """The file's size in bytes; None if there is no such file."""
        ...

    def open_input(self, path: str) -> Any:
        """The file opened for ``pq.ParquetFile``; the caller closes it. Raises
        FileNotFoundError."""
        ...

    def list(self, prefix: str, start_after: str = "") -> Iterator[Entry]:
        """The files beneath a folder (``"_delta_log/"``, ``""`` for all) at any depth, by path;
        only those whose path is greater than ``start_after``."""
        ...

    def write(self, path: str, data: bytes | memoryview | pa.Buffer) -> None:
        """Write a new file under a name that no other writer uses. Durable when it returns."""
        ...

    def create(self, path: str, data: bytes | memoryview | pa.Buffer) -> bool:
        """Put if absent, whole or not at all. True: the file was made, and is durable. False: a
        file of that name was there before, and is unchanged.

        After an OSError the outcome is unknown: the caller must look whether its bytes are there.
        """
        ...

    def replace(self, path: str, data: bytes | memoryview | pa.Buffer) -> None:
        """Put over whatever is there, whole or not at all."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, in any order; a missing one is no error."""
        ...

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable. Does nothing where `write` does that already."""
        ...
