"""The work of a changefeed's owner alone: implements ``coordination.ports.ControlWriter``.

    claim the term ─► settle, resume, seal ─► claimed ─► read DDLs, make tables ─┐
                                                ▲                                │
                                                └── rows, at most once a second ◄┘

The control writer's own thread writes the control rows. The stream's applying thread takes the
reads and makes tables. The coordination thread only leaves values here to be written, and takes the
results; it never waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from coordination.errors import Fenced, Stop, TermRefused, TidelakeError, TryAgain
from coordination.model import NO_TS, Ownership, TermNumber, Ts
from coordination.ports import Advance, Changes, Claim, DdlScan, RegisteredTable, ShownState
from coordination.scheduler.barrier import PendingDdl
from sinks.spark.jvm_errors import line
from streaming.owner.blocked_tables import BlockedTables
from streaming.owner.control_rows import ControlRows
from streaming.owner.ddl.ddl_scan import DdlScanResult, pending_ddls
from streaming.owner.ddl.plan import HeldTable
from streaming.owner.ddl.refusal import DdlNotSupported, refusal
from streaming.owner.ddl.steps import DdlKey, DdlStep
from streaming.owner.ddl_reader import DdlReader
from streaming.owner.ddl_reading import DdlReading
from streaming.owner.ddl_run import carry_out, noted
from streaming.owner.outlook import OwnersOutlook
from streaming.owner.progress_rows import merged, registered
from streaming.owner.shown_state import as_ended, as_running
from streaming.owner.start_point import KeptFresh, claim_term, gone_on
from streaming.stream.backlog import BacklogMeter
from streaming.stream.lasting_warnings import etcd_concern
from streaming.stream.retention_watch import RetentionWatch
from streaming.stream.retry import PASSING
from streaming.stream.role_context import RoleContext, RoleWorker

logger = logging.getLogger(__name__)

TURN_S = 0.1  # between two turns of the control writer's thread when nothing wakes it
RECORD_EVERY_S = 1.0  # control rows of a changefeed are written no more often (docs/cluster.md 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClaimedTerm:
    """The parts with which the control writer works once its term is claimed."""

    rows: ControlRows
    blocked: BlockedTables
    reader: DdlReader
    retention: RetentionWatch
    reading: DdlReading
    outlook: OwnersOutlook


class DeltaControlWriter(RoleWorker):
    """See the module's picture and the port."""

    def __init__(self, context: RoleContext, ownership: Ownership) -> None:
        super().__init__(context, thread="control")
        self._ownership = ownership
        self._lock = threading.Lock()  # of the fields by which threads hand over work and results
        self._error: BaseException | None = None
        self._term: _ClaimedTerm | None = None  # None until the term is claimed
        self._claim: Claim | None = None
        self._scan = self._next_scan = DdlScan(position_ts=NO_TS)
        self._known: DdlScanResult | None = None
        self._added: list[RegisteredTable] = []
        self._removed: list[int] = []
        self._published_ts: Ts | None = None
        self._advance: Advance | None = None
        self._stops_for: HeldTable | None = None  # a DDL that is due and cannot be run
        self._running: DdlKey | None = None  # the last DDL that was begun
        self._meter = BacklogMeter(context.source.distance)
        self._trouble: str | None = None  # before the claim
        self._shown_state = ShownState()
        self._concern: str | None = None
        self._thread.start()

    # The port.

    def claimed(self) -> Claim | None:
        self._check()
        return self._claim

    def trouble(self) -> str | None:
        return self._trouble

    def ddl_scan(self) -> DdlScan:
        self._check()
        with self._lock:
            return self._scan

    def run_ddl(self, ddl: PendingDdl) -> None:
        """See the port. A DDL that cannot be run stops the changefeed behind all that is below."""
        self._check()
        with self._lock:
            if self._known is None or self._scan is not self._next_scan:
                return  # it is of an older plan
            if ddl not in self._scan.pending:
                return
            step = self._known.plan.runs
            if step is None or ddl.is_held:
                self._stops_for = self._known.plan.stops_for
                return
            if self._known.blocked_at != ddl.commit_ts or self._running == step.event.key:
                return
            self._running = step.event.key
        # A rewrite may take longer than the row stays fresh that our own thread has to refresh.
        threading.Thread(
            target=self._run_ddl, args=(self._term, step), name="ddl", daemon=True
        ).start()

    def take_changes(self) -> Changes:
        self._check()
        with self._lock:
            added, self._added = self._added, []
            removed, self._removed = self._removed, []
            published, self._published_ts = self._published_ts, None
            self._scan = self._next_scan
        term = self._term
        return Changes(
            added=tuple(added),
            removed=tuple(removed),
            published_ts=published,
            is_finished=term is not None and term.rows.row.state == "finished",
            is_caught_up=term is not None and term.outlook.is_caught_up,
            awaits="" if term is None else term.outlook.awaits,
        )

    def record(self, advance: Advance) -> None:
        self._check()
        with self._lock:
            self._advance = merged(self._advance, advance)
            if self._term is not None:
                self._term.rows.tell_dates(advance)
        self._woken.set()

    def set_shown(self, shown: ShownState) -> None:
        self._shown_state = shown

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    # The worker.

    def _run(self) -> None:
        try:
            with KeptFresh(self._context) as kept:
                term = self._begin_with_retries(kept)
            while not self._closing.is_set() and self._error is None:
                self._woken.wait(TURN_S)
                self._woken.clear()
                with self._step:
                    self._turn(term)
        except Stop:
            logger.debug("the control writer was stopped name=%s", self._context.name)
        except BaseException as error:  # noqa: BLE001  # raised by the next call
            if not isinstance(error, Fenced | TermRefused):
                logger.debug(
                    "the control writer fails: %s name=%s", line(error), self._context.name
                )
            with self._step:
                self._error = noted(error, self._context)
        finally:
            with self._step:
                self._end()

    def _begin_with_retries(self, kept: KeptFresh) -> _ClaimedTerm:
        while True:
            try:
                kept.trouble = None
                with self._step:
                    return self._begin(kept)
            except PASSING as error:
                self._context.check_jvm()
                wait_s = self._backoff.next_s(error)
                trouble = f"its owner cannot begin, and tries again: {line(error)}"
                self._say(trouble)
                kept.say(trouble)
                if self._closing.wait(wait_s):
                    raise Stop("closed before the claim") from error

    def _say(self, trouble: str) -> None:
        self._trouble = trouble
        self._context.wake()

    def _begin(self, kept: KeptFresh) -> _ClaimedTerm:
        context = self._context
        row = claim_term(context, self._ownership, self._closing, kept, self._say)
        rows = ControlRows(
            context.tables,
            row,
            context.spans(row),
            lambda each: as_running(each, self._shown_state, self._concern),
        )
        rows.save(row)
        rows.resume(context.progress(), lambda: context.dead_letters(row, term=row.term))
        # Behind the seal: no earlier writer can bring a table further now.
        tables_ts = max((each.checkpoint for each in rows.spans.values()), default=0)
        if (found := gone_on(rows.row, context.source, tables_ts)) is not rows.row:
            rows.save(found)
        blocked = BlockedTables(context)
        reader = DdlReader(
            context, rows, blocked, on_known=partial(self._on_known, rows), on_failed=self._fail
        )
        retention = RetentionWatch(
            lambda: context.new_source(rows.row.source_identities),
            lambda: rows.row.source_positions,
            context.concerns,
        )
        term = _ClaimedTerm(
            rows=rows,
            blocked=blocked,
            reader=reader,
            retention=retention,
            outlook=OwnersOutlook(context),
            reading=DdlReading(
                context, rows, reader, meter=self._meter, retention=retention, fail=self._fail
            ),
        )
        if row.state == "finished":
            self._next_scan = self._scan = DdlScan(position_ts=Ts(row.checkpoint_ts))
        rows.publish_known()  # a crash may have come between the changefeed's row and the ledger
        latest = context.tables.snapshots.latest(row.changefeed_id)
        published_ts = max(rows.floor_ts, latest.primary_ts if latest is not None else 0)
        self._term = term
        self._claim = Claim(
            term=TermNumber(row.term),
            checkpoint_ts=Ts(row.checkpoint_ts),
            tables=tuple(registered(each, row.incarnation) for each in rows.spans.values()),
            published_ts=Ts(published_ts),  # nothing at or below it is published again
        )
        logger.info(
            "claimed the changefeed term=%d checkpoint_ts=%d tables=%d",
            row.term,
            row.checkpoint_ts,
            len(rows.spans),
        )
        context.wake()
        return term

    def _turn(self, term: _ClaimedTerm) -> None:
        try:
            self._context.trust.check()
            if term.rows.row.state != "finished":
                self._read_on(term)
            self._record(term)
            if term.blocked.look(self._held, time.monotonic(), term.rows.row.checkpoint_ts):
                term.reader.ran(None)
            term.outlook.went_well(term.rows, self._concern)
        except PASSING as error:
            self._context.check_jvm()
            wait_s = self._backoff.next_s(error)
            term.outlook.failed(error, is_long=self._backoff.is_long)
            self._rest(term, wait_s)
            term.reader.retry()

    def _rest(self, term: _ClaimedTerm, wait_s: float) -> None:
        """Between two tries. The row must not look as if its owner were gone (rule 6)."""
        until_s, each_s = time.monotonic() + wait_s, self._context.ttl_s / 3
        while not self._closing.wait(min(each_s, max(0.0, until_s - time.monotonic()))):
            with suppress(*PASSING):
                self._context.trust.check()
                term.rows.refresh(each_s)
            if time.monotonic() >= until_s:
                return

    @property
    def _held(self) -> Sequence[HeldTable]:
        return () if self._known is None else self._known.plan.held

    def _run_ddl(self, term: _ClaimedTerm, step: DdlStep) -> None:
        try:
            carry_out(self._context, term.rows, term.reader, step, self._closing)
        except DdlNotSupported as error:
            if not step.is_of_one:
                self._fail(error)
                return
            term.blocked.fail(step.event, error.why)
            term.reader.ran(None)
        except BaseException as error:  # noqa: BLE001 - looked at by our own thread
            self._fail(error)

    # Reading.

    def _read_on(self, term: _ClaimedTerm) -> None:
        self._raise_failure()
        term.reading.go_on()

    def _on_known(self, rows: ControlRows, known: DdlScanResult) -> None:
        """On the applying thread, with each step of the owner's reader. The progress rows of new
        tables are written before the coordination thread hears of the tables (docs/cluster.md
        10)."""
        rows.add([(made.table, made.low_water) for made in known.made])
        pending = pending_ddls(known, rows.spans, rows.row.incarnation)
        with self._lock:
            self._known = known
            if any(each.event.key == self._running for each in known.plan.held):
                self._running = None  # an operator may have it tried again
            incarnation = rows.row.incarnation
            self._added += [registered(each.table, incarnation) for each in known.made]
            self._removed += known.removed
            self._next_scan = DdlScan(position_ts=known.position_ts, pending=pending)
            # Otherwise not before they are taken: see `take_changes`.
            if not (self._added or self._removed):
                self._scan = self._next_scan
        self._context.wake()

    # Writing.

    def _record(self, term: _ClaimedTerm) -> None:
        context, rows = self._context, term.rows
        trust = context.trust
        etcd = etcd_concern(trust.silent_s, context.ttl_s, trust.refused_write)
        self._concern = etcd or context.concerns.first
        with self._lock:
            is_due = rows.age_s >= RECORD_EVERY_S or (self._advance and self._advance.finished)
            if self._advance is not None and is_due:
                advance, self._advance = self._advance, None
            else:
                advance = None
        if advance is not None:
            try:
                self._write(term, advance)
            except TryAgain:
                with self._lock:
                    newer = self._advance
                    self._advance = advance if newer is None else merged(advance, newer)
                raise
            self._backoff.reset()
        rows.look_at_letters()
        rows.refresh(context.ttl_s / 3)

    def _write(self, term: _ClaimedTerm, advance: Advance) -> None:
        rows, reading = term.rows, term.reader.low_water
        now_s = time.monotonic()
        read = advance.read_positions if rows.spans else self._stream.position
        self._meter.ends_at(self._stream.backlog.look().ends, now_s)
        if read:
            self._meter.read_to(read, now_s)
        published = rows.write(
            advance,
            reading=reading,
            marks=term.reader.marks,
            backlog=self._meter.look(now_s),
            source_left_s=term.retention.left_s,
            unlogged=self._context.routes.taken(term.retention.unlogged),
            blocked=term.blocked.briefs(self._held),
        )
        self._stream.stored(rows.row.watermarks, rows.row.source_positions)
        if published:
            with self._lock:
                self._published_ts = advance.sync_point_ts
            self._context.wake()
        stop = self._known.plan.stops_for if self._known is not None else None
        is_far = term.blocked.too_far(read, reading) if self._held else ""
        is_there = stop is not None and rows.row.checkpoint_ts >= stop.event.commit_ts - 1
        if stop is not None and is_there and (is_far or self._has_to_stop(stop)):
            # Everything below the DDL is written, and its cut published.
            raise refusal(stop.event, stop.why + is_far)
        target_ts, waiting = self._context.changefeed.target_ts, {each.name for each in self._held}
        if target_ts and (why := rows.never_there(Ts(target_ts), waiting)):
            raise TidelakeError(why)

    def _has_to_stop(self, stop: HeldTable) -> bool:
        return stop == self._stops_for and not stop.is_waiting

    # The end.

    def _end(self) -> None:
        term, is_lost = self._term, isinstance(self._error, TermRefused | Fenced)
        if term is not None and not is_lost and not self._dropping.is_set():
            self._record_last(term)
        if self._dropping.is_set():
            self._context.cancel()
        if term is not None:
            for each in (term.reader, term.retention, term.blocked, term.outlook):
                each.close()
            self._step.rest()  # the next line may wait for a long commit of the applying thread
            self._stream.leave(term.reader)
        self._release()

    def _record_last(self, term: _ClaimedTerm) -> None:
        """Write the last changes, and a row that says that no owner runs the changefeed now. Then
        the next owner, even one of another etcd, need not wait until the row is stale."""
        with suppress(TidelakeError):
            self._context.trust.check()
            if self._advance is not None:
                self._write(term, self._advance)
            if (row := term.rows.row).state != "finished":
                term.rows.save(as_ended(row, self._shown_state))
