"""The columns of a control table, from a dataclass. Each field is annotated with the column's
comment, and with an Arrow type where the Python type does not determine it.

A control table that another release made is read and written too. A column that an earlier release
did not have is NULL in its rows, and our first commit adds it to the table. A column that only a
later release has is NULL in the rows that we write.
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
    """A column with its comment, which DESCRIBE shows."""
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
    """The rows with these columns in this order; a column that ``rows`` lacks is NULL."""
    for name in columns:
        if name not in rows.column_names:
            field = schema.field(name)
            rows = rows.append_column(field, pa.nulls(len(rows), field.type))
    return rows.select(list(columns))


def fitted(rows: pa.Table, handle: DeltaTable) -> pa.Table:
    """``rows`` with all columns of the table, as Delta needs them for a write; columns that the
    rows lack are NULL. Comments are left out: the table's stay, and Delta refuses other ones.
    """
    unknown = [name for name in names_in(handle) if name not in rows.column_names]
    if unknown:
        known = pa.schema(handle.schema().to_arrow())
        rows = with_columns(rows, [*rows.column_names, *unknown], known)
    return rows.cast(pa.schema([field.remove_metadata() for field in rows.schema]))


def to_rows(items: Iterable[Any], schema: pa.Schema) -> pa.Table:
    """The dataclasses as rows of ``schema``."""
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
    """The dataclasses that ``to_rows`` wrote. A NULL becomes the field's default: it was written by
    a release without that column, or stands for None."""
    names = {each.name for each in fields(kind) if each.init}  # type: ignore[arg-type]
    return [
        kind(**{name: each[name] for name in names & each.keys() if each[name] is not None})
        for each in rows.to_pylist(maps_as_pydicts="strict")
    ]
