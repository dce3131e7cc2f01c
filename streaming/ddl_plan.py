"""What a batch may do about the DDLs it holds: pure.

Due is ``checkpoint < commit_ts <= limit``; a DDL at the checkpoint itself is judged by its table,
not by the number (rule 1), since a feed that ended at its target-ts may send it last. ``CREATE
TABLE`` comes before any row of its table, so it needs no cut in the batch. What has no effect on a
target passes. Any other DDL blocks: rows below it are applied, then it runs (`DdlStep`), or the
changefeed stops with an error that quotes it; nothing is half applied.

An operator may have said of a DDL that stopped it: pass over it, or run another statement in its
place (``tidelake ddl``)."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from conf.settings import Changefeed
from conf.sink_uri import sink_uri_of
from coordination.errors import TidelakeError
from coordination.model import TableName, Ts, tso_time
from sinks.blocked_ddls import BlockedDdl
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
from sinks.schema import TableSchema
from streaming.ddl_steps import (
    RECOVERS_UNKNOWN,
    DdlEvent,
    DdlStep,
    exchanged_names,
    is_rename,
    old_names,
    rename_step_of,
    step_of,
)
from streaming.filter import TableFilter, TableForms
from streaming.schema_file import Definitions


class DdlNotSupported(TidelakeError):
    """A DDL that cannot be run: an operator says how to go on (``tidelake ddl``)."""

    code = "CDC:ErrExecDDLFailed"

    def __init__(self, text: str, ddl: DdlEvent | None = None, why: str = "") -> None:
        super().__init__(text)
        self.ddl = ddl
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    event: DdlEvent
    table: CreateTable | CreateTableLike


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlPlan:
    """How far rows may be applied, which tables are made before, and the DDL that then runs, or
    stops the changefeed. What it does not block goes on to the next one that blocks.
    """

    limit: Ts
    creations: tuple[Creation, ...] = ()
    blocked: DdlEvent | None = None
    why: str = ""  # it cannot be run
    runs: DdlStep | None = None
    next_limit: Ts | None = None  # below the next DDL that is not passed over
    unmade: TableName | None = None  # this table must be made before its DDL above the limit


def in_order(ddls: Iterable[DdlEvent]) -> list[DdlEvent]:
    """Without replays: the identity of one is (commit-ts, query, table), never commit-ts alone."""
    ordered = sorted(ddls, key=lambda ddl: (ddl.commit_ts, ddl.offset))
    once = {(ddl.commit_ts, ddl.query, ddl.name): ddl for ddl in reversed(ordered)}
    return sorted(once.values(), key=lambda ddl: (ddl.commit_ts, ddl.offset))


def plan(
    ddls: Sequence[DdlEvent],
    *,
    checkpoint: Ts,
    start_ts: Ts,
    limit: Ts,
    table_filter: TableFilter,
    known: Mapping[TableName, TableSchema | None],
    seen: Mapping[TableName, Ts],
    shaped: Mapping[TableName, Ts],
    orders: Mapping[tuple[TableName, Ts], BlockedDdl],
    defined: Definitions,
    unmade: Mapping[TableName, Ts],
    forms: TableForms,
) -> DdlPlan:
    """``ddls`` in order of (commit-ts, offset), without replays; ``known``: the schemas of tables
    that exist already, None for one without a key; ``seen``: the last DDL that has run on each of
    them, and on those that were dropped; ``shaped``: the one that their shape is of, which is
    newer after a rewind; ``orders``: what operators have said, by table and commit-ts;
    ``defined``: what the schema file says of tables that do not exist yet; ``unmade``: where the
    rows of those begin that nobody has defined; ``forms``: which of them are change logs.
    """
    creations: list[Creation] = []
    schemas = _followed(_with_defined(known, ddls, defined), table_filter, orders)
    due = _due(ddls, table_filter, checkpoint=checkpoint, start_ts=start_ts, limit=limit)
    for sent, sent_statement, last in due:
        event, statement = _as_ordered(
            sent, sent_statement, orders.get((sent.name, sent.commit_ts))
        )
        wall = DdlPlan(limit=Ts(event.commit_ts - 1), creations=tuple(creations), blocked=event)
        ddl = reasons.outcome(statement, schemas.get(event.name))
        if not is_rename(statement) and event.commit_ts <= seen.get(event.name, 0):
            continue  # it has come again, or is of a table that was dropped
        if isinstance(ddl, CreateTable | CreateTableLike):
            if event.name in known:  # it has come again: its schema may be another by now
                continue
            made = _schema(ddl, schemas, defined)
            if made is None:
                return replace(wall, why="the table that it names was not read")
            creations.append(Creation(event=event, table=ddl))
            schemas[event.name] = made
        elif isinstance(ddl, Unsupported):
            about = old_names(statement) or [event.name, *exchanged_names(statement)]
            if (name := _waits_for(event.commit_ts, about, schemas, unmade)) is not None:
                return replace(wall, unmade=name)
            is_log = forms.of(event.name).is_log
            runs = _step(
                event, statement, schemas, seen, shaped, table_filter=table_filter, is_log=is_log
            )
            if isinstance(runs, DdlStep):
                return replace(wall, runs=runs, next_limit=_limit_behind(last, ddls, limit))
            if runs is not None:
                return replace(wall, why=runs or ddl.reason)
    return DdlPlan(limit=limit, creations=tuple(creations))


def _step(
    event: DdlEvent,
    statement: Statement,
    schemas: Mapping[TableName, TableSchema | None],
    seen: Mapping[TableName, Ts],
    shaped: Mapping[TableName, Ts],
    *,
    table_filter: TableFilter,
    is_log: bool,
) -> DdlStep | str | None:
    """As ``ddl_steps.step_of``."""
    if is_rename(statement):
        return rename_step_of(event, statement, schemas, seen, table_filter.selects)
    told = [each.name for each in statement.effects if isinstance(each, RecoverTable)]
    removals = ("drop table", "truncate table")
    if any(table_filter.ignores_ddl(name, (each,), "") for name in told for each in removals):
        return RECOVERS_UNKNOWN
    return step_of(event, statement, schemas, seen, shaped, is_log=is_log)


def _waits_for(
    commit_ts: Ts,
    about: Container[TableName],
    schemas: Iterable[TableName],
    unmade: Mapping[TableName, Ts],
) -> TableName | None:
    """A table that must be made first. A DDL of a schema is about a name without a table."""
    names = {name for name, ts in unmade.items() if ts < commit_ts}.difference(schemas)
    found = (name for name in names if name in about or TableName(name.schema, "") in about)
    return min(found, default=None)


def _followed(
    schemas: Mapping[TableName, TableSchema | None],
    table_filter: TableFilter,
    orders: Mapping[tuple[TableName, Ts], BlockedDdl],
) -> dict[TableName, TableSchema | None]:
    """What is known of a table's indexes is not sure where DDLs of them may be passed over."""
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
    """What an operator has said of it: nothing at all, or another statement in its place."""
    if order is not None and order.action == "skip":
        return event, replace(statement, effects=(PassedOver(name=event.name),))
    if order is None or order.sql is None:
        return event, statement
    event = replace(event, query=order.sql, ddl_type="")
    return event, read_ddl(event.query, event.ddl_type, event.name.schema, event.name.table)


