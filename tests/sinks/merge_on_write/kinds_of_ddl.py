"""A DDL on a target, of the kind that its arguments tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sinks.ddl.schema_change import SchemaChange
from sinks.merge_on_write.alter.table_ddl import (
    AlterTable,
    DropTable,
    NotedDdl,
    RemovePartitions,
    TableDdl,
    Truncate,
)

OF_RESHAPES = ("on_add_default", "on_type_change", "map_parts")


def table_ddl(
    *,
    change: SchemaChange | None = None,
    empties: bool = False,
    partitions: Sequence[str] = (),
    on_drop: Any = None,
    **more: Any,
) -> TableDdl:
    if partitions:
        return RemovePartitions(change=change, partitions=tuple(partitions), **more)
    if change is not None:
        return AlterTable(change=change, **more)
    plain = {name: each for name, each in more.items() if name not in OF_RESHAPES}
    if on_drop is not None:
        return DropTable(on_drop=on_drop, **plain)
    return Truncate(**plain) if empties else NotedDdl(**plain)
