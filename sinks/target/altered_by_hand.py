"""A target table that a user has altered by hand: its columns as they are now, and the MySQL types
by which values for them are cast.

The table's properties hold the columns as a DDL or the messages defined them. For a column that was
added or widened by hand since, the MySQL type is taken from the column's comment where that fits
its Delta type (only a comment can tell the names of an ``enum``), and otherwise derived from the
Delta type. A column that was dropped is not filled any more; one that was renamed is a new one.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from deltalake import DeltaTable

from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.target.target_table import TargetState
from sinks.types.delta_types import delta_type, sql_type
from sinks.types.mysql_type import KNOWN_TYPES, MySQLType
from sinks.types.table_schema import Column, TableSchema

logger = logging.getLogger(__name__)

# Delta type -> the MySQL type by which its values are cast.
_MYSQL_NAMES = {
    **{name: name for name in ("tinyint", "smallint", "int", "bigint", "float", "double", "date")},
    "string": "text",
    "binary": "blob",
    "timestamp_ntz": "datetime",
    "timestamp": "timestamp",
    "array<float>": "vector",
}
_DECIMAL = re.compile(r"decimal\(\d+,\d+\)")


class DeltaColumn(NamedTuple):
    name: str
    type: str  # Spark SQL's name; "other" for a type that no MySQL value is cast to
    comment: str = ""


def schema_of(name: TableName, state: TargetState) -> TableSchema:
    """Of a target of ours as it is now. Raises as ``schema_as_it_is``."""
    assert state.schema is not None
    behind = state.form.columns
    columns = [each for each in delta_columns(state.handle) if each.name not in behind]
    return schema_as_it_is(name, state.schema, columns)


def delta_columns(handle: DeltaTable) -> list[DeltaColumn]:
    """The columns of this version of the table, in its order."""
    return [
        DeltaColumn(
            field.name,
            sql_type(json.loads(field.type.to_json())),
            str(field.metadata.get("comment", "")),
        )
        for field in handle.schema().fields
    ]


def schema_as_it_is(
    name: TableName, stored: TableSchema, columns: Sequence[DeltaColumn]
) -> TableSchema:
    """The schema by which rows for the table are cast: ``stored`` with the columns as they are now.
    Raises TidelakeError where a key column is gone or has another type."""
    found = {column.name: column.type for column in columns}
    kept = [each for each in stored.delivered if found.get(each.name) == delta_type(each.type)]
    known = {column.name for column in kept}
    others = [column for column in columns if column.name not in known]
    added = [added for column in others if (added := _by_hand(name, column)) is not None]
    there = {column.name for column in (*kept, *added)}
    for key in stored.key:
        if key not in there:
            raise TidelakeError(
                f"table {name} has no key column {key} any more, or one of another type: restore "
                "it, or leave the table out with [filter] rules"
            )
    if not added and len(kept) == len(stored.delivered):
        return stored
    for column in stored.delivered:
        if column.name not in there:
            logger.info(
                "a column is not in the target any more table=%s column=%s", name, column.name
            )
    left = [column for column in stored.columns if column.generated == "virtual"]
    left = [column for column in left if column.name not in there]
    now = replace(stored, columns=(*kept, *added, *left))
    return now.by_all_columns() if stored.key_is_row else now


def _by_hand(name: TableName, column: DeltaColumn) -> Column | None:
    mysql_type = _mysql_type(column)
    if mysql_type is None:
        logger.warning(
            "a column of the target has a type that no MySQL value is cast to: it is not filled "
            "table=%s column=%s",
            name,
            column.name,
        )
        return None
    logger.info(
        "a column was added to the target, or altered, by hand: it is filled from here on "
        "table=%s column=%s type=%s read_as=%s",
        name,
        column.name,
        column.type,
        mysql_type,
    )
    return Column(name=column.name, type=mysql_type)


def _mysql_type(column: DeltaColumn) -> MySQLType | None:
    try:
        said = MySQLType.parse(column.comment)
    except ValueError:  # the comment is no type
        said = None
    if said and said.name in KNOWN_TYPES and delta_type(said) == column.type:
        return said
    if _DECIMAL.fullmatch(column.type):
        return MySQLType.parse(column.type)
    by_type = _MYSQL_NAMES.get(column.type)
    return MySQLType(name=by_type).as_untold() if by_type else None
