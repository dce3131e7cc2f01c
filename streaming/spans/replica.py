"""One changefeed's spans on one capture: implements ``coordination.scheduler.replica.Replica``.

    spans here ──► a `SpanWriter` joins the stream ──no span left──► it leaves the stream
                        ▲          │
                        └──────────┴── storage away: the same rows are tried again, a little later
                                   └── any other error: reported, and nothing more is done

The coordination thread reads and changes `AssignedSpans` only, and never waits. The stream's
threads read and apply. The worker, a thread of the replica's own, catches up newcomers and handles
failures.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from py4j.protocol import Py4JError

from coordination.errors import Fenced, Stop, TableSealed, TidelakeError, TryAgain
from coordination.metadata.records import RunningError
from coordination.metadata.running_errors import PROCESSOR_UNKNOWN, log_failure, running_error
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import Checkpoint, Span
from coordination.scheduler.replica import Trouble
from coordination.scheduler.table_status import TableStatus
from sinks.spark.jvm_errors import line
from streaming.spans.assigned_spans import AssignedSpans, Assignment
from streaming.spans.joining_spans import low_water_of, passes
from streaming.spans.span_writer import SpanWriter
from streaming.stream.lasting_warnings import REPLICA
from streaming.stream.retry import PASSING
from streaming.stream.role_context import RoleContext, RoleWorker

logger = logging.getLogger(__name__)

TURN_S = 0.1  # between two turns of the worker while its last spans leave
REST_S = 1.0  # ... and otherwise, when nothing wakes it
SOON_S = 0.01  # ... while newcomers wait to learn from which positions the stream has their rows


class StreamReplica(RoleWorker):
    """See the module's picture and the port."""

    def __init__(self, context: RoleContext) -> None:
        super().__init__(context, thread="replica")
        self._held = AssignedSpans()
        self._trouble = Trouble()
        self._trouble_lock = threading.Lock()
        self._is_broken = False
        self._writer: SpanWriter | None = None
        self._incarnation: int | None = None  # of the last writer
        self._is_reading = False
        self._turn_s = REST_S
        self._concern: str | None = None  # the one that was reported last
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

    def get_read_positions(self) -> Mapping[str, int] | None:
        return self._held.read_positions()

    def set_barrier(self, barrier: Barrier | None) -> None:
        if self._held.set_barrier(barrier):
            self._stream.wake()

    def take_trouble(self) -> Trouble:
        with self._trouble_lock:
            taken, self._trouble = self._trouble, Trouble(concern=self._trouble.concern)
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
            if self._dropping.is_set():  # otherwise `_leave` waits for a commit under way
                self._context.cancel()
            self._context.concerns.withdraw(REPLICA)
            self._leave()
            self._release()

    def _work(self) -> None:
        try:
            self._turn()
        except Stop:  # the process ends; or the stream has ended, and `_failure` says why
            if self._failure is None:
                self._break_off()
        except Fenced as error:  # the capture has lost its session, and the replica ends with it
            logger.info("the replica stops: %s name=%s", error, self._context.name)
            self._break_off()
        except PASSING as error:
            self._wait_after(error)
        except TableSealed as error:
            try:  # a new incarnation of the changefeed seals the tables too: that is no failure
                self._context.row(self._incarnation)
            except TryAgain as newer:
                self._wait_after(newer)
            else:
                self._break_off(error)
        except Exception as error:  # noqa: BLE001 - reported
            log_failure(logger, f"the replica fails name={self._context.name}", error)
            self._break_off(error)

    def _turn(self) -> None:
        """Bring newcomers in. An error of the stream's threads is raised here, so that the worker
        handles it."""
        self._raise_failure()
        held = self._held.assignments()
        if not held:
            self._leave_if_empty()
            self._recovered()
            return
        if self._writer is None:
            row = self._context.row()
            self._incarnation = row.incarnation
            self._writer = SpanWriter(self._context, row, self._held, self._fail)
        self._bring_in(self._writer, held)
        self._backoff.look(self._writer.reached())
        if self._writer.is_sound:
            self._recovered()

    def _bring_in(self, writer: SpanWriter, held: list[Assignment]) -> None:
        """Begin the assignments that are not known yet, join the stream with the first of them, and
        catch up those whose ``since`` is known. Blocks while it reads."""
        newcomers = writer.newcomers
        writer.begin(held)
        coming = newcomers.coming()
        if coming and not self._is_reading:
            row = self._context.row(self._incarnation)
            low_water = low_water_of(coming)
            self._stream.join(writer, low_water, row.watermarks, row.source_identities)
            self._is_reading = True
        for together in passes(coming, self._stream.distance):
            newcomers.catch_up(together, self._step, self._closing)
        if coming:
            self._stream.wake()
        self._turn_s = SOON_S if newcomers.coming() else REST_S

    def _leave_if_empty(self) -> None:
        """Leave the stream when the last span is gone (the owner's reader may keep it running)."""
        if self._writer is not None and not self._held.count():
            self._leave()
        self._turn_s = TURN_S if self._held.count() else REST_S
        if self._held.count():
            self._stream.wake()  # all spans here are leaving: their last commits may have ended
            self._context.wake()

    def _leave(self) -> None:
        writer, self._writer = self._writer, None
        self._step.rest()  # the next line may wait for a long commit of the applying thread
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
                trouble = f"the stream fails, and is tried again: {line(error)}"
                self._context.concerns.say(REPLICA, trouble)
                self._report_concern()
            self._closing.wait(wait_s)
            self._woken.set()
            self._try_again()
        except Stop:
            self._break_off()
        except TidelakeError as end:
            self._break_off(end)

    def _try_again(self) -> None:
        """If rows were lost, leave the stream, so that a new writer reads from the low water on.
        Otherwise the writer tries its rows again."""
        if self._writer is None:
            return
        if self._writer.has_lost_rows:
            self._leave()
        else:
            self._writer.retry()
            self._stream.wake()

    def _break_off(self, error: Exception | None = None) -> None:
        """End the work for good. ``error``: reported to the owner; None if there is nothing to
        report."""
        if error is not None:
            with self._trouble_lock:
                errors = (*self._trouble.errors, self._reported(error))
                self._trouble = replace(self._trouble, errors=errors)
            self._context.wake()
        self._is_broken = True
        self._leave()

    def _recovered(self) -> None:
        """The failure is over, whether or not anything came meanwhile."""
        if self._backoff.is_long:
            self._backoff.reset()
        self._context.concerns.say(REPLICA, None)

    def _report_concern(self) -> None:
        """Report a concern (a source that does not answer, say) to the owner: once as a warning (it
        is no error yet), and as long as it holds as the one that does."""
        text = self._context.concerns.first
        if text == self._concern:
            return
        self._concern = text
        concern = self._reported(TidelakeError(text)).lasting() if text is not None else None
        with self._trouble_lock:
            warnings = self._trouble.warnings + (() if concern is None else (concern,))
            self._trouble = replace(self._trouble, warnings=warnings, concern=concern)
        self._context.wake()

    def _reported(self, error: Exception) -> RunningError:
        return running_error(
            error,
            code=PROCESSOR_UNKNOWN,
            address=self._context.trust.identity.address,
            at=datetime.now(UTC),
        )
