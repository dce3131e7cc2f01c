"""What only the owner of a changefeed does: implements ``coordination.ports.ControlWriter``.

    claim the term ─► settle, resume, seal ─► claimed ─► read DDLs, make tables ─┐
                                                ▲                                │
                                                └── rows, at most once a second ◄┘

Its own thread writes the control rows; the stream's applying thread takes what was read and makes
tables. The coordination thread only leaves notes and takes them.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import replace

from coordination.errors import Fenced, Stop, TermRefused, TidelakeError, TryAgain
from coordination.model import Ownership, Ts
from coordination.ports import Advance, Changes, Claim, DdlScan, RegisteredTable, Standing
from coordination.scheduler.barrier import PendingDdl
from coordination.scheduler.messages import NO_TS, UnknownTable
from sinks.jvm_errors import line
from streaming.apply.dead_letter_writer import DeadLetterWriter
from streaming.backlog import BacklogMeter
from streaming.backoff import PASSING, RetryBackoff
from streaming.cluster.claiming import claim_of, claimed_row, registered
from streaming.cluster.control_rows import ControlRows
from streaming.cluster.owners_reader import Known, OwnersReader, before_blocked
from streaming.cluster.progress_rows import merged
from streaming.cluster.reads import Offsets, texts
from streaming.cluster.role_context import RoleContext
from streaming.cluster.shown import as_ended
from streaming.plan import refusal
from streaming.retention_watch import RetentionWatch
from streaming.source.kafka import Source
from streaming.source.ranges import TopicPartition

logger = logging.getLogger(__name__)

TURN_S = 0.1  # between two looks of the control writer's thread when nobody calls it
RECORD_EVERY_S = 1.0  # control rows of a changefeed are written no more often (docs/cluster.md 10)


class DeltaControlWriter:
    """See the module's picture and the port."""

    def __init__(self, context: RoleContext, ownership: Ownership) -> None:
        self._context = context
        self._step = context.watch(f"the worker of {context.name}")
        self._ownership = ownership
        self._lock = threading.Lock()  # of the notes between the threads
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._dropping = threading.Event()
        self._error: BaseException | None = None
        self._claim: Claim | None = None
        self._scan = self._next_scan = DdlScan(position_ts=NO_TS)
        self._known: Known | None = None
        self._added: list[RegisteredTable] = []
        self._published_ts: Ts | None = None
        self._advance: Advance | None = None
        self._refusal: TidelakeError | None = None  # of a DDL that was reached
        self._backoff = RetryBackoff()
        self._meter = BacklogMeter()
        self._stream = context.stream
        self._retention = RetentionWatch(
            lambda: Source(context.changefeed.source),
            lambda: self._rows.row.source_offsets,
            context.concerns,
        )
        self._is_reading = False
        self._begins_at: Offsets | None = None  # until what lies before the stream is read
        self._failure: BaseException | None = None
        self._standing = Standing()
        self._concern: str | None = None
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
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
        if (
            known is not None
            and known.blocked is not None
            and before_blocked(known) == ddl.commit_ts
        ):
            warehouse = self._context.changefeed.sink.warehouse
            self._refusal = refusal(known.blocked, known.why, warehouse)

    def register(self, table: UnknownTable) -> None:
        """The control writer reads what every capture reads: it finds the table itself, in its
        order."""
        del table
        self._check()

    def take_changes(self) -> Changes:
        self._check()
        with self._lock:
            added, self._added = self._added, []
            published, self._published_ts = self._published_ts, None
            self._scan = self._next_scan
        is_finished = self._claim is not None and self._rows.row.state == "finished"
        return Changes(added=tuple(added), published_ts=published, is_finished=is_finished)

    def record(self, advance: Advance) -> None:
        self._check()
        with self._lock:
            self._advance = merged(self._advance, advance)
        self._woken.set()

    def tell(self, standing: Standing) -> None:
        self._standing = standing

    def close(self, *, drop: bool) -> None:
        if drop and not self._dropping.is_set():
            self._dropping.set()
            threading.Thread(target=self._context.cancel, name="cancel", daemon=True).start()
        self._closing.set()
        self._woken.set()

    def is_closed(self) -> bool:
        return not self._thread.is_alive()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    # The thread.

    def _run(self) -> None:
        try:
            self._begin_with_retries()
            while not self._closing.is_set() and self._error is None:
                self._woken.wait(TURN_S)
                self._woken.clear()
                with self._step:
                    self._turn()
        except Stop:
            logger.debug("the control writer was stopped name=%s", self._context.name)
        except BaseException as error:  # noqa: BLE001  # raised by the next call
            if not isinstance(error, Fenced | TermRefused):
                logger.debug(
                    "the control writer fails: %s name=%s", line(error), self._context.name
                )
            self._error = error
        finally:
            with self._step:
                self._end()

    def _begin_with_retries(self) -> None:
        while True:
            try:
                with self._step:
                    return self._begin()
            except PASSING as error:
                self._context.check_jvm()
                if self._closing.wait(self._backoff.next_s(error)):
                    raise Stop("closed before the claim") from error

    def _begin(self) -> None:
        context = self._context
        row = claimed_row(context, self._ownership, self._closing)
        self._spans = context.spans(row)
        self._rows = ControlRows(context.tables, row, self._spans)
        self._rows.save(row, self._standing, self._concern)
        self._rows.resume(context.progress())
        self._rows.dead_letters = context.dead_letters(row, term=row.term)
        self._reader = self._reading(self._rows.dead_letters)
        if row.state == "finished":
            self._next_scan = self._scan = DdlScan(position_ts=Ts(row.checkpoint_ts))
        self._rows.publish_known()  # it may have been lost
        self._claim = claim_of(context, row, self._spans, self._rows.floor_ts)
        logger.info(
            "claimed the changefeed term=%d checkpoint_ts=%d tables=%d",
            row.term,
            row.checkpoint_ts,
            len(self._spans),
        )
        context.wake()

    # Reading.

    def _reading(self, dead_letters: DeadLetterWriter) -> OwnersReader:
        context = self._context
        return OwnersReader(
            spans=self._spans,
            start_ts=Ts(self._rows.row.start_ts),
            checkpoint_ts=lambda: Ts(self._rows.row.checkpoint_ts),
            table_filter=context.filter,
            dead_letters=dead_letters,
            trust=context.trust,
            stream=self._stream,
            on_known=self._on_known,
            on_failed=self._fail,
        )

    def _join(self) -> None:
        """From the changefeed's low water on, wherever the stream is."""
        row = self._rows.row
        stored = row.source_offsets
        offsets = {TopicPartition.parse(text): at for text, at in stored.items()}
        marks = {TopicPartition.parse(text): mark for text, mark in row.watermarks.items()}
        begin = self._stream.join(self._reader, offsets, marks)
        self._is_reading = True
        self._retention.begin()
        self._rows.row = replace(row, source_offsets={**texts(begin), **stored})
        self._begins_at = begin
        self._meter.begin(texts(begin), time.monotonic())

    def _fail(self, error: BaseException) -> None:
        """From a thread of the stream."""
        self._failure = error
        self._woken.set()

    def _on_known(self, known: Known) -> None:
        """On the batch thread: rows of new tables first, then the word that they are there."""
        self._rows.add([(found.table, texts(found.low_water)) for found in known.made])
        pending: tuple[PendingDdl, ...] = ()
        if known.blocked is not None:
            pending = (PendingDdl(commit_ts=before_blocked(known), table_ids=None),)
        with self._lock:
            self._known = known
            incarnation = self._rows.row.incarnation
            self._added += [registered(each.table, incarnation) for each in known.made]
            self._next_scan = DdlScan(position_ts=known.position_ts, pending=pending, has_rows=True)
            if not self._added:  # else when they have been taken: see `take_changes`
                self._scan = self._next_scan
        self._context.wake()

    def _turn(self) -> None:
        try:
            self._context.trust.check()
            if self._rows.row.state != "finished":
                self._read_on()
            self._record()
        except PASSING as error:
            self._context.check_jvm()
            self._closing.wait(self._backoff.next_s(error))
            self._reader.retry()

    def _read_on(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if not self._is_reading:
            self._join()
        if self._begins_at is None:
            return
        if self._reader.since is None:
            self._stream.wake()
            return
        begins_at, self._begins_at = self._begins_at, None
        threading.Thread(  # it may take longer than a row of ours stays fresh
            target=self._catch_up, args=(begins_at,), name="owner-catches-up", daemon=True
        ).start()

    def _catch_up(self, begins_at: Offsets) -> None:
        step = self._context.watch(f"catching up of {self._context.name}")
        try:
            with step:
                self._reader.catch_up(begins_at, step)
        except BaseException as error:  # noqa: BLE001 - looked at by the control writer's thread
            self._begins_at = begins_at
            self._fail(error)

    # Writing.

    def _record(self) -> None:
        age_s, ttl_s = self._rows.age_s, self._context.settings.session.ttl_s
        self._concern = self._context.concern()
        with self._lock:
            is_due = age_s >= RECORD_EVERY_S or (self._advance and self._advance.finished)
            if self._advance is not None and is_due:
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
            self._backoff.reset()
        if self._rows.age_s > ttl_s / 3 or not self._rows.shows(self._standing, self._concern):
            self._rows.save(self._rows.row, self._standing, self._concern)

    def _write(self, advance: Advance) -> None:
        reading = texts(self._reader.low_water)
        read = advance.read_offsets if self._rows.progress else texts(self._stream.position)
        now_s = time.monotonic()
        self._meter.ends_at(self._stream.ends(), now_s)
        if read:
            self._meter.read_to(read, now_s)
        published = self._rows.write(
            advance,
            reading=reading,
            marks=self._stream.watermarks.to_record(),
            backlog=self._meter.look(now_s),
            standing=self._standing,
            concern=self._concern,
            source_left_s=self._retention.left_s,
        )
        if published:
            with self._lock:
                self._published_ts = advance.sync_point_ts
            self._context.wake()
        known = self._known
        if self._refusal and known and self._rows.row.checkpoint_ts >= before_blocked(known):
            raise self._refusal  # all that lies below is written, and the cut of it

    # The end.

    def _end(self) -> None:
        is_lost = isinstance(self._error, TermRefused | Fenced)
        if self._claim is not None and not is_lost and not self._dropping.is_set():
            self._record_last()
        if self._dropping.is_set():
            self._context.cancel()
        self._retention.close()
        if self._is_reading:
            self._step.rest()  # it waits for the applying thread, which may have a long commit
            self._stream.leave(self._reader)
        self._context.close()
        self._context.wake()

    def _record_last(self) -> None:
        """Nobody runs it now: the next owner, of whatever etcd, need not wait for this one to go
        stale."""
        with suppress(TidelakeError):
            self._context.trust.check()
            if self._advance is not None:
                self._write(self._advance)
            row = self._rows.row
            if row.state != "finished":
                self._rows.save(as_ended(row, self._standing), self._standing, self._concern)
