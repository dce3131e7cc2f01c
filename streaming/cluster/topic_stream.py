"""One capture's reading of a changefeed's topics, for the roles that read along with it.

    idle ──a role begins (at its low water)──► reading ──the last role leaves──► idle

    reading thread    ends ─► ranges ─► one Spark job ─► read n + 1 ──┐ (one waits at most)
    applying thread   roles take read n, and do what can be done ◄────┘ and whenever they are woken

The reading thread is Spark's: a streaming query ticks, and each of its batches is a *lease* of half
a minute in which ranges are chosen, read and handed over (one job for all of them). Nothing of
Spark's own offsets is used. What failed to be read is read again from where reading is; nothing has
to be forgotten for it. A role that joins later is told from where its reads come (``submit``), and
reads by itself what lies before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from coordination.model import Ts
from streaming.cluster.reads import Marks, Offsets, Read
from streaming.cluster.stream_role import StreamContext, StreamRole
from streaming.cluster.stream_run import StreamRun, beginning
from streaming.protocols.contract import Wanted
from streaming.source.kafka import Source
from streaming.source.ranges import TopicPartition
from streaming.watermark import Watermarks

END_TIMEOUT_S = 20.0  # for a job of Spark's that does not end


class TopicStream:
    """See the module's picture. It lives as long as a role holds it."""

    def __init__(self, context: StreamContext) -> None:
        self.context = context
        self.busy = threading.Lock()  # held while roles are at work on the applying thread
        self._lock = threading.Lock()  # of the roles, and of beginning and ending
        self._roles: tuple[StreamRole, ...] = ()
        self._run: StreamRun | None = None
        self._source = Source(context.changefeed.source)

    @property
    def name(self) -> str:
        return self.context.name

    @property
    def is_running(self) -> bool:
        return self._run is not None

    @property
    def position(self) -> dict[TopicPartition, int]:
        """What is before has been handed to the roles."""
        run = self._run
        return dict(run.taken_position) if run else {}

    @property
    def watermarks(self) -> Watermarks:
        run = self._run
        return run.taken_watermarks if run else Watermarks(partitions=frozenset())

    def resolved_ts(self) -> Ts:
        """W resolves L = W - 1; a feed that ended at the target-ts has resolved that (rule 2)."""
        run, target = self._run, self.context.changefeed.target_ts
        if run is None:
            return Ts(0)
        resolved = Ts(max(run.taken_watermarks.global_ts - 1, 0))
        if target is not None and resolved >= target:
            return Ts(target)  # what is above it is not ours: no row, and no DDL
        if target is None or not run.taken_watermarks.all_at(target):
            return resolved
        is_quiet = time.monotonic() - run.last_read_s > self.context.batch.quiet_s
        return Ts(target) if is_quiet else resolved

    def join(self, role: StreamRole, low_water: Offsets, recorded: Marks) -> Offsets:
        """The role reads along from now on. From where the stream began or where it is: what of
        the role's lies before the offsets of its first ``submit`` it reads by ``read_between``.

        ``recorded``: watermarks with the offsets where they were seen, which count if the stream
        begins with this role. Raises SourceLost where Kafka cannot go on from the low water."""
        with self._lock:
            shape = self._source.shape()
            begin = beginning(self._source, shape, low_water)
            self._source.check_offsets(begin)
            self.context.trust.check()
            self._roles = (*self._roles, role)
            if self._run is None:
                marks = Watermarks(partitions=shape.partitions, recorded=recorded)
                self._run = StreamRun(
                    self.context,
                    roles=lambda: self._roles,
                    busy=self.busy,
                    shape=shape,
                    begin=begin,
                    watermarks=marks.advance({}, begin),
                )
                try:
                    self._run.start()
                except BaseException:
                    self._run.stop()
                    self._run, self._roles = None, ()  # nothing runs that could be left
                    raise
            return begin

    def leave(self, role: StreamRole | None) -> None:
        """Nothing of the role is called any more when this returns, and nothing of the stream runs
        if it was the last one. Idempotent."""
        with self._lock:
            if not any(each is role for each in self._roles):
                return
            self._roles = tuple(each for each in self._roles if each is not role)
            ended = self._run if not self._roles else None
            if ended is not None:
                self._run = None
                ended.stop()
                self._source.close()  # it opens again when it is needed
        with self.busy:  # what is under way with the role ends first
            pass
        if ended is not None:
            ended.join(END_TIMEOUT_S)

    def wake(self) -> None:
        """Something has changed: roles look what can be done."""
        run = self._run
        if run is not None:
            run.wake()

    def get_on(self) -> None:
        """A commit has ended: applying does not hang, however long a read takes."""
        run = self._run
        if run is not None:
            run.applying.get_on()

    def read_between(self, begin: Offsets, end: Offsets, wanted: Wanted) -> Iterator[Read]:
        """What lies between, in steps of the budget; on the caller's thread, beside the stream."""
        position = {p: begin[p] for p, at in end.items() if begin.get(p, at) < at}
        until = {p: end[p] for p in position}
        run = self._run
        assert run is not None, "a stream that is read beside"
        while position:
            self.context.trust.check()
            read = run.read_beside(position, until, wanted)
            if read is None:
                return
            position = {p: at for p, at in read.position.items() if at < until[p]}
            yield read
