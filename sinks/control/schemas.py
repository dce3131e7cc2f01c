"""``_tidelake/schemas``: which columns each table has had, and since when.

One row for each DDL that a table has taken up, merged on (changefeed, table, generation,
commit-ts). A row says the same as the table's own log (rule 5), so it is true whoever writes it. It
needs no term, a repeat changes nothing, and the next start adds rows that a crash has lost.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import TableName, tso_time
from sinks.control.columns import INT32, TEXT, from_rows, schema_of, to_rows
from sinks.control.control_table import Change, ControlTable, TableView
from sinks.control.upkeep import join_files
from sinks.target.engine_port import GENERATION
from sinks.types.delta_types import delta_type
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema

KEY = ("changefeed_id", "schema_name", "table_name", "generation", "commit_ts")
_COLUMN = pa.struct(
    [
        ("name", TEXT),
        ("mysql_type", TEXT),
        ("delta_type", TEXT),
        ("nullable", pa.bool_()),
        ("default", TEXT),
        ("generated", TEXT),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRow:
    """The shape that a table has from ``commit_ts`` on."""

    changefeed_id: Annotated[str, "the changefeed that fills the table"]
    schema_name: Annotated[str, "MySQL schema"]
    table_name: Annotated[str, "MySQL table"]
    generation: Annotated[int, INT32, "always 1: a dropped table goes on in its log"]
    commit_ts: Annotated[int, "TSO of the DDL; 0: no CREATE TABLE was read, messages told it"]
    commit_time: Annotated[datetime | None, "commit_ts as a time"] = field(init=False)
    statement: Annotated[str, "the DDL as it came; empty: there was none"]
    columns: Annotated[
        Sequence[Mapping[str, Any]],
        pa.list_(pa.field("element", _COLUMN)),
        "in the order of the table; delta_type is null where the table does not have the column",
    ]
    key: Annotated[Sequence[str], pa.list_(pa.field("element", TEXT)), "columns of the handle key"]
    delta_version: Annotated[int, "the version that took the shape up"] = 0
    partitioning: Annotated[str | None, "as JSON; null: there is none, or it is not known"] = None

    def __post_init__(self) -> None:
        at = tso_time(self.commit_ts) if self.commit_ts else None
        object.__setattr__(self, "commit_time", at)


SCHEMA = schema_of(SchemaRow)


def columns_of(schema: TableSchema) -> list[dict[str, Any]]:
    """As ``SchemaRow.columns`` has them."""
    return [
        {
            "name": column.name,
            "mysql_type": str(column.type),
            "delta_type": _stored_type(column),
            "nullable": column.nullable,
            "default": column.default,
            "generated": column.generated or None,
        }
        for column in schema.columns
    ]


def _stored_type(column: Column) -> str | None:
    is_there = column.generated != "virtual" and not column.left_out
    return delta_type(column.stored) if is_there else None


def columns_in(row: SchemaRow) -> list[Column]:
    """The columns that the target has; of their definition what ``columns_of`` tells."""
    return [
        Column(
            name=each["name"],
            type=MySQLType.parse(each["mysql_type"]),
            nullable=each["nullable"],
            default=each["default"],
        )
        for each in row.columns
        if each["delta_type"] is not None
    ]


def partitioning_of(schema: TableSchema) -> str | None:
    """As ``SchemaRow.partitioning`` has it."""
    return None if schema.partitioning is None else json.dumps(schema.partitioning.to_json())


class Schemas:
    """Safe to share between threads."""

    def __init__(self, warehouse: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._table = ControlTable(
            warehouse,
            "schemas",
            SCHEMA,
            storage_options,
            description="Tidelake: the columns of each table, by the DDL that made them",
            tidy=join_files,
        )

    def of_table(self, changefeed_id: str, name: TableName) -> list[SchemaRow]:
        """The table's rows, in no order; empty if nothing is known of it."""
        of = (changefeed_id, name.schema, name.table, GENERATION)
        where = functools.reduce(
            operator.and_, (pc.field(part) == value for part, value in zip(KEY, of, strict=False))
        )
        rows = self._table.read(lambda view: view.scan(SCHEMA.names, where))
        return [] if rows is None else from_rows(rows, SchemaRow)

    def newest(self, changefeed_id: str) -> dict[TableName, SchemaRow]:
        """The last row of each table of a changefeed."""
        where = pc.field("changefeed_id") == changefeed_id
        found = self._table.read(lambda view: view.scan(SCHEMA.names, where))
        rows = [] if found is None else from_rows(found, SchemaRow)
        rows.sort(key=lambda row: (row.generation, row.commit_ts))
        return {TableName(row.schema_name, row.table_name): row for row in rows}

    def add(self, rows: Sequence[SchemaRow]) -> None:
        """Adds the rows that are not there yet, in one commit."""

        def plan(view: TableView) -> Change | None:
            stored = view.scan(KEY)
            known = set(zip(*(stored[name].to_pylist() for name in KEY), strict=True))
            new = {key: row for row in rows if (key := _key(row)) not in known}
            return Change(rows=to_rows(new.values(), SCHEMA)) if new else None

        self._table.commit(plan, "add table schemas to")


def _key(row: SchemaRow) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in KEY)
