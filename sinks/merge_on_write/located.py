"""Which files an action of the log names, and reading them wherever they are.

Our own files are all in the table's folder. Other writers may name a vector absolutely, and a
shallow clone names all its data files so; both are read, and never written or deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from sinks.merge_on_write.actions import DeletionVectorDescriptor, LogFile
from sinks.merge_on_write.deletion_vector import BadVector, file_of
from sinks.merge_on_write.storage import TableStorage


def files_of(file: LogFile) -> Iterator[str]:
    """The data file and the file of its vector, decoded; absolute ones as they are named."""
    yield unquote(file.path)
    if file.deletion_vector is not None and (path := _vector_file(file.deletion_vector)):
        yield path


def _vector_file(vector: DeletionVectorDescriptor) -> str | None:
    try:
        path = file_of(vector)
    except (BadVector, ValueError):  # who reads the vector says so; here it names no file
        return None
    return path if vector.storage_type == "u" else path and unquote(path)


def is_in_table(path: str) -> bool:
    """Relative, and not by a detour."""
    folders = path.split("/")
    return not urlsplit(path).scheme and not path.startswith("/") and ".." not in folders


class LocatedFiles:
    """``read`` and ``open_input`` of paths as the log writes them (percent-encoded)."""

    def __init__(self, storage: TableStorage, open_place: Callable[[str], TableStorage]) -> None:
        self._storage = storage
        self.open_place = open_place
        self._places: dict[str, TableStorage] = {}

    def read(self, path: str) -> bytes:
        """FileNotFoundError."""
        storage, name = self._at(path)
        return storage.read(name)

    def open_input(self, path: str) -> Any:
        """What ``pq.ParquetFile`` reads; the caller closes it. FileNotFoundError."""
        storage, name = self._at(path)
        return storage.open_input(name)

    def _at(self, path: str) -> tuple[TableStorage, str]:
        if "://" not in path and not path.startswith(("/", "file:")):
            return self._storage, unquote(path)
        place, _, name = path.rpartition("/")
        place = place.removeprefix("file:") if "://" not in place else place
        if place not in self._places:
            self._places[place] = self.open_place(place)
        return self._places[place], unquote(name)
