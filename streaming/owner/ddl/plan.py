"""What a batch may do about the DDLs it holds: pure.

Due is ``checkpoint < commit_ts <= limit``; a DDL at the checkpoint itself is judged by its table,
not by the number (rule 1), since a feed that ended at its target-ts may send it last. ``CREATE
TABLE`` comes before any row of its table, so it needs no cut in the batch. A DDL without an effect
on a target passes. Any other DDL blocks: rows below it are applied, then it runs (`DdlStep`).

A DDL that cannot run holds its table, if it is surely about that one table alone (`HeldTable`): the
table's later DDLs wait for it, those of other tables do not. A DDL of several tables, one of which
is held, waits too, and holds all tables. Any other DDL that cannot run stops the changefeed with an
error that quotes it; nothing is half applied.

An operator may have decided about a DDL that stopped it: pass over it, or run another statement in
its place (``tidelake ddl``).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from coordination.model import TableName, Ts
from sinks.ddl import classify as reasons
from sinks.ddl.classify import KEY
from sinks.ddl.effects import (
    ChangesTarget,
    CreateTable,
    CreateTableLike,
    RecoverTable,
    Statement,
)
from sinks.types.table_schema import TableSchema
from streaming.changefeed.routes import Routes, Shards
from streaming.owner.ddl.due import (
    Orders,
    Place,
    as_ordered,
    due_ddls,
    in_turn,
    statement_of,
    unsure_of_indexes,
)
from streaming.owner.ddl.known_tables import Creation, KnownTables, schema_of, with_defined
from streaming.owner.ddl.routed import routed, upstream_tables, without_databases
from streaming.owner.ddl.sent_again import is_there
from streaming.owner.ddl.shards import Noted, Passes, ShardDdls, Stays, brings
from streaming.owner.ddl.steps import (
    RECOVERS_UNKNOWN,
    DdlEvent,
    DdlStep,
    as_known,
    exchanged_names,
    is_about_one,
    is_rename,
    new_names,
    old_names,
    rename_step_of,
    step_of,
)

COPIES_UNREAD = (
    "the table that it copies was not read, and the earlier table of its own name was dropped: "
    "apply the CREATE TABLE that SHOW CREATE TABLE shows for it"
)
REPLACES = (
    "it puts a new table in the place of another: apply what makes the one of the other, ALTER "
    "TABLE or TRUNCATE TABLE, or pass over it and load the table anew"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTable:
    """A table that waits below a DDL until an operator has said how to go on."""

    event: DdlEvent
    why: str
    is_waiting: bool = False  # for other DDLs, which may still come, and not for an operator

    @property
    def name(self) -> TableName:
        return self.event.name

    @property
    def place(self) -> Place:
        return self.event.name, self.event.commit_ts


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlPlan:
    """How far rows may be applied, which tables are made before, and the DDL that then runs, or
    stops the changefeed, or waits for ``held`` tables. Tables that this DDL does not block go on
    up to the next blocking DDL.
    """

    limit: Ts
    creations: tuple[Creation, ...] = ()
    untold: tuple[Creation, ...] = ()  # LIKE a table that was not read: rows tell what these are
    blocked: DdlEvent | None = None
    why: str = ""  # it cannot be run
    runs: DdlStep | None = None
    next_limit: Ts | None = None  # below the next DDL that is not passed over
    unmade: TableName | None = None  # this table must be made before its DDL above the limit
    held: tuple[HeldTable, ...] = ()  # in order; these tables go no further than to their DDL

    def leaves(self, ddl: DdlEvent) -> bool:
        """Whether it has not been looked at, or waits with its table."""
        is_waiting = any(
            ddl.name == each.name and ddl.commit_ts >= each.event.commit_ts for each in self.held
        )
        return is_waiting or ddl.commit_ts > self.limit

    @property
    def stops_for(self) -> HeldTable | None:
        """For which DDL the changefeed stops where nothing goes on: the first in order. For one
        that waits for other DDLs it does not, unless it has waited for too long."""
        if self.held:
            return self.held[0]
        return HeldTable(event=self.blocked, why=self.why) if self.blocked is not None else None


def in_order(ddls: Iterable[DdlEvent]) -> list[DdlEvent]:
    """Without replays: the identity of one is (commit-ts, query, upstream table), never commit-ts
    alone."""
    ordered = sorted(ddls, key=lambda ddl: ddl.sent_at)
    once = {ddl.key: ddl for ddl in reversed(ordered)}
    return sorted(once.values(), key=lambda ddl: ddl.sent_at)


def plan(
    ddls: Sequence[DdlEvent],
    tables: KnownTables,
    *,
    checkpoint: Ts,
    start_ts: Ts,
    limit: Ts,
    routes: Routes,
    orders: Orders,
    failed: Mapping[Place, str],
) -> DdlPlan:
    """``ddls`` in their order, without replays. ``orders``: operators' decisions,
    by table and commit-ts; ``failed``: why those DDLs did not run that were tried."""
    table_filter = routes.filter
    schemas = with_defined(tables.schemas, ddls, tables.defined, tables.forms)
    unsure = unsure_of_indexes(schemas, table_filter, orders)
    planning = _Planning(
        tables=tables,
        schemas={
            name: replace(schema, follows_indexes=False) if schema and name in unsure else schema
            for name, schema in schemas.items()
        },
        failed=failed,
        routes=routes,
        shards=dict(tables.shards),
        of_shards=ShardDdls(
            routes=routes,
            ddls=ddls,
            limit=limit,
            table_filter=table_filter,
            orders=orders,
            unlike=tables.unlike,
            shaped=tables.shaped,
        ),
    )
    due = due_ddls(ddls, table_filter, checkpoint=checkpoint, start_ts=start_ts, limit=limit)
    for sent, sent_statement, last in due:
        place = sent.name, sent.commit_ts
        found = planning.meet(place, *as_ordered(sent, sent_statement, orders.get(place)))
        if found is not None and found.runs is not None:
            return replace(found, next_limit=_limit_behind(last, ddls, limit))
        if found is not None:
            return found
    return planning.plan(limit)


@dataclass(slots=True, kw_only=True)
class _Planning:
    """The DDLs one after the other, until one blocks. ``schemas``: of all tables as of the next
    DDL."""

    tables: KnownTables
    schemas: dict[TableName, TableSchema | None]
    failed: Mapping[Place, str]
    routes: Routes
    shards: dict[TableName, Shards]
    of_shards: ShardDdls
    creations: list[Creation] = field(default_factory=list)
    untold: list[Creation] = field(default_factory=list)
    held: dict[TableName, HeldTable] = field(default_factory=dict)
    selected: dict[TableName, bool] = field(default_factory=dict)  # of a RENAME TABLE: its names

    def plan(self, limit: int) -> DdlPlan:
        held, untold = tuple(self.held.values()), tuple(self.untold)
        return DdlPlan(limit=Ts(limit), creations=tuple(self.creations), untold=untold, held=held)

    def meet(self, place: Place, event: DdlEvent, statement: Statement) -> DdlPlan | None:
        """The plan where this DDL blocks; None where the next one is to be looked at."""
        statement = in_turn(statement, self.schemas, lambda told: self.routes.of(told).target)
        name, upstream = event.name, statement
        if self.routes:
            upstream, statement = self._routed(statement)
        if name in self.held:
            return None if is_about_one(event, statement) else self._wall(event)
        is_passed = self._is_over(event) or self.tables.passes(event, statement)
        if is_passed and not is_rename(statement):
            return None
        shards: Mapping[TableName, Shards] = {}
        if self.routes:
            decided = self.of_shards.decide(event, upstream, self.schemas, self.shards)
            if isinstance(decided, Stays):
                return self._held(event, decided.why, is_waiting=decided.is_waiting)
            if isinstance(decided, Noted | Passes):
                return self._noted(place, event, statement, decided)
            shards = {} if decided is None else decided.shards
            if is_rename(statement):
                shards = {self.routes.of(n).target: Shards().joined(n) for n in new_names(upstream)}
        return self._decided(place, event, statement, shards)

    def _is_over(self, event: DdlEvent) -> bool:
        """Whether it has come again, or is of a table that was dropped. One that brings a shard to
        the target is over if the shard is there: the target may have been made at its commit-ts."""
        name, last_ts = event.name, self.tables.last_ddls.get(event.name, 0)
        if event.commit_ts != last_ts or not self.routes:
            return event.commit_ts <= last_ts
        is_there = event.upstream in self.shards.get(name, Shards())
        is_passed = self.tables.reached.get(name, 0) > event.commit_ts
        return is_there or is_passed or not brings(event, statement_of(event).effects[0])

    def _routed(self, statement: Statement) -> tuple[Statement, Statement]:
        """Without DROP DATABASE, by upstream names and by targets."""
        origins = upstream_tables(self.schemas, self.shards, self.routes)
        upstream = without_databases(statement, origins)
        renamed, selects = (*old_names(upstream), *new_names(upstream)), self.routes.filter.selects
        self.selected = {self.routes.of(each).target: selects(each) for each in renamed}
        return upstream, routed(upstream, self.routes)

    def _decided(
        self,
        place: Place,
        event: DdlEvent,
        statement: Statement,
        shards: Mapping[TableName, Shards],
    ) -> DdlPlan | None:
        """``shards``: of targets, after it."""
        ddl = reasons.outcome(statement, self.schemas.get(event.name))
        if isinstance(ddl, CreateTable | CreateTableLike):
            if ddl.replaces and event.name in self.schemas:
                return self._held(event, REPLACES)
            if self.routes and self._waits_for(event.commit_ts, (event.name,)):
                # The target begins with rows of older shards, and this one joins it.
                return replace(self._wall(event), unmade=event.name)
            return self._create(event, ddl)
        if not isinstance(ddl, ChangesTarget):
            return None
        return self._change(place, event, statement, ddl, shards)

    def _noted(
        self, place: Place, event: DdlEvent, statement: Statement, of: Noted | Passes
    ) -> DdlPlan | None:
        """What is about shards alone, and perhaps drops other tables too."""
        if isinstance(of, Passes):
            return None
        seen = self.tables.last_ddls
        leaves = tuple(n for n in of.shards if n in of.merged and event.commit_ts > seen.get(n, 0))
        ends: tuple[TableName, ...] = ()
        if of.merged:
            others = [e for e in statement.effects if getattr(e, "name", None) not in of.merged]
            step = self._step(event, replace(statement, effects=tuple(others))) if others else None
            ends = step.ends if isinstance(step, DdlStep) else ()
            if not ends and not leaves:
                return None
        runs = DdlStep(
            event=event,
            name=event.name,
            shards=of.shards,
            leaves=leaves,
            ends=ends,
            of_shard=of.of_shard,
            is_skipped=of.is_skipped,
        )
        return self._stop_for(place, event, statement, runs)

    def _stop_for(
        self, place: Place, event: DdlEvent, statement: Statement, runs: DdlStep
    ) -> DdlPlan | None:
        """It runs next; if it could not, its table waits."""
        if place not in self.failed:
            is_free = self.held.keys().isdisjoint(runs.touched)
            return replace(self._wall(event), runs=runs if is_free else None)
        if is_about_one(event, statement):
            return self._held(event, self.failed[place])
        return replace(self._wall(event), why=self.failed[place])

    def _wall(self, event: DdlEvent) -> DdlPlan:
        return replace(self.plan(event.commit_ts - 1), blocked=event)

    def _create(self, event: DdlEvent, ddl: CreateTable | CreateTableLike) -> DdlPlan | None:
        if event.name in self.tables.schemas:  # it has come again: its schema may be another by now
            return None
        if isinstance(ddl, CreateTableLike):
            ddl = replace(ddl, source=as_known(ddl.source, (*self.tables.unmade, *self.schemas)))
            if ddl.source in self.held:
                return self._wall(event)
            if self._waits_for(event.commit_ts, (ddl.source,)):
                return replace(self._wall(event), unmade=ddl.source)
        made = schema_of(ddl, self.schemas, self.tables.defined)
        if ddl.if_not_exists and event.name not in self.tables.last_ddls:
            made = self.tables.defined.schema(event.name)  # it may have been there, another one
        creation = Creation(event=event, table=ddl)
        if made is None and event.name in self.tables.last_ddls:
            return replace(self._wall(event), why=COPIES_UNREAD)
        if made is None:
            self.untold.append(creation)
            return None
        self.tables.forms.refuse_origin(event.upstream, event.name)
        self.creations.append(creation)
        self.schemas[event.name] = self.tables.forms.of(event.name).keyed(made)
        if self.routes:
            self.shards[event.name] = Shards().joined(event.upstream)
        return None

    def _change(
        self,
        place: Place,
        event: DdlEvent,
        statement: Statement,
        ddl: ChangesTarget,
        shards: Mapping[TableName, Shards],
    ) -> DdlPlan | None:
        about = old_names(statement) or [event.name, *exchanged_names(statement)]
        first = self._waits_for(event.commit_ts, about)
        if first is not None:
            return replace(self._wall(event), unmade=first)
        runs = self._step(event, statement)
        if isinstance(runs, str) and self.tables.comes_again and is_there(statement, self.schemas):
            runs = DdlStep(event=event, name=event.name)
        if runs is None:
            return None
        if isinstance(runs, DdlStep) and runs.change is not None:
            lost = set(self.routes.of(event.upstream).names) - set(runs.change.after.key)
            unfit = KEY if lost and runs.change.before.key else None
            change = runs.change
            runs = unfit or self.tables.forms.lossy.refusal(change.before, change.after) or runs
        if isinstance(runs, DdlStep):
            return self._stop_for(place, event, statement, replace(runs, shards=shards))
        why = self.failed.get(place) or runs or ddl.reason
        if is_about_one(event, statement):
            return self._held(event, why)
        return replace(self._wall(event), why=why)

    def _held(self, event: DdlEvent, why: str, *, is_waiting: bool = False) -> DdlPlan | None:
        """It cannot run, and is about one table: that one waits, if it is there."""
        made = (each.event.name for each in self.creations)
        if event.name not in (*self.tables.schemas, *made):
            return replace(self._wall(event), why=why)
        self.held[event.name] = HeldTable(event=event, why=why, is_waiting=is_waiting)
        return None

    def _step(self, event: DdlEvent, statement: Statement) -> DdlStep | str | None:
        """As ``steps.step_of``."""
        schemas, seen, chosen = self.schemas, self.tables.last_ddls, self.routes.filter
        if is_rename(statement):
            reached = self.tables.reached
            return rename_step_of(
                event, statement, schemas, seen, selects=self._selects, reached=reached
            )
        told = [each.name for each in statement.effects if isinstance(each, RecoverTable)]
        removals = ("drop table", "truncate table")
        if any(chosen.ignores_ddl(name, (each,), "") for name in told for each in removals):
            return RECOVERS_UNKNOWN
        form = self.tables.forms.of(event.name)
        return self._completed(
            step_of(event, statement, schemas, seen, self.tables.shaped, form=form)
        )

    def _selects(self, target: TableName) -> bool:
        found = self.selected.get(target)
        return self.routes.may_make(target) if found is None else found

    def _completed(self, step: DdlStep | str | None) -> DdlStep | str | None:
        """With types that the table's rows did not tell, and the schema file tells meanwhile."""
        if not isinstance(step, DdlStep) or step.change is None:
            return step
        file = self.tables.defined.schema(step.name)
        if file is None:
            return step
        before = step.change.before.completed(file)
        return replace(step, change=replace(step.change, before=before))

    def _waits_for(self, commit_ts: Ts, about: Container[TableName]) -> TableName | None:
        """A table that must be made first. A DDL of a schema is about a name without a table."""
        names = {name for name, ts in self.tables.unmade.items() if ts < commit_ts}
        names = names.difference(self.schemas)
        found = (name for name in names if name in about or TableName(name.schema, "") in about)
        return min(found, default=None)


def _limit_behind(event: DdlEvent, ddls: Sequence[DdlEvent], limit: Ts) -> Ts:
    """How far tables may go that the DDL does not block."""
    later = [each.commit_ts for each in ddls[ddls.index(event) + 1 :]]
    return Ts(min([limit, *(ts - 1 for ts in later)]))
