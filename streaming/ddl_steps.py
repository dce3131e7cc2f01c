"""A DDL of the stream, and what it does to one target when its time has come: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordination.model import TableName, Ts
from sinks.ddl.classify import KEY
from sinks.ddl.effects import AddIndex, AlterTable, Statement, TruncateTable
from sinks.ddl.evolve import SchemaChange, evolved
from sinks.schema import TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlEvent:
    """A DDL as it was sent. Identity: (commit_ts, query, name); order: (commit_ts, offset)."""

    commit_ts: Ts
    offset: int
    name: TableName
    ddl_type: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlStep:
    """One commit of the table. ``change`` None: its shape stays, or is what it becomes already."""

    event: DdlEvent
    name: TableName
    change: SchemaChange | None = None
    empties: bool = False  # its rows go


def step_of(
    event: DdlEvent,
    statement: Statement,
    schemas: Mapping[TableName, TableSchema | None],
    shaped: Mapping[TableName, Ts],
) -> DdlStep | str | None:
    """None where there is no target; a text where it cannot be run, with the reason if there is
    more to say than what kind of DDL it is. ``statement``: what ``event`` says. ``schemas`` and
    ``shaped`` as ``ddl_plan.plan`` has them."""
    match statement.effects:
        case (AlterTable(name=name) | TruncateTable(name=name) as effect,):
            schema = schemas.get(name)
            if schema is None:  # rows of a table that gets its first key would stay dead letters
                return KEY if name in schemas and _adds_key(effect) else None
            if isinstance(effect, TruncateTable):
                return DdlStep(event=event, name=name, empties=True)
            if event.commit_ts <= shaped.get(name, 0):
                return DdlStep(event=event, name=name)
            return _altered(event, name, schema, effect)
    return ""


def _adds_key(effect: AlterTable | TruncateTable) -> bool:
    changes = effect.changes if isinstance(effect, AlterTable) else ()
    return any(isinstance(each, AddIndex) and each.index.kind != "plain" for each in changes)


def _altered(
    event: DdlEvent, name: TableName, schema: TableSchema, effect: AlterTable
) -> DdlStep | str:
    try:
        change = evolved(schema, effect.changes)
    except ValueError as error:
        return str(error)
    is_same_key = change.after.key == schema.key
    if not is_same_key or any(change.sources[column] != column for column in schema.key):
        return KEY  # rows of the new key are decoded by the old one until it has run
    return DdlStep(event=event, name=name, change=change)
