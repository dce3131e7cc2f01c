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

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from coordination.model import TableName, Ts
from sinks.control.blocked_ddls import BlockedDdl
from sinks.ddl import classify as reasons
from sinks.ddl.effects import (
    CreateTable,
    CreateTableLike,
    PassedOver,
    RecoverTable,
    Statement,
    Unsupported,
)
from sinks.ddl.statements import read_ddl
from sinks.ddl.tokens import TYPED
from sinks.types.table_schema import TableSchema
from streaming.changefeed.filter import TableFilter, WriteModes
from streaming.changefeed.schema_file import Definitions
from streaming.owner.ddl.steps import (
    RECOVERS_UNKNOWN,
    DdlEvent,
    DdlStep,
    as_known,
    dropped_names,
    exchanged_names,
    is_about_one,
    is_rename,
    new_names,
    old_names,
    rename_step_of,
    step_of,
)

Place = tuple[TableName, Ts]  # of a DDL: its table and commit-ts

COPIES_UNREAD = (
    "the table that it copies was not read, and the earlier table of its own name was dropped: "
    "apply the CREATE TABLE that SHOW CREATE TABLE shows for it"
)
REPLACES = (
    "it puts a new table in the place of another: apply what makes the one of the other, ALTER "
    "TABLE or TRUNCATE TABLE, or pass over it and load the table anew"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    event: DdlEvent
    table: CreateTable | CreateTableLike


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTable:
    """A table that waits below a DDL until an operator has said how to go on."""

    event: DdlEvent
    why: str

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
        """For which DDL the changefeed stops where nothing goes on: the first in order."""
        if self.held:
            return self.held[0]
        return HeldTable(event=self.blocked, why=self.why) if self.blocked is not None else None


def in_order(ddls: Iterable[DdlEvent]) -> list[DdlEvent]:
    """Without replays: the identity of one is (commit-ts, query, table), never commit-ts alone."""
    ordered = sorted(ddls, key=lambda ddl: ddl.sent_at)
    once = {(ddl.commit_ts, ddl.query, ddl.name): ddl for ddl in reversed(ordered)}
    return sorted(once.values(), key=lambda ddl: ddl.sent_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTables:
    """The tables of a changefeed when DDLs are planned. ``schemas``: of existing tables, None for
    one without a key. ``last_ddls``: the last DDL that has run on each, and on dropped ones.
    ``shaped``: the DDL that gave a table its shape, newer after a rewind. ``defined``: the schema
    file's definitions of tables that do not exist yet. ``unmade``: where the rows begin of tables
    that nobody has defined. ``forms``: how each is written. ``reached``: up to where each is."""

    schemas: Mapping[TableName, TableSchema | None]
    last_ddls: Mapping[TableName, Ts]
    shaped: Mapping[TableName, Ts]
    defined: Definitions
    unmade: Mapping[TableName, Ts]
    forms: WriteModes
    reached: Mapping[TableName, Ts] = field(default_factory=dict)


def plan(
    ddls: Sequence[DdlEvent],
    tables: KnownTables,
    *,
    checkpoint: Ts,
    start_ts: Ts,
    limit: Ts,
    table_filter: TableFilter,
    orders: Mapping[Place, BlockedDdl],
    failed: Mapping[Place, str],
) -> DdlPlan:
    """``ddls`` in their order, without replays. ``orders``: operators' decisions,
    by table and commit-ts; ``failed``: why those DDLs did not run that were tried."""
    schemas = _with_defined(tables.schemas, ddls, tables.defined, tables.forms)
    planning = _Planning(
        tables=tables,
        schemas=_followed(schemas, table_filter, orders),
        failed=failed,
        table_filter=table_filter,
    )
    due = _due(ddls, table_filter, checkpoint=checkpoint, start_ts=start_ts, limit=limit)
    for sent, sent_statement, last in due:
        place = sent.name, sent.commit_ts
        found = planning.meet(place, *_as_ordered(sent, sent_statement, orders.get(place)))
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
    table_filter: TableFilter
    creations: list[Creation] = field(default_factory=list)
    untold: list[Creation] = field(default_factory=list)
    held: dict[TableName, HeldTable] = field(default_factory=dict)

    def plan(self, limit: int) -> DdlPlan:
        held, untold = tuple(self.held.values()), tuple(self.untold)
        return DdlPlan(limit=Ts(limit), creations=tuple(self.creations), untold=untold, held=held)

    def meet(self, place: Place, event: DdlEvent, statement: Statement) -> DdlPlan | None:
        """The plan where this DDL blocks; None where the next one is to be looked at."""
        name = event.name
        if name in self.held:
            return None if is_about_one(event, statement) else self._wall(event)
        if not is_rename(statement) and event.commit_ts <= self.tables.last_ddls.get(name, 0):
            return None  # it has come again, or is of a table that was dropped
        ddl = reasons.outcome(statement, self.schemas.get(name))
        if isinstance(ddl, CreateTable | CreateTableLike):
            is_another = ddl.replaces and name in self.schemas
            return self._held(event, REPLACES) if is_another else self._create(event, ddl)
        return self._change(place, event, statement, ddl) if isinstance(ddl, Unsupported) else None

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
        made = _schema(ddl, self.schemas, self.tables.defined)
        if ddl.if_not_exists and event.name not in self.tables.last_ddls:
            made = self.tables.defined.schema(event.name)  # it may have been there, another one
        creation = Creation(event=event, table=ddl)
        if made is None and event.name in self.tables.last_ddls:
            return replace(self._wall(event), why=COPIES_UNREAD)
        if made is None:
            self.untold.append(creation)
            return None
        self.creations.append(creation)
        self.schemas[event.name] = self.tables.forms.of(event.name).keyed(made)
        return None

    def _change(
        self, place: Place, event: DdlEvent, statement: Statement, ddl: Unsupported
    ) -> DdlPlan | None:
        about = old_names(statement) or [event.name, *exchanged_names(statement)]
        first = self._waits_for(event.commit_ts, about)
        if first is not None:
            return replace(self._wall(event), unmade=first)
        runs = self._step(event, statement)
        if runs is None:
            return None
        if isinstance(runs, DdlStep) and place not in self.failed:
            is_free = self.held.keys().isdisjoint(runs.touched)
            return replace(self._wall(event), runs=runs if is_free else None)
        why = self.failed.get(place) or (runs if isinstance(runs, str) else "") or ddl.reason
        if is_about_one(event, statement):
            return self._held(event, why)
        return replace(self._wall(event), why=why)

    def _held(self, event: DdlEvent, why: str) -> DdlPlan | None:
        """It cannot run, and is about one table: that one waits, if it is there."""
        made = (each.event.name for each in self.creations)
        if event.name not in (*self.tables.schemas, *made):
            return replace(self._wall(event), why=why)
        self.held[event.name] = HeldTable(event=event, why=why)
        return None

    def _step(self, event: DdlEvent, statement: Statement) -> DdlStep | str | None:
        """As ``steps.step_of``."""
        schemas, seen, ignores = self.schemas, self.tables.last_ddls, self.table_filter.ignores_ddl
        if is_rename(statement):
            selects, reached = self.table_filter.selects, self.tables.reached
            return rename_step_of(event, statement, schemas, seen, selects=selects, reached=reached)
        told = [each.name for each in statement.effects if isinstance(each, RecoverTable)]
        removals = ("drop table", "truncate table")
        if any(ignores(name, (each,), "") for name in told for each in removals):
            return RECOVERS_UNKNOWN
        form = self.tables.forms.of(event.name)
        return self._completed(
            step_of(event, statement, schemas, seen, self.tables.shaped, form=form)
        )

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


def _followed(
    schemas: Mapping[TableName, TableSchema | None],
    table_filter: TableFilter,
    orders: Mapping[Place, BlockedDdl],
) -> dict[TableName, TableSchema | None]:
    """The known indexes of a table are not certain if DDLs of them may be passed over."""
    events = (("create index", "alter table"), ("drop index", "alter table"))
    ordered = {order.name for order in orders.values() if order.action == "skip" or order.sql}
    unsure = {
        name
        for name in schemas
        if name in ordered or any(table_filter.ignores_ddl(name, each, "") for each in events)
    }
    return {
        name: replace(schema, follows_indexes=False) if schema and name in unsure else schema
        for name, schema in schemas.items()
    }


def _due(
    ddls: Sequence[DdlEvent],
    table_filter: TableFilter,
    *,
    checkpoint: Ts,
    start_ts: Ts,
    limit: Ts,
) -> Iterator[tuple[DdlEvent, Statement, DdlEvent]]:
    """With the last event that belongs to it: TiCDC sends each part of a RENAME TABLE in a message
    of its own, at the same commit-ts."""
    held: tuple[DdlEvent, Statement, DdlEvent] | None = None  # until the next one is known
    for event in ddls:
        if event.commit_ts > limit:
            break
        if event.commit_ts < checkpoint or event.commit_ts <= start_ts:
            continue
        statement = read_ddl(event.query, event.ddl_type, event.name.schema, event.name.table)
        if not _is_wanted(event, statement, table_filter):
            continue
        if held is not None:
            first, before, _ = held
            if event.commit_ts == first.commit_ts and is_rename(before) and is_rename(statement):
                effects = (*before.effects, *statement.effects)
                held = first, replace(before, effects=effects), event
                continue
            yield held
        held = event, statement, event
    if held is not None:
        yield held


def _as_ordered(
    event: DdlEvent, statement: Statement, order: BlockedDdl | None
) -> tuple[DdlEvent, Statement]:
    """The DDL after an operator's decision: nothing at all, or another statement in its place."""
    if order is not None and order.action == "skip":
        return event, replace(statement, effects=(PassedOver(name=event.name),))
    if order is None or order.sql is None:
        return event, statement
    event = replace(event, query=TYPED + order.sql, ddl_type="")
    return event, read_ddl(event.query, event.ddl_type, event.name.schema, event.name.table)


def _with_defined(
    known: Mapping[TableName, TableSchema | None],
    ddls: Iterable[DdlEvent],
    defined: Definitions,
    forms: WriteModes,
) -> dict[TableName, TableSchema | None]:
    """The known schemas, and those of the schema file, by the names of the file and of the DDLs."""
    names = [*(each.name for each in defined.values()), *(event.name for event in ddls)]
    found = {name: schema for name in names if (schema := defined.schema(name)) is not None}
    return {**{name: forms.of(name).keyed(each) for name, each in found.items()}, **known}


def _schema(
    table: CreateTable | CreateTableLike,
    known: Mapping[TableName, TableSchema | None],
    defined: Definitions,
) -> TableSchema | None:
    """The schema of a table that is made; None for a LIKE of a table that was never read."""
    if isinstance(table, CreateTable):
        return table.schema
    return known.get(table.source) or defined.schema(table.source)


def _limit_behind(event: DdlEvent, ddls: Sequence[DdlEvent], limit: Ts) -> Ts:
    """How far tables may go that the DDL does not block."""
    later = [each.commit_ts for each in ddls[ddls.index(event) + 1 :]]
    return Ts(min([limit, *(ts - 1 for ts in later)]))


def _is_wanted(event: DdlEvent, statement: Statement, table_filter: TableFilter) -> bool:
    """A DDL of a schema has an empty table name: the filter answers for the whole schema. A
    rename's event has the new name; the old name counts too, and so does the table of an
    EXCHANGE. One of several tables counts if the filter takes one of them."""
    names = [*old_names(statement), *new_names(statement), *dropped_names(statement)]
    names += exchanged_names(statement)
    if event.name.table or not names:
        names.append(event.name)
    return any(map(table_filter.selects, names)) and not table_filter.ignores_ddl(
        event.name, statement.event_types, event.query
    )


def definition(
    creation: Creation, known: Mapping[TableName, TableSchema | None], defined: Definitions
) -> TableSchema:
    """The schema of the table that is made."""
    schema = _schema(creation.table, known, defined)
    assert schema is not None, "the plan has seen it"
    return schema
