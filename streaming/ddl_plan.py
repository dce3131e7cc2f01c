"""What a batch may do about the DDLs it holds: pure.

Due is ``checkpoint < commit_ts <= limit``; a DDL at the checkpoint itself is judged by its table,
not by the number (rule 1), since a feed that ended at its target-ts may send it last. ``CREATE
TABLE`` comes before any row of its table, so it needs no cut in the batch. What has no effect on a
target passes. Any other DDL blocks: rows below it are applied, then it runs (`DdlStep`), or the
changefeed stops with an error that quotes it; nothing is half applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coordination.errors import TidelakeError
from coordination.model import TableName, Ts, tso_time
from sinks.ddl import classify as reasons
from sinks.ddl.effects import (
    AddColumn,
    AlterTable,
    CreateTable,
    CreateTableLike,
    Statement,
    Unsupported,
)
from sinks.ddl.statements import read_ddl
from sinks.delta_types import delta_type
from sinks.schema import Column, TableSchema
from sinks.tables import table_uri
from streaming.ddl_steps import DdlEvent, DdlStep, step_of
from streaming.filter import TableFilter


class DdlNotSupported(TidelakeError):
    """A DDL that changes a target is not applied yet: its own issue. A filter is the way past
    it.
    """

    code = "CDC:ErrExecDDLFailed"


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
) -> DdlPlan:
    """``ddls`` in order of (commit-ts, offset), without replays; ``known``: the schemas of tables
    that exist already, None for one without a key; ``seen``: the last DDL that has run on each of
    them; ``shaped``: the one that their shape is of, which is newer after a rewind.
    """
    creations: list[Creation] = []
    schemas = dict(known)  # and of those that are made here: a later DDL may be about them
    for event in ddls:
        if event.commit_ts > limit:
            break
        if event.commit_ts < checkpoint or event.commit_ts <= start_ts:
            continue
        schema = schemas.get(event.name)
        statement = read_ddl(event.query, event.ddl_type, event.name.schema, event.name.table)
        if not _is_wanted(event, statement, table_filter):
            continue
        ddl = reasons.outcome(statement, schema)
        if isinstance(ddl, CreateTable | CreateTableLike):
            if event.name in known:  # it has come again: its schema may be another by now
                continue
            creations.append(Creation(event=event, table=ddl))
            made = ddl.schema if isinstance(ddl, CreateTable) else schemas.get(ddl.source)
            schemas[event.name] = made
        elif isinstance(ddl, Unsupported) and event.commit_ts > seen.get(event.name, 0):
            runs = step_of(event, statement, schemas, shaped)
            if runs is not None:
                found = DdlPlan(
                    limit=Ts(event.commit_ts - 1), creations=tuple(creations), blocked=event
                )
                if isinstance(runs, DdlStep):
                    return replace(found, runs=runs, next_limit=_limit_behind(event, ddls, limit))
                return replace(found, why=runs or ddl.reason)
    return DdlPlan(limit=limit, creations=tuple(creations))


def _limit_behind(event: DdlEvent, ddls: Sequence[DdlEvent], limit: Ts) -> Ts:
    """How far tables may go that the DDL does not block."""
    later = [each.commit_ts for each in ddls[ddls.index(event) + 1 :]]
    return Ts(min([limit, *(ts - 1 for ts in later)]))


def _is_wanted(event: DdlEvent, statement: Statement, table_filter: TableFilter) -> bool:
    """A DDL of a schema has an empty table name: the filter answers for the whole schema."""
    return table_filter.selects(event.name) and not table_filter.ignores_ddl(
        event.name, statement.event_types, event.query
    )


def definition(creation: Creation, known: Mapping[TableName, TableSchema | None]) -> TableSchema:
    """The schema of the table that is made. Raises for a LIKE of a table that was never read."""
    table = creation.table
    if isinstance(table, CreateTable):
        return table.schema
    schema = known.get(table.source)
    if schema is None:
        raise DdlNotSupported(
            f"cannot make {creation.event.name}: {creation.event.query} needs the definition of "
            f"{table.source}, which was not read. Ignore this DDL with [filter] rules, or start "
            "earlier"
        )
    return schema


def refusal(ddl: DdlEvent, why: str, warehouse: str) -> DdlNotSupported:
    """The error that quotes a DDL and says how to go on."""
    return DdlNotSupported(
        f"DDL at commit-ts {ddl.commit_ts} ({tso_time(ddl.commit_ts):%Y-%m-%d %H:%M:%S} UTC) on "
        f"{ddl.name} is not supported yet: {ddl.query} ({why}). Everything below it is applied. "
        f"{_way_past(ddl, why, warehouse)}"
    )


def _way_past(ddl: DdlEvent, why: str, warehouse: str) -> str:
    """What is true of the kind of DDL; a target is altered while nobody writes it."""
    pass_over = "pass over it with [[filter.event-filters]] ignore-event / ignore-sql"
    leave_out = "or leave the table out with [filter] rules"
    match why:
        case reasons.COLUMNS:
            return (
                f"To go on, first make the same change to the target: {_statement(ddl, warehouse)}"
                f". Then {pass_over}. An added column is filled from that start on (rows that are "
                "there keep NULL); without it, rows that have it are dead letters, or lose it "
                "(on-unknown-column)"
            )
        case reasons.KEY:
            return "The key of a target cannot be changed: leave the table out with [filter] rules"
        case reasons.RENAMES:
            return (
                f"To go on, {pass_over}: rows under the new name make a new table, without the "
                f"earlier rows; {leave_out}"
            )
        case reasons.REMOVES_TABLE | reasons.REMOVES_TABLES:
            return f"To go on, {pass_over}: the target stays as it is; {leave_out}"
        case _:
            return (
                f"To go on, {pass_over}, and what it does to the rows of the target do by hand "
                f"before you start again; {leave_out}"
            )


def _statement(ddl: DdlEvent, warehouse: str) -> str:
    """In Spark SQL, with the MySQL types as comments: they say what names an enum has."""
    target = f"ALTER TABLE delta.`{table_uri(warehouse, ddl.name)}`"
    columns = [column for column in _added(ddl) if column.generated != "virtual"]
    if not columns:
        return f"{target} …"
    added = ", ".join(
        f"`{column.name.replace('`', '``')}` {delta_type(column.type).upper()} "
        f"COMMENT '{_escaped(str(column.type))}'"
        for column in columns
    )
    return f"{target} ADD COLUMNS ({added})"


def _added(ddl: DdlEvent) -> list[Column]:
    """What an ALTER TABLE adds that does nothing else; empty for any other statement."""
    effects = read_ddl(ddl.query, ddl.ddl_type, ddl.name.schema, ddl.name.table).effects
    changes = effects[0].changes if isinstance(effects[0], AlterTable) else ()
    added = [change.column for change in changes if isinstance(change, AddColumn)]
    return added if len(effects) == 1 and len(added) == len(changes) else []


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
