"""A statement about upstream tables as one about their targets: pure.

A DROP DATABASE drops the tables that are in that database upstream, wherever their targets are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from coordination.model import TableName
from sinks.ddl.effects import (
    AlterTable,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTable,
    Effect,
    ExchangePartition,
    NoEffect,
    PassedOver,
    RecoverTable,
    RenameTable,
    Statement,
    TruncatePartition,
    TruncateTable,
    Unsupported,
)
from sinks.types.table_schema import TableSchema
from streaming.changefeed.routes import Routes, Shards

MERGES: tuple[type[Effect], ...] = (RenameTable, ExchangePartition, RecoverTable)
NOT_OF_SHARDS = (
    "it renames, exchanges or recovers a table that goes into one target with others (sink.routes)"
)
NO_TABLES = "the database has no table of the changefeed"


def without_databases(statement: Statement, origins: Iterable[TableName]) -> Statement:
    """With a DROP TABLE for each of the upstream tables instead of a DROP DATABASE."""
    if not any(isinstance(each, DropDatabase) for each in statement.effects):
        return statement
    known = sorted(set(origins))
    effects: list[Effect] = []
    for effect in statement.effects:
        if isinstance(effect, DropDatabase):
            of = effect.schema.lower()
            effects += [DropTable(name=each) for each in known if each.schema.lower() == of]
        else:
            effects.append(effect)
    return replace(statement, effects=tuple(effects) or (NoEffect(reason=NO_TABLES),))


def upstream_tables(
    schemas: Mapping[TableName, TableSchema | None],
    shards: Mapping[TableName, Shards],
    routes: Routes,
) -> Iterator[TableName]:
    """The upstream tables of these targets, as far as they are known."""
    for name in schemas:
        of = shards.get(name, Shards())
        yield from of
        found = routes.found(name)
        if not of and found is not None and found.target == name:
            yield name


def routed(statement: Statement, routes: Routes) -> Statement:
    """By the names of targets, with the columns that tell their upstream tables. Raises
    ConfigError."""
    return replace(statement, effects=tuple(_routed(each, routes) for each in statement.effects))


def is_of_shards(statement: Statement, routes: Routes) -> bool:
    """Whether it renames, exchanges or recovers a table that goes into one target with others."""
    return any(
        routes.of(name).is_merging
        for each in statement.effects
        if isinstance(each, MERGES)
        for name in _names(each)
    )


def _names(effect: Effect) -> list[TableName]:
    match effect:
        case RenameTable(name=name, new_name=other):
            return [name, other]
        case ExchangePartition(name=name, table=other):
            return [name, other]
        case RecoverTable(name=name, new_name=new):
            return [name] if new is None else [name, new]
    return []


def _routed(effect: Effect, routes: Routes) -> Effect:  # noqa: PLR0911 - one per kind
    match effect:
        case CreateTable(name=name, schema=schema):
            target = routes.of(name).target
            return replace(effect, name=target, schema=routes.extended(name, schema))
        case CreateTableLike(name=name, source=source):
            to, of = routes.of(name), routes.of(source)
            if to.names != of.names:  # its rows tell what it is
                return Unsupported(
                    reason=f"{name} is like {source}, and only one of them has the columns "
                    "of its route",
                    name=to.target,
                )
            return replace(effect, name=to.target, source=of.target)
        case (
            AlterTable(name=name)
            | DropTable(name=name)
            | TruncateTable(name=name)
            | PassedOver(name=name)
            | TruncatePartition(name=name)
        ):
            return replace(effect, name=routes.of(name).target)
        case RenameTable(name=name, new_name=new):
            return replace(effect, name=routes.of(name).target, new_name=routes.of(new).target)
        case ExchangePartition(name=name, table=table):
            return replace(effect, name=routes.of(name).target, table=routes.of(table).target)
        case RecoverTable(name=name, new_name=back):
            new_name = None if back is None else routes.of(back).target
            return replace(effect, name=routes.of(name).target, new_name=new_name)
        case Unsupported(name=about) if about is not None:
            return replace(effect, name=routes.of(about).target)
    return effect
