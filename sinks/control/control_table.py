"""One small Delta table under ``<warehouse>/_tidelake``: every commit is a compare-and-set.

A writer looks at one version, plans a change from its content, and commits on top of it without
retries. Delta refuses the commit if any other came between; then the writer looks again and plans
anew. So whatever a plan checked (a term, a key, a checkpoint) holds on the very version that its
change follows (rule 6).

Only deltalake writes these tables: no Spark, no JVM.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from pyarrow.fs import FileSystem, SubTreeFileSystem

from coordination.errors import TidelakeError, TryAgain
from coordination.trust.clock import Clock, SystemClock
from sinks.control.columns import fitted, to_rows
from sinks.control.upkeep import NO_HOOKS, Upkeep, keep_up
from sinks.storage.errors import STORAGE_ERRORS, storage_error
from sinks.target.target_table import ONCE

FOLDER = "_tidelake"
MAX_TRIES = 200  # each lost try is another writer's success: far beyond any real contention
BACK_OFF_S = 0.01
OPEN_TRIES = 3
COMMIT_DOUBT_S = 300.0  # after a slower commit: look again, its log may have been cleaned meanwhile
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one commit does. Without ``rows`` it only sets transaction identities."""

    rows: pa.Table | None = None
    mode: Literal["append", "overwrite"] = "append"
    transactions: Mapping[str, int] = field(default_factory=dict)


class TableView:
    """One version of the table, for a reader or a plan; valid only while that runs."""

    def __init__(self, handle: DeltaTable, schema: pa.Schema, rows: pa.Table | None = None) -> None:
        self.version = handle.version()
        self.handle = handle
        self._schema = schema
        self._rows = rows

    def rows(self) -> pa.Table:
        """All rows of this version, read once."""
        if self._rows is None:
            self._rows = self.scan(self._schema.names).cast(self._schema)
        return self._rows

    def scan(self, columns: Sequence[str], where: Any = None) -> pa.Table:
        """These columns of the rows that match the pyarrow expression ``where``. Raises
        Unreadable."""
        try:
            dataset = self.handle.to_pyarrow_dataset(filesystem=_own_files(self.handle))
            return dataset.to_table(columns=list(columns), filter=where)
        except STORAGE_ERRORS as error:
            raise Unreadable(self.version) from error

    def transaction(self, app_id: str) -> int | None:
        """The version that is stored for a transaction identity; None without one."""
        return self.handle.transaction_version(app_id)


Plan = Callable[[TableView], Change | None]


def _own_files(handle: DeltaTable) -> FileSystem | None:
    """Arrow's own file system for a local table; None for others. deltalake's file system is Python
    code that Arrow's threads call: a process that ends just after a read was aborted by such a
    thread, one time in four.
    """
    if not handle.table_uri.startswith("file:"):
        return None
    files, root = FileSystem.from_uri(handle.table_uri)
    return SubTreeFileSystem(root, files)


class Unreadable(Exception):
    """Storage fails, or the table has newer versions and this version's files are deleted."""


