"""What is known of a live data file beyond its line in the log: vector, bounds, key index.

All of it can be read again at any time, so it is a cache: indexes that were not used for longest go
when ``key-index-memory`` is full.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from sinks.merge_on_write.actions import DataFile
from sinks.merge_on_write.key_index import SortedKeys

Dead = npt.NDArray[np.bool_]
Bounds = tuple[Any, Any]  # of the first key column, as ``comparable`` writes them


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedRows:
    """A file's vector, as a set to be written and as a mask to filter with."""

    vector_id: str | None
    vector: BitMap64
    mask: Dead  # one entry a physical row

    @classmethod
    def none(cls, rows: int) -> DeletedRows:
        return cls(vector_id=None, vector=BitMap64(), mask=np.zeros(rows, np.bool_))

    @classmethod
    def of(cls, vector: BitMap64, vector_id: str, rows: int) -> DeletedRows:
        mask = np.zeros(rows, np.bool_)
        mask[np.asarray(vector.to_array(), dtype=np.int64)] = True
        return cls(vector_id=vector_id, vector=vector, mask=mask)

    def with_more(self, ordinals: npt.NDArray[np.int64]) -> DeletedRows:
        """These rows too, under no vector's name yet."""
        mask = self.mask.copy()
        mask[ordinals] = True
        vector = self.vector | BitMap64(ordinals.astype(np.uint64))
        return DeletedRows(vector_id=None, vector=vector, mask=mask)


@dataclass(slots=True, kw_only=True)
class FileRows:
    """One live file of an opened table."""

    file: DataFile
    rows: int | None = None  # physical rows; None: not asked yet
    deleted: DeletedRows | None = None
    bounds: Bounds | None = None
    bounds_known: bool = False  # False: nobody has looked
    vector_bytes: int = 0  # of all vectors that this process has written for it


class IndexMemory:
    """The key indexes of all tables of a process, least recently used first; thread-safe.

    A file's name is unique for ever, so an index is never stale, only useless.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._indexes: OrderedDict[tuple[str, str], SortedKeys] = OrderedDict()
        self._size_bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def get(self, uri: str, path: str) -> SortedKeys | None:
        with self._lock:
            found = self._indexes.get((uri, path))
            if found is not None:
                self._indexes.move_to_end((uri, path))
            return found

    def put(self, uri: str, path: str, index: SortedKeys) -> None:
        """Keep it, and let others go that were not used for longest."""
        with self._lock:
            self._drop((uri, path))
            self._indexes[(uri, path)] = index
            self._size_bytes += index.size_bytes
            while self._size_bytes > self._max_bytes and len(self._indexes) > 1:
                self._drop(next(iter(self._indexes)))

    def drop(self, uri: str, path: str | None = None) -> None:
        with self._lock:
            for each in [(uri, path)] if path else [at for at in self._indexes if at[0] == uri]:
                self._drop(each)

    def _drop(self, at: tuple[str, str]) -> None:
        index = self._indexes.pop(at, None)
        if index is not None:
            self._size_bytes -= index.size_bytes


def bounds_of(column: pa.Array | pa.ChunkedArray) -> Bounds | None:
    """Smallest and largest value of a key column, comparable with those of other files; None where
    there is none (no rows, NULL alone, floating point)."""
    if pa.types.is_floating(column.type):  # a NaN is in no bounds
        return None
    found = pc.min_max(column)
    low, high = comparable(found["min"]), comparable(found["max"])
    return None if low is None else (low, high)


def comparable(value: pa.Scalar) -> Any:
    """A value that Python orders as Delta does: text by its bytes, timestamps as microseconds."""
    if not value.is_valid:
        return None
    if pa.types.is_timestamp(value.type) or pa.types.is_date(value.type):
        return value.value
    found = value.as_py()
    return found.encode() if isinstance(found, str) else found


def may_hold(bounds: Bounds | None, wanted: Bounds | None) -> bool:
    """Whether a file with these bounds can hold a key of the wanted range; yes where unknown."""
    if bounds is None or wanted is None:
        return True
    return bool(bounds[0] <= wanted[1] and wanted[0] <= bounds[1])


def logged_bounds(stats: Mapping[str, Any], physical: str, kind: pa.DataType) -> Bounds | None:
    """Bounds from the statistics of a file that we wrote; None for types whose text is not exact
    enough to compare with."""
    low = (stats.get("minValues") or {}).get(physical)
    high = (stats.get("maxValues") or {}).get(physical)
    if low is None or high is None:
        return None
    if pa.types.is_integer(kind):
        return (low, high) if isinstance(low, int) and isinstance(high, int) else None
    if pa.types.is_string(kind):
        try:
            return str(low).encode(), str(high).encode()
        except UnicodeEncodeError:  # half a character: somebody has cut the text in UTF-16
            return None
    return None


def footer_comparable(value: Any, kind: pa.DataType) -> Any:
    """A bound of a Parquet footer, or None for types that footers do not tell exactly."""
    if pa.types.is_integer(kind) and isinstance(value, int):
        return value
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return value.encode() if isinstance(value, str) else bytes(value)
    return None
