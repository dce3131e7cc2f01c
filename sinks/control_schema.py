"""Columns over releases: a control table that another release made is read and written on.

What an earlier release did not know is NULL in its rows, and a column of the table from our first
commit on. What only a later release knows is NULL in the rows that we write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema

T = TypeVar("T")


def names_in(handle: DeltaTable) -> list[str]:
    """The columns of this version of the table, in its order."""
    return [field.name for field in handle.schema().fields]


def lacking(handle: DeltaTable, schema: pa.Schema) -> list[Field]:
    """The columns of ``schema`` that the table does not have yet."""
    known = set(names_in(handle))
    wanted = pa.schema([field for field in schema if field.name not in known])
    return list(Schema.from_arrow(wanted).fields)


def with_columns(rows: pa.Table, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
    """These columns in this order; NULL where the table has none."""
    for name in columns:
        if name not in rows.column_names:
            field = schema.field(name)
            rows = rows.append_column(field, pa.nulls(len(rows), field.type))
    return rows.select(list(columns))


def fitted(rows: pa.Table, handle: DeltaTable) -> pa.Table:
    """``rows`` with all columns of the table, without their comments: those that the table has
    stay, and Delta refuses rows with other ones.
    """
    unknown = [name for name in names_in(handle) if name not in rows.column_names]
    if unknown:
        stored = pa.schema(handle.schema().to_arrow())
        rows = with_columns(rows, [*rows.column_names, *unknown], stored)
    return rows.cast(pa.schema([field.remove_metadata() for field in rows.schema]))


def to_rows(items: Iterable[Any], schema: pa.Schema) -> pa.Table:
    """Dataclasses as rows: a column is a field or a property of its name."""
    return pa.Table.from_pylist([_record(each, schema.names) for each in items], schema=schema)


def from_rows(rows: pa.Table, kind: type[T]) -> list[T]:
    """What ``to_rows`` wrote. NULL is the field's default: an earlier release knew no better."""
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return [
        kind(**{name: each[name] for name in names & each.keys() if each[name] is not None})
        for each in rows.to_pylist(maps_as_pydicts="strict")
    ]


def _record(item: Any, names: Sequence[str]) -> dict[str, Any]:
    values = asdict(item)
    found = {name: values[name] if name in values else getattr(item, name) for name in names}
    return {n: sorted(v.items()) if isinstance(v, Mapping) else v for n, v in found.items()}
