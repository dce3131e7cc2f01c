"""Maintains target tables between commits, so that users need no OPTIMIZE or VACUUM of their own.

One thread of the engine folds files, writes checkpoints, and deletes files that no version within
retention needs. It gathers files outside of a table's folder too, slowly: to write a large table
anew must not take what its rows need. A failure is logged as a warning, and the upkeep after the
next commit tries again. It may be interrupted at any time: it adds no row to a table, and takes
none away.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from coordination.errors import TidelakeError
from sinks.merge_on_write.log.checkpoint_writer import write_checkpoint
from sinks.merge_on_write.log.pause import is_paused
from sinks.merge_on_write.log.reader import LogMoved
from sinks.merge_on_write.table_handle import TableGone, TableHandle
from sinks.merge_on_write.upkeep.clean_up import clean_files, clean_log
from sinks.merge_on_write.upkeep.fold import fold, paths_outside, paths_to_fold
from sinks.storage.errors import STORAGE_ERRORS, one_line

CHECKPOINT_INTERVAL = "delta.checkpointInterval"
MIN_INTERVAL, MAX_INTERVAL = 20, 100  # commits; each after a checkpoint costs a reader 0.3 ms
ENTRIES_PER_COMMIT = 50  # files and tombstones; to write so many takes half a ms
CLEAN_EVERY_S = 300.0
QUIET_EVERY_S = 3600.0  # of a table that we do not write any more: what was removed from it expires
ORPHANS_EVERY_S = 24 * 3600.0
GATHER_EVERY_S = 60.0  # all tables together: a fold, of 64 MiB as a rule, so 90 GB a day at most
MOST_FOLDS = 8  # of one table in a row, since other tables wait
_Work = Literal["all", "clean", "gather"]
_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Care:
    key: Sequence[str] = ()
    checkpoint: int | None = None  # the version of the last checkpoint that we know of
    cleaned_at: float = 0.0
    orphans_at: float = 0.0
    written_at: float = 0.0
    looked_at: float = 0.0


class TableUpkeep:
    """A daemon thread; ``committed`` wakes it, ``close`` ends it. A table that was written once is
    cleaned as long as the thread lives: rows that a DROP TABLE took out expire when nobody
    writes."""

    def __init__(self) -> None:
        self._cares: dict[TableHandle, _Care] = {}
        self._waiting: dict[TableHandle, _Work] = {}
        self._outside: dict[TableHandle, None] = {}  # that have files outside of their folder
        self._gathers_at = 0.0
        self._put_off: dict[TableHandle, None] = {}  # written while rows waited
        self._rows_wait = False
        self._changed = threading.Condition()
        self._idle = True
        self._closed = False
        self._thread: threading.Thread | None = None

    def committed(self, table: TableHandle, key: Sequence[str]) -> None:
        """To be called after each commit: upkeep that the table needs is done soon, on the thread.
        Reads no files."""
        with table.lock:
            now = time.monotonic()
            with self._changed:
                if table not in self._cares:
                    self._cares[table] = _Care(cleaned_at=now, orphans_at=now, written_at=now)
                    self._wake([])  # it may become quiet with this very commit
                care = self._cares[table]
            care.key, care.written_at = key, now
            self._note_outside(table)
            is_due = _checkpoint_is_due(table, care) or _cleaning_is_due(care)
            if is_due or paths_to_fold(table, rows_wait=self._rows_wait):
                self._wake([table])
        with self._changed:
            if self._rows_wait:
                self._put_off[table] = None

    def rows_wait(self, rows_wait: bool) -> None:
        """Whether rows wait to be written, from now on: then folds that only readers gain by are
        put off, since they take as much time as the rows would."""
        with self._changed:
            self._rows_wait = rows_wait
            tables = [] if rows_wait else list(self._put_off)
            if not rows_wait:
                self._put_off.clear()
        if tables:
            self._wake(tables)

    def _wake(self, tables: Sequence[TableHandle]) -> None:
        with self._changed:
            self._waiting.update(dict.fromkeys(tables, "all"))
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def settle(self, timeout_s: float) -> bool:
        """Wait until nothing is left to do. Returns False where that takes longer than
        ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: self._idle and not self._waiting, timeout_s)

    def close(self) -> None:
        """End the thread. Blocks until its work under way is done: a fold takes seconds at most."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (found := self._next()) is not None:
            table, work = found
            try:
                self._look_after(table, self._cares[table], work)
            except (LogMoved, TableGone):
                with table.lock:
                    table.forget()
            except (*STORAGE_ERRORS, TidelakeError) as error:
                _log.warning("upkeep failed table=%s error=%s", table.uri, one_line(error))

    def _next(self) -> tuple[TableHandle, _Work] | None:
        with self._changed:
            self._idle = True
            self._changed.notify_all()
            while not (self._closed or self._waiting or self._add_quiet() or self._add_outside()):
                self._changed.wait(GATHER_EVERY_S if self._outside else QUIET_EVERY_S)
            if self._closed:
                return None
            self._add_quiet()  # others are never through
            self._add_outside()
            table = next(iter(self._waiting))
            work = self._waiting.pop(table)
            if work != "gather":
                self._cares[table].looked_at = time.monotonic()
            self._idle = False
            return table, work

    def _add_quiet(self) -> bool:
        """Whether there are some to look at. Perhaps they were dropped, or others write them now:
        those are not folded here."""
        before = time.monotonic() - QUIET_EVERY_S
        quiet = [
            table
            for table, care in self._cares.items()
            if max(care.written_at, care.looked_at) <= before
        ]
        self._waiting = {**dict.fromkeys(quiet, "clean"), **self._waiting}
        return bool(quiet)

    def _note_outside(self, table: TableHandle) -> None:
        """The table's lock is held."""
        if paths_outside(table):
            with self._changed:
                self._outside[table] = None
                self._changed.notify_all()

    def _add_outside(self) -> bool:
        """Whether a table is to be gathered now, before the others: they may never be through."""
        now = time.monotonic()
        if not self._outside or self._rows_wait or now < self._gathers_at:
            return False
        table = next((each for each in self._outside if each not in self._waiting), None)
        if table is None:
            return False
        self._gathers_at = now + GATHER_EVERY_S
        del self._outside[table]
        self._waiting = {table: "gather", **self._waiting}
        return True

    def _look_after(self, table: TableHandle, care: _Care, work: _Work) -> None:
        if work == "clean":
            self._clean(table, care)
            return
        if work == "gather":
            self._gather(table, care)
            return
        for _ in range(MOST_FOLDS):
            with table.lock:
                table.refresh()
                if is_paused(table.state.metadata):
                    return
            if fold(table, care.key, rows_wait=self._rows_wait) is None or self._closed:
                break
        with table.lock:
            self._note_outside(table)
        self._checkpoint(table, care)
        self._clean(table, care)

    def _gather(self, table: TableHandle, care: _Care) -> None:
        """One fold of files outside of the table's folder, and the next one in its time."""
        with table.lock:
            table.refresh()
            may_fold = not is_paused(table.state.metadata)
        if may_fold:
            fold(table, care.key, outside=True)
        with table.lock:
            table.refresh()
            self._note_outside(table)
            if table not in self._outside:
                _log.info("the table has all its files in its own folder now: %s", table.uri)

    def _checkpoint(self, table: TableHandle, care: _Care) -> None:
        with table.lock:
            table.refresh()
            if not _checkpoint_is_due(table, care):
                return
            state = table.state.copy()
        write_checkpoint(table.storage, state, now_ms=int(time.time() * 1000))
        care.checkpoint = state.version

    def _clean(self, table: TableHandle, care: _Care) -> None:
        if not _cleaning_is_due(care):
            return
        care.cleaned_at = now = time.monotonic()
        orphans = now - care.orphans_at >= ORPHANS_EVERY_S
        if orphans:
            care.orphans_at = now
        now_ms = int(time.time() * 1000)
        with table.lock:
            table.refresh()
            if is_paused(table.state.metadata):
                return
            clean_files(table.storage, table.state, now_ms=now_ms, orphans=orphans)
            bare = table.state.bare()
        clean_log(table.storage, bare, now_ms=now_ms)


def _checkpoint_is_due(table: TableHandle, care: _Care) -> bool:
    """Whether `_interval` commits have come since the last checkpoint. After a start, where that is
    not known, the last multiple of the interval counts as one."""
    version, interval = table.state.version, _interval(table)
    if care.checkpoint is None:
        care.checkpoint = version - version % interval
    return version - care.checkpoint >= interval


def _cleaning_is_due(care: _Care) -> bool:
    return time.monotonic() - care.cleaned_at >= CLEAN_EVERY_S


def _interval(table: TableHandle) -> int:
    """Commits between two checkpoints. The fewer files and tombstones there are, the cheaper is a
    checkpoint, and the more often it is written; the table's own property is the maximum."""
    assert table.state.metadata is not None
    text = table.state.metadata.configuration.get(CHECKPOINT_INTERVAL, "")
    longest = int(text) if text.isdigit() and int(text) else MAX_INTERVAL
    entries = len(table.state.files) + len(table.state.tombstones)
    return min(max(entries // ENTRIES_PER_COMMIT, MIN_INTERVAL), longest)
