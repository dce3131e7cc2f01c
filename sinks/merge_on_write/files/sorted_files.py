"""Writes rows as new data files, sorted by key, together with the bounds and the key index that a
later batch needs.

Because files are sorted, a batch of near keys touches few of them, and they compress better. No
commit names the files yet. A file that is never committed is an orphan, which upkeep deletes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.key_bounds import Bounds, bounds_by
from sinks.merge_on_write.files.key_index import SortedKeys, sort_keys
from sinks.merge_on_write.log.actions import DataFile
from sinks.merge_on_write.log.physical_schema import PhysicalSchema
from sinks.storage.table_storage import TableStorage
from sinks.types.key_hash import Keys, Ordinals, is_numeric, keys_of

MAX_FILE_ROWS = 1_000_000
MAX_GATHERED_BYTES = 256 << 20  # memory for sorted copies, beside the rows themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A data file that no commit names yet."""

    file: DataFile
    taken: Ordinals  # which of the given rows it holds, in its order
    bounds: Bounds | None  # of the first key column
    index: SortedKeys
    memory_bytes: int  # that its rows take in Arrow, about

    @property
    def rows(self) -> int:
        return len(self.taken)


def write_sorted(
    storage: TableStorage,
    rows: pa.Table,
    key: Sequence[str],
    shape: PhysicalSchema,
    among: Ordinals | None = None,
) -> list[NewFile]:
    """Write ``rows``, which have the physical names and types of ``shape``, into as many files as
    needed; no rows, no file. ``among``: the ordinals of the rows to write; None: all."""
    names = [shape.column(name).physical for name in key]
    columns = [data_files.one_array(rows[name], rows[name].type) for name in names]
    if among is not None:
        columns = [column.take(pa.array(among)) for column in columns]
    keys = keys_of(columns)
    now_ms = int(time.time() * 1000)
    found = []
    size = rows.nbytes  # once: of few rows this takes as long as to sort them
    for part in _parts(_key_order(keys, columns), rows.num_rows, size):
        taken = part if among is None else among[part]
        file = data_files.write_file(storage, gathered(rows, taken, size), shape, now_ms)
        is_whole = len(part) == len(keys)
        second = None if keys.second is None else keys.second[part]
        index = sort_keys(Keys(keys.first[part], second))
        found.append(
            NewFile(
                file=file,
                taken=taken,
                bounds=bounds_by(
                    index, columns[0] if is_whole else columns[0].take(pa.array(part))
                ),
                index=index,
                memory_bytes=size * len(part) // rows.num_rows,
            )
        )
    return found


def _key_order(keys: Keys, columns: Sequence[pa.Array]) -> Ordinals:
    """The ordinals of the rows in key order."""
    if is_numeric([column.type for column in columns]):
        return keys.first.argsort(kind="stable")  # events of one commit-ts have an order
    able = {f"k{n}": each for n, each in enumerate(columns) if not pa.types.is_list(each.type)}
    if not able:  # Arrow does not sort lists
        return np.arange(len(keys))
    by = [(name, "ascending") for name in able]
    order = pc.sort_indices(pa.table(able), sort_keys=by)
    return np.asarray(order.to_numpy(), dtype=np.int64)


def gathered(rows: pa.Table, at: Ordinals, size: int) -> pa.Table:
    """The rows at these ordinals; all rows take ``size`` bytes. Arrow's ``take`` first makes each
    column one array, and a column of text may be too large for that: so large tables are taken
    chunk by chunk."""
    is_rising = bool((at[1:] > at[:-1]).all())
    if is_rising and len(at) == rows.num_rows:
        return rows
    if size <= MAX_GATHERED_BYTES:
        return rows.take(pa.array(at))
    if is_rising:
        return pa.table([_rising(column, at) for column in rows.columns], rows.schema)
    order = np.argsort(at)
    rising = at[order]
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    places = pa.array(back)
    return pa.table([_rising(column, rising).take(places) for column in rows.columns], rows.schema)


def _rising(column: pa.ChunkedArray, at: Ordinals) -> pa.Array:
    """The values at these places, which must rise."""
    found = []
    begin = low = 0
    for chunk in column.chunks:
        end = begin + len(chunk)
        high = int(np.searchsorted(at, end))
        if high > low:
            found.append(chunk.take(pa.array(at[low:high] - begin)))
        begin, low = end, high
    return found[0] if len(found) == 1 else pa.concat_arrays(found)


def _parts(order: Ordinals, rows: int, size: int) -> list[Ordinals]:
    """``order`` in pieces, each of which becomes a file: at most `MAX_FILE_ROWS`, and small enough
    for `MAX_GATHERED_BYTES`."""
    if not len(order):
        return []
    row_bytes = max(1, size // rows)
    most = max(1, min(MAX_FILE_ROWS, MAX_GATHERED_BYTES // row_bytes))
    return [order[start : start + most] for start in range(0, len(order), most)]
