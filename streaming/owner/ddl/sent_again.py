"""Whether a DDL has run already. Pure.

A sender that delivers at least once may send a DDL again, which then has a new commit-ts. One that
cannot run, and says nothing that is not so already, has come again: upstream it did run. One that
renames may run again: its place at the sender tells (`sinks/ddl/text/logged.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

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
from sinks.ddl.text.logged import sent_at
from sinks.ddl.text.tokens import same_name
from sinks.target.table_properties import DdlIdentity
from sinks.types.table_schema import Column, TableSchema
from streaming.owner.ddl.steps import DdlStep

RENAMES_AGAIN: Final = (
    "the sender has sent it again, and the names are as it says already. Rows that have come again "
    "before it may be in the wrong table or column: pass over it, and load its tables anew"
)


def renames(step: DdlStep) -> bool:
    """Whether it can run a second time and would do harm: it renames tables, or columns of a table
    change places."""
    if step.moves:
        return True
    sources = step.change.sources if step.change is not None else {}
    return any(was is not None and was != name and was in sources for name, was in sources.items())


def has_run(ddl: DdlIdentity, known: Iterable[DdlIdentity | None]) -> bool:
    """``known``: the last DDLs of its tables."""
    sent = sent_at(ddl.query)
    for each in known:
        before = None if each is None else sent_at(each.query)
        if sent is None or each is None or before is None or each.commit_ts >= ddl.commit_ts:
            continue
        if before.is_behind(sent) or (before == sent and each.query == ddl.query):
            return True
    return False


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
