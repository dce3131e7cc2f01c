"""The body of ``foreachBatch``: read it and you know the data plane.

Order of writes in a batch (design 3, rule 6): dead letters, targets, progress, changefeed row,
ledger. A crash between any two of them is healed by reading again from the low-water offsets."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from conf.settings import Settings
from coordination.failpoint import Failpoint, failpoint
from coordination.fence import Fence
from coordination.model import TableName, Ts
from sinks.changefeeds import ChangefeedRow
from streaming.applier import Applier
from streaming.backlog_watch import BacklogWatch
from streaming.due import due_tasks
from streaming.events import KAFKA_COLUMNS, Decoder, TopicPartition
from streaming.filter import TableFilter
from streaming.plan import Creation, definition, plan, refusal
from streaming.record import Record
from streaming.segments import Carry, Segment, read_segment
from streaming.source.kafka import Source, SourceShape
from streaming.spans import Spans
from streaming.watermark import Watermarks

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Position:
    """Where the stream is. One owner at a time: the batch thread, or the monitor while no batch
    runs.
    """

    offsets: dict[TopicPartition, int]
    watermarks: Watermarks
    checkpoint: Ts
    carry: Carry = field(default_factory=Carry)


def position_at(
    row: ChangefeedRow, shape: SourceShape, offsets: dict[TopicPartition, int]
) -> Position:
    """Where a restart stands: recorded watermarks count only once reading has passed them (rule
    2).
    """
    recorded = {TopicPartition.parse(text): mark for text, mark in row.watermarks.items()}
    watermarks = Watermarks(partitions=shape.partitions, recorded=recorded)
    return Position(
        offsets=dict(offsets),
        watermarks=watermarks.advance({}, offsets),
        checkpoint=Ts(row.checkpoint_ts),
    )


class Batch:
    """One stream start's batches. Callable as Spark wants it: ``batch(messages, batch_id)``."""

    def __init__(
        self,
        *,
        settings: Settings,
        fence: Fence,
        source: Source,
        shape: SourceShape,
        decoder: Decoder,
        spans: Spans,
        applier: Applier,
        record: Record,
        position: Position,
        backlog: BacklogWatch,
    ) -> None:
        self._settings = settings
        self._changefeed = settings.changefeed
        self._fence = fence
        self._source = source
        self._shape = shape
        self._decoder = decoder
        self._spans = spans
        self._applier = applier
        self._record = record
        self._backlog = backlog
        self._filter = TableFilter(settings.changefeed.filter)
        self._unwanted: set[TableName] = set()
        self.position = position
        self.lock = threading.Lock()  # held while a batch runs: the monitor finishes a quiet feed
        self.stopping = threading.Event()
        self.finished = threading.Event()
        self.failure: BaseException | None = None
        self.last_read = time.monotonic()
        self._held: frozenset[TableName] = frozenset()  # tables that take no commit now

    @property
    def has_ended(self) -> bool:
        """Whether no batch of this stream does anything any more."""
        return self.failure is not None or self.finished.is_set()

    def __call__(self, messages: DataFrame, batch_id: int) -> None:
        """Apply what one micro-batch resolves, or keep why not: the monitor ends the query then.

        Nothing is raised into Spark, which would bury the sentence under two stack traces. That it
        counts the batch as done does no harm: its checkpoint is never read again (rule 1).
        """
        with self.lock:
            if self.has_ended or self.stopping.is_set():
                return
            try:
                self._run(messages, batch_id)
            except BaseException as error:  # noqa: BLE001  # handed on, whole
                self.failure = error

    def _run(self, messages: DataFrame, batch_id: int) -> None:
        self._fence.check()
        failpoint(Failpoint.BATCH_START)
        started = time.monotonic()
        self._backlog.batch_begins(batch_id)
        segment = self._read(messages)
        failpoint(Failpoint.AFTER_DECODE)
        self._source.check_unchanged(self._shape)
        self._applier.bury_undecodable(segment)
        failpoint(Failpoint.AFTER_DEAD_LETTERS)
        self._take(segment)
        self.advance(self.limit())
        failpoint(Failpoint.BATCH_END)
        self._backlog.batch_ends(self.position.offsets)
        self.last_read = time.monotonic()
        logger.info(
            "applied a batch batch_id=%d messages=%d checkpoint_ts=%d carry_rows=%d seconds=%.2f",
            batch_id,
            sum(segment.end.values()) - sum(segment.begin.values()),
            self.position.checkpoint,
            self.position.carry.rows_above(self.position.checkpoint),
            time.monotonic() - started,
            extra=self._backlog.look().facts(),
        )

    def _read(self, messages: DataFrame) -> Segment:
        settled = dict.fromkeys(self._unwanted, ()) | self._spans.settled_keys()
        return read_segment(self._decoder(messages.select(*KAFKA_COLUMNS), settled))

    def _take(self, segment: Segment) -> None:
        """From here on the batch's rows are ours to apply, whenever they are resolved."""
        here = self.position
        here.offsets |= segment.end
        here.watermarks = here.watermarks.advance(segment.watermarks, segment.end)
        here.carry = here.carry.add(segment)
        waiting = here.carry.rows_above(self.limit())
        if waiting > self._settings.batch.carry_warn_rows:
            logger.warning(
                "the carry is large: rows wait for a watermark rows=%d watermark_ts=%d "
                "held_back_by=%s",
                waiting,
                here.watermarks.global_ts,
                ",".join(map(str, here.watermarks.holding_back)),
            )

    def limit(self) -> Ts:
        """W resolves L = W - 1, capped by the target-ts (rule 2)."""
        resolved = max(self.position.watermarks.global_ts - 1, 0)
        target = self._changefeed.target_ts
        return Ts(resolved if target is None else min(resolved, target))

    def advance(self, limit: Ts) -> None:
        """Bring every table to ``limit`` and record it; a DDL that is not supported ends it below
        itself.
        """
        here = self.position
        if limit <= here.checkpoint:
            here.carry = here.carry.trimmed(here.checkpoint)
            return
        planned = plan(
            here.carry.ddls(),
            checkpoint=here.checkpoint,
            start_ts=Ts(self._record.row.start_ts),
            limit=limit,
            table_filter=self._filter,
            known=self._spans.schemas(),
        )
        self._create(planned.creations)
        self._find(planned.limit)
        if planned.limit > here.checkpoint:
            self._apply(planned.limit)
        if planned.wall is not None:
            raise refusal(planned.wall, planned.why, self._changefeed.sink.warehouse)

    def _apply(self, limit: Ts) -> None:
        here = self.position
        names = [
            name
            for name in here.carry.names(limit)
            if name in self._spans and self._filter.selects(name)
        ]
        tasks = due_tasks(here.carry, self._spans, names, limit, self._filter)
        self._held = held = self._applier.apply(tasks, limit)
        failpoint(Failpoint.AFTER_APPLY)
        self._spans.idle_to(limit, [span.name for span in self._spans if span.name not in held])
        if held:  # there is one position for all tables here: it waits for those
            self._record.batch(here, self.limit(), finished=False)
            return
        here.checkpoint = limit
        here.carry = here.carry.trimmed(limit)
        self._backlog.batch_ends(here.offsets)
        is_target = limit == self._changefeed.target_ts
        self._record.batch(here, self.limit() if not is_target else limit, finished=is_target)
        if is_target:
            self.finished.set()

    def _create(self, creations: Sequence[Creation]) -> None:
        for creation in creations:
            schema = definition(creation, self._spans.schemas())
            self._fence.check()
            self._spans.create(
                creation.event.name, schema, creation.event, self.position.checkpoint
            )

    def _find(self, limit: Ts) -> None:
        """Tables with rows that are due and no definition: from the types in their messages."""
        here = self.position
        open_names = self._spans.open_names(here.carry.names(limit))
        self._unwanted |= {name for name in open_names if not self._filter.selects(name)}
        due = here.carry.due_of(open_names - self._unwanted, here.checkpoint, limit)
        if due.names:
            self._fence.check()
            self._spans.find(due.names, due.segments, here.checkpoint, limit)

    def tick(self, refresh_after_s: float) -> None:
        """While no batch runs: keep the changefeed's row fresh, apply what waited for a table that
        was held, and finish a feed that ended at its target.
        """
        if self.failure is not None or not self.lock.acquire(blocking=False):
            return
        try:
            target = self._changefeed.target_ts
            quiet = time.monotonic() - self.last_read > self._settings.batch.quiet_s
            if target is not None and quiet and self.position.watermarks.all_at(target):
                self._fence.check()
                self.advance(Ts(target))
            elif self._held and not any(self._applier.is_held(name) for name in self._held):
                self._fence.check()
                self.advance(self.limit())
            self._record.refresh(self.position, refresh_after_s)
        finally:
            self.lock.release()

    def record_stopped(self) -> None:
        """Nobody runs it now: the next owner, of whatever etcd, need not wait for this one to go
        stale.
        """
        self._record.save(replace(self._record.row, state="stopped"))

    def metrics(self) -> Mapping[str, int]:
        """What a log line or a test wants to know of the carry."""
        here = self.position
        return {
            "segments": len(here.carry.segments),
            "carry_rows": here.carry.rows_above(here.checkpoint),
            "watermark_ts": here.watermarks.global_ts,
        }
