"""The merge-on-write engine: a commit that costs what the batch costs.

An upsert finds the live rows of the batch's keys by key indexes, marks them in deletion vectors,
writes one file with the new rows, and commits both by put-if-absent of exactly the next version.
So the check of the transaction identity and the write are one compare-and-set on the log: a lost
race means to follow the log, look at the identity again, and find again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conf.settings import WriteModeName
from coordination.errors import TableSealed, TidelakeError
from coordination.model import SEALED_TS, Ts
from sinks.merge_on_write.alter.ddl_commit import alter
from sinks.merge_on_write.alter.table_ddl import TableDdl
from sinks.merge_on_write.counted_rows import CountedChanges, held_until, holds_until
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.file_cache import IndexMemory
from sinks.merge_on_write.files.key_index import SortedKeys, first_double, sort_keys
from sinks.merge_on_write.files.sorted_files import NewFile, write_sorted
from sinks.merge_on_write.load import TableLoad, load
from sinks.merge_on_write.log.actions import AppTransaction, Json
from sinks.merge_on_write.log.commit import prove_no_other_lock, prove_put_if_absent
from sinks.merge_on_write.log.file_locations import FileLocations
from sinks.merge_on_write.log.pause import is_paused
from sinks.merge_on_write.log.physical_schema import PhysicalSchema
from sinks.merge_on_write.row_history import Beyond, VersionsAbove, merged
from sinks.merge_on_write.table_handle import TableGone, TableHandle
from sinks.merge_on_write.upkeep.upkeep import TableUpkeep
from sinks.storage.errors import one_sentence
from sinks.storage.local_storage import LocalStorage
from sinks.storage.open_storage import StorageOpener
from sinks.storage.table_storage import TableStorage
from sinks.target.engine_port import (
    DELETE,
    OP_COLUMN,
    Applied,
    Skipped,
    TableAltered,
    TableBroughtBack,
    TableHeld,
    TableWrite,
    Target,
)
from sinks.target.table_properties import ALTERED
from sinks.target.way_out import paused
from sinks.target.write_mode import COMMIT_TS
from sinks.types.key_hash import Mask, Ordinals, keys_of

INDEX_MEMORY_BYTES = 1 << 30
_DELETE = pa.scalar(DELETE)  # made once: to convert it takes longer than to compare few rows
READERS = 4  # files whose keys are read side by side: reading leaves the interpreter free


class MergeOnWriteEngine:
    """Commits a ``pa.Table`` of changes. Threads may apply different tables at the same time."""

    name = "merge-on-write"

    def __init__(
        self,
        storage_options: Mapping[str, str],
        *,
        index_memory_bytes: int = INDEX_MEMORY_BYTES,
        keeps_up: bool = True,
    ) -> None:
        """``keeps_up``: whether its thread folds files, writes checkpoints and cleans up."""
        self._open_place = StorageOpener(dict(storage_options))
        self._memory = IndexMemory(index_memory_bytes)
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="key-index")
        self._tables: dict[str, TableHandle] = {}
        self.upkeep = TableUpkeep()
        self._keeps_up = keeps_up
        self._is_proven = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Ends upkeep. Writes under way end by themselves."""
        self.upkeep.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def apply(self, write: TableWrite) -> Applied | Skipped:
        """Raises NotForThisEngine for a table that the Spark engine must write, TryAgain where
        other writers came first too often."""
        is_counted = write.target.schema.counts_rows
        kind = _Counted if is_counted else _WRITES[write.target.form.mode]
        sorted_by = write.target.sorted_by
        return self._run(write.target, sorted_by, lambda table: kind(table, write).run())

    def replay(self, write: TableWrite, choose: Callable[[], pa.Table | None]) -> Applied | Skipped:
        """Applies changes of an upserted table that lie at or below ``write.limit``, which the
        table has reached: its identity stays as it is. ``choose`` is asked for the changes on each
        version that is tried, so its answer holds on the version that gets the commit; None: there
        is nothing to apply."""
        sorted_by = write.target.sorted_by
        return self._run(write.target, sorted_by, lambda table: _Replay(table, write, choose).run())

    def load(self, order: TableLoad) -> Applied | Skipped:
        """Fills a new table. Refuses a table that is for the Spark engine."""
        sorted_by = order.target.sorted_by
        return self._run(order.target, sorted_by, lambda table: load(table, order))

    def alter(self, order: TableDdl) -> Applied | Skipped:
        """As ``apply``, for a DDL. Refuses a table that is for the Spark engine."""
        return self._run(order.target, order.sorted_by, lambda table: alter(table, order))

    def _run(
        self,
        target: Target,
        sorted_by: Sequence[str],
        deed: Callable[[TableHandle], Applied | Skipped],
    ) -> Applied | Skipped:
        """``sorted_by``: the columns by which the table's files are sorted afterwards."""
        table = self.table(target.uri)
        with table.lock:
            try:
                with one_sentence("write to", target.uri):
                    result = deed(table)
            except TableGone as gone:
                table.forget()
                raise TidelakeError(
                    f"table {target.name} is gone from {target.uri}; restore it"
                ) from gone
        if isinstance(result, Applied) and self._keeps_up:
            self.upkeep.committed(table, sorted_by)
        return result

    def check_shape(self, target: Target) -> None:
        """Raises TableAltered."""
        table = self.table(target.uri)
        with table.lock, one_sentence("read the Delta log of", target.uri):
            table.refresh()
            _check_shape(table, target)

    def table(self, uri: str) -> TableHandle:
        """The opened table of that place; use it under its lock."""
        with self._lock:
            if uri not in self._tables:
                storage = self._open_storage(uri)
                if not isinstance(storage, LocalStorage):
                    with one_sentence("write to", uri):
                        self._prove(storage)
                located = FileLocations(storage, self._open_place)
                self._tables[uri] = TableHandle(uri, storage, located, self._memory, self._pool)
            return self._tables[uri]

    def _prove(self, storage: TableStorage) -> None:
        """Proves that commits are safe: once for the storage, and once for the table that no other
        lock is used."""
        if not self._is_proven:
            prove_put_if_absent(storage)
            self._is_proven = True
        prove_no_other_lock(storage)

    def _open_storage(self, uri: str) -> TableStorage:
        return self._open_place(uri)


