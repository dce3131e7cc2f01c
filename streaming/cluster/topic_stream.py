"""One capture's reading of a changefeed's topics: one query at a time over all sink partitions.

    stopped ──start(offsets)──► running ──failure: kept for the worker──► stop ──► start …

Each micro-batch is one *turn* under the lock: first what waits for a batch boundary, then the scan
of its envelopes, then whatever the reader makes of them. Between batches the worker takes turns of
its own. So who reads along has one thread at a time; ``offsets`` is where the next batch begins.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame, SparkSession

from coordination.errors import TidelakeError
from coordination.model import Ts
from sinks.changefeeds import Watermark
from streaming.applier import job_tag
from streaming.backlog import FIRST_BATCH, first_read
from streaming.backlog_watch import BacklogWatch
from streaming.cluster.envelopes import Envelopes, read_envelopes
from streaming.cluster.trust import Trust
from streaming.events import Envelope, TopicPartition
from streaming.query import RunningQuery
from streaming.source.kafka import Source, SourceLost, SourceShape
from streaming.watermark import Watermarks

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, int]
Marks = Mapping[TopicPartition, Watermark]


class Reader(Protocol):
    """Who reads along; called under the stream's lock."""

    def at_boundary(self) -> None:
        """All before the stream's offsets is read, nothing at or after them."""
        ...

    def wanted(self) -> Column:
        """The messages whose bytes are kept."""
        ...

    def take(self, read: Envelopes) -> None:
        """The stream's offsets and watermarks are behind it already."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamContext:
    """What a stream is made with."""

    spark: SparkSession
    source: Source
    envelope: Envelope
    trust: Trust
    name: str
    max_messages: int
    first_messages: int  # of a large backlog, before all else; 0: no such read
    quiet_s: float
    target_ts: int | None
    backlog: BacklogWatch


@dataclass(slots=True, kw_only=True)
class _Position:
    shape: SourceShape
    offsets: dict[TopicPartition, int]
    watermarks: Watermarks
    last_read: float = field(default_factory=time.monotonic)


class TopicStream:
    """See the module's picture. ``lock`` is held during a turn, by whoever has it."""

    def __init__(
        self, context: StreamContext, reader: Reader, on_batch: Callable[[], None]
    ) -> None:
        """``on_batch`` is called after every batch, without the lock."""
        self._context = context
        self._reader = reader
        self._on_batch = on_batch
        self._running: RunningQuery | None = None
        self._position: _Position | None = None
        self._failure: BaseException | None = None
        self.lock = threading.Lock()
        self.stopping = threading.Event()

    @property
    def name(self) -> str:
        return self._context.name

    @property
    def is_running(self) -> bool:
        return self._running is not None

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Where the next batch begins; the last known ones when it is stopped."""
        return dict(self._position.offsets) if self._position else {}

    def told_backlog(self, read: Offsets | Mapping[str, int]) -> dict[str, Any]:
        """For the changefeed's row, from how far others have read; nothing: not known now."""
        self._context.backlog.tell({str(partition): at for partition, at in read.items()})
        return self._context.backlog.look().columns()

    @property
    def watermarks(self) -> Watermarks:
        return self._position.watermarks if self._position else Watermarks(partitions=frozenset())

    def resolved_ts(self) -> Ts:
        """W resolves L = W - 1; a feed that ended at the target-ts has resolved that (rule 2)."""
        here, target = self._position, self._context.target_ts
        if here is None:
            return Ts(0)
        resolved = Ts(max(here.watermarks.global_ts - 1, 0))
        if target is None or resolved >= target or not here.watermarks.all_at(target):
            return resolved
        is_quiet = time.monotonic() - here.last_read > self._context.quiet_s
        return Ts(target) if is_quiet else resolved

    def start(self, offsets: Offsets, recorded: Marks) -> Offsets:
        """Where it begins: partitions without an offset at their first one. Not under the lock.

        ``recorded``: watermarks with the offsets where they were seen."""
        context = self._context
        shape = context.source.shape()
        first = context.source.beginnings(shape.partitions - offsets.keys())
        for partition, offset in sorted(first.items()):
            if offset > 0:  # a start looks at what it was; this one grew meanwhile
                raise SourceLost(
                    f"topic {partition.topic} partition {partition.partition} is new and begins at "
                    f"offset {offset} already: the changefeed starts again, and looks whether "
                    "anything is missing"
                )
        begin = {p: offsets[p] if p in offsets else first[p] for p in shape.partitions}
        context.source.check_offsets(begin)
        marks = Watermarks(partitions=shape.partitions, recorded=recorded).advance({}, begin)
        self._position = _Position(shape=shape, offsets=dict(begin), watermarks=marks)
        context.trust.check()
        context.backlog.begin(begin)
        self._read_first()
        self._running = RunningQuery.start(
            context.spark,
            context.source,
            self._position.offsets,
            max_messages=context.max_messages,
            name=context.name,
            batch=self._batch,
        )
        logger.info("stream started name=%s offsets=%s", context.name, _shown(self.offsets))
        return begin

    def _read_first(self) -> None:
        """Of a large backlog first a little: what comes of it is seen soon, and how fast it is."""
        context, backlog = self._context, self._context.backlog.look()
        ends = first_read(backlog.read, backlog.ends, context.first_messages)
        if not ends or self.stopping.is_set():
            return
        end = {TopicPartition.parse(text): at for text, at in ends.items()}
        begin = {partition: self.offsets[partition] for partition in end}
        with job_tag(context.spark, context.name), self.lock:
            self._turn(context.source.read(context.spark, begin, end), FIRST_BATCH)

    def stop(self) -> None:
        """Blocks until its last batch has ended; how that ended does not matter any more. Not under
        the lock."""
        self._context.backlog.close()
        running, self._running = self._running, None
        if running is not None:
            running.stop()
            with self.lock:  # Spark does not wait for a batch that is in our hands
                self._failure = None  # of what was stopped: the next start has none
            logger.info("stream stopped name=%s", self._context.name)

    def check(self) -> None:
        """Raise what has ended the stream, if anything has."""
        if self._failure is not None:
            raise self._failure
        running = self._running
        if running is not None and not running.query.isActive:
            raise running.query.exception() or TidelakeError("the query was stopped")

    def read(self, begin: Offsets, end: Offsets, wanted: Column) -> Envelopes | None:
        """A bounded read of what lies between; None where nothing does."""
        some = {p: at for p, at in end.items() if begin.get(p, at) < at}
        if not some:
            return None
        first = {p: begin[p] for p in some}
        messages = self._context.source.read(self._context.spark, first, some)
        return read_envelopes(messages, self._context.envelope, wanted)

    def _batch(self, messages: DataFrame, batch_id: int) -> None:
        """Nothing is raised into Spark: see ``streaming.batch.Batch``."""
        with self.lock:
            if self._failure is not None or self.stopping.is_set():
                return
            try:
                self._turn(messages, batch_id)
            except BaseException as error:  # noqa: BLE001  # handed on, whole
                self._failure = error
        self._on_batch()

    def _turn(self, messages: DataFrame, batch_id: int) -> None:
        started, here = time.monotonic(), self._position
        assert here is not None
        self._context.trust.check()
        self._context.backlog.batch_begins(batch_id)
        self._reader.at_boundary()
        read = read_envelopes(messages, self._context.envelope, self._reader.wanted())
        try:
            self._context.source.check_unchanged(here.shape)
            here.offsets |= read.end
            here.watermarks = here.watermarks.advance(read.watermarks, read.end)
            self._reader.take(read)
        finally:
            read.release()
        self._context.backlog.batch_ends(here.offsets)
        here.last_read = time.monotonic()
        logger.debug(
            "read a batch name=%s batch_id=%d messages=%d seconds=%.2f",
            self._context.name,
            batch_id,
            sum(read.end.values()) - sum(read.begin.values()),
            here.last_read - started,
        )


def _shown(offsets: Offsets) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def texts(offsets: Offsets) -> dict[str, int]:
    """As they are stored."""
    return {str(partition): offset for partition, offset in offsets.items()}