class ControlTable:
    """Reads of one table, and compare-and-set commits to it. Thread-safe: one call at a time.

    ``tidy``: called by upkeep, to shrink the table in one commit (a prune, a compaction).
    """

    def __init__(
        self,
        warehouse: str,
        name: str,
        schema: pa.Schema,
        storage_options: Mapping[str, str] | None,
        *,
        description: str,
        tidy: Callable[[DeltaTable], None] | None = None,
        upkeep: Upkeep | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.uri = f"{warehouse.rstrip('/')}/{FOLDER}/{name}"
        self.name = name
        self.schema = schema
        self._description = description
        self._options = dict(storage_options or {})
        self._tidy = tidy
        self._upkeep = upkeep or Upkeep()
        self._clock = clock or SystemClock()
        self._view: TableView | None = None
        self._lock = threading.RLock()

    def read(self, reader: Callable[[TableView], T]) -> T | None:
        """The result of ``reader`` for the newest version; None when there is no table yet. Raises
        TryAgain, StorageAway or StorageRefuses."""
        with self._lock:
            for _ in range(MAX_TRIES):
                view = self._refresh()
                if view is None:
                    return None
                try:
                    return reader(view)
                except (Unreadable, *STORAGE_ERRORS) as error:
                    self._moved_or_raise(view, "read", error)
        raise TryAgain(f"cannot read {self.uri}: it changes faster than it can be read")

    def commit(self, plan: Plan, doing: str) -> int | None:
        """Plan and commit, again and again until no other commit comes between. Returns the new
        version, or None if the plan wanted no change. Makes the table if there is none.

        The plan runs once per try, and its errors are raised here. ``doing``: the verb of the
        error's text. Blocks; raises TryAgain, StorageAway or StorageRefuses.
        """
        with self._lock:
            for attempt in range(MAX_TRIES):
                view = self._refresh() or self._create()
                looked_at = self._clock.monotonic()
                try:
                    change = plan(view)
                    if change is None:
                        return None
                    self._commit_after(view, change)
                except (Unreadable, *STORAGE_ERRORS) as error:
                    self._moved_or_raise(view, doing, error)
                    self._back_off(attempt)
                    continue
                if self._clock.monotonic() - looked_at <= COMMIT_DOUBT_S:
                    version = view.version + 1
                    if version % self._upkeep.every_commits == 0:
                        keep_up(self.uri, self._options, version, self._upkeep, self._tidy)
                    return version
                self._view = None
        raise TryAgain(f"cannot {doing} {self.uri}: other writers came first {MAX_TRIES} times")

    def _refresh(self) -> TableView | None:
        """The newest version's view, which is the same object (with its rows) as before when no
        commit has come. None without a table."""
        for attempt in range(OPEN_TRIES):
            try:
                return self._look()
            except TableNotFoundError:
                self._view = None
                return None
            except STORAGE_ERRORS as error:  # for instance a log that is cleaned while it is read
                self._view = None
                if attempt == OPEN_TRIES - 1:
                    raise storage_error("open", self.uri, error) from error
                self._back_off(attempt)
        raise AssertionError("unreachable")

    def _look(self) -> TableView:
        if self._view is None:
            handle = DeltaTable(self.uri, storage_options=self._options)
            self._refuse_other_columns(handle)
            self._view = TableView(handle, self.schema)
            return self._view
        handle = self._view.handle
        handle.update_incremental()
        if handle.version() != self._view.version:
            self._view = TableView(handle, self.schema)
        return self._view

    def _refuse_other_columns(self, handle: DeltaTable) -> None:
        found = {field.name for field in handle.schema().fields}
        if found != set(self.schema.names):
            differs = ", ".join(sorted(found ^ set(self.schema.names)))
            raise TidelakeError(
                f"{self.uri} was made by another version of Tidelake: it has other columns "
                f"({differs}). Give this version a sink-uri of its own"
            )

    def _create(self) -> TableView:
        retention = f"interval {int(self._upkeep.retention.total_seconds())} seconds"
        try:
            DeltaTable.create(
                self.uri,
                self.schema,
                mode="error",
                name=self.name,
                description=self._description,
                configuration={
                    "delta.logRetentionDuration": retention,
                    "delta.deletedFileRetentionDuration": retention,
                    "delta.checkpointInterval": str(self._upkeep.every_commits),
                },
                storage_options=self._options,
                commit_properties=ONCE,
            )
        except STORAGE_ERRORS as error:  # another process may have been first
            if self._refresh() is None:
                raise storage_error("create", self.uri, error) from error
        view = self._refresh()
        if view is None:
            raise TidelakeError(f"cannot open {self.uri}: it vanished right after it was created")
        return view

    def _commit_after(self, view: TableView, change: Change) -> None:
        """One commit on top of ``view``; Delta refuses it if ``view`` is not the newest version."""
        properties = CommitProperties(
            max_commit_retries=0,
            app_transactions=[Transaction(*item) for item in change.transactions.items()],
        )
        if change.rows is None:
            view.handle.create_write_transaction(
                [],
                mode="append",
                schema=view.handle.schema(),
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )
            return
        write_deltalake(
            view.handle,
            fitted(change.rows),
            mode=change.mode,
            commit_properties=properties,
            post_commithook_properties=NO_HOOKS,
        )
        if change.mode == "overwrite" and view.handle.version() == view.version + 1:
            self._view = TableView(view.handle, self.schema, change.rows)

    def _moved_or_raise(self, view: TableView, doing: str, error: Exception) -> None:
        """Returns if another commit explains the failure: then the caller looks again. Otherwise
        the storage has failed: raises ``storage_error``."""
        self._view = None
        newest = self._refresh()
        if newest is None:
            raise TidelakeError(f"cannot {doing} {self.uri}: the table is gone") from error
        if newest.version <= view.version:
            raise storage_error(doing, self.uri, error.__cause__ or error) from error

    def _back_off(self, attempt: int) -> None:
        most_s = BACK_OFF_S * min(attempt + 1, 10)
        self._clock.wait(threading.Event(), random.uniform(0, most_s))


def replaced(view: TableView, changefeed_id: str, rows: Iterable[Any]) -> Change:
    """The change that replaces all rows of the changefeed by ``rows``; other changefeeds' stay."""
    stored = view.rows()
    others = stored.filter(pc.not_equal(stored["changefeed_id"], changefeed_id))
    ours = to_rows(rows, stored.schema)
    return Change(rows=pa.concat_tables([others, ours]).combine_chunks(), mode="overwrite")


def rows_of(view: TableView, changefeed_id: str) -> pa.Table:
    stored = view.rows()
    return stored.filter(pc.equal(stored["changefeed_id"], changefeed_id))
