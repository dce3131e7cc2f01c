"""DDLs on the small table of orders, and what they leave in its log."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from coordination.model import Ts
from sinks.ddl.schema_change import SchemaChange
from sinks.merge_on_write.alter.table_ddl import TableDdl
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log.reader import read_log
from sinks.storage.local_storage import LocalStorage
from sinks.target.engine_port import OP_COLUMN, TableWrite
from sinks.target.table_properties import DdlIdentity
from sinks.types.table_schema import Column, TableSchema
from tests.sinks.merge_on_write.altering import column
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl
from tests.sinks.merge_on_write.log_tables import differences
from tests.sinks.merge_on_write.orders import target, write

C = 100  # the DDL's commit-ts; the table is at 12


def change(
    *columns: Column,
    key: tuple[str, ...] = ("id",),
    before: TableSchema | None = None,
    fills: dict[str, str] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> SchemaChange:
    """Columns keep their values by name; ``renamed``: new name to old."""
    before, renamed = before or target("").schema, renamed or {}
    known = {each.name for each in before.columns}
    after = TableSchema(columns=columns, key=key)
    return SchemaChange(
        before=before,
        after=after,
        sources={
            each.name: renamed.get(each.name, each.name if each.name in known else None)
            for each in columns
        },
        fills=fills or {},
    )


ID, V = target("").schema.columns
ADD_N = change(ID, V, column("n", "int"))
ADD_FILLED = change(ID, V, column("n", "int"), fills={"n": "7"})


def ddl(
    uri: str, does: SchemaChange | None, commit_ts: int = C, order: int = 0, **options: Any
) -> TableDdl:
    before = target(uri) if does is None else replace(target(uri), schema=does.before)
    identity = DdlIdentity(commit_ts=Ts(commit_ts), order=order, query="ALTER TABLE …")
    return table_ddl(target=before, ddl=identity, change=does, **options)


def truncate(uri: str, commit_ts: int = C, **options: Any) -> TableDdl:
    return ddl(uri, None, commit_ts, empties=True, **options)


def rows(uri: str, limit: int, schema: TableSchema, *cells: dict[str, Any]) -> TableWrite:
    names = [each.name for each in schema.columns]
    columns = {name: [each.get(name) for each in cells] for name in names}
    changes = pa.table({**columns, OP_COLUMN: ["U"] * len(cells)})
    aim = replace(target(uri), schema=schema)
    return replace(write(uri, limit, {}), target=aim, changes=changes)


def last_commit(uri: str) -> list[dict[str, Any]]:
    newest = max(Path(uri, "_delta_log").glob("*.json"))
    return [json.loads(line) for line in newest.read_text().splitlines()]


def action(uri: str, name: str) -> Any:
    found = [each[name] for each in last_commit(uri) if name in each]
    return found[0] if len(found) == 1 else found


def names_of(uri: str) -> list[str]:
    return [field.name for field in DeltaTable(uri).schema().fields]


def set_property(uri: str, name: str, value: str) -> None:
    DeltaTable(uri).alter.set_table_properties({name: value}, raise_if_not_exists=False)


def comment_on(uri: str, name: str, text: str) -> None:
    DeltaTable(uri).alter.set_column_metadata(name, {"comment": text})


def orphans(uri: str) -> set[str]:
    """Data files that no commit has named."""
    named = "".join(path.read_text() for path in Path(uri, "_delta_log").glob("*.json"))
    return {name for name in os.listdir(uri) if name.endswith(".parquet") and name not in named}


def assert_in_memory(engine: MergeOnWriteEngine, uri: str) -> None:
    """What the engine keeps is what a fresh replay of the log finds."""
    table = engine.table(uri)
    table.refresh()
    replayed = read_log(LocalStorage(uri))
    assert replayed is not None
    assert not differences(table.state, replayed, tombstones=False)


def statistics_of(uri: str) -> str:
    return str(action(uri, "metaData")["configuration"]["delta.dataSkippingStatsColumns"])


def fields_of(uri: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(action(uri, "metaData")["schemaString"])["fields"]
    return found
