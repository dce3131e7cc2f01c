"""The owner's reading of the source: DDLs, tables that nobody has, and how far they are known.

    DDL ──resolved──► CREATE TABLE: made at once, registered at its commit-ts (*)
                      of no effect: passed
                      any other: blocks; it runs when the checkpoint is there (`ran`), or
                      holds its table until an operator has said how to go on, or the
                      changefeed stops; a DROP TABLE ends the span of its table, a RENAME
                      TABLE too, and begins one under the new name
    rows of no table of ours ──resolved──► no DDL made it: as the schema file defines it, else
                      from the types in its messages below its next DDL

(*) Meanwhile nothing is applied above ``position``, which only moves past registered tables.

A role of the stream: it joins as a span does, and reads the messages from the changefeed's low
water to the stream by itself. The order of these reads does not matter; all of them count at once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from conf.sources.source_uri import is_at_least_once
from coordination.errors import Stop
from coordination.model import TableName, Ts, lowest
from coordination.trust.watchdog import Watched
from streaming.apply.newest_whole_row import NewestWholeRow
from streaming.changefeed.earlier_filters import left_out_tables
from streaming.changefeed.refused.refused_tables import refuse_dropped
from streaming.changefeed.refused.wrong_protocol import WrongProtocol
from streaming.changefeed.replicated_table import ReplicatedTable, span_of
from streaming.changefeed.routes import Shards
from streaming.changefeed.schema_from_rows import Untold, WholeRow
from streaming.owner.blocked_tables import BlockedTables
from streaming.owner.control_rows import ControlRows, EndedSpan, RenamedSpans
from streaming.owner.ddl.behind_drops import BehindDrops, Fate
from streaming.owner.ddl.ddl_scan import DdlScanResult, NewTable
from streaming.owner.ddl.known_tables import KnownTables, definition
from streaming.owner.ddl.plan import DdlPlan, plan
from streaming.owner.ddl.refusal import tell_of
from streaming.owner.ddl.spellings import Spellings
from streaming.owner.ddl.told_by_rows import told_by_rows, unlike_targets
from streaming.owner.ddl.told_schemas import AwaitedSchemas, SchemaAwaited
from streaming.owner.ddl.unplanned import Unplanned
from streaming.owner.far_watermarks import FarWatermarks
from streaming.protocols.contract import Block, Kind, Wanted, WantedTable, tables_told
from streaming.source.positions import Positions
from streaming.source.resolved.limits import Marks
from streaming.stream.read import Read
from streaming.stream.role import StreamRole
from streaming.stream.role_context import RoleContext

logger = logging.getLogger(__name__)


class DdlReader(StreamRole):
    """``blocked``: DDLs that cannot run. ``on_known`` gets each step forward, in order."""

    is_owners = True

    def __init__(
        self,
        context: RoleContext,
        rows: ControlRows,
        blocked: BlockedTables,
        *,
        on_known: Callable[[DdlScanResult], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        super().__init__(on_failed)
        self._rows = rows
        self._spans, self._dead_letters = rows.spans, rows.dead_letters
        self._start_ts, self._begin_ts = Ts(rows.row.start_ts), Ts(rows.row.checkpoint_ts)
        self._trust, self._stream = context.trust, context.stream
        self._blocked, self._on_known = blocked, on_known
        self._unlike: dict[TableName, str] = {}  # upstream tables, and why they cannot join
        self._far = FarWatermarks(context.concerns, context.source.place)
        self._awaited = AwaitedSchemas(context.concerns)
        self._context, self._routes = context, context.routes
        self._is_at_least_once = is_at_least_once(context.changefeed.source)
        source, say = context.changefeed.source, context.concerns.say
        self._wrong = WrongProtocol(source, context.source.place, say)
        self._spellings = Spellings.of(source, context.routes, say)
        self._unplanned = Unplanned(self._begin_ts, context.routes, self._spellings)
        self._behind = BehindDrops(self._begin_ts, self._is_at_least_once, context.concerns)
        self.since: Positions | None = None  # from there on the stream's reads are ours too
        self._is_caught_up = False  # what lies before has been read
        self._closing = threading.Event()
        self._position_ts = Ts(0)
        self._bad: list[Block] = []
        self._unreported: list[NewTable] = []
        self._removed: list[int] = []  # and not reported either
        self._ran: deque[ReplicatedTable | EndedSpan | RenamedSpans | None] = deque()
        self._has_run = False  # a DDL, and what comes behind it is not planned yet
        self.low_water: Positions = {}  # from where this reading must begin again

    # Joining: the control writer's calls.

    def catch_up(self, low_water: Positions, step: Watched) -> None:
        """Read the messages before ``since``, once more from their beginning after a failure.
        ``step``: of the caller's thread; each read is one. It ends after `close`."""
        assert self.since is not None
        for read in self._stream.read_between(low_water, self.since, {}):
            step.rest()  # it may wait for a long commit
            with self._stream.busy:  # no read of the stream comes now
                self._keep(read)
            step.step()
            self._stream.wake()
            if self._closing.is_set():
                return
        self._is_caught_up = True
        self._stream.wake()

    def close(self) -> None:
        """Call it before it leaves the stream, which would wait for its own reads. Any thread."""
        self._closing.set()
        for each in (self._far, self._awaited, self._wrong, self._spellings, self._behind):
            each.close()

    @property
    def marks(self) -> Marks:
        """The watermarks to store."""
        return {} if self._wrong.is_all else self._stream.marks(self)

    def submit(self, begin: Positions) -> Wanted:
        if self.since is None:
            self.since = dict(begin)
        return {}

    def take(self, read: Read) -> None:
        if self.since is None or any(at < self.since.get(p, at) for p, at in read.begin.items()):
            return  # it was begun before we came
        self._keep(read)

    def _keep(self, read: Read) -> None:
        for each in (self._far, self._wrong, self._spellings):
            each.look(read.blocks)
        if self._awaited:
            self._awaited.look(told for block in read.blocks for told in tables_told(block))
        bad = (block for block in read.blocks if block.kind is Kind.BAD)
        self._bad += [block for block in bad if not self._is_left_out(block)]
        self._unplanned.keep(
            read,
            planned_ts=self._position_ts,
            ended=self._spans.ended,
            is_unmade=self._is_unmade,
        )
        self._behind.look(read.blocks, self._spans.ended, self._is_unmade)
        if self._routes:
            self._unplanned.keep_newcomers(read, ended=self._spans.ended, is_known=self._is_known)

    def _is_unmade(self, name: TableName) -> bool:
        return name not in self._spans and self._routes.may_make(name)

    def _is_known(self, target: TableName, origin: TableName) -> bool:
        """Whether the target has this upstream table. One that no route leads to needs no note."""
        span = self._spans.get(target)
        of = Shards() if span is None else span.shards
        is_own = not of and origin == target and not self._routes.of(origin).columns
        return is_own or origin in of or (span is not None and span.is_keyless)

    def _is_left_out(self, block: Block) -> bool:
        """Whether these are rows of a table that the filter leaves out: then they are not ours,
        readable or not."""
        return (
            block.has_only_rows and bool(block.name.table) and not self._routes.may_make(block.name)
        )

    def apply_due(self) -> None:
        """Make the resolved tables. They are reported until `on_known` has them."""
        if self.is_behind:
            return
        self._wrong.refuse(has_tables=bool(self._spans or self._spans.ended))
        if self._bad:
            self._dead_letters.add_messages(self._bad)
            self._bad = []
        if not self._is_caught_up:
            return
        self._take_ran()
        position = self._awaited.below(self._stream.resolved_ts())
        while self._has_run or position > self._position_ts:
            try:
                self._advance_to(position)
                break
            except SchemaAwaited as lacking:
                for name, version in lacking.versions.items():
                    self._awaited.add(name, version, self._unplanned.first_ts(name))
                if (position := self._awaited.below(position)) < self._position_ts:
                    break
        self._awaited.refuse_at_the_end(self._context, self._stream.position)
        self.low_water = self._unplanned.low_water(self._stream.position)

    def ran(self, done: ReplicatedTable | EndedSpan | RenamedSpans | None) -> None:
        """The blocking DDL has run: the table as it is now. None: other news of it. Any thread."""
        self._ran.append(done)
        self._stream.wake()

    def _take_ran(self) -> None:
        """Each until it is noted: storage may be away."""
        while self._ran:
            done = self._ran[0]
            if isinstance(done, RenamedSpans):
                self._rename(done)
            elif isinstance(done, EndedSpan):
                self._end(done)
            elif done is not None:
                self._spans.put(done)
            self._ran.popleft()
            self._has_run = True

    def _end(self, ended: EndedSpan) -> None:
        self._spans.end(ended.table.name, ended.at_ts)
        self._rows.end(ended)
        self._removed.append(self._id(ended.table))

    def _rename(self, done: RenamedSpans) -> None:
        """The rows of the new spans come first. If the owner dies in between, the old ones are
        renamed once more. Rows that another owner has noted already stay as they are."""
        old, new = ({self._id(each) for each in some} for some in (self._spans.values(), done.made))
        ended = [each for each in done.ended if self._id(each.table) not in new]
        made = {each.name: each for each in done.made if self._id(each) not in old}
        left = {each.table.name for each in ended} | self._spans.ended.keys()
        begun = [
            NewTable(table=table, low_water=self._low_water(name, is_again=name in left))
            for name, table in made.items()
        ]
        self._rows.add([(each.table, each.low_water) for each in begun])
        for each in ended:
            if each.table.name not in made:
                self._rows.end(each)
        for each in ended:
            self._spans.end(each.table.name, each.at_ts)
        for table in made.values():
            self._spans.put(table)
        self._unplanned.made(made)
        self._removed += [self._id(each.table) for each in ended]
        self._unreported += begun

    def _id(self, table: ReplicatedTable) -> int:
        return span_of(table, self._rows.row.incarnation).table_id

    def _advance_to(self, position: Ts) -> None:
        self._look_at_open_tables()
        planned = self._plan(position)
        self._create(planned)
        while (name := planned.unmade) is not None:
            self._make_found(planned.limit, above_start=True)
            if name not in self._spans:  # no whole row lies below the DDL
                self._unplanned.not_told_up_to(name, planned.limit)
            planned = self._plan(position)
            self._create(planned)
        altered = planned.runs.names if planned.runs is not None else ()
        self._make_found(planned.limit, altered=altered)
        if self._routes and self._join(position):
            planned = self._plan(position)
            self._create(planned)
        self._on_known(
            DdlScanResult(
                position_ts=position,
                made=tuple(self._unreported),
                removed=tuple(self._removed),
                plan=planned,
            )
        )
        self._unreported, self._removed, self._has_run = [], [], False
        tell_of(
            planned,
            self._unplanned.ddls,
            above=max(self._position_ts, self._begin_ts),
            tables={n: ts for n, ts in self._spans.last_ddls().items() if n in self._spans},
            say=self._context.concerns.say,
        )
        self._unplanned.drop(planned)
        self._position_ts = position

    def _join(self, limit: Ts) -> bool:
        """Upstream tables whose first rows have come join their targets. Whether there are any."""
        self._unplanned.none_join({n for n, each in self._spans.items() if each.is_keyless})
        targets = {n: each.target.schema for n, each in self._spans.items() if each.target}
        found = self._unplanned.join(targets)
        if found:
            since = lowest([self._unplanned.since(each) for each in found])
            wanted = {each.name: WantedTable(above_ts=Ts(0), key=None) for each in found}
            reads = self._stream.read_between(since, self._stream.position, wanted)
            ddls, reads = self._unplanned.ddls, self._until_closing(reads)
            self._unlike |= unlike_targets(reads, found, ddls, targets, limit)
            self._unlike |= left_out_tables(self._rows.row, [each.upstream for each in found])
        return bool(found)

    def _look_at_open_tables(self) -> None:
        """A table may be registered before a whole row of it has come. The capture that writes it
        makes it; from then on its DDLs are run."""
        for name in self._unplanned.names & self._spans.keys():
            span, row = self._spans[name], self._rows.progress.get(name)
            if not span.is_settled and row is not None:
                self._spans.put(self._spans.opened(name, row, span.checkpoint))

    def _plan(self, position: Ts) -> DdlPlan:
        self._unplanned.spell(self._spans)
        return plan(
            self._unplanned.ddls,
            KnownTables.of(
                self._spans,
                self._unplanned.whole_from(),
                has_routes=bool(self._routes),
                unlike=self._unlike,
                comes_again=self._is_at_least_once,
            ),
            checkpoint=self._unplanned.checkpoint_ts,
            start_ts=self._start_ts,
            limit=position,
            routes=self._routes,
            orders=self._blocked.orders,
            failed=self._blocked.failed,
        )

    def _create(self, planned: DdlPlan) -> None:
        for creation in planned.creations:
            name = creation.event.name
            if name in self._spans:  # an earlier owner made it, or the DDL has come again
                continue
            schema = definition(creation, self._spans.schemas(), self._spans.defined)
            self._trust.check()
            event = creation.event
            also = Shards().joined(event.upstream).properties if self._routes else {}
            # Readers that number each partition may have numbered its first rows below it.
            begin = self._rows.row.checkpoint_ts if self._is_at_least_once else event.commit_ts
            start = Ts(max(begin, self._spans.ended.get(name, 0)))
            self._spans.create(name, schema, event.identity, start, also=also)
            self._spellings.made(event.upstream)
            logger.info("table made table=%s commit_ts=%d", name, creation.event.commit_ts)
            self._unreported.append(self._made(name))

    def _make_found(
        self, limit: Ts, *, above_start: bool = False, altered: Sequence[TableName] = ()
    ) -> None:
        """Make the tables that have resolved rows and no definition: as the schema file defines
        them, else from the types in their messages.

        ``above_start``: only those that a whole row above the start tells, since a DDL of one of
        them comes next. ``altered``: the tables of the DDL that is to run; the file defines one
        that has no rows yet.
        """
        self._unplanned.made(self._spans)
        found = self._unplanned.found(limit, above_start=above_start)
        left = self._behind.fates(found, self._spans, self._unplanned.ddls, limit)
        self._unplanned.made({name: fate for name, fate in left.items() if fate is Fate.PASS})
        found = {name: first for name, first in found.items() if name not in left}
        if not (names := sorted({*found, *altered} - self._spans.keys())):
            return
        since = lowest([first.low_water for first in found.values()])
        told = self._told(names, since, limit, above_start=above_start)
        if above_start:
            names = [name for name in names if isinstance(told[name], WholeRow)]
        for name in names:
            refuse_dropped(name, self._spans.ended.get(name))
        self._trust.check()
        for name in names:
            start, origins = Ts(self._rows.row.checkpoint_ts), self._unplanned.origins_of(name)
            for origin in origins:
                self._spans.forms.refuse_origin(origin, name)
            self._spans.make_from_rows(name, told[name], start, origins)
        logger.info("tables found by their rows tables=%s", ",".join(map(str, names)))
        self._unreported += [self._made(name) for name in names]

    def _told(
        self,
        names: Sequence[TableName],
        since: Positions,
        limit: Ts,
        *,
        above_start: bool,
    ) -> dict[TableName, WholeRow | Untold]:
        """The columns that the newest whole rows of these tables tell. The schema file's tables
        need rows above the start: they may have been altered before it."""
        defined = self._spans.defined
        start = self._unplanned.checkpoint_ts
        wanted = {
            name: WantedTable(above_ts=start if above_start or name in defined else Ts(0), key=None)
            for name in names
        }
        reads = self._stream.read_between(since, self._stream.position, wanted) if since else ()
        newest = {name: NewestWholeRow(limit) for name in names}
        return told_by_rows(self._until_closing(reads), newest, defined)

    def _until_closing(self, reads: Iterable[Read]) -> Iterator[Read]:
        for read in reads:
            if self._closing.is_set():
                raise Stop("the owner's reader closes")
            yield read

    def _made(self, name: TableName) -> NewTable:
        low_water = self._low_water(name, is_again=name in self._spans.ended)
        self._unplanned.made({name: None})
        return NewTable(table=self._spans[name], low_water=low_water)

    def _low_water(self, name: TableName, *, is_again: bool) -> Positions:
        return self._unplanned.low_water_of(name, self._stream.position, is_again=is_again)
