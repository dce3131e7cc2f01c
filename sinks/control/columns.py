"""The columns of a control table, from a dataclass. Each field is annotated with the column's
comment, and with an Arrow type where the Python type does not determine it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, Final, TypeVar, get_type_hints

import pyarrow as pa

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


def fitted(rows: pa.Table) -> pa.Table:
    """``rows`` as Delta needs them for a write. Comments are left out: the table's stay, and Delta
    refuses other ones."""
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
    """The dataclasses that ``to_rows`` wrote."""
    names = [each.name for each in fields(kind) if each.init]  # type: ignore[arg-type]
    return [
        kind(**{name: each[name] for name in names})
        for each in rows.to_pylist(maps_as_pydicts="strict")
    ]
