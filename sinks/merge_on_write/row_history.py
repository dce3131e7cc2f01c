"""A history: every version of a row is a row, valid from one commit-ts until another one.

A write that begins at R finds the current versions of its keys, takes them out, and writes them
anew as closed, beside the new ones, in one commit. A rewind may have left versions from beyond R.
The same commit takes the table back: later versions go, and those that were closed later open
again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import Ts
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.key_index import sort_keys
from sinks.merge_on_write.log.actions import DataFile
from sinks.merge_on_write.log.physical_schema import PhysicalColumn
from sinks.merge_on_write.table_handle import TableHandle, rows_at
from sinks.target.engine_port import DELETE, OP_COLUMN
from sinks.target.table_properties import CLOSED, SHOWN
from sinks.target.write_mode import IS_CURRENT, VALID_FROM_TS, VALID_TO, VALID_TO_TS, moment_us
from sinks.types.key_hash import Ordinals, keys_of, pairs_of

Hits = Mapping[str, Ordinals]  # file path to ordinals


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """The rows of a table from beyond a commit-ts; there are none unless the table was rewound.
    ``later``: versions that began later; ``reopened``: versions that were closed later."""

    later: Hits
    reopened: Hits

    @classmethod
    def of(cls, table: TableHandle, ts: Ts, app_id: str) -> Beyond:
        """``app_id``: the writer's. If this writer has carried out a later TRUNCATE, of the table
        or of partitions, that TRUNCATE has taken the table back."""
        if shown_ts(table) <= ts or closed_ts(table, app_id) > ts:
            return cls(later={}, reopened={})
        columns = [table.shape.column(name) for name in (VALID_FROM_TS, VALID_TO_TS)]
        later, reopened = {}, {}
        for path, each in table.files.items():
            if _is_until(each.file, columns, ts):
                continue
            (begins, ends), _ = data_files.read_columns(table.located, each.file, columns)
            is_live = ~table.deleted_rows(each).mask
            is_later = _is_above(begins, ts)
            later[path] = np.flatnonzero(is_live & is_later)
            reopened[path] = np.flatnonzero(is_live & ~is_later & _is_above(ends, ts))
        return cls(later=_some(later), reopened=_some(reopened))

    def taken_back(self, current: Hits) -> dict[str, Ordinals]:
        """Which versions were the current ones, where ``current`` are so now."""
        return merged(without(current, self.later), self.reopened)


def shown_ts(table: TableHandle) -> int:
    """Up to where the table has shown changes when it was rewound; 0: it was not."""
    return int(_configuration(table).get(SHOWN, "0"))


def closed_ts(table: TableHandle, app_id: str) -> int:
    """Commit-ts of the last TRUNCATE that this writer has carried out; 0: there was none."""
    writer, ts = json.loads(_configuration(table).get(CLOSED, '["", 0]'))
    return int(ts) if writer == app_id else 0


def _configuration(table: TableHandle) -> Mapping[str, str]:
    assert table.state.metadata is not None
    return table.state.metadata.configuration


def _is_above(values: pa.Array, ts: Ts) -> npt.NDArray[np.bool_]:
    found = pc.fill_null(pc.greater(values, ts), False)
    return np.asarray(found.to_numpy(zero_copy_only=False))


def _is_until(file: DataFile, columns: Sequence[PhysicalColumn], ts: Ts) -> bool:
    """Whether the file's statistics tell that nothing in these columns is above."""
    stats = json.loads(file.stats or "{}")
    highest = stats.get("maxValues") or {}
    nulls = stats.get("nullCount") or {}
    return all(
        nulls.get(column.physical) == stats.get("numRecords", -1)
        or highest.get(column.physical, ts + 1) <= ts
        for column in columns
    )


def _some(hits: Hits) -> dict[str, Ordinals]:
    return {path: rows for path, rows in hits.items() if len(rows)}


def merged(one: Hits, other: Hits) -> dict[str, Ordinals]:
    """The rows of both."""
    found = dict(one)
    for path, rows in other.items():
        found[path] = np.union1d(found[path], rows) if path in found else rows
    return found


def without(hits: Hits, gone: Hits) -> dict[str, Ordinals]:
    """The rows of the first that are not in the second."""
    left = {path: np.setdiff1d(rows, gone.get(path, rows[:0])) for path, rows in hits.items()}
    return _some(left)


class VersionsAbove:
    """The versions of a batch above a commit-ts."""

    def __init__(self, changes: pa.Table, key: Sequence[str], reached: Ts) -> None:
        self._changes = changes.filter(pc.greater(changes[VALID_FROM_TS], reached))
        self._key = key

    def find_current(self, table: TableHandle, sorted_by: Sequence[str]) -> dict[str, Ordinals]:
        """Where the current versions of its keys are."""
        columns = self._key_columns(table)
        _, rows = np.unique(pairs_of(keys_of(columns)), return_index=True)
        wanted = [column.take(pa.array(rows)) for column in columns]
        wanted.append(pa.repeat(pa.scalar(True), len(rows)))
        return table.find(sorted_by, wanted, sort_keys(keys_of(wanted)))

    def rows(self, table: TableHandle, current: Hits) -> pa.Table:
        """Its versions, and these rows of the table, each closed where a change of its key comes;
        with the physical names of the table's files."""
        is_version = pc.not_equal(self._changes[OP_COLUMN], DELETE)
        new = data_files.physical_rows(self._changes.filter(is_version), table.shape)
        old = list(rows_at(table, current))
        return pa.concat_tables([new, self._closed(table, pa.concat_tables(old))]) if old else new

    def _closed(self, table: TableHandle, old: pa.Table) -> pa.Table:
        shape = table.shape
        arrays = {
            column.name: data_files.one_array(old[column.physical], column.arrow)
            for column in shape.columns
        }
        ends = self._ends([arrays[name] for name in self._key], table)
        is_open = ends == 0
        told: dict[str, Any] = {
            VALID_TO_TS: pa.array(ends, mask=is_open),
            VALID_TO: pa.array(moment_us(ends), mask=is_open),
            IS_CURRENT: pa.array(is_open),
        }
        for name, values in told.items():
            arrays[name] = values.cast(shape.column(name).arrow)
        return pa.Table.from_arrays(list(arrays.values()), schema=shape.schema)

    def _ends(self, old_key: Sequence[pa.Array], table: TableHandle) -> npt.NDArray[np.int64]:
        """For each old row the commit-ts of its key's first change; 0: there is none."""
        count = self._changes.num_rows
        if not count:
            return np.zeros(len(old_key[0]), np.int64)
        both = [pairs_of(keys_of(self._key_columns(table))), pairs_of(keys_of(old_key))]
        _, ids = np.unique(np.concatenate(both), return_inverse=True)
        never = np.iinfo(np.int64).max
        first = np.full(int(ids.max()) + 1, never)
        np.minimum.at(first, ids[:count], self._changes[VALID_FROM_TS].to_numpy())
        found = first[ids[count:]]
        return np.where(found == never, 0, found)

    def _key_columns(self, table: TableHandle) -> list[pa.Array]:
        shape = table.shape
        return [
            data_files.one_array(self._changes[name], shape.column(name).arrow)
            for name in self._key
        ]