def _check_shape(table: TableHandle, target: Target) -> None:
    metadata = table.state.metadata
    assert metadata is not None
    if target.shaped_by is not None and metadata.configuration.get(ALTERED, "") != target.shaped_by:
        raise TableAltered(f"a DDL has run on {target.name}")


class _Upsert:
    """One write to one table, whose lock is held."""

    operation = "MERGE"

    def __init__(self, table: TableHandle, write: TableWrite) -> None:
        self._table = table
        self._write = write
        self._changes = cast("pa.Table", write.changes)
        self._key = write.target.sorted_by
        self._written: list[NewFile] = []
        self._written_as: PhysicalSchema | None = None  # once, whatever races are lost

    def run(self) -> Applied | Skipped:
        return self._table.until_won(self._try)

    def _try(self) -> Applied | Skipped:
        state = self._table.state
        identity = state.transactions.get(self._write.target.app_id)
        if identity is None or identity.version != SEALED_TS:
            self._refuse_brought_back()
        if identity is not None and identity.version >= self._write.limit:
            return Skipped(state.version, Ts(identity.version))
        _check_shape(self._table, self._write.target)
        if is_paused(state.metadata):
            raise TableHeld(paused(self._write.target.name))
        return Applied(self._commit())

    def _refuse_brought_back(self) -> None:
        target, last = self._write.target, self._write.last
        found = None if last is None else self._table.brought_back(last, target.app_id)
        if found is not None:
            raise TableBroughtBack(found.sentence(target.name))

    def _commit(self) -> int:
        """One try on the version that was followed. Raises LostRace."""
        table, write = self._table, self._write
        looked_at = table.state.version
        hits = self._find()
        written = self._write_rows()
        now_ms = int(time.time() * 1000)
        actions, marked = table.taken_out(hits, now_ms)
        actions += [each.file.add(data_change=True) for each in written]
        write.before_commit()
        version = table.commit(
            looked_at,
            [*self._named(), *actions],
            operation=self.operation,
            user_metadata=write.user_metadata,
        )
        for file, deleted in marked:
            table.marked(file, deleted)
        table.learn(self._key, written)
        return version

    def _named(self) -> list[Json]:
        """The actions that say how far the table is afterwards."""
        now_ms = int(time.time() * 1000)
        app_id, limit = self._write.target.app_id, self._write.limit
        return [AppTransaction(app_id=app_id, version=limit, last_updated_ms=now_ms).to_json()]

    def _find(self) -> dict[str, Ordinals]:
        """The live rows of all keys of the batch: inserted ones count too, they may be there."""
        shape = self._table.shape
        columns = [
            data_files.one_array(self._changes[name], shape.column(name).arrow)
            for name in self._key
        ]
        wanted = sort_keys(keys_of(columns))
        self._refuse_doubles(wanted, columns)
        return self._table.find(self._key, columns, wanted)

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

    def _write_rows(self) -> list[NewFile]:
        shape, storage = self._table.shape, self._table.storage
        # What was written before a lost race a VACUUM that keeps nothing may have taken.
        are_there = all(storage.size(each.file.path) is not None for each in self._written)
        if self._written_as != shape or not are_there:
            is_written = self._is_written()
            among = None if is_written.all() else np.flatnonzero(is_written)
            rows = data_files.physical_rows(self._changes, shape)
            self._written = write_sorted(storage, rows, self._key, shape, among)
            self._written_as = shape
        return self._written

    def _is_written(self) -> Mask:
        """By row."""
        return np.asarray(pc.not_equal(self._changes[OP_COLUMN], _DELETE).to_numpy())


