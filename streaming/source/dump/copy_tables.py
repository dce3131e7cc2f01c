"""The copy of tables: their chunks on several connections side by side, each noted when it is on
the disk.

    tables ─► StagedTable ─steps─► threads, a connection each ─outcomes─► manifest ─► CopiedTable

This thread owns the plans and the manifests. Threads of a pool read and write chunks. The first
error ends the copy: what is running ends first and is noted. The same call goes on from there.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from coordination.errors import Stop
from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName
from streaming.source.dump.chunk_files import ChunkFiles
from streaming.source.dump.chunk_reader import StepDone, TableReader
from streaming.source.dump.chunks import ChunkPlan, Measure, Read, Step, chunk_rows
from streaming.source.dump.moment import SnapshotPosition
from streaming.source.dump.session import Connect, Session
from streaming.source.dump.source_table import SourceTable
from streaming.source.dump.staging import StagedTable

LOOK_S: Final = 0.2  # between two looks whether the copy was asked to stop


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProgress:
    """How far a table is. ``of_rows``, ``of_bytes``: the server's estimates. ``bytes``: of the
    texts that came, in this call."""

    table: TableName
    rows: int
    of_rows: int
    bytes: int
    of_bytes: int
    is_done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTable:
    """A table whose rows are all in files, and the sum of what they have. ``position``: where it
    was read in one moment; None: in chunks, from the position before the first of them on."""

    table: SourceTable
    files: tuple[Path, ...]
    rows: int
    bytes: int
    position: SnapshotPosition | None


def copy_tables(
    connect: Connect,
    tables: Iterable[SourceTable],
    folder: Path,
    *,
    connections: int = 4,
    rows_per_chunk: int | None = None,
    rows_per_s: int | None = None,
    in_one_moment: Callable[[SourceTable], bool] = lambda _: False,
    tidb_ts: int | None = None,
    progress: Callable[[CopyProgress], None] = lambda _: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[CopiedTable]:
    """Copy the tables into folders of their own in ``folder``; each comes when it is whole.

    ``connect`` gives a PyMySQL connection in autocommit. ``rows_per_chunk``: about; None: as many
    as are CHUNK_BYTES. ``rows_per_s``: the most that is read, but for tables that are one SELECT;
    None: as fast as can be. ``in_one_moment``: tables that need it besides those without a key.
    ``tidb_ts``: a TiDB is read, and everything as of this TSO.
    ``progress`` is called on the thread that iterates.

    A table that was copied by an earlier call comes at once, one that was begun goes on. Raises
    SourceAway and StagingFull (TryAgain: the same call again), SourceRefuses, TableChanged,
    SnapshotGone and StagingFailed, and Stop when ``is_stopped``.
    """

    def is_at_once(table: SourceTable) -> bool:
        return tidb_ts is None and (not table.key or in_one_moment(table))

    settings = _Settings(
        connect,
        folder,
        connections,
        rows_per_chunk,
        rows_per_s,
        is_at_once,
        tidb_ts,
        progress,
        is_stopped,
    )
    copy = _Copy(settings)
    try:
        yield from copy.run(deque(tables), is_stopped)
    finally:
        copy.close()


def copied_table(folder: Path, table: SourceTable) -> CopiedTable:
    """A table that an earlier call has copied whole."""
    return _copied(StagedTable(folder, table))


def _copied(staged: StagedTable) -> CopiedTable:
    assert staged.plan is not None, f"{staged.table.name} is not begun"
    assert staged.plan.is_done, f"{staged.table.name} is not whole"
    return CopiedTable(
        table=staged.table,
        files=tuple(staged.folder / file.name for file in staged.files),
        rows=staged.rows,
        bytes=sum(file.bytes for file in staged.files),
        position=None if staged.note is None else SnapshotPosition(**staged.note),
    )


@dataclass(frozen=True, slots=True)
class _Settings:
    connect: Connect
    folder: Path
    connections: int
    rows_per_chunk: int | None
    rows_per_s: int | None
    is_at_once: Callable[[SourceTable], bool]  # in one transaction with a known position
    tidb_ts: int | None
    progress: Callable[[CopyProgress], None]
    is_stopped: Callable[[], bool]


class _Copy:
    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        self._pool = ThreadPoolExecutor(settings.connections, thread_name_prefix="copy")
        self._local = threading.local()
        self._sessions: list[Session] = []
        self._begun: deque[_TableCopy] = deque()
        self._running: dict[Future[StepDone | ChunkPlan], tuple[_TableCopy, Step | None]] = {}
        self._error: Exception | None = None
        self._began_s = time.monotonic()
        self._granted = 0  # rows of the chunks that were begun, about

    def run(
        self, tables: deque[SourceTable], is_stopped: Callable[[], bool]
    ) -> Iterator[CopiedTable]:
        while True:
            if self._error is None and not is_stopped():
                yield from self._start_steps(tables)
            if not self._running:
                if not self._waits(is_stopped):
                    break
                continue
            ended, _ = wait(self._running, LOOK_S, FIRST_COMPLETED)
            for each in ended:
                yield from self._end_step(each)
            for copy in self._begun:
                self._tell(copy)
        if self._error is not None:
            raise self._error
        if self._begun or tables:
            raise Stop("the copy was asked to stop: it goes on with the next chunk")

    def _waits(self, is_stopped: Callable[[], bool]) -> bool:
        """Whether the next chunk only waits for its time. Blocks for as long as one look."""
        is_paced = self._settings.rows_per_s is not None and bool(self._begun)
        if self._error is not None or is_stopped() or not is_paced:
            return False
        if not self._is_in_time():
            time.sleep(LOOK_S)
        return True

    def close(self) -> None:
        """Ends what is running first: a chunk takes a second or so."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for session in self._sessions:
            session.close()

    def _start_steps(self, tables: deque[SourceTable]) -> Iterator[CopiedTable]:
        """As many as there are connections, of the tables begun first."""
        self._start_begun()
        while tables and len(self._running) < self._settings.connections:
            copy = self._opened(tables.popleft())
            if copy.staged.plan is None:
                self._begun.append(copy)
                self._submit(copy, None)
            elif copy.staged.plan.is_done:
                yield self._whole(copy)
            else:
                self._begun.append(copy)
                self._start_begun()

    def _start_begun(self) -> None:
        for copy in self._begun:
            while (
                len(self._running) < self._settings.connections
                and copy.staged.plan is not None
                and self._is_in_time()
            ):
                if (step := copy.staged.next_step(2 * self._settings.connections)) is None:
                    break
                self._submit(copy, step)
                if isinstance(step, Read):
                    self._granted += copy.staged.plan.chunk_rows

    def _is_in_time(self) -> bool:
        """Whether the chunks that were begun are no more than the pace allows by now."""
        pace = self._settings.rows_per_s
        return pace is None or self._granted <= pace * (time.monotonic() - self._began_s)

    def _opened(self, table: SourceTable) -> _TableCopy:
        staged = StagedTable(self._settings.folder, table)
        return _TableCopy(staged, self._settings.is_at_once(table))

    def _submit(self, copy: _TableCopy, step: Step | None) -> None:
        """Without a step: begin."""
        staged = copy.staged
        files = staged.new_files() if isinstance(step, Read) else None
        self._running[self._pool.submit(self._take, copy, step, files)] = copy, step

    def _end_step(self, future: Future[StepDone | ChunkPlan]) -> Iterator[CopiedTable]:
        copy, step = self._running.pop(future)
        try:
            done = future.result()
            if isinstance(done, ChunkPlan):
                copy.staged.begin(done)
            else:
                copy.staged.done(done.outcome, done.files, done.note)
                failpoint(Failpoint.AFTER_CHUNK)
        except Exception as error:  # noqa: BLE001  it is raised when all steps have ended
            self._error = self._error or error
            if step is not None:
                copy.staged.again(step)
            return
        if copy.staged.plan is not None and copy.staged.plan.is_done:
            self._begun.remove(copy)
            yield self._whole(copy)

    def _whole(self, copy: _TableCopy) -> CopiedTable:
        self._settings.progress(replace(copy.seen(), is_done=True, of_rows=copy.staged.rows))
        return _copied(copy.staged)

    def _tell(self, copy: _TableCopy) -> None:
        seen = copy.seen()
        if seen != copy.told:
            copy.told = seen
            self._settings.progress(seen)

    def _take(
        self, copy: _TableCopy, step: Step | None, files: ChunkFiles | None
    ) -> StepDone | ChunkPlan:
        reader = TableReader(self._session(), self._settings.connect, copy.staged.table)
        if step is None:
            is_whole = copy.is_at_once or not copy.staged.table.has_chunks
            rows, pace = self._settings.rows_per_chunk, self._settings.rows_per_s
            if pace is not None:  # a chunk is no more than a second of it
                rows = min(pace, rows or chunk_rows(copy.staged.table))
            return reader.begin(rows, is_whole=is_whole)
        if isinstance(step, Measure):
            return reader.measure(step)
        assert files is not None
        read = reader.read_at_once if copy.is_at_once else reader.read
        return read(step, files, copy.count)

    def _session(self) -> Session:
        """This thread's."""
        session: Session | None = getattr(self._local, "session", None)
        if session is None or not session.is_open:
            settings = self._settings
            session = Session(settings.connect, settings.tidb_ts, is_stopped=settings.is_stopped)
            self._local.session = session
            self._sessions.append(session)
        return session


class _TableCopy:
    """A table, and what has come of it."""

    def __init__(self, staged: StagedTable, is_at_once: bool) -> None:
        self.staged = staged
        self.is_at_once = is_at_once
        self.told: CopyProgress | None = None
        self._lock = threading.Lock()
        self._rows = staged.rows
        self._bytes = 0

    def count(self, rows: int, size: int) -> None:
        """From any thread."""
        with self._lock:
            self._rows += rows
            self._bytes += size

    def seen(self) -> CopyProgress:
        table = self.staged.table
        return CopyProgress(
            table=table.name,
            rows=self._rows,
            of_rows=table.rows,
            bytes=self._bytes,
            of_bytes=table.bytes,
        )
