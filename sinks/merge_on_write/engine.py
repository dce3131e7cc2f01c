"""The merge-on-write engine: a commit that costs what the batch costs.

An upsert finds the live rows of the batch's keys by key indexes, marks them in deletion vectors,
writes one file with the new rows, and commits both by put-if-absent of exactly the next version.
So the check of the transaction identity and the write are one compare-and-set on the log: a lost
race means to follow the log, look at the identity again, and find again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordination.errors import TidelakeError, TryAgain
from coordination.model import Ts
from sinks.apply import DELETE, OP_COLUMN, Applied, Skipped, TableWrite
from sinks.merge_on_write import data_files
from sinks.merge_on_write.actions import DataFile, Json, Transaction
from sinks.merge_on_write.commit import LostRace, commit
from sinks.merge_on_write.deletion_vector import vector_files
from sinks.merge_on_write.file_rows import Bounds, DeletedRows, IndexMemory, bounds_of
from sinks.merge_on_write.key_hash import Keys, is_numeric, keys_of
from sinks.merge_on_write.key_index import Ordinals, SortedKeys, first_double, sort_keys
from sinks.merge_on_write.open_table import OpenTable, TableGone
from sinks.merge_on_write.statistics import widened
from sinks.merge_on_write.storage import open_storage

MAX_RACES = 8  # lost in a row by one write; then the caller looks at its permit again
INDEX_MEMORY_BYTES = 1 << 30
READERS = 4  # files whose keys are read side by side: reading leaves the interpreter free
MAX_SORTED_BYTES = 1 << 30  # text of more than 2 GiB cannot be gathered at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Upserts:
    """The rows of a write that stay, as files that no commit names yet."""

    files: tuple[DataFile, ...]
    rows: tuple[int, ...]
    bounds: tuple[Bounds | None, ...]
    indexes: tuple[SortedKeys, ...]


class MergeOnWriteEngine:
    """Commits a ``pa.Table`` of changes. Threads may apply different tables at the same time."""

    name = "merge-on-write"

    def __init__(
        self,
        storage_options: Mapping[str, str],
        *,
        index_memory_bytes: int = INDEX_MEMORY_BYTES,
    ) -> None:
        self._storage_options = dict(storage_options)
        self._memory = IndexMemory(index_memory_bytes)
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="key-index")
        self._tables: dict[str, OpenTable] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """No further reads; what runs ends by itself."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def apply(self, write: TableWrite) -> Applied | Skipped:
        """Raises NotForThisEngine for a table that the Spark engine must write, TryAgain where
        other writers came first too often."""
        table = self.table(write.target.uri)
        with table.lock:
            try:
                return Upsert(table, write).run()
            except TableGone as gone:
                table.forget()
                name = write.target.name
                raise TidelakeError(
                    f"table {name} is gone from {write.target.uri}; restore it"
                ) from gone

    def table(self, uri: str) -> OpenTable:
        """The opened table of that place; use it under its lock."""
        with self._lock:
            if uri not in self._tables:
                storage = open_storage(uri, self._storage_options)
                self._tables[uri] = OpenTable(uri, storage, self._memory, self._pool)
            return self._tables[uri]


