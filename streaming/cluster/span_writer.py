"""What a capture does with its spans' rows: join, carry, apply.

    new ──rows from its low water to the stream's offsets──► joined: in the filter and the carry
    joined ──its table opened, as its log has it──► written, up to min(L, barrier)
    gone from `HeldSpans` ──► left out of the filter, at the next boundary

Rows enter the decoder only if they are of a joined span (cluster.md 3). Each span has its own low
water: the first message that it has not applied, from where any capture can take it up.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from coordination.model import TableName, Ts
from coordination.scheduler.messages import NO_TS, Scan
from streaming.applier import Applier
from streaming.cluster.envelopes import Envelopes, rows_of
from streaming.cluster.held_spans import Applied, Assignment, HeldSpans
from streaming.cluster.span_permit import SpanPermit
from streaming.cluster.tables_in_sight import TablesInSight
from streaming.cluster.topic_stream import Offsets, TopicStream
from streaming.due import due_tasks
from streaming.events import Decoder, TopicPartition
from streaming.filter import TableFilter
from streaming.permit import Permit
from streaming.segments import Carry, Segment, read_segment
from streaming.spans import Span as Table
from streaming.spans import Spans, keys_of_settled

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """A span that can join: its table, and from where it must be read."""

    assignment: Assignment
    table: Table
    low_water: Offsets


@dataclass(slots=True, kw_only=True)
class _Joined:
    assignment: Assignment
    low_water: Offsets
    is_written: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Caught:
    """Newcomers, with their rows up to where the stream was when these were read."""

    newcomers: tuple[Newcomer, ...]
    segment: Segment | None
    up_to: Offsets


class SpanWriter:
    """Implements ``topic_stream.Reader``. Every method but ``catch_up`` wants the stream's lock.

    ``opener`` reads the control tables once and says how to open the table of an assignment, as its
    log has it now; either raises where it cannot go on.
    """

    def __init__(
        self,
        *,
        held: HeldSpans,
        spans: Spans,
        permit: SpanPermit,
        make_applier: Callable[[Permit], Applier],
        dead_letters: Callable[[TableName], int],
        make_decoder: Callable[[], Decoder],
        table_filter: TableFilter,
        in_sight: TablesInSight,
        opener: Callable[[], Callable[[Assignment], Table]],
    ) -> None:
        self._held = held
        self._spans = spans
        self._permit = permit
        self._applier = make_applier(permit)
        self._dead_letters = dead_letters
        self._decoder = make_decoder()
        self._catch_up_decoder = make_decoder()  # on the worker, while a batch may run
        self._filter = table_filter
        self._in_sight = in_sight
        self._opener = opener
        self._joined: dict[TableName, _Joined] = {}
        self._caught: list[_Caught] = []
        self._carry = Carry()
        self.stream: TopicStream | None = None
        self.decoded: Counter[TableName] = Counter()  # rows that came out of the decoder

    def close(self) -> None:
        """No batch runs any more, and none comes."""
        self._applier.close()
        self.forget_rows()

    # Joining.

    def stays(self) -> set[int]:
        """Of the spans that need no catching up: the stream has them, or will at a boundary."""
        stays = {joined.assignment.stay for joined in self._joined.values()}
        if self._running.is_running:
            stays |= {new.assignment.stay for each in self._caught for new in each.newcomers}
        return stays

    def start_from(self, newcomers: Sequence[Newcomer]) -> dict[TopicPartition, int]:
        """Before a stream starts: forget what was read, take everybody in, and say from where to
        read."""
        self.forget_rows()
        self._drop_leavers({each.stay: each for each in self._held.assignments()})
        for newcomer in newcomers:
            self._join(newcomer)
        offsets: dict[TopicPartition, int] = {}
        for joined in self._joined.values():
            for partition, offset in joined.low_water.items():
                offsets[partition] = min(offset, offsets.get(partition, offset))
        return offsets

    def started(self) -> None:
        """The stream begins at those offsets, so nothing is missing."""
        for joined in self._joined.values():
            self._held.prepared(joined.assignment)

    def catch_up(self, newcomers: Sequence[Newcomer]) -> None:
        """Read their rows up to where the stream is now; it goes on meanwhile (no lock wanted)."""
        here = self._running.offsets
        segment = self._read_between(newcomers, _lowest(newcomers), here)
        self._caught.append(_Caught(newcomers=tuple(newcomers), segment=segment, up_to=here))

    def at_boundary(self) -> None:
        held = {each.stay: each for each in self._held.assignments()}
        self._drop_leavers(held)
        caught, self._caught = self._caught, []
        for each in caught:
            staying = [new for new in each.newcomers if new.assignment.stay in held]
            rest = self._read_between(staying, each.up_to, self._running.offsets)
            for segment in (each.segment, rest):
                if segment is not None:
                    self._carry = self._carry.add(segment)
            for newcomer in staying:
                self._join(newcomer)
                self._held.prepared(held[newcomer.assignment.stay])
        self._open()

    def _drop_leavers(self, held: Mapping[int, Assignment]) -> None:
        for name, joined in list(self._joined.items()):
            stay = joined.assignment.stay
            if stay in held:
                joined.assignment = held[stay]  # its fence, and what is wanted of it
            else:
                del self._joined[name]
                self._spans.drop(name)

    def _join(self, newcomer: Newcomer) -> None:
        name = newcomer.assignment.name
        self._joined[name] = _Joined(assignment=newcomer.assignment, low_water=newcomer.low_water)
        self._spans.put(newcomer.table)

    def _open(self) -> None:
        """Begin to write what is to be written and has its rows."""
        held = {each.stay: each for each in self._held.assignments()}
        open_table: Callable[[Assignment], Table] | None = None
        for joined in self._joined.values():
            assignment = held.get(joined.assignment.stay, joined.assignment)
            if joined.is_written or not assignment.is_to_write:
                continue
            joined.assignment = assignment
            open_table = open_table or self._opener()
            self._spans.put(open_table(assignment))
            joined.is_written = True
            self._held.opened(assignment, self._applied(assignment))

    def _read_between(
        self, newcomers: Sequence[Newcomer], begin: Offsets, end: Offsets
    ) -> Segment | None:
        if not newcomers:
            return None
        names = {new.assignment.name: new.assignment.checkpoint_ts for new in newcomers}
        unapplied = rows_of(names) & (F.col("commit_ts") > min(names.values()))
        read = self._running.read(begin, end, unapplied)
        if read is None:
            return None
        try:
            keys = keys_of_settled(new.table for new in newcomers)
            decoder = self._catch_up_decoder
            return self._decoded(read, names, decoder(read.messages(unapplied), keys))
        finally:
            read.release()

    # Reading and writing.

    def wanted(self) -> Column:
        return rows_of(self._joined.keys())

    def take(self, read: Envelopes) -> None:
        started, before = time.monotonic(), self.decoded.total()
        names = self._joined.keys() & read.tables.keys()
        events = self._decoder(read.messages(rows_of(names)), self._spans.settled_keys())
        segment = self._decoded(read, names, events)
        if segment is not None:
            self._carry = self._carry.add(segment)
        self._in_sight.meet(read.tables, self._joined.keys())
        self.advance()
        logger.info(
            "applied a batch name=%s messages=%d rows=%d tables=%d checkpoint_ts=%d seconds=%.2f",
            self._running.name,
            sum(read.end.values()) - sum(read.begin.values()),
            self.decoded.total() - before,
            len(self._joined),
            min((self._checkpoint(each) for each in self._joined.values()), default=NO_TS),
            time.monotonic() - started,
        )

    def _decoded(
        self, read: Envelopes, names: Iterable[TableName], events: DataFrame
    ) -> Segment | None:
        """The rows of these tables, decoded and persisted; what has no meaning is buried."""
        if not any(name in read.tables for name in names):
            return None
        segment = read_segment(events)
        self.decoded.update({name: count.rows for name, count in segment.tables.items()})
        self._applier.bury_undecodable(segment)
        return segment

    def advance(self) -> bool:
        """Write what may be written by now. Whether there is news."""
        resolved = self._running.resolved_ts()
        for limit, names in sorted(self._due(resolved).items()):
            self._apply(limit, names)
        self._carry = self._carry.kept(self._is_live)
        self._in_sight.look_again(self._joined.keys(), now_s=time.monotonic())
        return self._publish(resolved)

    def reached(self) -> int:
        """Rises with every span that gets on."""
        return sum(self._checkpoint(joined) for joined in self._joined.values())

    def _due(self, resolved: Ts) -> Mapping[Ts, Sequence[TableName]]:
        """By limit: most spans have the same."""
        due: dict[Ts, list[TableName]] = defaultdict(list)
        for name, joined in self._joined.items():
            allowed = self._held.limit(joined.assignment) if joined.is_written else None
            if allowed is not None and min(resolved, allowed) > self._spans[name].checkpoint:
                due[min(resolved, allowed)].append(name)
        return due

    def _apply(self, limit: Ts, names: Sequence[TableName]) -> None:
        self._permit.check()
        self._find(names, limit)
        self._permit.grant({name: self._joined[name].assignment for name in names})
        tasks = due_tasks(self._carry, self._spans, names, limit, self._filter)
        held = self._applier.apply(tasks, limit) | self._permit.withdrawn
        self._spans.idle_to(limit, [name for name in names if name not in held])

    def _find(self, names: Sequence[TableName], limit: Ts) -> None:
        """Tables that the owner could not make yet: from the first whole row."""
        open_names = self._spans.open_names(names)
        lowest = min((self._spans[name].checkpoint for name in open_names), default=NO_TS)
        due = self._carry.due_of(open_names, lowest, limit)
        if due.names:
            self._spans.find(due.names, due.segments, lowest, limit)

    def _is_live(self, segment: Segment) -> bool:
        return any(self._holds_back(name, segment) for name in segment.tables)

    def _holds_back(self, name: TableName, segment: Segment) -> bool:
        joined, count = self._joined.get(name), segment.tables.get(name)
        if joined is None or count is None:
            return False
        return count.max_ts > self._checkpoint(joined)

    def _checkpoint(self, joined: _Joined) -> Ts:
        at_ts = joined.assignment.checkpoint_ts
        return self._spans[joined.assignment.name].checkpoint if joined.is_written else at_ts

    # Telling.

    def _publish(self, resolved: Ts) -> bool:
        here = self._running.offsets
        applied = []
        for joined in self._joined.values():
            applied.append((joined.assignment, self._applied(joined.assignment, resolved)))
        scan = Scan(
            scanned_to_ts=resolved,
            unknown_tables=self._in_sight.unknown,
            source_offsets=_texts(here),
        )
        return self._held.publish(applied, scan)

    def applied(self, assignment: Assignment) -> Applied:
        """How far it is, right after a write of it."""
        return self._applied(assignment)

    def _applied(self, assignment: Assignment, resolved: Ts = NO_TS) -> Applied:
        name = assignment.name
        joined, table = self._joined[name], self._spans[name]
        at_ts = self._checkpoint(joined)
        low_water, here = self._low_water(name), self._running.offsets
        joined.low_water = low_water
        return Applied(
            checkpoint_ts=at_ts,
            resolved_ts=Ts(max(resolved, self._running.resolved_ts(), at_ts)),
            delta_version=table.version,
            dead_letters=self._dead_letters(name),
            engine=table.engine or None,
            source_offsets=None if low_water == here else _texts(low_water),
            dropped_columns=table.dropped or None,
        )

    def _low_water(self, name: TableName) -> dict[TopicPartition, int]:
        live = tuple(segment for segment in self._carry if self._holds_back(name, segment))
        return Carry(live).low_water(self._running.offsets)

    def forget_rows(self) -> None:
        """They are read again when they are wanted."""
        for caught in self._caught:
            if caught.segment is not None:
                caught.segment.frame.unpersist()
        self._caught = []
        self._carry = self._carry.kept(lambda _: False)

    @property
    def _running(self) -> TopicStream:
        assert self.stream is not None
        return self.stream


def _lowest(newcomers: Iterable[Newcomer]) -> dict[TopicPartition, int]:
    lowest: dict[TopicPartition, int] = {}
    for newcomer in newcomers:
        for partition, offset in newcomer.low_water.items():
            lowest[partition] = min(offset, lowest.get(partition, offset))
    return lowest


def _texts(offsets: Offsets) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}
