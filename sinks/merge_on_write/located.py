"""Reads files wherever the log says they are: in the table's folder, or at an absolute URI.

Our own files are all in the table's folder. Other writers may name a vector absolutely, and a
shallow clone names all its data files so; both are read, and never written or deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from sinks.merge_on_write.storage import TableStorage


def is_absolute(path: str) -> bool:
    """Whether a path of the log is none of the table's folder."""
    return "://" in path or path.startswith(("/", "file:"))


class LocatedFiles:
    """``read`` and ``open_input`` of paths as the log writes them (percent-encoded)."""

    def __init__(self, storage: TableStorage, open_place: Callable[[str], TableStorage]) -> None:
        self._storage = storage
        self._open_place = open_place
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
        if not is_absolute(path):
            return self._storage, unquote(path)
        place, _, name = path.rpartition("/")
        place = place.removeprefix("file:") if "://" not in place else place
        if place not in self._places:
            self._places[place] = self._open_place(place)
        return self._places[place], unquote(name)
