"""A table that is being written: its log followed, the rows of a batch's keys found.

One process has one ``OpenTable`` of a table, used under its lock. The log in storage is the truth;
what is kept here (vectors, bounds, key indexes) can be read again at any time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

import pyarrow as pa
from pyroaring import BitMap64

from coordination.clock import SystemClock
from coordination.errors import TryAgain
from sinks.merge_on_write import data_files
from sinks.merge_on_write.actions import DataFile, Json
from sinks.merge_on_write.commit import LostRace, TooLate, commit
from sinks.merge_on_write.deletion_vector import file_of, read_vector
from sinks.merge_on_write.file_rows import DeletedRows, FileRows, IndexMemory
from sinks.merge_on_write.forgotten import WITHIN_MS
from sinks.merge_on_write.key_bounds import Bounds, bounds_of, may_hold, told_bounds
from sinks.merge_on_write.key_hash import is_numeric, keys_of
from sinks.merge_on_write.key_index import Ordinals, SortedKeys, rows_with, sort_keys
from sinks.merge_on_write.located import LocatedFiles
from sinks.merge_on_write.log_reader import LogMoved, follow, read_log
from sinks.merge_on_write.log_state import LogState
from sinks.merge_on_write.sorted_files import NewFile
from sinks.merge_on_write.storage import TableStorage
from sinks.merge_on_write.table_shape import ShapeColumn, TableShape

MAX_RACES = 8  # lost in a row by one write; then the caller looks at its permit again
_CLOCK = SystemClock()
Result = TypeVar("Result")


class TableGone(Exception):
    """There is no Delta table at this place (any more)."""


class OpenTable:
    """The newest version of a table, as far as it was followed. Not for two threads at once: hold
    ``lock`` from ``refresh`` to the last use of what it showed."""

    def __init__(
        self,
        uri: str,
        storage: TableStorage,
        located: LocatedFiles,
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
        self._shape: TableShape | None = None
        self._shaped_by: tuple[Any, Any] = (None, None)
        self._files: dict[str, FileRows] = {}
        self._key: tuple[ShapeColumn, ...] = ()  # what bounds and indexes are of
        self._followed_at = 0.0

    @property
    def state(self) -> LogState:
        assert self._state is not None, "refresh comes first"
        return self._state

    @property
    def shape(self) -> TableShape:
        """Of the metadata and protocol as followed; raises NotForThisEngine."""
        shaped_by = (self.state.metadata, self.state.protocol)
        if self._shape is None or self._shaped_by != shaped_by:
            metadata, protocol = shaped_by
            assert metadata is not None
            assert protocol is not None
            self._shape, self._shaped_by = TableShape.of(protocol, metadata), shaped_by
        return self._shape

    @property
    def files(self) -> Mapping[str, FileRows]:
        return self._files

    def refresh(self) -> None:
        """Follow the log to its end; read it anew where it is no longer the one we followed."""
        self._followed_at = _CLOCK.monotonic()  # which goes on while the machine sleeps
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
        """Nothing that is known holds any more: the next ``refresh`` reads the log from scratch."""
        self._state = self._shape = None
        self._files.clear()
        self._memory.drop(self.uri)

    def until_won(self, attempt: Callable[[], Result]) -> Result:
        """The outcome of an attempt on the newest version: again where another commit came first.

        The attempt looks at the table's identities itself. TryAgain: it has lost too many races,
        or the table was made again.
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
        """The version behind ``after``, which is what the actions were computed from. Raises
        LostRace, LogMoved, TooLate."""
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
        """Bring what is known of files in line with the files that are live."""
        live = self.state.files
        for path in [path for path in self._files if path not in live]:
            del self._files[path]
            self._memory.drop(self.uri, path)
        for path, file in live.items():
            known = self._files.get(path)
            if known is None:
                self._files[path] = FileRows(file=file)
            elif known.file is not file:
                known.file = file
                if known.deleted is not None and known.deleted.vector_id != file.vector_id:
                    known.deleted = None

    def learn(self, key: Sequence[str], written: Iterable[NewFile]) -> None:
        """After a commit: what is known of its new files need not be read. Bounds and indexes are
        of this key, which may be no longer the one that is asked for."""
        is_ours = self._key == self._columns_of(key)
        for each in written:
            known = FileRows(file=each.file, rows=each.rows, deleted=DeletedRows.none(each.rows))
            if is_ours:
                known.bounds, known.bounds_known = each.bounds, True
                self._memory.put(self.uri, each.file.path, each.index)
            self._files[each.file.path] = known

    def marked(self, file: DataFile, deleted: DeletedRows) -> None:
        """After a commit: a file's new vector need not be read."""
        known = self._files[file.path]
        known.deleted = deleted
        assert file.deletion_vector is not None
        known.vector_bytes += file.deletion_vector.size_in_bytes

    def find(
        self, key: Sequence[str], columns: Sequence[pa.Array], wanted: SortedKeys
    ) -> dict[str, Ordinals]:
        """Where the live rows of these keys are: file path to ordinals, hit files alone.

        ``columns`` are the batch's key columns, in the table's types; ``wanted`` their keys.
        """
        key_columns = self._columns_of(key)
        if self._key != key_columns:
            self._memory.drop(self.uri)
            for each in self._files.values():
                each.bounds, each.bounds_known = None, False
            self._key = key_columns
        if not len(wanted):
            return {}
        batch_bounds = bounds_of(columns[0])
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

    def _columns_of(self, key: Sequence[str]) -> tuple[ShapeColumn, ...]:
        """By their physical names: a name may be used again for another column."""
        return tuple(self.shape.column(name) for name in key)

    def deleted_rows(self, each: FileRows) -> DeletedRows:
        if each.deleted is None or each.deleted.vector_id != each.file.vector_id:
            rows = self.count(each)
            descriptor = each.file.deletion_vector
            if descriptor is None:
                each.deleted = DeletedRows.none(rows)
            else:
                vector = self._read_vector(each.file)
                each.deleted = DeletedRows.of(vector, descriptor.unique_id, rows)
        return each.deleted

    def _read_vector(self, file: DataFile) -> BitMap64:
        descriptor = file.deletion_vector
        assert descriptor is not None
        path = file_of(descriptor)
        content = b"" if path is None else self.located.read(path)
        return read_vector(content, descriptor)

    def count(self, each: FileRows) -> int:
        """The physical rows of a file."""
        if each.rows is None:
            each.rows = data_files.count_rows(self.located, each.file)
        return each.rows

    def _bounds(self, each: FileRows, first: ShapeColumn) -> Bounds | None:
        if not each.bounds_known:
            each.bounds = told_bounds(self.located, each.file, first)
            each.bounds_known = True
        return each.bounds

    def _indexes(
        self, files: Iterable[FileRows], key_columns: Sequence[ShapeColumn]
    ) -> list[SortedKeys]:
        """The key index of each, those that are not in memory read side by side."""
        known = [(each, self._memory.get(self.uri, each.file.path)) for each in files]
        cold = [each for each, index in known if index is None]
        side_by_side = self._pool.map if len(cold) > 1 else map
        read = iter(side_by_side(lambda each: self._read_index(each, key_columns), cold))
        return [next(read) if index is None else index for _, index in known]

    def _read_index(self, each: FileRows, key_columns: Sequence[ShapeColumn]) -> SortedKeys:
        columns, rows = data_files.read_columns(self.located, each.file, key_columns)
        index = sort_keys(keys_of(columns))
        each.rows = rows
        bounds = bounds_of(columns[0])
        if bounds is not None:
            each.bounds, each.bounds_known = bounds, True
        self._memory.put(self.uri, each.file.path, index)
        return index


def _within(wanted: SortedKeys, bounds: Bounds) -> SortedKeys:
    """The part of the wanted keys that a file of these bounds can hold: keys in their own order."""
    low, high = (
        wanted.first.searchsorted(bounds[0]),
        wanted.first.searchsorted(bounds[1], "right"),
    )
    rows = None if wanted.rows is None else wanted.rows[low:high]
    return SortedKeys(first=wanted.first[low:high], second=None, rows=rows)
