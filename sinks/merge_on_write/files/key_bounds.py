"""The smallest and the largest value of a file's first key column: which files can hold a key.

The values are in a form that Python orders as Delta does: text as bytes, timestamps and dates as
numbers. Where exact bounds cannot be had there are none (None), and the file itself is searched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sinks.merge_on_write.files.data_files import OURS
from sinks.merge_on_write.files.key_index import SortedKeys
from sinks.merge_on_write.log.actions import DataFile
from sinks.merge_on_write.log.file_locations import FileLocations
from sinks.merge_on_write.log.physical_schema import PhysicalColumn

Bounds = tuple[Any, Any]


def bounds_of(column: pa.Array | pa.ChunkedArray) -> Bounds | None:
    """The bounds of a column's values; None where it has none (no rows, only NULLs, floating point,
    lists)."""
    if pa.types.is_floating(column.type) or pa.types.is_list(column.type):  # NaN is in no bounds
        return None
    found = pc.min_max(column)
    low, high = _ordered(found["min"]), _ordered(found["max"])
    return None if low is None else (low, high)


def bounds_by(index: SortedKeys, column: pa.Array) -> Bounds | None:
    """`bounds_of` the first key column, whose keys ``index`` has: numbers stand at its ends."""
    if index.second is None and len(index):
        return int(index.first[0]), int(index.first[-1])
    return bounds_of(column)


def _ordered(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    if pa.types.is_timestamp(value.type) or pa.types.is_date(value.type):
        return value.value
    found = value.as_py()
    return found.encode() if isinstance(found, str) else found


def may_hold(bounds: Bounds | None, wanted: Bounds | None) -> bool:
    """Whether a file with these bounds can hold a key of the wanted range. True where either is
    not known."""
    if bounds is None or wanted is None:
        return True
    return bool(bounds[0] <= wanted[1] and wanted[0] <= bounds[1])


def told_bounds(files: FileLocations, file: DataFile, column: PhysicalColumn) -> Bounds | None:
    """A file's bounds for ``column``: by its statistics if we wrote the file, else by its Parquet
    footer, since bounds that other writers put into the log may be rounded. None for types whose
    bounds are not exact in either."""
    kind = column.arrow
    is_bytes = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if not (is_bytes or pa.types.is_integer(kind)):
        return None
    if file.stats and file.path.rpartition("/")[2].startswith(OURS):
        stats = json.loads(file.stats)
        both = [(stats.get(name) or {}).get(column.physical) for name in ("minValues", "maxValues")]
        groups = [(both[0], both[1])]
    else:
        with pq.ParquetFile(files.open_input(file.path)) as parquet:
            groups = list(_group_bounds(parquet, column.physical))
    try:
        found = [(_exact(low, is_bytes), _exact(high, is_bytes)) for low, high in groups]
        return min(low for low, _ in found), max(high for _, high in found)
    except ValueError:  # no bounds, or half a character: another writer cut the text in UTF-16
        return None


def _exact(value: Any, is_bytes: bool) -> int | bytes:
    if is_bytes and isinstance(value, str | bytes):
        return value.encode() if isinstance(value, str) else value
    if not is_bytes and isinstance(value, int):
        return value
    raise ValueError(value)


def _group_bounds(parquet: pq.ParquetFile, physical: str) -> Iterator[Bounds]:
    metadata = parquet.metadata
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for at in range(row_group.num_columns):
            column = row_group.column(at)
            if column.path_in_schema == physical:
                statistics = column.statistics
                known = statistics is not None and statistics.has_min_max
                yield (statistics.min, statistics.max) if known else (None, None)
