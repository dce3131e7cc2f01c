"""A stream at work: its Spark query, its two threads, and what they hand to each other.

_keep      makes the query, and again when it ends
_lease     the query's batch: turns of reading, for some seconds
_apply     takes one read after the other, and works when it is woken
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from pyspark.sql import SparkSession

from coordination.errors import Stop, TidelakeError
from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName
from sinks.jvm_errors import line
from streaming.backoff import PASSING, RetryBackoff
from streaming.cluster.query import ticking_query
from streaming.cluster.reads import Offsets, Read, marks_of, reached, texts
from streaming.cluster.stream_role import StreamContext, StreamRole
from streaming.concerns import STREAM
from streaming.protocols.contract import Wanted, WantedTable
from streaming.session import CONTEXT_GONE
from streaming.source.kafka import Source, SourceChanged, SourceLost, SourceShape
from streaming.source.range_reader import RangeReader
from streaming.source.ranges import TopicPartition, cut
from streaming.watermark import Watermarks

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5  # whether the query still runs
LEASE_S = 30.0  # a batch of the query: each costs Spark as much as a small read
BUSY_WAIT_S = 0.05  # between two looks at the ends when there is news: each costs a millisecond
IDLE_WAIT_S = 0.2  # ... and when there has been none for a while
IDLE_AFTER_S = 5.0
# After a read that caught up, as long as it took: a job costs the same for one message as for a
# thousand, and where messages trickle reading would take all that applying needs.
REST_S = 0.1


class StreamRun:
    """From the first role's beginning to the last one's leaving."""

    def __init__(
        self,
        context: StreamContext,
        *,
        roles: Callable[[], tuple[StreamRole, ...]],
        busy: threading.Lock,
        shape: SourceShape,
        begin: Offsets,
        watermarks: Watermarks,
    ) -> None:
        self._context = context
        self._roles = roles
        self._busy = busy
        self._source = Source(context.changefeed.source)
        self._shape = shape
        self._position = dict(begin)  # of the reading thread: submitted
        self._watermarks = watermarks
        self.taken_position: Offsets = dict(begin)
        self.taken_watermarks = watermarks
        self.last_read_s = time.monotonic()
        self._reads: queue.Queue[Read] = queue.Queue(1)
        self._work = threading.Event()  # for the applying thread
        self._news = threading.Event()  # for the reading thread
        self._stopping = threading.Event()
        self._backoff = RetryBackoff()
        self._is_first = True
        self._reading = context.watch(f"reading of {context.name}")
        self.applying = context.watch(f"applying of {context.name}")
        self._session: SparkSession | None = None
        self._reader: RangeReader | None = None
        self._beside = threading.Lock()
        self._beside_reader: RangeReader | None = None
        self._ready = threading.Event()
        self._leased = threading.Lock()
        self._applier = threading.Thread(target=self._apply, name="apply-reads", daemon=True)
        self._keeping = threading.Thread(target=self._keep, name="stream", daemon=True)

    def start(self) -> None:
        failpoint(Failpoint.BEFORE_STREAM)
        self._context.backlog.begin(self._position)
        self._applier.start()
        self._keeping.start()
        logger.info("stream started name=%s offsets=%s", self._context.name, texts(self._position))

    def stop(self) -> None:
        """Begin to end: what is being read is not needed any more."""
        self._stopping.set()
        self._context.backlog.close()
        self._news.set()
        self._work.set()
        if self._reader is not None:
            with suppress(*CONTEXT_GONE):
                self._reader.cancel()
        logger.info("stream stopped name=%s", self._context.name)

    def join(self, within_s: float) -> None:
        """Until nothing of it runs, or for so long: a job of Spark's may take its time."""
        self._keeping.join(within_s)

    def wake(self) -> None:
        self._work.set()
        self._news.set()

    # The query: made again when it ends, for as long as the stream runs.

    def _keep(self) -> None:
        while not self._stopping.is_set():
            self._reading.step()  # until the first batch: Spark starts
            try:
                self._run_query(self._started())
            except Stop:
                break
            except PASSING as error:
                self._wait_after(error)
            except BaseException as error:  # noqa: BLE001 - every role gets it
                self._fail(error)
        self._ready.set()
        with self._leased:  # Spark does not wait for a batch that is in our hands
            self._source.close()
            if self._reader is not None:
                self._reader.close()
            with self._beside:
                if self._beside_reader is not None:
                    self._beside_reader.close()
        self._reading.rest()

    def _started(self) -> SparkSession:
        """Blocks while Spark starts."""
        if self._session is None:
            session = self._context.spark(self._stopping)
            self._reader = self._context.reader(session)
            self._session = session
            self._ready.set()
        return self._session

    def _run_query(self, session: SparkSession) -> None:
        with ticking_query(session, name=self._context.name, batch=self._lease) as query:
            while not self._stopping.wait(LOOK_EVERY_S):
                if not query.isActive:
                    raise query.exception() or ConnectionError("the streaming query was stopped")

    def _lease(self) -> None:
        """The body of ``foreachBatch``. Nothing is raised into Spark: it would end the query."""
        with self._leased:
            until_s = time.monotonic() + LEASE_S
            while not self._stopping.is_set() and time.monotonic() < until_s:
                self._reading.step()
                try:
                    self._turn()
                except SourceChanged as change:
                    logger.info("%s", change)
                    self._reshape()
                except PASSING as error:
                    self._wait_after(error)
                except BaseException as error:  # noqa: BLE001 - every role gets it
                    self._fail(error)

    def _reshape(self) -> None:
        """Partitions were added: they are read from their beginning, all others from where they
        are."""
        try:
            shape = self._source.shape()
            added = beginning(self._source, shape, self._position)
        except PASSING as error:
            return self._wait_after(error)
        except BaseException as error:  # noqa: BLE001 - every role gets it
            return self._fail(error)
        self._shape, self._position = shape, added
        self._watermarks = self._watermarks.with_partitions(shape.partitions)
        return None

    def _wait_after(self, error: BaseException) -> None:
        if self._stopping.is_set():
            return None
        try:
            self._context.check_jvm()
            wait_s = self._backoff.next_s(error)
        except BaseException as end:  # noqa: BLE001 - every role gets it
            return self._fail(end)
        if self._backoff.is_long:
            self._context.concerns.say(STREAM, f"the stream fails, and is tried again: {error}")
        self._stopping.wait(wait_s)
        return None

    def _fail(self, error: BaseException) -> None:
        """For good: a role that tried again would wait for a stream that never comes."""
        self._stopping.set()
        if isinstance(error, PASSING):
            error = TidelakeError(f"the stream has ended: {line(error)}")
        for role in self._roles():
            role.failed(error)

    # Reading.

    def _turn(self) -> None:
        context = self._context
        context.trust.check()
        wanted = self._submit()
        if any(role.is_behind for role in self._roles()):
            self._pause(IDLE_WAIT_S)
            return
        failpoint(Failpoint.BATCH_START)
        begun_s = time.monotonic()
        ends = self._source.ends(self._shape.partitions)
        ends_ms = (time.monotonic() - begun_s) * 1e3
        first_messages = context.batch.first_messages if self._is_first else 0
        self._is_first = False
        assert self._reader is not None
        read = self._read(self._reader, self._position, ends, wanted, first_messages=first_messages)
        if read is None:
            is_idle = time.monotonic() - self.last_read_s > IDLE_AFTER_S
            self._work.set()  # time has passed: a target may be reached, a held table free
            self._pause(IDLE_WAIT_S if is_idle else BUSY_WAIT_S)
            return
        self._source.check_unchanged(self._shape)
        self._position = dict(read.position)
        self._watermarks = read.watermarks
        self.last_read_s = time.monotonic()
        self._backoff.reset()
        context.concerns.say(STREAM, None)
        self._hand_over(replace(read, ends_ms=ends_ms))
        if all(read.position[p] >= at for p, at in ends.items()):
            self._pause(min(read.job_ms / 1e3, REST_S))

    def _submit(self) -> dict[TableName, WantedTable]:
        """Where the next read begins, for those who join; and what is wanted of it."""
        wanted: dict[TableName, WantedTable] = {}
        for role in self._roles():
            wanted.update(role.submit(self._position))
        return wanted

    def read_beside(self, begin: Offsets, ends: Offsets, wanted: Wanted) -> Read | None:
        """What lies between, or the first of it, on another thread than the stream's."""
        self._ready.wait()  # it may come before Spark is up
        if self._session is None:
            raise Stop("stopped before Spark was up")
        with self._beside:
            if self._beside_reader is None:
                self._beside_reader = self._context.reader(self._session)
            return self._read(self._beside_reader, begin, ends, wanted)

    def _read(
        self,
        reader: RangeReader,
        begin: Offsets,
        ends: Offsets,
        wanted: Wanted,
        *,
        first_messages: int = 0,
    ) -> Read | None:
        """One job; None where nothing lies between."""
        context = self._context
        ranges = cut(
            begin,
            ends,
            self._shape.topic_ids,
            messages=min(reader.messages, context.batch.max_messages),
            first_messages=first_messages,
        )
        if not ranges:
            return None
        begun_s = time.monotonic()
        blocks = tuple(reader.read(ranges, wanted))
        end = reached(blocks)
        position = {**begin, **end}
        return Read(
            begin={p: begin[p] for p in end},
            end=end,
            position=position,
            watermarks=self._watermarks.advance(marks_of(blocks), position),
            blocks=blocks,
            job_ms=(time.monotonic() - begun_s) * 1e3,
        )

    def _hand_over(self, read: Read) -> None:
        while not self._stopping.is_set():
            self._submit()  # who joins need not wait for a long commit
            try:
                self._reads.put(read, timeout=0.1)
            except queue.Full:
                self._reading.step()  # whoever hangs, it is not this thread
                continue
            self._work.set()
            return

    def _pause(self, wait_s: float) -> None:
        self._news.wait(wait_s)
        self._news.clear()

    # Applying.

    def _apply(self) -> None:
        while not self._stopping.is_set():
            self._work.wait(1.0)
            self._work.clear()
            read = None
            with suppress(queue.Empty):
                read = self._reads.get_nowait()
            with self._busy:
                if self._stopping.is_set():
                    return
                try:
                    with self.applying:
                        self._give(read)
                except BaseException as error:  # noqa: BLE001 - every role gets it
                    self._fail(error)
            if not self._reads.empty():
                self._work.set()

    def _give(self, read: Read | None) -> None:
        begun_s = time.monotonic()
        roles = self._roles()
        if read is not None:
            self._context.backlog.batch_begins()
            self.taken_position, self.taken_watermarks = read.position, read.watermarks
        for role in roles:
            try:
                if read is not None:
                    role.take(read)
                role.apply_due()
            except BaseException as error:  # noqa: BLE001 - the role's own
                role.failed(error)
        if read is not None:
            failpoint(Failpoint.BATCH_END)
            self._context.backlog.batch_ends(read.position)
            logger.debug(
                "cycle name=%s messages=%d ends_ms=%.1f job_ms=%.1f apply_ms=%.1f",
                self._context.name,
                read.messages,
                read.ends_ms,
                read.job_ms,
                (time.monotonic() - begun_s) * 1e3,
            )


def beginning(source: Source, shape: SourceShape, low_water: Offsets) -> dict[TopicPartition, int]:
    """Where each partition of ours is read from; those without an offset from their first one."""
    first = source.beginnings(shape.partitions - low_water.keys())
    for partition, offset in sorted(first.items()):
        if offset > 0:  # a start looks at what it was; this one grew meanwhile
            raise SourceLost(
                f"topic {partition.topic} partition {partition.partition} is new and begins at "
                f"offset {offset} already: the changefeed starts again, and looks whether "
                "anything is missing"
            )
    return {p: low_water[p] if p in low_water else first[p] for p in shape.partitions}
