"""What the owner reads of the topics: DDLs, tables that nobody has, and how far all that is known.

    DDL ──resolved──► CREATE TABLE: made at once, registered at its commit-ts (*)
                      of no effect: passed
                      any other: a wall, which the owner runs into when its checkpoint gets there
    rows of no table of ours ──resolved──► no DDL made it: from the types in its messages

(*) Nothing is applied above ``position`` meanwhile, which only moves past what is registered.
Called under the stream's lock, one call at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column

from coordination.model import TableName, Ts
from streaming.cluster.envelopes import Envelopes, control_messages, rows_of
from streaming.cluster.topic_stream import Offsets, TopicStream
from streaming.cluster.trust import Trust
from streaming.events import DdlEvent, Decoder, TopicPartition
from streaming.filter import TableFilter
from streaming.graveyard import Graveyard
from streaming.plan import Plan, definition, plan
from streaming.segments import Carry, read_segment
from streaming.spans import Span as Table
from streaming.spans import Spans

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A table that was made, and from where its rows must be read."""

    table: Table
    low_water: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Every DDL at or below ``position_ts`` is behind us, but for the wall and what follows it."""

    position_ts: Ts
    found: tuple[Found, ...]
    wall: DdlEvent | None
    why: str


def before_wall(known: Known) -> Ts:
    """Where tables wait for a DDL that stops the changefeed: it has not happened to them."""
    assert known.wall is not None
    return Ts(known.wall.commit_ts - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FirstRow:
    commit_ts: Ts
    low_water: Offsets


class OwnersReader:
    """Implements ``topic_stream.Reader``. ``tell`` gets each step forward, in order."""

    def __init__(
        self,
        *,
        spans: Spans,
        start_ts: Ts,
        checkpoint_ts: Callable[[], Ts],
        table_filter: TableFilter,
        decoder: Decoder,
        graveyard: Graveyard,
        trust: Trust,
        tell: Callable[[Known], None],
    ) -> None:
        """``checkpoint_ts``: of the changefeed, as recorded."""
        self._spans = spans
        self._start_ts = start_ts
        self._checkpoint_ts = checkpoint_ts
        self._first_checkpoint_ts = checkpoint_ts()
        self._filter = table_filter
        self._decoder = decoder
        self._graveyard = graveyard
        self._trust = trust
        self._tell = tell
        self._position_ts = Ts(0)
        self._ddls: dict[tuple[Ts, str, TableName], tuple[DdlEvent, Offsets]] = {}
        self._first_rows: dict[TableName, _FirstRow] = {}
        self._untold: list[Found] = []
        self.low_water: Offsets = {}  # from where this reading must begin again
        self.stream: TopicStream | None = None

    def forget(self) -> None:
        """Everything is read again, from the low water on."""
        self._ddls = {}
        self._first_rows = {}

    def at_boundary(self) -> None:
        """Nobody joins."""

    def wanted(self) -> Column:
        return control_messages()

    def take(self, read: Envelopes) -> None:
        before = {**self._running.offsets, **read.begin}
        if read.counts.ddls or read.counts.bad:
            self._take_control(read, before)
        for name, count in read.tables.items():
            if name in self._spans or name in self._first_rows or not self._filter.selects(name):
                continue
            self._first_rows[name] = _FirstRow(commit_ts=Ts(count.min_ts), low_water=before)
        for name, first in list(self._first_rows.items()):
            if name in read.tables and read.tables[name].min_ts < first.commit_ts:
                earlier = Ts(read.tables[name].min_ts)
                self._first_rows[name] = _FirstRow(commit_ts=earlier, low_water=first.low_water)
        self.advance()
        self.low_water = self._low_water()

    def _take_control(self, read: Envelopes, before: Offsets) -> None:
        segment = read_segment(self._decoder(read.messages(control_messages()), {}))
        if segment.bad:
            self._graveyard.bury_messages(segment)
        for ddl in Carry((segment,)).ddls():
            self._ddls.setdefault((ddl.commit_ts, ddl.query, ddl.name), (ddl, before))
        segment.frame.unpersist()

    def advance(self) -> None:
        """Make what is resolved by now. What was made is told until it has been heard."""
        position = self._running.resolved_ts()
        if position <= self._position_ts:
            return
        planned = self._plan(position)
        self._create(planned)
        self._find(planned.limit)
        self._tell(
            Known(
                position_ts=position,
                found=tuple(self._untold),
                wall=planned.wall,
                why=planned.why,
            )
        )
        self._untold = []
        self._ddls = {
            key: kept for key, kept in self._ddls.items() if kept[0].commit_ts > planned.limit
        }
        self._position_ts = position

    def _low_water(self) -> Offsets:
        held = [offsets for _, offsets in self._ddls.values()]
        held += [first.low_water for first in self._first_rows.values()]
        return _lowest([self._running.offsets, *held])

    def _plan(self, position: Ts) -> Plan:
        ddls = sorted(
            (ddl for ddl, _ in self._ddls.values()), key=lambda d: (d.commit_ts, d.offset)
        )
        return plan(
            ddls,
            checkpoint=self._first_checkpoint_ts,
            start_ts=self._start_ts,
            limit=position,
            table_filter=self._filter,
            known=self._spans.schemas(),
        )

    def _create(self, planned: Plan) -> None:
        for creation in planned.creations:
            name = creation.event.name
            if name in self._spans:  # an earlier owner made it, or the DDL has come again
                continue
            schema = definition(creation, self._spans.schemas())
            self._trust.check()
            self._spans.create(name, schema, creation.event, creation.event.commit_ts)
            logger.info("table made table=%s commit_ts=%d", name, creation.event.commit_ts)
            self._untold.append(self._found(name))

    def _find(self, limit: Ts) -> None:
        """Tables with rows that are resolved and no definition: from the types in their
        messages."""
        names = sorted(
            name
            for name, first in self._first_rows.items()
            if first.commit_ts <= limit and name not in self._spans
        )
        self._first_rows = {n: f for n, f in self._first_rows.items() if n not in self._spans}
        if not names:
            return
        begin = _lowest([self._first_rows[name].low_water for name in names])
        read = self._running.read(begin, self._running.offsets, rows_of(names))
        assert read is not None
        self._trust.check()
        segment = read_segment(self._decoder(read.messages(rows_of(names)), {}))
        try:
            self._spans.find(names, [segment], self._checkpoint_ts(), limit)
        finally:
            segment.frame.unpersist()
            read.release()
        logger.info("tables found by their rows tables=%s", ",".join(map(str, names)))
        self._untold += [self._found(name) for name in names]

    def _found(self, name: TableName) -> Found:
        first = self._first_rows.pop(name, None)
        low_water = first.low_water if first is not None else self._running.offsets
        return Found(table=self._spans[name], low_water=low_water)

    @property
    def _running(self) -> TopicStream:
        assert self.stream is not None
        return self.stream


def _lowest(all_offsets: Sequence[Offsets]) -> Mapping[TopicPartition, int]:
    lowest: dict[TopicPartition, int] = {}
    for offsets in all_offsets:
        for partition, offset in offsets.items():
            lowest[partition] = min(offset, lowest.get(partition, offset))
    return lowest
