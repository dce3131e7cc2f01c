"""Which files of the table's folder an action of the log names."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from sinks.merge_on_write.actions import DataFile, DeletionVectorDescriptor, Tombstone
from sinks.merge_on_write.deletion_vector import BadVector, file_of


def files_of(file: DataFile | Tombstone) -> Iterator[str]:
    """The data file and the file of its vector, decoded; absolute ones as they are named."""
    yield unquote(file.path)
    if file.deletion_vector is not None and (path := _vector_file(file.deletion_vector)):
        yield path


def is_in_table(path: str) -> bool:
    """Relative, and not by a detour."""
    folders = path.split("/")
    return not urlsplit(path).scheme and not path.startswith("/") and ".." not in folders


def _vector_file(vector: DeletionVectorDescriptor) -> str | None:
    try:
        path = file_of(vector)
    except (BadVector, ValueError):  # who reads the vector says so; here it names no file
        return None
    return path if vector.storage_type == "u" else path and unquote(path)
