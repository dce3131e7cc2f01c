"""One changefeed's spans on one capture: implements ``coordination.ports.Replica``.

    spans here, no stream ──► start at their low water ──► stream ──no span left──► stop
                                      ▲                      │
                                      └── again, a little ◄──┴── Kafka or storage away for a while
                                          later             └──► trouble: said, and nothing goes on

Three threads: the coordination thread asks and is answered from `HeldSpans`; Spark's batch thread
applies; the worker does the rest. The last two take turns under the stream's lock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from py4j.protocol import Py4JError

from coordination.errors import CaptureSuicide, Fenced, Stop, TidelakeError, TryAgain
from coordination.metadata.model import RunningError
from coordination.model import TableName
from coordination.ports import Trouble
from coordination.running_errors import PROCESSOR_UNKNOWN, log_failure, running_error
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import Checkpoint, Scan, Span, TableStatus
from sinks.changefeeds import ChangefeedRow
from sinks.jvm_errors import line
from sinks.progress import ProgressRow
from streaming.applier import job_tag
from streaming.cluster.held_spans import Assignment, HeldSpans
from streaming.cluster.span_permit import SpanPermit
from streaming.cluster.span_writer import Newcomer, SpanWriter
from streaming.cluster.tables_in_sight import TablesInSight
from streaming.cluster.topic_stream import TopicStream
from streaming.cluster.workshop import Workshop
from streaming.events import TopicPartition
from streaming.patience import PASSING, Patience
from streaming.source.kafka import SourceChanged
from streaming.spans import Span as Table
from streaming.spans import Spans

logger = logging.getLogger(__name__)

TURN_S = 0.1  # between two looks of the worker when nobody calls it
LOCK_PATIENCE_S = 0.05  # a batch runs: it takes the boundary itself
STOP_PATIENCE_S = 20.0  # how long an orderly end waits for the batch to end


class ReplicaOf:
    """See the module's picture and the port."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._held = HeldSpans()
        self._kick = threading.Event()
        self._closing = threading.Event()
        self._dropping = threading.Event()
        self._trouble = Trouble()
        self._trouble_lock = threading.Lock()
        self._is_broken = False
        self._writer: SpanWriter | None = None
        self._stream: TopicStream | None = None
        self._spans: Spans | None = None
        self._incarnation = 0
        self._patience = Patience()
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
        self._kick.set()
        return is_begun

    def is_add_table_span_finished(self, table_id: int, *, is_prepare: bool) -> bool:
        return self._held.is_added(table_id, is_prepare=is_prepare)

    def remove_table_span(self, table_id: int) -> bool:
        is_begun = self._held.remove(table_id)
        self._kick.set()
        return is_begun

    def is_remove_table_span_finished(self, table_id: int) -> TableStatus | None:
        stopped = self._held.take_stopped(table_id)
        if stopped is not None:
            self._kick.set()
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
            self._kick.set()

    def take_trouble(self) -> Trouble:
        with self._trouble_lock:
            taken, self._trouble = self._trouble, Trouble()
            return taken

    def close(self, *, drop: bool) -> None:
        if drop and not self._dropping.is_set():
            self._dropping.set()
            threading.Thread(target=self._cancel, name="cancel", daemon=True).start()
        self._closing.set()
        self._kick.set()

    def is_closed(self) -> bool:
        return not self._worker.is_alive()

    # For audit.

    @property
    def decoded_rows(self) -> int:
        """Rows that have entered the decoder on this capture."""
        return sum(self.decoded_by_table.values())

    @property
    def decoded_by_table(self) -> dict[TableName, int]:
        return dict(self._writer.decoded) if self._writer is not None else {}

    # The worker.

    def _run(self) -> None:
        while not self._closing.is_set():
            self._kick.wait(TURN_S)
            self._kick.clear()
            if self._is_broken or self._closing.is_set():
                continue
            self._tell_concern()
            try:
                self._turn()
            except (Fenced, CaptureSuicide) as error:
                logger.info("the replica stops: %s name=%s", error, self._workshop.name)
                self._break_off()
            except SourceChanged as change:
                logger.info("%s", change)
                self._stop_stream()
            except PASSING as error:
                self._stop_stream()
                self._wait_after(error)
            except Exception as error:  # noqa: BLE001 - the changefeed hears of it
                log_failure(logger, f"the replica fails name={self._workshop.name}", error)
                self._say(error)
                self._break_off()
        self._end()

    def _tell_concern(self) -> None:
        """A broker that is silent is not an error yet: the owner hears of it once."""
        concern = self._workshop.concerns.first
        if concern is not None and concern != self._concern:
            self._warn(concern)
        self._concern = concern

    def _wait_after(self, error: Exception) -> None:
        try:
            self._workshop.check_jvm()
            was_worn = self._patience.is_worn
            wait_s = self._patience.lost(error)
            if self._patience.is_worn and not was_worn:
                self._warn(f"the stream fails, and is tried again: {line(error)}")
            self._closing.wait(wait_s)
        except Stop:
            self._break_off()
        except TidelakeError as end:
            self._say(end)
            self._break_off()

    def _turn(self) -> None:
        stream, held = self._stream, self._held.assignments()
        if stream is not None:
            stream.check()
        if not held:
            self._stop_if_empty()
            return
        if self._writer is None:
            self._build()
        writer, stream = self._made()
        newcomers = self._newcomers(held, writer.stays())
        if not stream.is_running:
            self._start(newcomers)
        elif newcomers:
            with job_tag(self._workshop.spark, self._workshop.name):
                writer.catch_up(newcomers)
        if stream.lock.acquire(timeout=LOCK_PATIENCE_S):
            try:
                self._workshop.trust.check()
                writer.at_boundary()
                before = writer.reached()
                is_news = writer.advance()
                if writer.reached() > before:
                    self._patience.regained()
            finally:
                stream.lock.release()
            if is_news:
                self._workshop.wake()

    def _stop_if_empty(self) -> None:
        """With the last span the stream ends: there is nothing to read for."""
        if self._stream is not None and self._stream.is_running and not self._held.count():
            self._stop_stream()
            self._made()[0].forget_rows()
        if self._held.count():
            self._workshop.wake()

    def _build(self) -> None:
        workshop, row = self._workshop, self._workshop.row()
        spans, graveyard = workshop.spans(row), workshop.graveyard(row)
        permit = SpanPermit(
            changefeed_id=workshop.changefeed.id,
            identity=workshop.identity,
            trust=workshop.trust,
            held=self._held,
            applied=lambda assignment: self._made()[0].applied(assignment),
        )
        self._spans, self._incarnation = spans, row.incarnation
        self._writer = SpanWriter(
            held=self._held,
            spans=spans,
            permit=permit,
            make_applier=lambda leave: workshop.applier(spans, graveyard, leave),
            dead_letters=lambda name: graveyard.counts.get(name, 0),
            make_decoder=workshop.message_format.make_decoder,
            table_filter=workshop.filter,
            in_sight=TablesInSight(workshop.filter, lambda: workshop.progress().keys()),
            opener=self._opener,
        )
        self._stream = self._writer.stream = TopicStream(
            workshop.stream_context(), self._writer, workshop.wake
        )

    def _made(self) -> tuple[SpanWriter, TopicStream]:
        assert self._writer is not None
        assert self._stream is not None
        return self._writer, self._stream

    def _start(self, newcomers: list[Newcomer]) -> None:
        writer, stream = self._made()
        row = self._workshop.row()
        with stream.lock:
            offsets = writer.start_from(newcomers)
            recorded = dict(stream.watermarks.to_record())
        stored = {TopicPartition.parse(p): mark for p, mark in row.watermarks.items()}
        for partition, mark in stored.items():
            if partition not in recorded or recorded[partition].ts < mark.ts:
                recorded[partition] = mark
        stream.start(offsets, recorded)
        writer.started()

    def _newcomers(self, held: list[Assignment], known: set[int]) -> list[Newcomer]:
        new = [each for each in held if each.stay not in known]
        if not new:
            return []
        row, rows = self._row(), self._workshop.progress()
        return [
            Newcomer(
                assignment=each,
                table=self._table(each, rows.get(each.name)),
                low_water=_low_water(row, rows.get(each.name)),
            )
            for each in new
        ]

    def _opener(self) -> Callable[[Assignment], Table]:
        self._row()
        rows = self._workshop.progress()
        return lambda assignment: self._table(assignment, rows.get(assignment.name))

    def _table(self, assignment: Assignment, row: ProgressRow | None) -> Table:
        assert self._spans is not None
        if row is None:
            raise TryAgain(f"table {assignment.name} is in no progress row yet")
        if row.incarnation != self._incarnation:
            raise TryAgain(f"table {assignment.name} is of incarnation {row.incarnation} still")
        return self._spans.opened(assignment.name, row, assignment.checkpoint_ts)

    def _row(self) -> ChangefeedRow:
        row = self._workshop.row()
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
        self._workshop.wake()

    def _warn(self, text: str) -> None:
        with self._trouble_lock:
            warnings = (*self._trouble.warnings, self._report(TidelakeError(text)))
            self._trouble = replace(self._trouble, warnings=warnings)
        self._workshop.wake()

    def _report(self, error: Exception) -> RunningError:
        return running_error(
            error,
            code=PROCESSOR_UNKNOWN,
            address=self._workshop.identity.address,
            at=datetime.now(UTC),
        )

    def _break_off(self) -> None:
        self._is_broken = True
        self._stop_stream()

    def _stop_stream(self) -> None:
        if self._stream is not None:
            self._stream.stop()

    def _cancel(self) -> None:
        with suppress(Py4JError, OSError):
            self._workshop.spark.sparkContext.cancelJobsWithTag(self._workshop.name)

    def _end(self) -> None:
        stream = self._stream
        if stream is not None:
            stream.stopping.set()
            deadline = time.monotonic() + STOP_PATIENCE_S
            while time.monotonic() < deadline and not self._dropping.is_set():
                if stream.lock.acquire(timeout=TURN_S):
                    stream.lock.release()
                    break
            self._cancel()
            stream.stop()
        if self._writer is not None:
            with suppress(Py4JError, OSError):
                self._writer.close()
        self._workshop.close()
        self._workshop.wake()


def _low_water(row: ChangefeedRow, progress: ProgressRow | None) -> dict[TopicPartition, int]:
    """From where the span must be read; what its row does not say, the changefeed's does."""
    own = progress.source_offsets if progress is not None else {}
    offsets = {**row.source_offsets, **own}
    return {TopicPartition.parse(text): offset for text, offset in offsets.items()}
