"""What the owner reads of the topics: DDLs, tables that nobody has, and how far all that is known.

    DDL ──resolved──► CREATE TABLE: made at once, registered at its commit-ts (*)
                      of no effect: passed
                      any other: blocks; it runs when the checkpoint is there (`ran`), or
                      the changefeed stops
    rows of no table of ours ──resolved──► no DDL made it: from the types in its messages

(*) Nothing is applied above ``position`` meanwhile, which only moves past what is registered.

A role of the stream: it joins as a span does, and reads by itself what lies between the
changefeed's low water and where the stream is. The stream goes on meanwhile: what is kept does not
depend on the order of the reads, and nothing is known before all of them are there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from coordination.model import TableName, Ts
from coordination.watchdog import Watched
from streaming.apply.row_block import RowBlock
from streaming.apply.shape import NewestWholeRow
from streaming.cluster.control_rows import ControlRows
from streaming.cluster.reads import Offsets, Read, low
from streaming.cluster.role_context import RoleContext
from streaming.cluster.stream_role import StreamRole
from streaming.ddl_plan import DdlPlan, definition, in_order, plan
from streaming.ddl_steps import DdlEvent
from streaming.protocols.contract import Block, Kind, Wanted, WantedTable
from streaming.sink_tables import SinkTable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTable:
    """A table that was made, and from where its rows must be read."""

    table: SinkTable
    low_water: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Every DDL at or below ``position_ts`` is behind us, but for the blocked one and what follows
    it."""

    position_ts: Ts
    made: tuple[MadeTable, ...]
    plan: DdlPlan

    @property
    def blocked_at(self) -> Ts | None:
        """Where tables wait for a DDL: it has not happened to them."""
        blocked = self.plan.blocked
        return Ts(blocked.commit_ts - 1) if blocked is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _FirstRow:
    commit_ts: Ts
    low_water: Offsets


