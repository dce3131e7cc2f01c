"""One changefeed's spans on one capture: implements ``coordination.ports.Replica``.

    spans here ──► their writer reads along with the stream ──no span left──► leaves it
                        ▲          │
                        └──────────┴── storage away: the same rows again, a little later
                                   └── trouble: reported, and nothing goes on

The coordination thread asks and is answered from `HeldSpans`; the stream's threads read and apply;
the worker brings newcomers in and looks after failures.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from py4j.protocol import Py4JError

from coordination.errors import Fenced, Stop, TableSealed, TidelakeError, TryAgain
from coordination.metadata.model import RunningError
from coordination.ports import Trouble
from coordination.running_errors import PROCESSOR_UNKNOWN, log_failure, running_error
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import Checkpoint, Scan, Span, TableStatus
from sinks.jvm_errors import line
from streaming.backoff import PASSING
from streaming.cluster.held_spans import Assignment, HeldSpans
from streaming.cluster.newcomers import low_water_of, passes
from streaming.cluster.reads import parsed
from streaming.cluster.role_context import RoleContext, RoleWorker
from streaming.cluster.span_writer import SpanWriter

logger = logging.getLogger(__name__)

TURN_S = 0.1  # between two looks of the worker when nobody calls it
SOON_S = 0.01  # ... while the stream has not said yet from where a newcomer's rows come


class StreamReplica(RoleWorker):
    """See the module's picture and the port."""

    def __init__(self, context: RoleContext) -> None:
        super().__init__(context, thread="replica")
        self._held = HeldSpans()
        self._trouble = Trouble()
        self._trouble_lock = threading.Lock()
        self._is_broken = False
        self._writer: SpanWriter | None = None
        self._incarnation: int | None = None  # of the last writer
        self._is_reading = False
        self._reached = 0
        self._turn_s = TURN_S
        self._concern: str | None = None  # that was reported
        self._thread.start()

    # The port.

    def add_table_span(
        self, span: Span, checkpoint: Checkpoint, fence: int, *, is_prepare: bool
    ) -> None:
        if not self._closing.is_set():
            self._held.add(span, checkpoint, fence, is_prepare=is_prepare)
            self._woken.set()
            self._stream.wake()

    def remove_table_span(self, table_id: int) -> None:
        self._held.remove(table_id)
        self._woken.set()
        self._stream.wake()

    def take_stopped(self, table_id: int) -> TableStatus | None:
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

    # The worker.

    def _run(self) -> None:
        while not self._closing.is_set():
            self._woken.wait(self._turn_s)
            self._woken.clear()
            if self._is_broken or self._closing.is_set():
                continue
            with self._step:
                self._report_concern()
                self._work()
        with self._step:
            if self._dropping.is_set():  # else a commit that is under way ends first
                self._context.cancel()
            self._leave()
            self._release()

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
            try:  # perhaps by its changefeed itself, which begins anew: then it has not failed
                self._context.row(self._incarnation)
            except TryAgain as newer:
                self._wait_after(newer)
            else:
                self._break_off(error)
        except Exception as error:  # noqa: BLE001 - reported
            log_failure(logger, f"the replica fails name={self._context.name}", error)
            self._break_off(error)

    def _turn(self) -> None:
        """Bring newcomers in. What the stream's threads do for us fails here, and goes on."""
        self._raise_failure()
        held = self._held.assignments()
        if not held:
            self._leave_if_empty()
            return
        if self._writer is None:
            row = self._context.row()
            self._incarnation = row.incarnation
            self._writer = SpanWriter(self._context, row, self._held, self._fail)
        self._bring_in(self._writer, held)
        if (reached := self._writer.reached()) > self._reached:
            self._reached = reached
            self._backoff.reset()

    def _bring_in(self, writer: SpanWriter, held: list[Assignment]) -> None:
        """Those that come first begin the stream, if no other role has: nothing lies before."""
        newcomers = writer.newcomers
        writer.begin(held)
        coming = newcomers.coming()
        if coming and not self._is_reading:
            row = self._context.row(self._incarnation)
            self._stream.join(writer, low_water_of(coming), parsed(row.watermarks))
            self._is_reading = True
        for together in passes(coming):
            newcomers.catch_up(together, self._step)
        if coming:
            self._stream.wake()
        self._turn_s = SOON_S if newcomers.coming() else TURN_S

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
            with suppress(Py4JError, OSError):
                writer.close()

    # Trouble.

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
            self._break_off(end)

    def _try_again(self) -> None:
        """What was lost is read again, from the low water on; else the same rows are written."""
        if self._writer is None:
            return
        if self._writer.has_lost_rows:
            self._leave()
        else:
            self._writer.retry()
            self._stream.wake()

    def _break_off(self, error: Exception | None = None) -> None:
        """``error``: what the owner does not know yet."""
        if error is not None:
            with self._trouble_lock:
                errors = (*self._trouble.errors, self._reported(error))
                self._trouble = replace(self._trouble, errors=errors)
            self._context.wake()
        self._is_broken = True
        self._leave()

    def _report_concern(self) -> None:
        """A broker that is silent is not an error yet: the owner hears of it once."""
        concern = self._context.concerns.first
        if concern is not None and concern != self._concern:
            self._warn(concern)
        self._concern = concern

    def _warn(self, text: str) -> None:
        with self._trouble_lock:
            warnings = (*self._trouble.warnings, self._reported(TidelakeError(text)))
            self._trouble = replace(self._trouble, warnings=warnings)
        self._context.wake()

    def _reported(self, error: Exception) -> RunningError:
        return running_error(
            error,
            code=PROCESSOR_UNKNOWN,
            address=self._context.identity.address,
            at=datetime.now(UTC),
        )
