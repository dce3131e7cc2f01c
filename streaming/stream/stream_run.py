"""A stream at work: its Spark query and its threads.

_first          (a thread) reads from when jobs can run until the query ticks
_keep           (a thread) starts the query, and starts it again when it ends
foreach_batch   (the reading thread) the query's batch: reads, for half a minute
applying        (a thread) gives the roles one read after the other, and lets them apply what is due
                when it is woken

What each owns: `Reading` the reading thread, `Applying` the applying thread; a `Handover` is
between them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from coordination.errors import Stop, TidelakeError
from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName
from sinks.spark.jvm_errors import line
from streaming.changefeed.schema_file import told_columns
from streaming.jobs.port import Jobs
from streaming.protocols.contract import Wanted, WantedTable
from streaming.source.contract import SourceChanged, SourceShape
from streaming.source.positions import Positions
from streaming.source.resolved.limits import Limits, Marks
from streaming.source.sources import open_source
from streaming.spark.temporary_folder import note
from streaming.stream.applying import Applying, Handover
from streaming.stream.backlog_watch import BacklogWatch
from streaming.stream.idle_time import BUSY_WAIT_S, IDLE_WAIT_S
from streaming.stream.lasting_warnings import STREAM
from streaming.stream.read import Read
from streaming.stream.reading import Place, Reading
from streaming.stream.retry import PASSING, RetryBackoff
from streaming.stream.role import StreamContext, StreamRole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)
T = TypeVar("T")

BEFORE_THE_QUERY = -1  # in the place of a batch's number
LOOK_EVERY_S = 2.0  # between two looks whether the query still runs
LEASE_S = 30.0  # of one batch of the query: each batch costs Spark as much as a small read
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
        begin: Place,
    ) -> None:
        self._context = context
        self._roles = roles
        self._backlog = backlog
        changefeed = context.changefeed
        options = changefeed.sink.storage_options
        self._source = open_source(changefeed.source, options, told_columns(changefeed))
        self._source.keep_to(begin.shape.identities)
        self._handover = Handover()
        self._reading = Reading(context, self._source, begin)
        self._applying = Applying(
            context,
            roles=roles,
            busy=busy,
            backlog=backlog,
            position=begin.position,
            watermarks=begin.limits,
        )
        self._step = context.watch(f"reading of {context.name}")
        self._backoff = RetryBackoff()
        self._jobs: Jobs | None = None
        self._ready = threading.Event()  # there is a reader, or there will be none
        self._ticks = threading.Event()  # the query has begun a batch
        self._leased = threading.Lock()
        self._applier = threading.Thread(target=self._apply, name="apply-reads", daemon=True)
        self._reading_first = threading.Thread(target=self._first, name="first-reads", daemon=True)
        self._keeping = threading.Thread(target=self._keep, name="stream", daemon=True)

    def start(self) -> None:
        failpoint(Failpoint.BEFORE_STREAM)
        begin = self._reading.place
        self._source.tell_of(begin.shape, begin.position)
        self._backlog.begin(begin.position)
        self._applier.start()
        self._reading_first.start()
        self._keeping.start()
        logger.info("stream started name=%s positions=%s", self._context.name, begin.position)

    def stop(self) -> None:
        """Begin to end, without waiting; the read that is under way is cancelled."""
        self._handover.stopping.set()
        self._backlog.close()
        self._context.concerns.withdraw(STREAM)
        self._handover.wake()
        self._reading.cancel()
        logger.info("stream stopped name=%s", self._context.name)

    def join(self, within_s: float) -> None:
        """After `stop`: wait until nothing of the run works any more, but at most ``within_s``: a
        Spark job may take longer to end."""
        self._keeping.join(within_s)

    def wake(self) -> None:
        self._handover.wake()

    def stored(self, marks: Marks, low_water: Positions) -> None:
        """These are in the changefeed's row. Any thread."""
        self._reading.stored = marks, low_water

    def get_on(self) -> None:
        """The watchdog counts the applying thread's step anew."""
        self._applying.step.get_on()

    @property
    def has_ended(self) -> bool:
        return self._handover.stopping.is_set()

    @property
    def shape(self) -> SourceShape:
        """Parts may be added while it runs."""
        return self._reading.place.shape

    @property
    def taken_position(self) -> Positions:
        """The messages before it have been handed to the roles."""
        return self._applying.position

    @property
    def taken_watermarks(self) -> Limits:
        return self._applying.watermarks

    def marks(self, owner: StreamRole | None) -> Marks:
        """What ``owner`` may store: where readers give the commit-ts, none before it has a read
        that was numbered for it."""
        numbered_for, limits = self._applying.owner, self._applying.watermarks
        return limits.to_record() if numbered_for is owner or not self._source.is_numbered else {}

    @property
    def quiet_s(self) -> float:
        """For how long there has been nothing beyond the reads that the roles have taken."""
        return self._reading.quiet_s(self._applying.position)

    def read_beside(self, begin: Positions, ends: Positions, wanted: Wanted) -> Read | None:
        """One read from ``begin`` towards ``ends``, on the caller's thread; None where nothing lies
        between. It blocks, and one such read is made at a time. Raises Stop where the stream ended
        before Spark was up."""
        self._ready.wait()  # it may come before Spark is up
        if self._jobs is None:
            raise Stop("stopped before Spark was up")
        return self._reading.beside(self._jobs, begin, ends, wanted)

    def _apply(self) -> None:
        self._applying.run(self._handover, self._fail)

    # The query: started again when it ends, as long as the stream runs.

    def _first(self) -> None:
        """Spark makes its session and plans the query for more than a second after it can run
        jobs."""
        while self._jobs is None:
            try:
                self._jobs = self._context.engine.jobs(self._handover.stopping)
            except BaseException:  # noqa: BLE001 - `_keep` meets it, and ends or tries again
                if self._handover.stopping.wait(LOOK_EVERY_S):
                    return None
        try:
            self._reading.connect(self._jobs)
        except BaseException as error:  # noqa: BLE001 - every role gets it
            return self._fail(error)
        self._ready.set()
        return self.foreach_batch(None, BEFORE_THE_QUERY)

    def _keep(self) -> None:
        while not self.has_ended:
            self._step.step()  # lasts until the first read: Spark starts meanwhile
            try:
                self._run_query()
            except Stop:
                break
            except PASSING as error:
                self._wait_after(error)
            except BaseException as error:  # noqa: BLE001 - every role gets it
                self._fail(error)
        self._reading_first.join()
        self._ready.set()
        with self._leased:  # wait for the batch under way: stopping the query does not
            self._reading.close()
        self._step.rest()

    def _run_query(self) -> None:
        stopping, name = self._handover.stopping, self._context.name
        query_runs = self._context.engine.ticking(
            stopping, name=name, foreach_batch=self.foreach_batch
        )
        with query_runs as query:
            note()
            while not stopping.wait(LOOK_EVERY_S):
                if not query.isActive:
                    raise query.exception() or ConnectionError("the streaming query was stopped")

    def foreach_batch(self, _tick: DataFrame | None, batch_id: int) -> None:
        """The body of the streaming query's ``foreachBatch``: half a minute of reads, one job each.
        It raises nothing, as that would end the query. What is read before the query ticks is a
        batch, too, without a tick."""
        if batch_id != BEFORE_THE_QUERY:
            self._ticks.set()
            self._ready.wait()
        with self._leased:
            for wanted in self._orders(batch_id):  # 1. the rows that the roles want of a read
                read = self._guarded(partial(self._next, wanted))  # 2. fetch, decode
                self._hand_over(read)  # 3. the applying thread: carry, commit, publish

    def _orders(self, batch_id: int) -> Iterator[Wanted]:
        """What is wanted of each read of this batch. It waits while nothing can be read."""
        until_s = time.monotonic() + LEASE_S
        while not self.has_ended:
            if batch_id == BEFORE_THE_QUERY and self._ticks.is_set():
                return
            if batch_id != BEFORE_THE_QUERY and time.monotonic() >= until_s:
                return
            self._step.step()
            wanted = self._guarded(self._wanted)
            if wanted is not None:
                yield wanted

    def _wanted(self) -> Wanted | None:
        """Ask the roles; None: nothing can be read now, and that was waited for."""
        self._context.trust.check()
        wanted = self._submit()
        if any(role.is_behind for role in self._roles()):
            self._handover.pause(IDLE_WAIT_S)
            return None
        if not (wanted or self._ticks.is_set()):
            self._handover.pause(BUSY_WAIT_S)  # a table that joins behind a read needs one more
            return None
        return wanted

    def _next(self, wanted: Wanted) -> Read | None:
        """One job, and whether it is still the same source; None, after a rest, where nothing has
        come."""
        failpoint(Failpoint.BATCH_START)
        owner = next((role for role in self._roles() if role.is_owners), None)
        read = self._reading.next(wanted, owner=owner)
        self._backoff.reset()  # the source answers, be it that nothing has come
        self._context.concerns.say(STREAM, None)
        if read is None:
            self._handover.pause(self._reading.rest_s)
        return read

    def _hand_over(self, read: Read | None) -> None:
        if read is None:
            return
        self._guarded(lambda: self._handover.put(read, waiting=self._wait_for_the_applier))
        if not read.rows_wait:
            self._handover.pause(min(read.job_ms / 1e3, PAUSE_S))

    def _guarded(self, work: Callable[[], T]) -> T | None:
        """None after an error, which ends the stream or is waited out."""
        try:
            return work()
        except SourceChanged as change:
            logger.info("%s", change)
            self._guarded(self._reading.reshape)
        except PASSING as error:
            self._wait_after(error)
        except BaseException as error:  # noqa: BLE001 - every role gets it
            self._fail(error)
        return None

    def _submit(self) -> dict[TableName, WantedTable]:
        """Tell the roles where the next read begins, and collect the rows that they want of it."""
        wanted: dict[TableName, WantedTable] = {}
        for role in self._roles():
            wanted.update(role.submit(self._reading.place.position))
        return wanted

    def _wait_for_the_applier(self) -> None:
        """A role that joins need not wait for a long commit, and this thread does not hang."""
        self._step.step()
        self._submit()

    def _wait_after(self, error: BaseException) -> None:
        self._reading.failed()
        if self.has_ended:
            return
        try:
            self._context.check_jvm()
            wait_s = self._backoff.next_s(error)
        except BaseException as end:  # noqa: BLE001 - every role gets it
            self._fail(end)
            return
        if self._backoff.is_long:
            self._context.concerns.say(STREAM, f"the stream fails, and is tried again: {error}")
        self._handover.stopping.wait(wait_s)

    def _fail(self, error: BaseException) -> None:
        """End the run for good and tell every role. An error that would be tried again becomes one
        that is not: a role that tried again would wait for a stream that never comes back."""
        self._handover.stopping.set()
        if isinstance(error, PASSING):
            error = TidelakeError(f"the stream has ended: {line(error)}")
        for role in self._roles():
            role.failed(error)