def _with_defined(
    known: Mapping[TableName, TableSchema | None], ddls: Iterable[DdlEvent], defined: Definitions
) -> dict[TableName, TableSchema | None]:
    """The known schemas, and those of the schema file, by the names of the file and of the DDLs."""
    names = [*(each.name for each in defined.values()), *(event.name for event in ddls)]
    found = {name: defined.schema(name) for name in names if name in defined}
    return {**found, **known}


def _schema(
    table: CreateTable | CreateTableLike,
    known: Mapping[TableName, TableSchema | None],
    defined: Definitions,
) -> TableSchema | None:
    """Of a table that is made; None for a LIKE of a table that was never read."""
    if isinstance(table, CreateTable):
        return table.schema
    return known.get(table.source) or defined.schema(table.source)


def _limit_behind(event: DdlEvent, ddls: Sequence[DdlEvent], limit: Ts) -> Ts:
    """How far tables may go that the DDL does not block."""
    later = [each.commit_ts for each in ddls[ddls.index(event) + 1 :]]
    return Ts(min([limit, *(ts - 1 for ts in later)]))


def _is_wanted(event: DdlEvent, statement: Statement, table_filter: TableFilter) -> bool:
    """A DDL of a schema has an empty table name: the filter answers for the whole schema. That of a
    rename has the new one, and the old one counts too, as does the table of an EXCHANGE."""
    names = [event.name, *old_names(statement), *exchanged_names(statement)]
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


def refusal(ddl: DdlEvent, why: str, way: str = "") -> DdlNotSupported:
    """The error that quotes a DDL and says how to go on."""
    at = f"{tso_time(ddl.commit_ts):%Y-%m-%d %H:%M:%S} UTC"
    text = (
        f"DDL at commit-ts {ddl.commit_ts} ({at}) on {ddl.name} is not supported yet: {ddl.query} "
        f"({why}). Everything below it is applied. {way}"
    )
    return DdlNotSupported(text.rstrip(), ddl, why)


def way_past(ddl: DdlEvent, changefeed: Changefeed) -> str:
    """The commands that go on from a DDL that cannot be run."""
    name = str(ddl.name) if ddl.name.table else ddl.name.schema
    at = (
        f"-c {changefeed.id} --table {shlex.quote(name)} --commit-ts {ddl.commit_ts} "
        f"--sink-uri {shlex.quote(sink_uri_of(changefeed.sink.warehouse))}"
    )
    return (
        f"To go on: `tidelake ddl skip {at}` passes over it, and the target stays as it is; "
        f"`tidelake ddl apply {at} --sql 'ALTER TABLE …'` runs that statement in its place"
    )