class Upsert:
    """One write to one table."""

    def __init__(self, table: OpenTable, write: TableWrite) -> None:
        self._table = table
        self._write = write
        self._key = write.target.schema.key
        self._upserts: Upserts | None = None  # written once, whatever races are lost

    def run(self) -> Applied | Skipped:
        for _ in range(MAX_RACES):
            self._table.refresh()
            identity = self._identity()
            if identity is not None and identity >= self._write.limit:
                return Skipped(self._table.state.version, Ts(identity))
            try:
                return Applied(self._commit())
            except LostRace:
                continue
        raise TryAgain(f"other commits came first on {self._write.target.uri}")

    def _identity(self) -> int | None:
        found = self._table.state.transactions.get(self._write.target.app_id)
        return None if found is None else found.version

    def _commit(self) -> int:
        """One try on the version that was followed. Raises LostRace."""
        table, write = self._table, self._write
        shape = table.shape
        changes = cast("pa.Table", write.changes)
        columns = [
            data_files.one_array(changes[name], shape.column(name).arrow) for name in self._key
        ]
        keys = keys_of(columns)
        wanted = sort_keys(keys)
        self._refuse_doubles(wanted, columns)
        hits = table.find(self._key, columns, wanted)
        if self._upserts is None:
            self._upserts = self._write_upserts(changes, keys, columns)
        now_ms = int(time.time() * 1000)
        actions, vectors = self._hit_actions(hits, now_ms)
        actions += [file.add(data_change=True) for file in self._upserts.files]
        identity = Transaction(
            app_id=write.target.app_id, version=write.limit, last_updated_ms=now_ms
        )
        write.before_commit()
        version = commit(
            table.storage,
            table.state,
            [identity.to_json(), *actions],
            operation="MERGE",
            user_metadata=write.user_metadata,
            now_ms=now_ms,
        )
        self._learn(vectors)
        return version

    def _refuse_doubles(self, wanted: SortedKeys, columns: Sequence[pa.Array]) -> None:
        row = first_double(wanted)
        if row is not None:
            key = ", ".join(
                f"{name}={column[row].as_py()!r}"
                for name, column in zip(self._key, columns, strict=True)
            )
            raise TidelakeError(
                f"table {self._write.target.name}: two changes of the row {key} in one write;"
                " this is a bug of Tidelake, nothing was written"
            )

    def _write_upserts(self, changes: pa.Table, keys: Keys, columns: Sequence[pa.Array]) -> Upserts:
        """Files sorted by key, so that later batches find their rows in few of them."""
        stays = np.asarray(pc.not_equal(changes[OP_COLUMN], DELETE).to_numpy(), dtype=np.bool_)
        rows = np.flatnonzero(stays)
        order = rows[_key_order(keys, columns, rows)]
        shape = self._table.shape
        now_ms = int(time.time() * 1000)
        files: list[DataFile] = []
        counts: list[int] = []
        bounds: list[Bounds | None] = []
        indexes: list[SortedKeys] = []
        for part in _parts(order, changes):
            here = data_files.physical_rows(changes.take(pa.array(part)), shape)
            files += data_files.write_files(self._table.storage, here, shape, now_ms)
            counts.append(len(part))
            bounds.append(bounds_of(columns[0].take(pa.array(part))))
            second = None if keys.second is None else keys.second[part]
            valid = None if keys.valid is None else keys.valid[part]
            indexes.append(sort_keys(Keys(keys.first[part], second, valid)))
        return Upserts(
            files=tuple(files), rows=tuple(counts), bounds=tuple(bounds), indexes=tuple(indexes)
        )

    def _hit_actions(
        self, hits: Mapping[str, Ordinals], now_ms: int
    ) -> tuple[list[Json], dict[str, tuple[DataFile, DeletedRows]]]:
        """The actions that take the hit rows out, after their vectors are written; and for each
        file that stays, its new line and its new vector."""
        table = self._table
        actions: list[Json] = []
        kept: dict[str, DeletedRows] = {}
        for path, ordinals in hits.items():
            known = table.files[path]
            actions.append(known.file.remove(now_ms, data_change=True))
            deleted = table.deleted_rows(known).with_more(ordinals)
            if len(deleted.vector) < table.count(known):
                kept[path] = deleted
        vectors: dict[str, tuple[DataFile, DeletedRows]] = {}
        paths = iter(kept)
        for name, content, descriptors in vector_files([each.vector for each in kept.values()]):
            table.storage.write(name, content)
            for descriptor in descriptors:
                path = next(paths)
                known = table.files[path]
                file = replace(
                    known.file,
                    deletion_vector=descriptor,
                    stats=widened(known.file.stats, table.count(known)),
                )
                actions.append(file.add(data_change=True))
                vectors[path] = file, replace(kept[path], vector_id=descriptor.unique_id)
        return actions, vectors

    def _learn(self, vectors: Mapping[str, tuple[DataFile, DeletedRows]]) -> None:
        """What the commit made true need not be read back."""
        table, upserts = self._table, self._upserts
        assert upserts is not None
        for path, (_, deleted) in vectors.items():
            table.files[path].deleted = deleted
        table.settle()
        for file, rows, bounds, index in zip(
            upserts.files, upserts.rows, upserts.bounds, upserts.indexes, strict=True
        ):
            table.learn(file, rows, bounds, index)


def _key_order(keys: Keys, columns: Sequence[pa.Array], rows: Ordinals) -> Ordinals:
    """How to take ``rows`` so that their keys rise."""
    if is_numeric([column.type for column in columns]):
        return np.argsort(keys.first[rows], kind="stable")
    names = [f"k{number}" for number in range(len(columns))]
    table = pa.table([column.take(pa.array(rows)) for column in columns], names=names)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
    return np.asarray(order.to_numpy(), dtype=np.int64)


def _parts(order: Ordinals, changes: pa.Table) -> list[Ordinals]:
    """In pieces of at most a file, and small enough to be gathered."""
    if not len(order):
        return []
    row_bytes = max(1, changes.nbytes // max(1, changes.num_rows))
    most = max(1, min(data_files.MAX_FILE_ROWS, MAX_SORTED_BYTES // row_bytes))
    return [order[start : start + most] for start in range(0, len(order), most)]
