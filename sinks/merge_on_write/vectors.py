"""Writing the vectors of a commit, and the actions that put them into force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sinks.merge_on_write.actions import DataFile
from sinks.merge_on_write.deletion_vector import vector_files
from sinks.merge_on_write.file_rows import DeletedRows
from sinks.merge_on_write.statistics import widened
from sinks.merge_on_write.storage import TableStorage


@dataclass(frozen=True, slots=True)
class Marked:
    """A data file with its new vector, which is written, but in no commit yet."""

    file: DataFile
    deleted: DeletedRows


def mark(
    storage: TableStorage, files: Mapping[str, DataFile], deleted: Mapping[str, DeletedRows]
) -> Iterator[Marked]:
    """Write the vectors of these files; both mappings are by path, in the order of the second."""
    paths = iter(deleted)
    for name, content, descriptors in vector_files([each.vector for each in deleted.values()]):
        storage.write(name, content)
        for descriptor in descriptors:
            path = next(paths)
            rows = len(deleted[path].mask)
            file = replace(
                files[path], deletion_vector=descriptor, stats=widened(files[path].stats, rows)
            )
            yield Marked(file, replace(deleted[path], vector_id=descriptor.unique_id))
