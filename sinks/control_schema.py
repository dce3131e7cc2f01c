"""The columns of a control table: those of a dataclass whose fields are annotated with a
comment, and with an Arrow type where their own does not say it.

A control table that another release made is read and written on. What an earlier release did not
know is NULL in its rows, and a column of the table from our first commit on. What only a later
release knows is NULL in the rows that we write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, Final, TypeVar, get_type_hints

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema

TEXT: Final = pa.string()
INT32: Final = pa.int32()
INT64: Final = pa.int64()
T = TypeVar("T")
_TYPES: Final = {
    str: TEXT,
    int: INT64,
    float: pa.float64(),
    datetime: pa.timestamp("us", tz="UTC"),
    Mapping[str, int]: pa.map_(TEXT, INT64),
}


def column(name: str, data_type: pa.DataType, comment: str) -> pa.Field:
    """A column with the comment that DESCRIBE shows."""
    return pa.field(name, data_type, metadata={"comment": comment})


def schema_of(kind: type) -> pa.Schema:
    """The columns of a row's dataclass, in the order of its fields."""
    columns = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        *data_type, comment = hint.__metadata__
        data_type += (_TYPES[each] for each in _TYPES if hint.__origin__ in (each, each | None))
        columns.append(column(name, data_type[0], comment))
    return pa.schema(columns)


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
        known = pa.schema(handle.schema().to_arrow())
        rows = with_columns(rows, [*rows.column_names, *unknown], known)
    return rows.cast(pa.schema([field.remove_metadata() for field in rows.schema]))


def to_rows(items: Iterable[Any], schema: pa.Schema) -> pa.Table:
    """Dataclasses as rows."""
    found = list(items)
    columns = [[_cell(getattr(item, name)) for item in found] for name in schema.names]
    arrays = [pa.array(cells, kind) for cells, kind in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _cell(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    found = sorted(value.items())
    return [(key, each if isinstance(each, int | str) else asdict(each)) for key, each in found]


def from_rows(rows: pa.Table, kind: type[T]) -> list[T]:
    """What ``to_rows`` wrote. NULL is the field's default: an earlier release knew no better."""
    names = {each.name for each in fields(kind) if each.init}  # type: ignore[arg-type]
    return [
        kind(**{name: each[name] for name in names & each.keys() if each[name] is not None})
        for each in rows.to_pylist(maps_as_pydicts="strict")
    ]
