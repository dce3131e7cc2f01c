"""A stream at work: its Spark query, its threads, and what they hand to each other.

_first     (a thread) turns of reading, from when Spark can run jobs until its query ticks
_keep      (a thread) starts the query, and starts it again when it ends
_lease     (the reading thread) the query's batch: turns of reading, for half a minute
_apply     (the applying thread) gives the roles one read after the other, and lets them apply what
           is due when it is woken
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from pyspark import SparkContext
from pyspark.sql import SparkSession

from coordination.errors import Stop, TidelakeError
from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName
from sinks.spark.jvm_errors import line
from streaming.protocols.contract import Wanted, WantedTable
from streaming.source.contract import Reader, SourceChanged, SourceShape
from streaming.source.positions import Positions
from streaming.source.sources import open_source
from streaming.source.watermarks import Watermarks
from streaming.spark.session import CONTEXT_GONE
from streaming.spark.temporary_folder import note
from streaming.spark.ticking_query import ticking_query
from streaming.stream.backlog_watch import BacklogWatch
from streaming.stream.idle_time import BUSY_WAIT_S, IDLE_WAIT_S, IdleTime
from streaming.stream.lasting_warnings import STREAM
from streaming.stream.read import Read, marks_of, nothing_read, reached
from streaming.stream.retry import PASSING, RetryBackoff
from streaming.stream.role import StreamContext, StreamRole

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0  # between two looks whether the query still runs
LEASE_S = 30.0  # of one batch of the query: each batch costs Spark as much as a small read
HELD_WAIT_S = 0.2  # between two looks at a table that could not be committed
REST_S = 1.0  # ... of the applying thread when nothing wakes it; then a target-ts may be reached
PAUSE_S = 0.1  # at most, after a read that reached the ends: few messages cost as much as many


class StreamRun:
    """One run of a stream: it lasts from the first role's join until the last role leaves."""

    def __init__(
        self,
        context: StreamContext,
        *,
        backlog: BacklogWatch,
        roles: Callable[[], tuple[StreamRole, ...]],
        busy: threading.Lock,
        shape: SourceShape,
        begin: Positions,
        watermarks: Watermarks,
    ) -> None:
        self._context = context
        self._backlog_watch = backlog
        self._roles = roles
        self._busy = busy
        self._source = open_source(context.changefeed.source)
        self.shape = shape  # parts may be added while it runs
        self._position = dict(begin)  # where the next read begins; the reading thread's
        self._watermarks = watermarks
        self.taken_position: Positions = dict(begin)
        self.taken_watermarks = watermarks
        self._quiet = IdleTime()
        self._reads: queue.Queue[Read] = queue.Queue(1)
        self._work = threading.Event()  # for the applying thread
        self._news = threading.Event()  # for the reading thread
        self._stopping = threading.Event()
        self._backoff = RetryBackoff()
        self._is_first = True
        self._reading = context.watch(f"reading of {context.name}")
        self.applying = context.watch(f"applying of {context.name}")
        self._jobs: SparkContext | None = None
        self._reader: Reader | None = None
        self._beside = threading.Lock()
        self._beside_reader: Reader | None = None
        self._ready = threading.Event()  # there is a reader, or there will be none
        self._ticks = threading.Event()  # the query has begun a batch
        self._leased = threading.Lock()
        self._applier = threading.Thread(target=self._apply, name="apply-reads", daemon=True)
        self._reading_first = threading.Thread(target=self._first, name="first-reads", daemon=True)
        self._keeping = threading.Thread(target=self._keep, name="stream", daemon=True)

    def start(self) -> None:
        failpoint(Failpoint.BEFORE_STREAM)
        self._source.tell_of(self.shape, self._position)
        self._backlog_watch.begin(self._position)
        self._applier.start()
        self._reading_first.start()
        self._keeping.start()
        logger.info("stream started name=%s positions=%s", self._context.name, self._position)

    def stop(self) -> None:
        """Begin to end, without waiting; the read that is under way is cancelled."""
        self._stopping.set()
        self._backlog_watch.close()
        self._context.concerns.withdraw(STREAM)
        self._news.set()
        self._work.set()
        if self._reader is not None:
            with suppress(*CONTEXT_GONE):
                self._reader.cancel()
        logger.info("stream stopped name=%s", self._context.name)

    def join(self, within_s: float) -> None:
        """After `stop`: wait until nothing of the run works any more, but at most ``within_s``: a
        Spark job may take longer to end."""
        self._keeping.join(within_s)

    def wake(self) -> None:
        self._work.set()
        self._news.set()

    @property
    def has_ended(self) -> bool:
        return self._stopping.is_set()

    @property
    def quiet_s(self) -> float:
        """For how long there has been nothing beyond what the roles have taken."""
        return self._quiet.lasts_s(self.taken_position)

    # The query: started again when it ends, as long as the stream runs.

    def _first(self) -> None:
        """Spark makes its session and plans the query for more than a second after it can run
        jobs."""
        while self._jobs is None:
            try:
                self._jobs = self._context.spark.context(self._stopping)
            except BaseException:  # noqa: BLE001 - `_keep` meets it, and ends or tries again
                if self._stopping.wait(LOOK_EVERY_S):
                    return None
        try:
            self._reader = self._context.reader(self._source, self._jobs)
        except BaseException as error:  # noqa: BLE001 - every role gets it
            return self._fail(error)
        self._ready.set()
        return self._read_until(self._ticks.is_set)

    def _keep(self) -> None:
        while not self._stopping.is_set():
            self._reading.step()  # lasts until the first read: Spark starts meanwhile
            try:
                self._run_query(self._context.spark(self._stopping))
            except Stop:
                break
            except PASSING as error:
                self._wait_after(error)
            except BaseException as error:  # noqa: BLE001 - every role gets it
                self._fail(error)
        self._reading_first.join()
        self._ready.set()
        with self._leased:  # wait for the batch under way: stopping the query does not
            self._source.close()
            if self._reader is not None:
                self._reader.close()
            with self._beside:
                if self._beside_reader is not None:
                    self._beside_reader.close()
        self._reading.rest()

    def _run_query(self, session: SparkSession) -> None:
        with ticking_query(session, name=self._context.name, batch=self._lease) as query:
            note()
            while not self._stopping.wait(LOOK_EVERY_S):
                if not query.isActive:
                    raise query.exception() or ConnectionError("the streaming query was stopped")

    def _lease(self) -> None:
        """The body of ``foreachBatch``: reads for `LEASE_S`. It raises nothing, as that would end
        the query."""
        self._ticks.set()
        self._ready.wait()
        until_s = time.monotonic() + LEASE_S
        self._read_until(lambda: time.monotonic() >= until_s)

    def _read_until(self, is_over: Callable[[], bool]) -> None:
        with self._leased:
            while not self._stopping.is_set() and not is_over():
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
        """Parts were added to the source: they are read from their beginning, and all others
        from where reading is."""
        try:
            shape = self._source.shape()
            added = self._source.begin_at(shape, self._position)
            self._source.tell_of(shape, added)
        except PASSING as error:
            return self._wait_after(error)
        except BaseException as error:  # noqa: BLE001 - every role gets it
            return self._fail(error)
        self.shape, self._position = shape, added
        self._watermarks = self._watermarks.with_parts(shape.parts)
        return None

    def _wait_after(self, error: BaseException) -> None:
        self._quiet.failed()
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
        """End the run for good and tell every role. An error that would be tried again becomes one
        that is not: a role that tried again would wait for a stream that never comes back."""
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
        if not (wanted or self._ticks.is_set()):
            self._pause(BUSY_WAIT_S)  # a table that joins behind a read has it read once more
            return
        failpoint(Failpoint.BATCH_START)
        begun_s = time.monotonic()
        ends = self._source.ends(self.shape.parts)
        ends_ms = (time.monotonic() - begun_s) * 1e3
        first_messages = context.batch.first_messages if self._is_first else 0
        self._is_first = False
        assert self._reader is not None
        read = self._read(self._reader, self._position, ends, wanted, first_messages=first_messages)
        read = self._settled(read)
        if read is not None:
            self._source.check_unchanged(self.shape)
        self._backoff.reset()  # the source answers, be it that nothing has come
        context.concerns.say(STREAM, None)
        if read is None:
            self._quiet.nothing_came(self._position)
            self._pause(self._quiet.rest_s)
            return
        self._quiet.came(read)
        self._position = dict(read.position)
        self._watermarks = read.watermarks
        self._hand_over(replace(read, ends_ms=ends_ms))
        if not read.rows_wait:
            self._pause(min(read.job_ms / 1e3, PAUSE_S))

    def _submit(self) -> dict[TableName, WantedTable]:
        """Tell the roles where the next read begins, and collect the rows that they want of it."""
        wanted: dict[TableName, WantedTable] = {}
        for role in self._roles():
            wanted.update(role.submit(self._position))
        return wanted

    def read_beside(self, begin: Positions, ends: Positions, wanted: Wanted) -> Read | None:
        """One read from ``begin`` towards ``ends``, on the caller's thread; None where nothing lies
        between. It blocks, and one such read is made at a time. Raises Stop where the stream ended
        before Spark was up."""
        self._ready.wait()  # it may come before Spark is up
        if self._jobs is None:
            raise Stop("stopped before Spark was up")
        with self._beside:
            if self._beside_reader is None:
                self._beside_reader = self._context.reader(self._source, self._jobs)
            return self._read(self._beside_reader, begin, ends, wanted)

    def _read(
        self,
        reader: Reader,
        begin: Positions,
        ends: Positions,
        wanted: Wanted,
        *,
        first_messages: int = 0,
    ) -> Read | None:
        """Read with one Spark job; None where nothing lies between."""
        if all(ends.get(part, at) <= at for part, at in begin.items()):
            return None
        begun_s = time.monotonic()
        found = reader.read(
            begin,
            ends,
            wanted,
            identities=self.shape.identities,
            messages=self._context.batch.max_messages,
            first_messages=first_messages,
        )
        blocks = tuple(found)
        end = reached(blocks)
        position = {**begin, **end}
        return Read(
            begin={p: begin[p] for p in end},
            end=end,
            position=position,
            watermarks=self._watermarks.advance(marks_of(blocks), position),
            messages=self._source.distance({p: begin[p] for p in end}, end),
            blocks=blocks,
            rows_wait=any(position[p] < at for p, at in ends.items()),
            job_ms=(time.monotonic() - begun_s) * 1e3,
        )

    def _settled(self, read: Read | None) -> Read | None:
        """The read, with what is known after it that only the source can tell. Where it
        is None and that is news, it is a read of nothing."""
        marks = self._watermarks if read is None else read.watermarks
        position = self._position if read is None else read.position
        known = self._source.settled(self.shape, marks, position)
        if known == marks:
            return read
        return replace(read or nothing_read(position), watermarks=known)

    def _hand_over(self, read: Read) -> None:
        while not self._stopping.is_set():
            self._submit()  # so that a role that joins need not wait for a long commit
            try:
                self._reads.put(read, timeout=0.1)
            except queue.Full:
                self._reading.step()  # this thread waits for the applying one, and does not hang
                continue
            self._work.set()
            return

    def _pause(self, wait_s: float) -> None:
        self._news.wait(wait_s)
        self._news.clear()

    # Applying.

    def _apply(self) -> None:
        while not self._stopping.is_set():
            self._work.wait(HELD_WAIT_S if any(each.is_held for each in self._roles()) else REST_S)
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
            self._backlog_watch.batch_begins()
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
            self._backlog_watch.batch_ends(read.position)
            logger.debug(
                "cycle name=%s messages=%d ends_ms=%.1f job_ms=%.1f apply_ms=%.1f",
                self._context.name,
                read.messages,
                read.ends_ms,
                read.job_ms,
                (time.monotonic() - begun_s) * 1e3,
            )
