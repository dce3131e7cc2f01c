"""Which files an action of the log names, and how to read them wherever they are.

Our own files are in the table's folder. The exception are the files of a table that was renamed, or
dropped and kept: they stay in their old folder, under absolute paths. Another writer may give a
vector an absolute path, and a shallow clone gives one to all its data files. Such files are read,
but never written or deleted; the upkeep writes their rows anew (``gather``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from sinks.merge_on_write.log.actions import DataFile, DeletionVectorDescriptor, LogFile
from sinks.merge_on_write.log.deletion_vector import UUID_TEXT_LENGTH, BadVector, file_of
from sinks.storage.table_storage import TableStorage

_PLAIN_NAME = re.compile(r"\w[\w.-]*")


def files_of(file: LogFile) -> Iterator[str]:
    """The paths of the data file and of its vector's file, decoded; absolute paths stay
    absolute."""
    yield unquote(file.path)
    if file.deletion_vector is not None and (path := _vector_file(file.deletion_vector)):
        yield path


def _vector_file(vector: DeletionVectorDescriptor) -> str | None:
    try:
        path = file_of(vector)
    except (BadVector, ValueError):  # an error when the vector is read; here it just has no file
        return None
    return path if vector.storage_type == "u" else path and unquote(path)


def folders_of(file: LogFile) -> Iterator[str]:
    """The folders of those `files_of` that are in the table."""
    if _has_plain_names(file):
        yield ""
        return
    for path in files_of(file):
        if is_in_table(path):
            yield path.rpartition("/")[0]


def is_whole_in_table(file: LogFile) -> bool:
    """Whether all `files_of` are in the table's folder."""
    return _has_plain_names(file) or all(map(is_in_table, files_of(file)))


def _has_plain_names(file: LogFile) -> bool:
    """Names as we make them need no look into: they are in the table's own folder."""
    vector = file.fields.get("deletionVector")
    has_plain_vector = not vector or (
        vector["storageType"] == "u" and len(vector["pathOrInlineDv"]) == UUID_TEXT_LENGTH
    )
    return has_plain_vector and _PLAIN_NAME.fullmatch(file.path) is not None


def is_in_table(path: str) -> bool:
    """Whether the path is relative and does not leave the table's folder (no ``..``)."""
    folders = path.split("/")
    return not urlsplit(path).scheme and not path.startswith("/") and ".." not in folders


def absolute(file: DataFile, root: str) -> DataFile:
    """The names that another table gives to the files of the table at ``root``: URIs, since readers
    resolve relative names against the table that has them."""
    is_path = root.startswith("/")
    base = f"file:{quote(root)}" if is_path else quote(unquote(root), safe="/:@~")
    path = file.path if _is_absolute(file.path) else f"{base}/{file.path}"
    vector = file.deletion_vector
    if vector is None or vector.storage_type != "u":
        return file.changed(path=path)
    told = {**vector.to_json(), "storageType": "p", "pathOrInlineDv": f"{base}/{file_of(vector)}"}
    return file.changed(path=path, deletionVector=told)


def _is_absolute(path: str) -> bool:
    return "://" in path or path.startswith(("/", "file:"))


class FileLocations:
    """Reads files by their paths as the log has them: percent-encoded, relative or absolute.
    ``open_place`` gives the storage of another folder, by its URI."""

    def __init__(self, storage: TableStorage, open_place: Callable[[str], TableStorage]) -> None:
        self._storage = storage
        self.open_place = open_place
        self._places: dict[str, TableStorage] = {}

    def read(self, path: str) -> bytes:
        """The whole file. Raises FileNotFoundError."""
        storage, name = self._at(path)
        return storage.read(name)

    def open_input(self, path: str) -> Any:
        """The file opened for ``pq.ParquetFile``; the caller closes it. Raises
        FileNotFoundError."""
        storage, name = self._at(path)
        return storage.open_input(name)

    def is_there(self, path: str) -> bool:
        storage, name = self._at(path)
        return storage.size(name) is not None

    def _at(self, path: str) -> tuple[TableStorage, str]:
        if not _is_absolute(path):
            return self._storage, unquote(path)
        place, _, name = path.rpartition("/")
        if place.startswith("file:") and "://" not in place:
            place = unquote(place.removeprefix("file:"))
        if place not in self._places:
            self._places[place] = self.open_place(place)
        return self._places[place], unquote(name)