class _Replay(_Upsert):
    def __init__(
        self, table: TableHandle, write: TableWrite, choose: Callable[[], pa.Table | None]
    ) -> None:
        super().__init__(table, write)
        self._choose = choose

    def _try(self) -> Applied | Skipped:
        state, target = self._table.state, self._write.target
        identity = state.transactions.get(target.app_id)
        if identity is not None and identity.version == SEALED_TS:
            raise TableSealed(f"table {target.name} is sealed: a newer incarnation replicates it")
        self._refuse_brought_back()
        _check_shape(self._table, target)
        if is_paused(state.metadata):
            raise TableHeld(paused(target.name))
        if (changes := self._choose()) is None:
            return Skipped(state.version, self._write.limit)
        self._changes, self._written_as = changes, None
        return Applied(self._commit())

    def _named(self) -> list[Json]:
        return []


class _Append(_Upsert):
    """One write to a change log: it replaces the events in (the log's identity, limit].

    The identity is looked at in the same compare-and-set as the write. So an event that the log has
    is left out, whoever wrote it, and whatever races are lost. The table has rows of that range
    only if a rewind has taken the identity back.
    """

    operation = "WRITE"

    def __init__(self, table: TableHandle, write: TableWrite) -> None:
        super().__init__(table, write)
        self._reached: Ts | None = None  # what the written files are above of

    def _commit(self) -> int:
        identity = self._table.state.transactions.get(self._write.target.app_id)
        reached = self._write.checkpoint if identity is None else Ts(identity.version)
        if reached != self._reached:
            self._reached, self._written_as = reached, None
        return super()._commit()

    def _find(self) -> dict[str, Ordinals]:
        assert self._reached is not None
        return self._table.between(COMMIT_TS, self._reached, self._write.limit)

    def _is_written(self) -> Mask:
        return np.asarray(pc.greater(self._changes[COMMIT_TS], self._reached).to_numpy())


class _History(_Append):
    """One write to a history. As with a change log, versions at or below the identity are left out.
    Versions above it close the current versions of their keys, and are added."""

    operation = "MERGE"

    def __init__(self, table: TableHandle, write: TableWrite) -> None:
        super().__init__(table, write)
        self._batch = VersionsAbove(self._changes, write.target.schema.key, write.checkpoint)
        self._closed: dict[str, Ordinals] = {}

    def _find(self) -> dict[str, Ordinals]:
        assert self._reached is not None
        self._batch = VersionsAbove(self._changes, self._write.target.schema.key, self._reached)
        beyond = Beyond.of(self._table, self._reached, self._write.target.app_id)
        self._closed = beyond.taken_back(self._batch.find_current(self._table, self._key))
        return merged(self._closed, beyond.later)

    def _write_rows(self) -> list[NewFile]:
        table = self._table
        rows = self._batch.rows(table, self._closed)
        return write_sorted(table.storage, rows, self._key, table.shape)


class _Counted(_Append):
    """One write to a table that has equal rows as often as its upstream table. Changes that the
    table holds, by its own log, are left out."""

    operation = "MERGE"

    def __init__(self, table: TableHandle, write: TableWrite) -> None:
        super().__init__(table, write)
        self._counted: CountedChanges | None = None

    def _find(self) -> dict[str, Ordinals]:
        assert self._reached is not None
        above = max(self._reached, held_until(self._table.state))
        self._counted = CountedChanges.above(self._changes, above, self._table)
        return self._counted.find_gone(self._table, self._key, self._write.target.name)

    def _write_rows(self) -> list[NewFile]:
        assert self._counted is not None
        table = self._table
        rows = data_files.physical_rows(self._counted.changes, table.shape)
        return write_sorted(table.storage, rows, self._key, table.shape, self._counted.come())

    def _named(self) -> list[Json]:
        until = max(self._write.limit, held_until(self._table.state))
        return [*super()._named(), holds_until(until, int(time.time() * 1000)).to_json()]


_WRITES: Mapping[WriteModeName, type[_Upsert]] = {
    "upsert": _Upsert,
    "append": _Append,
    "history": _History,
}
