"""A target table whose columns somebody has altered by hand is not written.

Its properties hold the columns as the DDLs or the messages of the stream have made them (rule 5).
Values for other columns have no place in it, and what other columns mean nobody knows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.target.table_properties import TableProperties
from sinks.target.target_table import TargetState
from sinks.target.way_out import load_anew
from sinks.types.delta_types import delta_type, sql_type
from sinks.types.table_schema import TableSchema


def unaltered_schema(name: TableName, state: TargetState) -> TableSchema:
    """The schema by which rows for the table are cast. Raises TidelakeError for a table that was
    altered by hand."""
    if why := altered(state, name):
        raise TidelakeError(f"table {name}: {why}")
    assert state.schema is not None
    return state.schema


def altered(state: TargetState, name: TableName) -> str:
    """Why the table is refused, with both lists of columns; empty: it is as the stream made it."""
    fields = [
        {"name": each.name, "type": json.loads(each.type.to_json())}
        for each in state.handle.schema().fields
    ]
    return how_altered(state, fields, name)


def how_altered(
    properties: TableProperties, fields: Iterable[Mapping[str, Any]], name: TableName | str = ""
) -> str:
    """As ``altered``. ``fields``: of the table's schema in its log."""
    assert properties.schema is not None
    found = {field["name"]: sql_type(field["type"]) for field in fields}
    ours = {column.name: delta_type(column.stored) for column in properties.schema.delivered}
    ours |= properties.form.columns
    if found == ours:
        return ""
    return (
        "somebody has altered its columns by hand, so it is not written. The table has "
        f"({_listed(found)}), and the stream gives it ({_listed(ours)}). Make the columns as the "
        f"stream gives them, or {load_anew(name)}"
    )


def _listed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
