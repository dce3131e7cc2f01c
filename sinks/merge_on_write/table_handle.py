"""A table that is being written: follows its log, and finds the rows of a batch's keys.

A process has one ``TableHandle`` for a table, and uses it under its lock. The log in storage is the
truth; vectors, bounds and key indexes are kept here as a cache.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordination.errors import TryAgain
from coordination.model import NO_TS, Ts
from coordination.trust.clock import SystemClock
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.file_cache import CachedFile, DeletedRows, IndexMemory, mark
from sinks.merge_on_write.files.key_bounds import Bounds, bounds_by, may_hold, told_bounds
from sinks.merge_on_write.files.key_index import SortedKeys, rows_with, sort_keys
from sinks.merge_on_write.files.sorted_files import NewFile
from sinks.merge_on_write.log.actions import DataFile, Json
from sinks.merge_on_write.log.brought_back import BroughtBack, LogNow, look
from sinks.merge_on_write.log.commit import LostRace, TooLate, commit
from sinks.merge_on_write.log.file_locations import FileLocations
from sinks.merge_on_write.log.physical_schema import PhysicalColumn, PhysicalSchema
from sinks.merge_on_write.log.reader import LogMoved, follow, read_log
from sinks.merge_on_write.log.state import NEVER, LogState
from sinks.merge_on_write.log.tombstones import WITHIN_MS
from sinks.storage.table_storage import TableStorage
from sinks.target.engine_port import LastSeen
from sinks.types.key_hash import Ordinals, is_numeric, keys_of

MAX_RACES = 8  # that one write may lose in a row; then the caller must check its permit again
_CLOCK = SystemClock()
Result = TypeVar("Result")


class TableGone(Exception):
    """There is no Delta table at this place (any more)."""


class TableHandle:
    """A table at the version up to which its log was followed. One thread at a time: hold ``lock``
    from ``refresh`` until the last use of its answers."""

    def __init__(
        self,
        uri: str,
        storage: TableStorage,
        located: FileLocations,
        memory: IndexMemory,
        pool: Executor,
    ) -> None:
        self.uri = uri
        self.storage = storage
        self.located = located
        self.lock = threading.RLock()
        self._memory = memory
        self._pool = pool
        self._state: LogState | None = None
        self._shape: PhysicalSchema | None = None
        self._shaped_by: tuple[Any, Any] = (None, None)
        self._files: dict[str, CachedFile] = {}
        self._key: tuple[PhysicalColumn, ...] = ()  # of which bounds and indexes are
        self._followed_at = 0.0
        self._looked_at: tuple[LastSeen, LogNow] | None = None
        self._found: BroughtBack | None = None

    @property
    def state(self) -> LogState:
        assert self._state is not None, "refresh comes first"
        return self._state

    @property
    def shape(self) -> PhysicalSchema:
        """The shape by the metadata and protocol of this version. Raises NotForThisEngine."""
        shaped_by = (self.state.metadata, self.state.protocol)
        if self._shape is None or self._shaped_by != shaped_by:
            metadata, protocol = shaped_by
            assert metadata is not None
            assert protocol is not None
            self._shape, self._shaped_by = PhysicalSchema.of(protocol, metadata), shaped_by
        return self._shape

    @property
    def files(self) -> Mapping[str, CachedFile]:
        return self._files

    def refresh(self) -> None:
        """Follow the log to its end, or read it from scratch where our head is gone. Raises
        TableGone."""
        self._followed_at = _CLOCK.monotonic()  # this clock goes on while the machine sleeps
        if self._state is not None:
            try:
                follow(self.storage, self._state)
            except LogMoved:
                self.forget()
        if self._state is None:
            self._state = read_log(self.storage, forget_vectors_within_ms=WITHIN_MS)
            if self._state is None:
                raise TableGone(self.uri)
        self.settle()

    def forget(self) -> None:
        """Forget everything about the table: the next ``refresh`` reads the log from scratch."""
        self._state = self._shape = None
        self._files.clear()
        self._memory.drop(self.uri)

    def brought_back(self, last: LastSeen, app_id: str) -> BroughtBack | None:
        """The hold on the table at this version, which was right when it was last seen. Reads only
        if another writer has committed since."""
        state = self.state
        identity = state.transactions.get(app_id)
        now = LogNow(
            version=state.version,
            identity=None if identity is None else Ts(identity.version),
            properties={} if state.metadata is None else state.metadata.configuration,
        )
        others = state.foreign[-1] if state.foreign else NEVER
        is_seen = max(others, state.begun_at) <= last.version <= state.version
        if is_seen and (last.identity is None or (now.identity or NO_TS) >= last.identity):
            return None
        if self._looked_at != (last, now):
            self._found, self._looked_at = look(self.storage, last, now), (last, now)
        return self._found

    def until_won(self, attempt: Callable[[], Result]) -> Result:
        """The result of ``attempt``, which is called on the newest version, and again when another
        commit came first.

        ``attempt`` must look at the table's identities itself. Raises TryAgain where too many races
        were lost, or the table was made again; TableGone; and what ``attempt`` raises.
        """
        table_id: str | None = None
        for _ in range(MAX_RACES):
            self.refresh()
            assert self.state.metadata is not None
            if table_id not in (None, self.state.metadata.id):
                raise TryAgain(f"the table at {self.uri} was made again by somebody")
            table_id = self.state.metadata.id
            try:
                return attempt()
            except (LostRace, LogMoved, TooLate):
                continue
        raise TryAgain(f"other commits came first on {self.uri}")

    def commit(
        self, after: int, actions: Sequence[Json], *, operation: str, user_metadata: str
    ) -> int:
        """Commit the version after ``after``, from which the actions were computed, and return it.
        Raises LostRace, LogMoved, TooLate."""
        if self.state.version != after:
            raise LostRace(f"{self.uri} has gone on to version {self.state.version}")
        try:
            version = commit(
                self.storage,
                self.state,
                actions,
                operation=operation,
                user_metadata=user_metadata,
                now_ms=int(time.time() * 1000),
                followed_at=self._followed_at,
            )
        except LogMoved:
            self.forget()
            raise
        self.settle()
        return version

    def settle(self) -> None:
        """Adapt the cached facts of files to the files that are live now."""
        live = self.state.files
        for path in [path for path in self._files if path not in live]:
            del self._files[path]
            self._memory.drop(self.uri, path)
        for path, file in live.items():
            known = self._files.get(path)
            if known is None:
                self._files[path] = CachedFile(file=file)
            elif known.file is not file:
                known.file = file
                if known.deleted is not None and known.deleted.vector_id != file.vector_id:
                    known.deleted = None

    def learn(self, key: Sequence[str], written: Iterable[NewFile]) -> None:
        """Call after a commit: its new files are known, and need not be read. Their bounds and
        indexes are of this ``key``; they are not used where `find` has gone on to another key."""
        is_ours = self._key == self._columns_of(key)
        for each in written:
            known = CachedFile(
                file=each.file,
                rows=each.rows,
                deleted=DeletedRows.none(each.rows),
                memory_bytes=each.memory_bytes,
            )
            if is_ours:
                known.bounds, known.bounds_known = each.bounds, True
                self._memory.put(self.uri, each.file.path, each.index)
            self._files[each.file.path] = known

    def marked(self, file: DataFile, deleted: DeletedRows) -> None:
        """Call after a commit: the file's new vector is known, and need not be read."""
        known = self._files[file.path]
        known.deleted = deleted
        assert file.deletion_vector is not None
        known.vector_bytes += file.deletion_vector.size_in_bytes

    def find(
        self, key: Sequence[str], columns: Sequence[pa.Array], wanted: SortedKeys
    ) -> dict[str, Ordinals]:
        """Where the live rows of these keys are: file path -> ordinals, for files that have some.

        ``columns`` are the batch's key columns, in the table's types; ``wanted`` are their keys.
        """
        key_columns = self._columns_of(key)
        if self._key != key_columns:
            self._memory.drop(self.uri)
            for each in self._files.values():
                each.bounds, each.bounds_known = None, False
            self._key = key_columns
        if not len(wanted):
            return {}
        batch_bounds = None if columns[0].null_count else bounds_by(wanted, columns[0])
        numeric = is_numeric([column.arrow for column in key_columns])
        candidates = [
            each
            for each in self._files.values()
            if may_hold(self._bounds(each, key_columns[0]), batch_bounds)
        ]
        found: dict[str, Ordinals] = {}
        for each, index in zip(candidates, self._indexes(candidates, key_columns), strict=True):
            here = _within(wanted, each.bounds) if numeric and each.bounds else wanted
            hits = rows_with(index, here)
            if len(hits):
                hits = hits[~self.deleted_rows(each).mask[hits]]
            if len(hits):
                found[each.file.path] = hits
        return found

    def taken_out(
        self, hits: Mapping[str, Ordinals], now_ms: int
    ) -> tuple[list[Json], list[tuple[DataFile, DeletedRows]]]:
        """The actions that take these live rows out, and the files that stay, with their vectors,
        which are written here. Tell ``marked`` of them after the commit."""
        actions: list[Json] = []
        kept: dict[str, DeletedRows] = {}
        for path, ordinals in hits.items():
            known = self._files[path]
            actions.append(known.file.remove(now_ms, data_change=True))
            deleted = self.deleted_rows(known).with_more(ordinals)
            if len(deleted.vector) < self.count(known):
                kept[path] = deleted
        files = {path: self._files[path].file for path in kept}
        marked = list(mark(self.storage, files, kept))
        actions += [file.add(data_change=True) for file, _ in marked]
        return actions, marked

    def between(self, name: str, above: int, upto: int) -> dict[str, Ordinals]:
        """Where the live rows are that have, in this column of integers, more than ``above`` and no
        more than ``upto``: file path to ordinals, hit files alone. Only for a table that ``find``
        is not asked of: the bounds are of this column."""
        column = self.shape.column(name)
        found: dict[str, Ordinals] = {}
        for each in self._files.values():
            bounds = self._bounds(each, column)
            if bounds is not None and (bounds[1] <= above or bounds[0] > upto):
                continue
            (values,), _ = data_files.read_columns(self.located, each.file, [column])
            is_hit = pc.and_(pc.greater(values, above), pc.less_equal(values, upto))
            hits = np.flatnonzero(pc.fill_null(is_hit, False).to_numpy(zero_copy_only=False))
            if len(hits):
                hits = hits[~self.deleted_rows(each).mask[hits]]
            if len(hits):
                found[each.file.path] = hits
        return found

    def _columns_of(self, key: Sequence[str]) -> tuple[PhysicalColumn, ...]:
        """The key's columns with their physical names, since a name may be used again for another
        column."""
        return tuple(self.shape.column(name) for name in key)

    def deleted_rows(self, each: CachedFile) -> DeletedRows:
        if each.deleted is None or each.deleted.vector_id != each.file.vector_id:
            each.deleted = DeletedRows.read(self.located, each.file, self.count(each))
        return each.deleted

    def count(self, each: CachedFile) -> int:
        """How many rows the file has, deleted ones included."""
        if each.rows is None:
            each.rows = data_files.count_rows(self.located, each.file)
        return each.rows

    def _bounds(self, each: CachedFile, first: PhysicalColumn) -> Bounds | None:
        if not each.bounds_known:
            each.bounds = told_bounds(self.located, each.file, first)
            each.bounds_known = True
        return each.bounds

    def _indexes(
        self, files: Iterable[CachedFile], key_columns: Sequence[PhysicalColumn]
    ) -> list[SortedKeys]:
        """The key indexes of these files, in order. Indexes that are not in memory are read in
        parallel."""
        known = [(each, self._memory.get(self.uri, each.file.path)) for each in files]
        cold = [each for each, index in known if index is None]
        side_by_side = self._pool.map if len(cold) > 1 else map
        read = iter(side_by_side(lambda each: self._read_index(each, key_columns), cold))
        return [next(read) if index is None else index for _, index in known]

    def _read_index(self, each: CachedFile, key_columns: Sequence[PhysicalColumn]) -> SortedKeys:
        columns, rows = data_files.read_columns(self.located, each.file, key_columns)
        index = sort_keys(keys_of(columns))
        each.rows = rows
        bounds = bounds_by(index, columns[0])
        if bounds is not None:
            each.bounds, each.bounds_known = bounds, True
        self._memory.put(self.uri, each.file.path, index)
        return index


def _within(wanted: SortedKeys, bounds: Bounds) -> SortedKeys:
    """The wanted keys that a file with these bounds can hold; for keys that are numbers."""
    if wanted.second is not None:  # NULL is in no bounds
        return wanted
    low, high = (
        wanted.first.searchsorted(bounds[0]),
        wanted.first.searchsorted(bounds[1], "right"),
    )
    rows = None if wanted.rows is None else wanted.rows[low:high]
    return SortedKeys(first=wanted.first[low:high], second=None, rows=rows)


def rows_at(table: TableHandle, hits: Mapping[str, Ordinals]) -> Iterator[pa.Table]:
    """These rows, with physical names, in parts."""
    columns = table.shape.columns
    for path, ordinals in hits.items():
        file = table.files[path].file
        yield from data_files.read_rows(table.located, file, np.sort(ordinals), columns)
