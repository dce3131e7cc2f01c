"""Names of indexes, and which index is the handle key: chosen as TiDB and TiCDC do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sinks.types.table_schema import Column, Index, TableSchema

PRIMARY = "PRIMARY"


def named(indexes: Sequence[Index]) -> list[Index]:
    """The indexes with names. An index without a name gets its first column's name, as in MySQL,
    with _2, _3 … if that name is taken."""
    taken = {PRIMARY.lower(), *(index.name.lower() for index in indexes)}
    found = []
    for index in indexes:
        name = index.name
        if index.kind == "primary":
            name = PRIMARY
        elif not name:
            base = name = index.columns[0] if index.columns else "expression_index"
            number = 1
            while name.lower() in taken:
                number += 1
                name = f"{base}_{number}"
            taken.add(name.lower())
        found.append(replace(index, name=name))
    return found


def keyed(columns: Sequence[Column], indexes: Sequence[Index], binary: bool) -> TableSchema:
    """The schema with its handle key: the primary key, or else the NOT NULL unique index with the
    fewest columns, the first of several.

    ``indexes`` must have names. Raises ValueError if the key names a column that is missing.
    """
    spelled = {column.name.lower(): column.name for column in columns}
    indexes = [
        replace(index, columns=tuple(spelled.get(name.lower(), name) for name in index.columns))
        for index in indexes
    ]
    primary = next((index for index in indexes if index.kind == "primary"), None)
    if primary is not None:
        in_key = {name.lower() for name in primary.columns}
        columns = [
            replace(column, nullable=False) if column.name.lower() in in_key else column
            for column in columns
        ]
    schema = TableSchema(
        columns=tuple(columns), key=(), indexes=tuple(indexes), binary_charset=binary
    )
    candidates = [i for i in indexes if i.kind == "unique" and can_be_key(i.columns, schema)]
    chosen = primary or min(candidates, key=lambda index: len(index.columns), default=None)
    if chosen is None:
        return schema
    try:
        key = tuple(schema.column(name).name for name in chosen.columns)
    except KeyError as missing:
        raise ValueError(f"the key names {missing}, which is no column") from None
    return replace(schema, key=key, key_index=None if primary else chosen.name)


def can_be_key(names: Sequence[str], schema: TableSchema) -> bool:
    """Whether a unique index on these columns can be the handle key: all are NOT NULL and sent by
    TiCDC."""
    columns = {column.name.lower(): column for column in schema.delivered}
    found = [columns.get(name.lower()) for name in names]
    return bool(found) and all(column is not None and not column.nullable for column in found)
