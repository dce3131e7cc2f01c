"""What the owner has read of the source and has not planned yet: DDLs, tables that nobody has made,
and where reading must begin again for them. Pure.

    reads ──keep──► DDLs, first rows, reads that wait ──plan──► `drop`: what is planned goes
                        └──► low water: the earliest position of all that is left
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from coordination.model import SEALED_TS, TSO_LOGICAL_BITS, TableName, Ts, lowest
from sinks.types.table_schema import TableSchema
from streaming.changefeed.routes import Routes
from streaming.owner.ddl.plan import DdlPlan, in_order
from streaming.owner.ddl.spellings import Spellings
from streaming.owner.ddl.steps import ROWS, DdlEvent, DdlKey
from streaming.protocols.contract import NO_TABLE, Block, Kind, tables_told
from streaming.source.positions import Positions
from streaming.stream.read import Read

# A table whose schema was told, and whose rows have not come for so long, is told again with them.
SCHEMA_KEPT = Ts(360_000 << TSO_LOGICAL_BITS)
MOST_WAITING = 256  # reads that are remembered one by one: a watermark may stand still for hours


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRow:
    """The first row of a table that nobody has made. ``whole_from_ts``: at or above it whole rows
    may tell what the table is; None: all rows so far are at or below the changefeed's start."""

    commit_ts: Ts
    low_water: Positions
    whole_from_ts: Ts | None


