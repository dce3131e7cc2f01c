"""Rows by their keys, as SQL. Pure.

The server compares them, by whatever collation: it may find other rows too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from sinks.types.delta_types import quoted
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import MOMENTS

KEYS_AT_A_TIME: Final = 200  # of a WHERE
ZERO_DATE: Final = "'0000-00-00'"


def where_keys(
    names: Sequence[str], keys: Sequence[Sequence[Any]], key: Sequence[MySQLType]
) -> str:
    """The condition of rows with one of these keys: values as Arrow gives them to Python."""
    columns = [quoted(name) for name in names]
    rows = [[_value(value, of) for value, of in zip(values, key, strict=True)] for values in keys]
    if len(columns) == 1 and all(row[0] != "NULL" for row in rows):
        return f" WHERE {columns[0]} IN ({', '.join(row[0] for row in rows)})"
    alternatives = (
        " AND ".join(f"{name} <=> {value}" for name, value in zip(columns, row, strict=True))
        for row in rows
    )
    return f" WHERE ({') OR ('.join(alternatives)})"


def _value(value: Any, of: MySQLType) -> str:
    if value is None:
        return ZERO_DATE if of.name in MOMENTS else "NULL"
    if isinstance(value, bytes):
        return _bytes(value)
    if isinstance(value, datetime):
        return f"'{value.replace(tzinfo=None).isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"'{value.isoformat()}'"
    if isinstance(value, Decimal):
        return format(value, "f")
    return _words(value.encode()) if isinstance(value, str) else repr(value)


def _words(text: bytes) -> str:
    """A literal, which takes the column's character set and collation."""
    return f"_utf8mb4 0x{text.hex()}" if text else "''"


def _bytes(value: bytes) -> str:
    return f"0x{value.hex()}" if value else "''"
