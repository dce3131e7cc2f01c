"""One changefeed's spans on one capture: implements ``coordination.ports.Replica``.

    spans here ──► their writer reads along with the stream ──no span left──► leaves it
                        ▲          │
                        └──────────┴── storage away: the same rows again, a little later
                                   └── trouble: said, and nothing goes on

The coordination thread asks and is answered from `HeldSpans`; the stream's threads read and apply;
the worker brings newcomers in and looks after failures.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from py4j.protocol import Py4JError

from coordination.errors import Fenced, Stop, TableSealed, TidelakeError, TryAgain
from coordination.metadata.model import RunningError
from coordination.model import TableName
from coordination.ports import Trouble
from coordination.running_errors import PROCESSOR_UNKNOWN, log_failure, running_error
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import Checkpoint, Scan, Span, TableStatus
from sinks.changefeeds import ChangefeedRow
from sinks.jvm_errors import line
from sinks.progress import ProgressRow
from streaming.backoff import PASSING, RetryBackoff
from streaming.cluster.carry_warning import CarryWarning
from streaming.cluster.held_spans import Assignment, HeldSpans
from streaming.cluster.newcomers import Newcomer, low_water_of, passes, stored_low_water
from streaming.cluster.role_context import RoleContext
from streaming.cluster.span_permit import SpanPermit
from streaming.cluster.span_writer import SpanWriter
from streaming.cluster.tables_in_sight import TablesInSight
from streaming.sink_tables import SinkTable, SinkTables
from streaming.source.ranges import TopicPartition

logger = logging.getLogger(__name__)

TURN_S = 0.1  # between two looks of the worker when nobody calls it
SOON_S = 0.01  # ... while the stream has not said yet from where a newcomer's rows come


class ReplicaOf:
    """See the module's picture and the port."""

    def __init__(self, context: RoleContext) -> None:
        self._context = context
        self._step = context.watch(f"the worker of {context.name}")
        self._held = HeldSpans()
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._dropping = threading.Event()
        self._trouble = Trouble()
        self._trouble_lock = threading.Lock()
        self._is_broken = False
        self._stream = context.stream
        self._writer: SpanWriter | None = None
        self._is_reading = False
        self._failure: BaseException | None = None
        self._reached = 0
        self._turn_s = TURN_S
        self._decoded_before: Counter[TableName] = Counter()
        self._spans: SinkTables | None = None
        self._incarnation = 0
        self._backoff = RetryBackoff()
        self._concern: str | None = None  # that the owner has been told
        self._worker = threading.Thread(target=self._run, name="replica", daemon=True)
        self._worker.start()

    # The port.

    def add_table_span(
        self, span: Span, checkpoint: Checkpoint, fence: int, *, is_prepare: bool
    ) -> bool:
        if self._closing.is_set():
            return False
        is_begun = self._held.add(span, checkpoint, fence, is_prepare=is_prepare)
        self._woken.set()
        self._stream.wake()
        return is_begun

    def is_add_table_span_finished(self, table_id: int, *, is_prepare: bool) -> bool:
        return self._held.is_added(table_id, is_prepare=is_prepare)

    def remove_table_span(self, table_id: int) -> bool:
        is_begun = self._held.remove(table_id)
        self._woken.set()
        self._stream.wake()
        return is_begun

    def is_remove_table_span_finished(self, table_id: int) -> TableStatus | None:
        stopped = self._held.take_stopped(table_id)
        if stopped is not None:
            self._woken.set()
        return stopped

    def get_table_span_count(self) -> int:
        return self._held.count()

    def get_table_span_status(self, table_id: int) -> TableStatus:
        return self._held.status(table_id)

    def take_changed(self) -> Collection[int]:
        return self._held.take_changed()

    def get_scan(self) -> Scan | None:
        return self._held.scan()

    def set_barrier(self, barrier: Barrier | None) -> None:
        if self._held.set_barrier(barrier):
            self._stream.wake()

    def take_trouble(self) -> Trouble:
        with self._trouble_lock:
            taken, self._trouble = self._trouble, Trouble()
            return taken

    def close(self, *, drop: bool) -> None:
        if drop and not self._dropping.is_set():
            self._dropping.set()
            threading.Thread(target=self._context.cancel, name="cancel", daemon=True).start()
        self._closing.set()
        self._woken.set()

    def is_closed(self) -> bool:
        return not self._worker.is_alive()

    # For audit.

    @property
    def decoded_by_table(self) -> dict[TableName, int]:
        now = self._writer.decoded if self._writer is not None else Counter[TableName]()
        return dict(self._decoded_before + now)

    # The worker.

    def _run(self) -> None:
        while not self._closing.is_set():
            self._woken.wait(self._turn_s)
            self._woken.clear()
            if self._is_broken or self._closing.is_set():
                continue
            with self._step:
                self._tell_concern()
                self._work()
        with self._step:
            self._end()

    def _work(self) -> None:
        try:
            self._turn()
        except Stop:  # the process ends; or the stream has, and has said why
            if self._failure is None:
                self._break_off()
        except Fenced as error:  # the capture ends, and this with it
            logger.info("the replica stops: %s name=%s", error, self._context.name)
            self._break_off()
        except PASSING as error:
            self._wait_after(error)
        except TableSealed as error:
            self._look_who_sealed(error)
        except Exception as error:  # noqa: BLE001 - the changefeed hears of it
            log_failure(logger, f"the replica fails name={self._context.name}", error)
            self._say(error)
            self._break_off()

    def _look_who_sealed(self, error: TableSealed) -> None:
        """Its changefeed itself, which begins anew, as a rewind does: then it has not failed."""
        try:
            self._row()
        except TryAgain as newer:
            self._wait_after(newer)
        else:
            self._say(error)
            self._break_off()

    def _tell_concern(self) -> None:
        """A broker that is silent is not an error yet: the owner hears of it once."""
        concern = self._context.concerns.first
        if concern is not None and concern != self._concern:
            self._warn(concern)
        self._concern = concern

    def _wait_after(self, error: Exception) -> None:
        try:
            self._context.check_jvm()
            was_long = self._backoff.is_long
            wait_s = self._backoff.next_s(error)
            if self._backoff.is_long and not was_long:
                self._warn(f"the stream fails, and is tried again: {line(error)}")
            self._closing.wait(wait_s)
            self._try_again()
        except Stop:
            self._break_off()
        except TidelakeError as end:
            self._say(end)
            self._break_off()

    def _turn(self) -> None:
        """Bring newcomers in. What the stream's threads do for us fails here, and goes on."""
        self._look_at_failure()
        held = self._held.assignments()
        if not held:
            self._leave_if_empty()
            return
        if self._writer is None:
            self._writer = self._build()
        self._bring_in(self._writer, held)
        if (reached := self._writer.reached()) > self._reached:
            self._reached = reached
            self._backoff.reset()

    def _look_at_failure(self) -> None:
        """What the stream's threads did for us, and could not."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _try_again(self) -> None:
        """What was lost is read again, from the low water on; else the same rows are written."""
        if self._writer is None:
            return
        if self._writer.has_lost_rows:
            self._leave()
        else:
            self._writer.retry()
            self._stream.wake()

    def _fail(self, error: BaseException) -> None:
        """From a thread of the stream."""
        self._failure = error
        self._woken.set()

    def _bring_in(self, writer: SpanWriter, held: list[Assignment]) -> None:
        """Those that come first begin the stream, if no other role has: nothing lies before."""
        writer.begin(self._newcomers(held, writer.known()))
        coming = writer.coming()
        if coming and not self._is_reading:
            row = self._row()
            marks = {TopicPartition.parse(text): mark for text, mark in row.watermarks.items()}
            low_water = low_water_of(coming)
            self._stream.join(writer, low_water, marks)
            self._is_reading = True
        for together in passes(coming):
            writer.catch_up(together, self._step)
        if coming:
            self._stream.wake()
        self._turn_s = SOON_S if writer.coming() else TURN_S

    def _leave_if_empty(self) -> None:
        """With the last span reading ends, unless the owner reads on: there is nothing to do."""
        if self._writer is not None and not self._held.count():
            self._leave()
        if self._held.count():
            self._stream.wake()  # one is leaving: its last commit may have ended
            self._context.wake()

    def _leave(self) -> None:
        writer, self._writer = self._writer, None
        self._step.rest()  # it waits for the applying thread, which may have a long commit
        self._stream.leave(writer)
        self._step.step()
        self._is_reading = False
        if writer is not None:
            self._decoded_before.update(writer.decoded)
            with suppress(Py4JError, OSError):
                writer.close()

    def _build(self) -> SpanWriter:
        context, row = self._context, self._context.row()
        spans, dead_letters = context.spans(row), context.dead_letters(row)
        permit = SpanPermit(
            changefeed_id=context.changefeed.id,
            identity=context.identity,
            trust=context.trust,
            held=self._held,
            applied=lambda assignment: made.applied(assignment),
            on_ended=self._stream.get_on,
        )
        self._spans, self._incarnation = spans, row.incarnation
        made = SpanWriter(
            held=self._held,
            spans=spans,
            permit=permit,
            applier=context.applier(spans, dead_letters, permit),
            carry=context.carry(),
            carry_warning=CarryWarning(context.settings.batch.carry_warn_rows),
            dead_letters=dead_letters,
            table_filter=context.filter,
            in_sight=TablesInSight(context.filter, lambda: context.progress().keys()),
            opener=self._opener,
            stream=self._stream,
            on_failed=self._fail,
            on_news=context.wake,
        )
        return made

    def _newcomers(self, held: list[Assignment], known: set[int]) -> list[Newcomer]:
        new = [each for each in held if each.id not in known]
        if not new:
            return []
        row, rows = self._row(), self._context.progress()
        return [
            Newcomer(
                assignment=each,
                table=self._table(each, rows.get(each.name)),
                low_water=stored_low_water(row, rows.get(each.name)),
            )
            for each in new
        ]

    def _opener(self) -> Callable[[Assignment], SinkTable]:
        self._row()
        rows = self._context.progress()
        return lambda assignment: self._table(assignment, rows.get(assignment.name))

    def _table(self, assignment: Assignment, row: ProgressRow | None) -> SinkTable:
        assert self._spans is not None
        if row is None:
            raise TryAgain(f"table {assignment.name} is in no progress row yet")
        if row.incarnation != self._incarnation:
            raise TryAgain(f"table {assignment.name} is of incarnation {row.incarnation} still")
        return self._spans.opened(assignment.name, row, assignment.checkpoint_ts)

    def _row(self) -> ChangefeedRow:
        row = self._context.row()
        if row.incarnation != self._incarnation:
            raise TryAgain(  # a replica of the new epoch comes, and this one is closed
                f"changefeed {row.changefeed_id} has begun incarnation {row.incarnation}, this is "
                f"incarnation {self._incarnation}"
            )
        return row

    # Trouble, and the end.

    def _say(self, error: Exception) -> None:
        with self._trouble_lock:
            errors = (*self._trouble.errors, self._report(error))
            self._trouble = replace(self._trouble, errors=errors)
        self._context.wake()

    def _warn(self, text: str) -> None:
        with self._trouble_lock:
            warnings = (*self._trouble.warnings, self._report(TidelakeError(text)))
            self._trouble = replace(self._trouble, warnings=warnings)
        self._context.wake()

    def _report(self, error: Exception) -> RunningError:
        return running_error(
            error,
            code=PROCESSOR_UNKNOWN,
            address=self._context.identity.address,
            at=datetime.now(UTC),
        )

    def _break_off(self) -> None:
        self._is_broken = True
        self._leave()

    def _end(self) -> None:
        """A commit that is under way ends first, unless all is to be dropped."""
        if self._dropping.is_set():
            self._context.cancel()
        self._leave()
        self._context.close()
        self._context.wake()
