"""What DDLs amid a copy have done to the tables that are copied. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from coordination.model import TableName
from sinks.ddl.effects import (
    AlterTable,
    Effect,
    ExchangePartition,
    ModifyColumn,
    RenameColumn,
    RenameTable,
)
from streaming.changefeed.routes import Routes
from streaming.source.binlog.log_scan import Scanned
from streaming.spans.copies.settled_copy import CopiedFrom


def moved(scanned: Scanned, tables: Iterable[CopiedFrom]) -> list[TableName]:
    """The tables whose values a DDL behind their beginning has moved to another column. Pure.

    Names are compared without their case, as some servers do."""
    by_name = {_lower(each.name): each for each in tables}
    found: dict[TableName, None] = {}
    for ddl in scanned.ddls:
        for name in _moved_by(ddl.effects):
            each = by_name.get(_lower(name))
            if each is not None and ddl.position >= each.begin.position:
                found[each.name] = None
    return list(found)


def late_shards(scanned: Scanned, tables: Iterable[CopiedFrom], routes: Routes) -> list[TableName]:
    """The tables of one target that were begun before a DDL of another one, which was begun behind
    it. A target has one beginning: rows from below such a DDL would come into it. Pure."""
    begun = {each.name: each.begin.position for each in tables}
    shared = [each for each in routes.by_target(begun).values() if len(each) > 1]
    found: dict[TableName, None] = {}
    for origins in shared:
        for ddl in scanned.ddls:
            about = {_lower(name) for effect in ddl.effects if (name := _about(effect))}
            if any(_lower(name) in about and ddl.position < begun[name] for name in origins):
                found |= dict.fromkeys(name for name in origins if begun[name] <= ddl.position)
    return list(found)


def _about(effect: Effect) -> TableName | None:
    name = getattr(effect, "name", None)
    return name if isinstance(name, TableName) else None


def renamed_by(effects: Collection[Effect]) -> Iterator[TableName]:
    for effect in effects:
        match effect:
            case RenameTable():
                yield from (effect.name, effect.new_name)
            case ExchangePartition():
                yield from (effect.name, effect.table)
            case _:
                pass


def _moved_by(effects: Collection[Effect]) -> Iterator[TableName]:
    for effect in effects:
        if isinstance(effect, AlterTable) and any(
            isinstance(each, RenameColumn)
            or (isinstance(each, ModifyColumn) and each.name != each.column.name)
            for each in effect.changes
        ):
            yield effect.name


def _lower(name: TableName) -> tuple[str, str]:
    return name.schema.lower(), name.table.lower()