class Unplanned:
    """For one thread. ``checkpoint_ts``: where the changefeed starts."""

    def __init__(
        self, checkpoint_ts: Ts, routes: Routes, spellings: Spellings | None = None
    ) -> None:
        self.checkpoint_ts = checkpoint_ts
        self._routes = routes
        self._spellings = spellings
        self._newcomers: dict[TableName, tuple[DdlEvent, Positions]] = {}  # by upstream table
        self._ddls: dict[DdlKey, tuple[DdlEvent, Positions]] = {}
        self._first_rows: dict[TableName, FirstRow] = {}
        # Where each version of an unmade table's schema was told last, and what was planned then.
        self._schemas: dict[tuple[TableName, int], tuple[Ts, Positions]] = {}
        self._waiting: list[tuple[Ts, Positions]] = []  # reads with rows above what is planned

    @property
    def ddls(self) -> list[DdlEvent]:
        """In their order."""
        return in_order(ddl for ddl, _ in self._ddls.values())

    @property
    def waiting_reads(self) -> int:
        return len(self._waiting)

    def keep(
        self,
        read: Read,
        *,
        planned_ts: Ts,
        ended: Mapping[TableName, Ts],
        is_unmade: Callable[[TableName], bool],
    ) -> None:
        """``planned_ts``: up to there all is planned. ``ended``: up to where rows belong to tables
        that were dropped. ``is_unmade``: whether nobody has made a table that is ours."""
        before = {**read.position, **read.begin}
        for block in read.blocks:
            if block.kind is Kind.DDL:
                self._keep_ddls(block, before)
            for told in tables_told(block):
                if is_unmade(told.name):
                    self._schemas[told.name, told.version] = planned_ts, before
        if self._routes and any(block.kind is Kind.DDL for block in read.blocks):
            self._keep_apart()
        if (last_ts := read.last_ts()) > planned_ts:
            self._waiting.append((last_ts, before))
            if len(self._waiting) > MOST_WAITING:
                self._waiting = in_pairs(self._waiting)
        after_start = read.first_ts(above=self.checkpoint_ts, ended=ended)
        for name, ts in read.first_ts(ended=ended).items():
            if is_unmade(name):
                self._keep_first_row(name, ts, after_start.get(name), before)

    def keep_newcomers(
        self,
        read: Read,
        *,
        ended: Mapping[TableName, Ts],
        is_known: Callable[[TableName, TableName], bool],
    ) -> None:
        """``ended``: as for ``keep``. ``is_known``: whether the target has this upstream table. The
        first rows of one that it has not are as a DDL by which it joins."""
        before = {**read.position, **read.begin}
        for block in read.blocks:
            is_new = block.origin != NO_TABLE and not is_known(block.name, block.origin)
            above = max(self.checkpoint_ts, ended.get(block.name, 0))
            if block.kind is not Kind.ROW or not is_new or (block.max_ts or 0) <= above:
                continue
            event = DdlEvent(
                commit_ts=Ts(max(block.min_ts or 0, above + 1)),
                place=block.first,
                name=block.name,
                origin=block.origin,
                ddl_type=ROWS,
                query=f"-- the first rows of {block.origin}",
            )
            known, since = self._newcomers.get(block.origin, (event, before))
            first = min(known, event, key=lambda each: (each.commit_ts, each.place))
            self._newcomers[block.origin] = first, lowest([before, since])

    @property
    def names(self) -> set[TableName]:
        """The targets of DDLs and newcomers."""
        events = [event for event, _ in (*self._ddls.values(), *self._newcomers.values())]
        return {event.name for event in events}

    def join(self, made: Container[TableName]) -> list[DdlEvent]:
        """The newcomers to these targets become DDLs. Returns those that do so now."""
        found = [each for each in self._newcomers.values() if each[0].name in made]
        for event, since in found:
            del self._newcomers[event.upstream]
            self._ddls[event.key] = event, since
        self._keep_apart()
        names = {event.upstream for event, _ in found}
        ddls = [event for event, _ in self._ddls.values()]
        return [each for each in ddls if each.ddl_type == ROWS and each.upstream in names]

    def _keep_apart(self) -> None:
        """No row has the commit-ts of a DDL. First rows that seem to have it come later: of a block
        that begins below the checkpoint it is not known where rows beyond it begin. A target tells
        its DDLs apart by their commit-ts."""
        taken = {each.commit_ts for each, _ in self._ddls.values() if each.ddl_type != ROWS}
        for key, (event, since) in list(self._ddls.items()):
            if event.ddl_type == ROWS and event.commit_ts in taken:
                del self._ddls[key]
                later = next(ts for ts in count(event.commit_ts) if ts not in taken)
                event = replace(event, commit_ts=Ts(later))
                self._ddls[event.key] = event, since

    def none_join(self, targets: Container[TableName]) -> None:
        """To tables without a key nothing joins: their rows are dead letters."""
        for origin, (event, _) in list(self._newcomers.items()):
            if event.name in targets:
                del self._newcomers[origin]

    def origins_of(self, target: TableName) -> list[TableName]:
        """The newcomers to a target."""
        return [name for name, (event, _) in self._newcomers.items() if event.name == target]

    def since(self, ddl: DdlEvent) -> Positions:
        return self._ddls[ddl.key][1]

    def spell(self, tables: Iterable[TableName]) -> None:
        """As `Spellings.learn`: the DDLs get the names that rows have."""
        spellings = self._spellings
        own = () if self._routes else tables
        if spellings is not None and spellings.learn(self.ddls, own):
            found = [(spellings.spelled(event), since) for event, since in self._ddls.values()]
            self._ddls = {event.key: (event, since) for event, since in found}

    def _keep_ddls(self, block: Block, before: Positions) -> None:
        for each in block.table().to_pylist():
            name = TableName(each["schema_name"] or "", each["table_name"] or "")
            ddl = DdlEvent(
                commit_ts=Ts(each["commit_ts"]),
                place=each["position"],
                part=block.part,
                name=self._routes.of(name).target if self._routes.filter.selects(name) else name,
                origin=name if self._routes else None,
                ddl_type=each["ddl_type"] or "",
                query=each["query"] or "",
                by_id=_by_id(each["tables"], name),
            )
            if self._spellings is not None:
                ddl = self._spellings.spelled(ddl)
            known, since = self._ddls.get(ddl.key, (ddl, before))
            first = min(known, ddl, key=lambda each: each.sent_at)  # it comes again
            self._ddls[ddl.key] = first, lowest([before, since])

    def _keep_first_row(
        self, name: TableName, ts: Ts, whole_from_ts: Ts | None, before: Positions
    ) -> None:
        told = [since for (of, _), (_, since) in self._schemas.items() if of == name]
        begin = lowest([before, *told])  # its schema is to be seen once more
        new = FirstRow(commit_ts=ts, low_water=begin, whole_from_ts=whole_from_ts)
        known = self._first_rows.get(name, new)
        self._first_rows[name] = FirstRow(
            commit_ts=min(ts, known.commit_ts),
            low_water=lowest([begin, known.low_water]),
            whole_from_ts=_least(whole_from_ts, known.whole_from_ts),
        )

    def whole_from(self) -> dict[TableName, Ts]:
        """From where on whole rows may tell tables that nobody has made."""
        whole = ((name, first.whole_from_ts) for name, first in self._first_rows.items())
        return {name: ts for name, ts in whole if ts is not None}

    def not_told_up_to(self, name: TableName, limit: Ts) -> None:
        """No whole row of the table lies at or below ``limit``."""
        first = self._first_rows[name]
        self._first_rows[name] = replace(first, whole_from_ts=Ts(limit + 1))

    def found(self, limit: Ts, *, above_start: bool) -> dict[TableName, FirstRow]:
        """The tables with rows at or below ``limit``; ``above_start``: with whole rows there."""
        return {
            name: first
            for name, first in self._first_rows.items()
            if ((first.whole_from_ts if above_start else first.commit_ts) or SEALED_TS) <= limit
        }

    def made(self, names: Mapping[TableName, object]) -> None:
        """These tables are there now."""
        self._first_rows = {n: each for n, each in self._first_rows.items() if n not in names}
        self._schemas = {at: each for at, each in self._schemas.items() if at[0] not in names}

    def drop(self, planned: DdlPlan) -> None:
        """What is planned goes; what the plan holds back stays."""
        self._ddls = {key: kept for key, kept in self._ddls.items() if planned.leaves(kept[0])}
        passed_ts = min([planned.limit, *(each.event.commit_ts - 1 for each in planned.held)])
        self._waiting = [each for each in self._waiting if each[0] > passed_ts]
        kept = self._schemas.items()
        self._schemas = {at: each for at, each in kept if passed_ts - each[0] < SCHEMA_KEPT}

    def first_ts(self, name: TableName) -> Ts:
        """The commit-ts of the first row of a table that nobody has made."""
        return self._first_rows[name].commit_ts

    def low_water(self, position: Positions) -> Positions:
        """From where reading must begin again; ``position``: where it is."""
        held = [begins for _, begins in (*self._ddls.values(), *self._waiting)]
        held += [begins for _, begins in self._newcomers.values()]
        held += [first.low_water for first in self._first_rows.values()]
        held += [since for _, since in self._schemas.values()]
        return lowest([position, *held])

    def low_water_of(self, name: TableName, position: Positions, *, is_again: bool) -> Positions:
        """The same for one table. ``is_again``: rows of the name that was another table's before
        may have come while that was here."""
        first = self._first_rows.get(name)
        found = [position if first is None else first.low_water]
        if is_again:
            found += [before for _, before in self._waiting]
        return lowest(found)


def in_pairs(waiting: Sequence[tuple[Ts, Positions]]) -> list[tuple[Ts, Positions]]:
    """Half as many, each of two reads: it waits for the later, and is read from the earlier."""
    pairs = [waiting[at : at + 2] for at in range(0, len(waiting), 2)]
    return [(max(ts for ts, _ in pair), lowest([before for _, before in pair])) for pair in pairs]


def _by_id(tables: str | None, name: TableName) -> tuple[str, ...]:
    """The order of the table's columns behind a DDL, if its message tells it."""
    for schema, table, _, definition in json.loads(tables or "[]"):
        if TableName(schema, table) == name:
            return TableSchema.from_json(definition).by_id
    return ()


def _least(one: Ts | None, other: Ts | None) -> Ts | None:
    return min((ts for ts in (one, other) if ts is not None), default=None)
