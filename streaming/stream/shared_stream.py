"""One capture's reading of a changefeed's source, shared by the changefeed's roles there.

    idle ──a role begins (at its low water)──► reading ──the last role leaves──► idle

    reading thread    ends ─► ranges ─► one Spark job ─► read n + 1 ──┐ (one waits at most)
    applying thread   roles take read n, and do what can be done ◄────┘ and whenever they are woken

The reading thread is Spark's: a streaming query ticks, and each of its batches is a *lease* of half
a minute, in which reads are made one after the other: ranges are chosen, read by one Spark job, and
handed to the applying thread. Spark's own offsets are not used. When a read fails, reading goes on
from where it was: nothing has to be undone, since a read changes nothing before it is handed over.
A role that joins later is told the positions from which it gets the stream's reads (``submit``),
and reads the messages before them by itself (``read_between``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from coordination.errors import TryAgain
from coordination.model import Ts
from streaming.protocols.contract import Wanted
from streaming.source.contract import (
    NO_IDENTITIES,
    Identities,
    Source,
    SourceMoved,
    SourceShape,
)
from streaming.source.positions import Distance, Positions
from streaming.source.resolved.limits import NOTHING_READ, Limits, Marks
from streaming.source.sources import open_source
from streaming.stream.backlog_watch import BacklogWatch
from streaming.stream.read import Read
from streaming.stream.reading import Place
from streaming.stream.role import StreamContext, StreamRole
from streaming.stream.stream_run import StreamRun

END_TIMEOUT_S = 20.0  # how long `leave` waits for a Spark job that does not end


class SharedStream:
    """See the module's picture. It lives as long as a role refers to it."""

    def __init__(self, context: StreamContext) -> None:
        self.context = context
        self.busy = threading.Lock()  # held while roles are at work on the applying thread
        self._lock = threading.Lock()  # held while the roles change, or the run begins or ends
        self._roles: tuple[StreamRole, ...] = ()
        self._run: StreamRun | None = None
        self._shape = SourceShape({})  # of the last run, when it began and ended
        self._source = open_source(context.changefeed.source)
        self.backlog = BacklogWatch(
            self._watched,
            distance=self._source.distance,
            stream=context.name,
            concerns=context.concerns,
        )

    def _watched(self) -> Source:
        source = open_source(self.context.changefeed.source)
        source.keep_to(self._shape.identities)
        return source

    @property
    def name(self) -> str:
        return self.context.name

    @property
    def distance(self) -> Distance:
        return self._source.distance

    @property
    def is_running(self) -> bool:
        return self._run is not None

    @property
    def position(self) -> dict[str, int]:
        """The messages before these positions have been handed to the roles; empty while idle."""
        run = self._run
        return dict(run.taken_position) if run else {}

    @property
    def identities(self) -> Identities:
        """The identities of all parts that the stream reads, or has read last."""
        run = self._run
        return (run.shape if run else self._shape).identities

    @property
    def watermarks(self) -> Limits:
        run = self._run
        return run.taken_watermarks if run else NOTHING_READ

    def marks(self, owner: StreamRole | None) -> Marks:
        """The watermarks that ``owner`` stores, as far as the roles have the reads; {} while
        idle."""
        run = self._run
        return run.marks(owner) if run else {}

    def resolved_ts(self) -> Ts:
        """L = W - 1, as far as the roles have the reads; at most the target-ts. A feed that ended
        at the target-ts itself, and is quiet since, has resolved it (rule 2); a source that has
        an end is quiet there. 0 while idle."""
        run, target = self._run, self.context.changefeed.target_ts
        if run is None:
            return Ts(0)
        resolved = Ts(max(run.taken_watermarks.global_ts - 1, 0))
        if target is not None and resolved >= target:
            return Ts(target)  # neither rows nor DDLs above the target-ts are ours
        marks, has_end = run.taken_watermarks, self._source.has_end
        if target is None or not (marks.all_at(target) or (has_end and marks.global_ts == target)):
            return resolved
        quiet_s = 0.0 if has_end else self.context.batch.quiet_s
        return Ts(target) if run.quiet_s > quiet_s else resolved

    def join(
        self,
        role: StreamRole,
        low_water: Positions,
        recorded: Marks,
        identities: Identities = NO_IDENTITIES,
    ) -> Positions:
        """The role gets the stream's reads from now on. An idle stream begins at the role's low
        water, a running one goes on where it is: messages of the role before the positions of its
        first ``submit`` are its own to read, by ``read_between``.

        Returns the low water with all parts of the source. ``recorded``: watermarks with the
        positions where they were seen; they count if the stream begins with this role, or if it is
        the owner's.
        ``identities``: to which the positions belong. Raises SourceMoved where a numbered source
        has others, SourceLost where the source cannot go on from the low water, Fenced without
        trust, and TryAgain where the stream has failed and its roles have not left it yet."""
        with self._lock:
            self._source.keep_to(identities)
            shape = self._source.shape()
            if self._source.is_numbered and _are_others(identities, shape.identities):
                raise SourceMoved(
                    f"the server that was read does not answer, or is another one now: its ID is "
                    f"{', '.join(shape.identities.values())}, and was "
                    f"{', '.join(identities.values())}"
                )
            if self._source.is_numbered and self._run is not None:
                read = self._run.shape.identities
                if _are_others(read, shape.identities):
                    raise SourceMoved(
                        f"stream {self.name} still reads the server with the ID "
                        f"{', '.join(read.values())}, and the changefeed goes on at "
                        f"{', '.join(shape.identities.values())}"
                    )
            begin = self._source.begin_at(shape, low_water)
            self._shape = shape
            self._source.check(begin)
            self.context.trust.check()
            if self._run is not None and role.is_owners:  # before a read is made for it
                self._run.stored(recorded, low_water)
            self._roles = (*self._roles, role)
            if self._run is None:
                limits = self._source.limits(shape, recorded)
                self._run = StreamRun(
                    self.context,
                    backlog=self.backlog,
                    roles=lambda: self._roles,
                    busy=self.busy,
                    begin=Place(shape=shape, position=begin, limits=limits.advance({}, begin)),
                )
                self._run.stored(recorded, low_water)
                try:
                    self._run.start()
                except BaseException:
                    self._run.stop()
                    self._run, self._roles = None, ()  # nothing runs, so no role has to leave
                    raise
            elif self._run.has_ended:  # only the roles before were told of it
                self._roles = self._roles[:-1]
                raise TryAgain(f"stream {self.name} has failed, and others are still to leave it")
            return begin

    def leave(self, role: StreamRole | None) -> None:
        """When this returns, the role is not called any more. If it was the last one, the stream
        has ended, except for a Spark job that takes longer than `END_TIMEOUT_S` to end. Blocks
        until the applying thread has done the work under way, which may be a long commit.
        Idempotent."""
        with self._lock:
            if not any(each is role for each in self._roles):
                return
            self._roles = tuple(each for each in self._roles if each is not role)
            ended = self._run if not self._roles else None
            if ended is not None:
                self._shape, self._run = ended.shape, None
                ended.stop()
                self._source.close()  # the next use opens it again
        with self.busy:  # the applying thread may be at work for the role: wait for that
            pass
        if ended is not None:
            ended.join(END_TIMEOUT_S)

    def wake(self) -> None:
        """Something has changed: the stream reads, and its roles apply what is due, without
        waiting any longer. Any thread."""
        run = self._run
        if run is not None:
            run.wake()

    def stored(self, marks: Marks, low_water: Positions) -> None:
        """The owner has stored these in the changefeed's row. Any thread."""
        run = self._run
        if run is not None:
            run.stored(marks, low_water)

    def get_on(self) -> None:
        """A commit has ended: the watchdog counts the applying thread's step anew, so that a batch
        of many commits does not count as hanging. Any thread."""
        run = self._run
        if run is not None:
            run.get_on()

    def read_between(self, begin: Positions, end: Positions, wanted: Wanted) -> Iterator[Read]:
        """The messages from ``begin`` to ``end``, in reads of limited size. It reads on the
        caller's thread, beside the stream, and blocks. Raises Fenced without trust."""
        position = {p: begin[p] for p, at in end.items() if begin.get(p, at) < at}
        until = {p: end[p] for p in position}
        run = self._run
        assert run is not None, "a stream that is read beside"
        while position:
            self.context.trust.check()
            read = run.read_beside(position, {part: until[part] for part in position}, wanted)
            if read is None:
                return
            position = {p: at for p, at in read.position.items() if at < until[p]}
            yield read


def _are_others(recorded: Identities, now: Identities) -> bool:
    """Whether a part has another identity. There may be more of them than were recorded."""
    return any(now.get(part, identity) != identity for part, identity in recorded.items())