class OwnersReader(StreamRole):
    """``on_known`` gets each step forward, in order."""

    def __init__(
        self,
        context: RoleContext,
        rows: ControlRows,
        *,
        on_known: Callable[[Known], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        super().__init__(on_failed)
        self._rows = rows
        self._spans = rows.spans
        self._dead_letters = rows.dead_letters
        self._start_ts = Ts(rows.row.start_ts)
        self._first_checkpoint_ts = Ts(rows.row.checkpoint_ts)
        self._filter = context.filter
        self._trust = context.trust
        self._stream = context.stream
        self._on_known = on_known
        self.since: Offsets | None = None  # from there on the stream's reads are ours too
        self._is_caught_up = False  # what lies before has been read
        self._position_ts = Ts(0)
        self._ddls: dict[tuple[Ts, str, TableName], tuple[DdlEvent, Offsets]] = {}
        self._first_rows: dict[TableName, _FirstRow] = {}
        self._bad: list[Block] = []
        self._unreported: list[MadeTable] = []
        self._altered: SimpleQueue[SinkTable] = SimpleQueue()
        self.low_water: Offsets = {}  # from where this reading must begin again

    # Joining: the control writer's calls.

    def catch_up(self, low_water: Offsets, step: Watched) -> None:
        """Read what lies before ``since``. After a failure it is called again and begins anew.
        ``step``: of the caller's thread; each read is one."""
        assert self.since is not None
        for read in self._stream.read_between(low_water, self.since, {}):
            step.rest()  # it may wait for a long commit
            with self._stream.busy:  # no read of the stream comes now
                self._keep(read)
            step.step()
            self._stream.wake()
        self._is_caught_up = True
        self._stream.wake()

    # The role.

    def submit(self, begin: Offsets) -> Wanted:
        if self.since is None:
            self.since = dict(begin)
        return {}

    def take(self, read: Read) -> None:
        if self.since is None or any(at < self.since.get(p, at) for p, at in read.begin.items()):
            return  # it was begun before we came
        self._keep(read)

    def _keep(self, read: Read) -> None:
        before = {**read.position, **read.begin}
        for block in read.blocks:
            if block.kind is Kind.DDL:
                self._keep_ddls(block, before)
            elif block.kind is Kind.BAD:
                self._bad.append(block)
        for name, ts in read.first_ts().items():
            if name in self._spans or not self._filter.selects(name):
                continue
            known = self._first_rows.get(name, _FirstRow(commit_ts=ts, low_water=before))
            self._first_rows[name] = _FirstRow(
                commit_ts=min(ts, known.commit_ts),
                low_water=low([before, known.low_water]),
            )

    def _keep_ddls(self, block: Block, before: Offsets) -> None:
        for each in block.table().to_pylist():
            name = TableName(each["schema_name"] or "", each["table_name"] or "")
            ddl = DdlEvent(
                commit_ts=Ts(each["commit_ts"]),
                offset=each["offset"],
                name=name,
                ddl_type=each["ddl_type"] or "",
                query=each["query"] or "",
            )
            key = ddl.commit_ts, ddl.query, name
            known, since = self._ddls.get(key, (ddl, before))
            first = min(known, ddl, key=lambda each: each.offset)  # it comes again
            self._ddls[key] = first, low([before, since])

    def apply_due(self) -> None:
        """Make what is resolved by now. What was made is reported until `on_known` has it."""
        if self.is_behind:
            return
        if self._bad:
            self._dead_letters.add_messages(self._bad)
            self._bad = []
        if not self._is_caught_up:
            return
        position, ran = self._stream.resolved_ts(), self._take_altered()
        if ran or position > self._position_ts:
            self._advance_to(position)
        held = [offsets for _, offsets in self._ddls.values()]
        held += [first.low_water for first in self._first_rows.values()]
        self.low_water = low([self._stream.position, *held])

    def ran(self, table: SinkTable) -> None:
        """The DDL that blocked it has run on its table. Any thread."""
        self._altered.put(table)
        self._stream.wake()

    def _take_altered(self) -> bool:
        has_some = False
        while not self._altered.empty():
            self._spans.put(self._altered.get())
            has_some = True
        return has_some

    def _advance_to(self, position: Ts) -> None:
        planned = self._plan(position)
        self._create(planned)
        self._make_found(planned.limit)
        self._on_known(
            Known(
                position_ts=position,
                made=tuple(self._unreported),
                plan=planned,
            )
        )
        self._unreported = []
        self._ddls = {
            key: kept for key, kept in self._ddls.items() if kept[0].commit_ts > planned.limit
        }
        self._position_ts = position

    def _plan(self, position: Ts) -> DdlPlan:
        return plan(
            in_order(ddl for ddl, _ in self._ddls.values()),
            checkpoint=self._first_checkpoint_ts,
            start_ts=self._start_ts,
            limit=position,
            table_filter=self._filter,
            known=self._spans.schemas(),
            seen={name: table.last_ddl_ts for name, table in self._spans.items()},
            shaped={name: table.shape_ts for name, table in self._spans.items()},
        )

    def _create(self, planned: DdlPlan) -> None:
        for creation in planned.creations:
            name = creation.event.name
            if name in self._spans:  # an earlier owner made it, or the DDL has come again
                continue
            schema = definition(creation, self._spans.schemas())
            self._trust.check()
            self._spans.create(name, schema, creation.event, creation.event.commit_ts)
            logger.info("table made table=%s commit_ts=%d", name, creation.event.commit_ts)
            self._unreported.append(self._made(name))

    def _make_found(self, limit: Ts) -> None:
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
        begin = low([self._first_rows[name].low_water for name in names])
        wanted = {name: WantedTable(above_ts=Ts(0), key=None) for name in names}
        newest = {name: NewestWholeRow(limit) for name in names}
        for read in self._stream.read_between(begin, self._stream.position, wanted):
            for block in read.blocks:
                if block.kind is Kind.ROW and block.body is not None:
                    newest[block.name].look(RowBlock.of(block))
        self._trust.check()
        for name in names:
            self._spans.make_from_rows(name, newest[name].told(), Ts(self._rows.row.checkpoint_ts))
        logger.info("tables found by their rows tables=%s", ",".join(map(str, names)))
        self._unreported += [self._made(name) for name in names]

    def _made(self, name: TableName) -> MadeTable:
        first = self._first_rows.pop(name, None)
        low_water = first.low_water if first is not None else self._stream.position
        return MadeTable(table=self._spans[name], low_water=low_water)
