"""What only the owner of a changefeed does: implements ``coordination.ports.OwnerDesk``.

    claim the term ─► settle, resume, seal ─► claimed ─► read DDLs, make tables ─┐
                                                ▲                                │
                                                └── rows, at most once a second ◄┘

Two threads: the desk's own writes the control rows; Spark's batch thread reads the topics and makes
tables. The coordination thread only leaves notes and takes them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from coordination.errors import CaptureSuicide, Fenced, Stop, TidelakeError, TryAgain
from coordination.failpoint import Failpoint, failpoint
from coordination.model import Ownership, TermNumber, Ts
from coordination.ports import Advance, Changes, Claim, DdlScan, RegisteredTable, Standing
from coordination.scheduler.barrier import PendingDdl
from coordination.scheduler.messages import NO_TS, UnknownTable
from sinks.changefeeds import ChangefeedRow
from sinks.jvm_errors import line
from sinks.progress import ProgressRow
from streaming.cluster.claiming import claimed_row
from streaming.cluster.desk_rows import (
    cut,
    dead_letters,
    first_progress,
    low_water,
    merged,
    resumed_progress,
    span_of,
    told_progress,
)
from streaming.cluster.owners_reader import Known, OwnersReader, before_wall
from streaming.cluster.shown import as_ended, as_running
from streaming.cluster.topic_stream import TopicStream, texts
from streaming.cluster.workshop import Workshop
from streaming.concerns import NO_CONCERN
from streaming.events import TopicPartition
from streaming.graveyard import Graveyard
from streaming.patience import PASSING, Patience
from streaming.plan import refusal
from streaming.source.kafka import SourceChanged
from streaming.spans import Span as Table
from streaming.spans import Spans

logger = logging.getLogger(__name__)

TURN_S = 0.1  # between two looks of the desk's thread when nobody calls it
LOCK_PATIENCE_S = 0.05
RECORD_EVERY_S = 1.0  # control rows of a changefeed are written no more often (cluster.md 10)


class Desk:
    """See the module's picture and the port."""

    def __init__(self, workshop: Workshop, ownership: Ownership) -> None:
        self._workshop = workshop
        self._ownership = ownership
        self._lock = threading.Lock()  # of the notes between the threads
        self._rows_lock = threading.Lock()  # of the rows and their tables
        self._kick = threading.Event()
        self._closing = threading.Event()
        self._dropping = threading.Event()
        self._error: BaseException | None = None
        self._claim: Claim | None = None
        self._scan = self._next_scan = DdlScan(position_ts=NO_TS)
        self._known: Known | None = None
        self._added: list[RegisteredTable] = []
        self._published_ts: Ts | None = None
        self._advance: Advance | None = None
        self._patience = Patience()
        self._streams: list[TopicStream] = []  # one, unless the beginning had to be tried again
        self._written_at = time.monotonic()
        self._standing, self._concern = Standing(), NO_CONCERN
        self._thread = threading.Thread(target=self._run, name="desk", daemon=True)
        self._thread.start()

    # The port.

    def claimed(self) -> Claim | None:
        self._check()
        return self._claim

    def ddl_scan(self) -> DdlScan:
        self._check()
        with self._lock:
            return self._scan

    def run_ddl(self, ddl: PendingDdl) -> None:
        """What can be run has run when its table was found; what is left stops the changefeed."""
        self._check()
        known = self._known
        if known is not None and known.wall is not None and before_wall(known) == ddl.commit_ts:
            sink = self._workshop.changefeed.sink
            self._error = refusal(known.wall, known.why, sink.warehouse)
            self._workshop.wake()

    def register(self, table: UnknownTable) -> None:
        """The desk reads what every capture reads: it finds the table itself, in its order."""
        del table
        self._check()

    def take_changes(self) -> Changes:
        self._check()
        with self._lock:
            added, self._added = self._added, []
            published, self._published_ts = self._published_ts, None
            self._scan = self._next_scan
        return Changes(added=tuple(added), published_ts=published)

    def record(self, advance: Advance) -> None:
        self._check()
        with self._lock:
            self._advance = merged(self._advance, advance)
        self._kick.set()

    def tell(self, standing: Standing) -> None:
        self._standing = standing

    def close(self, *, drop: bool) -> None:
        if drop and not self._dropping.is_set():
            self._dropping.set()
            threading.Thread(target=self._workshop.cancel, name="cancel", daemon=True).start()
        self._closing.set()
        self._kick.set()

    def is_closed(self) -> bool:
        return not self._thread.is_alive()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    # The thread.

    def _run(self) -> None:
        try:
            self._begin_patiently()
            while not self._closing.is_set() and self._error is None:
                self._kick.wait(TURN_S)
                self._kick.clear()
                self._turn()
        except Stop:
            logger.debug("the desk was stopped name=%s", self._workshop.name)
        except BaseException as error:  # noqa: BLE001  # raised by the next call
            if not isinstance(error, Fenced | CaptureSuicide):
                logger.debug("the desk fails: %s name=%s", line(error), self._workshop.name)
            self._error = error
        finally:
            self._end()

    def _begin_patiently(self) -> None:
        while True:
            try:
                return self._begin()
            except PASSING as error:
                self._workshop.check_jvm()
                if self._closing.wait(self._patience.lost(error)):
                    raise Stop("closed before the claim") from error

    def _begin(self) -> None:
        workshop = self._workshop
        row = claimed_row(workshop, self._ownership, self._closing)
        self._row = row
        self._save(row)
        self._spans = workshop.spans(row)
        self._resume(self._spans, row)
        self._graveyard = workshop.graveyard(row, term=row.term)
        self._reader, self._stream = self._reading(self._spans, self._graveyard)
        if row.state != "finished":
            self._start_stream()
        else:
            self._next_scan = self._scan = DdlScan(position_ts=Ts(row.checkpoint_ts))
        self._claim = self._claim_of(row)
        logger.info(
            "claimed the changefeed term=%d checkpoint_ts=%d tables=%d",
            row.term,
            row.checkpoint_ts,
            len(self._spans),
        )
        workshop.wake()

    def _resume(self, spans: Spans, row: ChangefeedRow) -> None:
        before = self._workshop.progress()
        spans.resume(before)
        self._progress = dict(before)
        resumed = [resumed_progress(table, before[table.name], row) for table in spans]
        self._write_progress(resumed)

    def _claim_of(self, row: ChangefeedRow) -> Claim:
        latest = self._workshop.tables.snapshots.latest(row.changefeed_id)
        published = max(self._floor_ts, latest.primary_ts if latest is not None else 0)
        return Claim(
            term=TermNumber(row.term),
            checkpoint_ts=Ts(row.checkpoint_ts),
            tables=tuple(self._registered(table) for table in self._spans),
            published_ts=Ts(published),
        )

    def _registered(self, table: Table) -> RegisteredTable:
        span = span_of(table, self._row.incarnation)
        return RegisteredTable(span=span, start_ts=table.checkpoint)

    # Reading.

    def _reading(self, spans: Spans, graveyard: Graveyard) -> tuple[OwnersReader, TopicStream]:
        workshop = self._workshop
        reader = OwnersReader(
            spans=spans,
            start_ts=Ts(self._row.start_ts),
            checkpoint_ts=lambda: Ts(self._row.checkpoint_ts),
            table_filter=workshop.filter,
            decoder=workshop.message_format.make_decoder(),
            graveyard=graveyard,
            trust=workshop.trust,
            tell=self._hear,
        )
        stream = reader.stream = TopicStream(
            workshop.stream_context(is_owners=True), reader, on_batch=self._kick.set
        )
        self._streams.append(stream)
        return reader, stream

    def _start_stream(self) -> None:
        offsets = self._row.source_offsets
        self._reader.forget()
        begin = self._stream.start(
            {TopicPartition.parse(text): at for text, at in offsets.items()},
            {TopicPartition.parse(text): mark for text, mark in self._row.watermarks.items()},
        )
        self._row = replace(self._row, source_offsets={**texts(begin), **offsets})

    def _hear(self, known: Known) -> None:
        """On the batch thread: rows of new tables first, then the word that they are there."""
        with self._rows_lock:
            self._write_progress(
                [
                    first_progress(found.table, self._row, texts(found.low_water))
                    for found in known.found
                ]
            )
        pending: tuple[PendingDdl, ...] = ()
        if known.wall is not None:
            pending = (PendingDdl(commit_ts=before_wall(known), table_ids=None),)
        with self._lock:
            self._known = known
            self._added += [self._registered(found.table) for found in known.found]
            self._next_scan = DdlScan(position_ts=known.position_ts, pending=pending)
            if not self._added:  # else when they have been taken: see `take_changes`
                self._scan = self._next_scan
        self._workshop.wake()

    def _turn(self) -> None:
        try:
            self._workshop.trust.check()
            self._read_on()
            self._record()
        except SourceChanged as change:
            logger.info("%s", change)
            self._stream.stop()
        except PASSING as error:
            self._stream.stop()
            self._workshop.check_jvm()
            self._closing.wait(self._patience.lost(error))

    def _read_on(self) -> None:
        if self._row.state == "finished":
            return
        self._stream.check()
        if not self._stream.is_running:
            self._start_stream()
        if self._stream.lock.acquire(timeout=LOCK_PATIENCE_S):
            try:
                self._reader.advance()
            finally:
                self._stream.lock.release()

    # Writing.

    def _record(self) -> None:
        age_s, ttl_s = time.monotonic() - self._written_at, self._workshop.settings.session.ttl_s
        self._concern = self._workshop.concern()
        with self._lock:
            if self._advance is not None and age_s >= RECORD_EVERY_S:
                advance, self._advance = self._advance, None
            else:
                advance = None
        if advance is not None:
            try:
                self._write(advance)
            except TryAgain:
                with self._lock:
                    newer = self._advance
                    self._advance = advance if newer is None else merged(advance, newer)
                raise
            self._patience.regained()
        elif (
            age_s > ttl_s / 3 or as_running(self._row, self._standing, self._concern) != self._shown
        ):
            self._save(self._row)

    def _write(self, advance: Advance) -> None:
        """In order: progress, the changefeed's row, the ledger (rule 6)."""
        with self._rows_lock:
            spans = {each.span.name: each for each in advance.spans}
            self._write_progress(
                [
                    told_progress(self._progress[name], told, advance.source_offsets)
                    for name, told in spans.items()
                    if name in self._progress
                ]
            )
            failpoint(Failpoint.AFTER_PROGRESS)
            self._save(self._row_after(advance))
            failpoint(Failpoint.AFTER_CHANGEFEED)
            if advance.sync_point_ts is not None:
                self._publish(advance.sync_point_ts)
            failpoint(Failpoint.AFTER_LEDGER)

    def _row_after(self, advance: Advance) -> ChangefeedRow:
        row = self._row
        checkpoint_ts = max(row.checkpoint_ts, advance.checkpoint_ts)
        rewinding = row.state == "rewinding" and checkpoint_ts <= self._floor_ts
        reading = texts(self._reader.low_water)
        marks = self._stream.watermarks.to_record()
        return replace(
            row,
            **self._stream.told_backlog(advance.read_offsets if self._progress else reading),
            state="finished" if advance.finished else "rewinding" if rewinding else "running",
            checkpoint_ts=checkpoint_ts,
            resolved_ts=max(row.resolved_ts, advance.resolved_ts, checkpoint_ts),
            max_published_ts=self._floor_ts,
            source_offsets=low_water(row, advance, reading, self._progress.values()),
            watermarks={**row.watermarks, **{str(p): mark for p, mark in marks.items()}},
            dead_letters=self._letters,
            error=None,
        )

    @property
    def _letters(self) -> int:
        return dead_letters(self._graveyard.counts, self._progress.values())

    @property
    def _floor_ts(self) -> int:
        """At or below it no cut is published: it was, or a table shows what it had beyond it."""
        return max(self._row.max_published_ts, self._spans.shown_ts)

    def _publish(self, at_ts: Ts) -> None:
        self._graveyard.refreshed()
        snapshot = cut(self._row.changefeed_id, self._progress.values(), at_ts, self._letters)
        if snapshot is None:
            logger.warning("not every table is exactly at the sync point ts=%d", at_ts)
            return
        if snapshot.tables and at_ts > self._floor_ts:
            self._workshop.tables.snapshots.publish(snapshot, self._row.term)
        with self._lock:
            self._published_ts = at_ts
        self._workshop.wake()

    def _write_progress(self, rows: Iterable[ProgressRow]) -> None:
        changed = [row for row in rows if row != self._progress.get(row.name)]
        self._workshop.tables.progress.advance(changed, self._row.term)
        self._progress.update((row.name, row) for row in changed)

    def _save(self, row: ChangefeedRow) -> None:
        self._shown = as_running(row, self._standing, self._concern)
        self._workshop.tables.changefeeds.save(self._shown)
        self._row = row
        self._written_at = time.monotonic()

    # The end.

    def _end(self) -> None:
        is_lost = isinstance(self._error, CaptureSuicide | Fenced)
        if self._claim is not None and not is_lost and not self._dropping.is_set():
            self._stream.stopping.set()
            self._record_last()
        self._workshop.cancel()
        for stream in self._streams:
            stream.stopping.set()
            stream.stop()
        self._workshop.close()
        self._workshop.wake()

    def _record_last(self) -> None:
        """Nobody runs it now: the next owner, of whatever etcd, need not wait for this one to go
        stale."""
        with suppress(TidelakeError):
            self._workshop.trust.check()
            if self._advance is not None:
                self._write(self._advance)
            if self._row.state != "finished":
                self._save(as_ended(self._row, self._standing))
