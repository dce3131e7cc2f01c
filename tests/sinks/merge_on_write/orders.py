"""One small table of orders, its writes, and what they make of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa

from coordination.model import TableName, Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.target.engine_port import OP_COLUMN, TableWrite, Target, app_id
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from tests.services.delta_rows import read_rows

NAME = TableName("shop", "orders")
Rows = dict[int, str]
Changes = Mapping[int, str | None]  # None is a DELETE


def target(uri: str) -> Target:
    columns = (
        Column(name="id", type=MySQLType.parse("bigint")),
        Column(name="v", type=MySQLType.parse("varchar(20)")),
    )
    schema = TableSchema(columns=columns, key=("id",))
    return Target(name=NAME, uri=uri, schema=schema, app_id=app_id("shop", 1, NAME))


def write(
    uri: str, limit: int, rows: Changes, before_commit: Callable[[], None] = lambda: None
) -> TableWrite:
    changes = {
        "id": pa.array(list(rows), pa.int64()),
        "v": pa.array(list(rows.values()), pa.string()),
        OP_COLUMN: ["D" if value is None else "U" for value in rows.values()],
    }
    return TableWrite(
        target=target(uri),
        checkpoint=Ts(limit - 1),
        limit=Ts(limit),
        changes=pa.table(changes),
        user_metadata="{}",
        before_commit=before_commit,
    )


UPSERTED: Changes = {1: "new", 11: None, 12: "new", 99: "new"}


def made(uri: str | Path, properties: Mapping[str, str] | None = None) -> str:
    """Twelve files, most of them with vectors."""
    create(target(str(uri)), properties=properties or {})
    engine = MergeOnWriteEngine({}, keeps_up=False)
    for number in range(12):
        rows: dict[int, str | None] = {10 * number + at: "old" for at in range(5)}
        rows |= {10 * (number - 4) + at: None for at in range(2)}
        engine.apply(write(str(uri), number + 1, rows))
    engine.close()
    return str(uri)


def rows_of(uri: str, version: int | None = None) -> Rows:
    """As delta-rs reads them."""
    rows = read_rows(uri, version)
    found = {row["id"]: row["v"] for row in rows}
    assert len(found) == len(rows), "a key stands twice"
    return found


def changed(rows: Mapping[int, str], *batches: Changes) -> Rows:
    found = dict(rows)
    for changes in batches:
        found = {key: value for key, value in found.items() if key not in changes}
        found |= {key: value for key, value in changes.items() if value is not None}
    return found
