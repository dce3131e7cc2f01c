"""Whether a table has the effect of an ALTER TABLE already. Pure.

A sender that delivers at least once may send a DDL again, which then has a new commit-ts. One that
cannot run, and says nothing that is not so already, has come again: upstream it did run.
"""

from __future__ import annotations

from collections.abc import Mapping

from coordination.model import TableName
from sinks.ddl.effects import (
    AddColumn,
    AddIndex,
    AlterSpec,
    AlterTable,
    DropColumn,
    DropIndex,
    ModifyColumn,
    RenameColumn,
    RenameIndex,
    SetDefault,
    Statement,
)
from sinks.ddl.tokens import same_name
from sinks.types.table_schema import Column, TableSchema


def is_there(statement: Statement, schemas: Mapping[TableName, TableSchema | None]) -> bool:
    """``schemas``: of the known tables, None for one without a key."""
    match statement.effects:
        case (AlterTable(name=name, changes=changes),) if (schema := schemas.get(name)) is not None:
            return all(_is_there(each, schema) for each in changes)
    return False


def _is_there(change: AlterSpec, schema: TableSchema) -> bool:  # noqa: PLR0911 - one per kind
    match change:
        case AddColumn(column=column):
            return _has(schema, column)
        case DropColumn(name=name):
            return _named(schema, name) is None
        case RenameColumn(name=name, new_name=new_name):
            return _named(schema, name) is None and _named(schema, new_name) is not None
        case ModifyColumn(name=name, column=column):
            is_renamed = not same_name(name, column.name)
            return _has(schema, column) and not (is_renamed and _named(schema, name) is not None)
        case SetDefault(name=name):
            return _named(schema, name) is not None
        case AddIndex(index=index):
            return index.kind == "plain" or any(
                list(map(str.lower, each.columns)) == list(map(str.lower, index.columns))
                for each in schema.indexes
                if each.kind == index.kind
            )
    return isinstance(change, DropIndex | RenameIndex)


def _named(schema: TableSchema, name: str) -> Column | None:
    return next((each for each in schema.columns if same_name(each.name, name)), None)


def _has(schema: TableSchema, column: Column) -> bool:
    found = _named(schema, column.name)
    return found is not None and found.type == column.type
