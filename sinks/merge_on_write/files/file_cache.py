"""Facts about a live data file beyond its line in the log: deletion vector, bounds, key index. Also
writes vectors.

All of this is a cache, since it can be read again at any time. When ``key-index-memory`` is full,
the least recently used indexes are dropped.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from sinks.merge_on_write.files.key_bounds import Bounds
from sinks.merge_on_write.files.key_index import SortedKeys
from sinks.merge_on_write.files.statistics import widened
from sinks.merge_on_write.log.actions import DataFile
from sinks.merge_on_write.log.deletion_vector import file_of, read_vector, vector_files
from sinks.merge_on_write.log.file_locations import FileLocations
from sinks.storage.table_storage import TableStorage

Dead = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedRows:
    """The deleted rows of a file, as a set (to write) and as a mask (to filter)."""

    vector_id: str | None  # None: no vector, or one that is not written yet
    vector: BitMap64
    mask: Dead  # one entry for each physical row; True: deleted

    @classmethod
    def none(cls, rows: int) -> DeletedRows:
        return cls(vector_id=None, vector=BitMap64(), mask=np.zeros(rows, np.bool_))

    @classmethod
    def of(cls, vector: BitMap64, vector_id: str, rows: int) -> DeletedRows:
        mask = np.zeros(rows, np.bool_)
        mask[np.asarray(vector.to_array(), dtype=np.int64)] = True
        return cls(vector_id=vector_id, vector=vector, mask=mask)

    @classmethod
    def read(cls, files: FileLocations, file: DataFile, rows: int) -> DeletedRows:
        """Reads the vector of a file that has so many physical rows."""
        descriptor = file.deletion_vector
        if descriptor is None:
            return cls.none(rows)
        path = file_of(descriptor)
        content = b"" if path is None else files.read(path)
        return cls.of(read_vector(content, descriptor), descriptor.unique_id, rows)

    def with_more(self, ordinals: npt.NDArray[np.int64]) -> DeletedRows:
        """The same and these rows too; the vector is not written yet."""
        mask = self.mask.copy()
        mask[ordinals] = True
        more = BitMap64(array("Q", ordinals.astype(np.uint64).tobytes()))  # of numpy: 4 x slower
        vector = self.vector | more
        return DeletedRows(vector_id=None, vector=vector, mask=mask)


def mark(
    storage: TableStorage, files: Mapping[str, DataFile], deleted: Mapping[str, DeletedRows]
) -> Iterator[tuple[DataFile, DeletedRows]]:
    """Write the vectors of ``deleted`` and yield each file as its next ``add`` names it, in the
    order of ``deleted``. Both mappings are by path. No commit names the vectors yet."""
    paths = iter(deleted)
    for name, content, descriptors in vector_files([each.vector for each in deleted.values()]):
        storage.write(name, content)
        for descriptor in descriptors:
            path = next(paths)
            stats = widened(files[path].stats, len(deleted[path].mask))
            file = files[path].changed(deletionVector=descriptor.to_json(), stats=stats)
            yield file, replace(deleted[path], vector_id=descriptor.unique_id)


@dataclass(slots=True, kw_only=True)
class CachedFile:
    """One live file of an opened table."""

    file: DataFile
    rows: int | None = None  # physical rows; None: not read yet
    deleted: DeletedRows | None = None
    bounds: Bounds | None = None
    bounds_known: bool = False  # False: `bounds` has not been read yet
    vector_bytes: int = 0  # of all vectors that this process has written for it
    memory_bytes: int = 0  # that its rows take in Arrow; 0: this process has not had them


class IndexMemory:
    """The key indexes of all tables of an engine, least recently used first. Thread-safe.

    File names are never used again, so an index never becomes wrong; it may only be of no use any
    more.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._indexes: OrderedDict[tuple[str, str], SortedKeys] = OrderedDict()
        self.size_bytes = 0
        self._lock = threading.Lock()

    def get(self, uri: str, path: str) -> SortedKeys | None:
        with self._lock:
            found = self._indexes.get((uri, path))
            if found is not None:
                self._indexes.move_to_end((uri, path))
            return found

    def put(self, uri: str, path: str, index: SortedKeys) -> None:
        """Keep an index, and drop the least recently used ones above the limit."""
        with self._lock:
            self._drop((uri, path))
            self._indexes[(uri, path)] = index
            self.size_bytes += index.size_bytes
            while self.size_bytes > self._max_bytes and len(self._indexes) > 1:
                self._drop(next(iter(self._indexes)))

    def drop(self, uri: str, path: str | None = None) -> None:
        with self._lock:
            for each in [(uri, path)] if path else [at for at in self._indexes if at[0] == uri]:
                self._drop(each)

    def _drop(self, at: tuple[str, str]) -> None:
        index = self._indexes.pop(at, None)
        if index is not None:
            self.size_bytes -= index.size_bytes
