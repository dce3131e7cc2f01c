"""A table in chunks by its key, and rows by their keys, as SQL. Pure.

The server itself orders the keys and compares them, by whatever collation: a chunk begins behind
the last key of the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from sinks.types.delta_types import INTEGER_BITS, quoted
from sinks.types.mysql_type import BINARY_TYPES, TEXT_TYPES, MySQLType
from sinks.types.table_schema import MOMENTS

# Their values can be written so that the server finds the same ones again, in the order of the key:
# an ENUM is ordered by number and compared by name, a FLOAT's text is not its value.
_ORDERED: Final = frozenset(
    (*INTEGER_BITS, *TEXT_TYPES, *BINARY_TYPES, *MOMENTS, "decimal", "year", "time", "double")
)
KEYS_AT_A_TIME: Final = 200  # of a WHERE
ZERO_DATE: Final = "'0000-00-00'"

Bound = tuple[bytes, ...]  # the texts of a key, as the server sends them


@dataclass(frozen=True, slots=True)
class Chunk:
    """Keys above ``after`` (None: from the first on) up to ``upto`` (None: to the last)."""

    after: Bound | None = None
    upto: Bound | None = None


def is_ordered(key: Sequence[MySQLType]) -> bool:
    """Whether chunks can be made by this key; else the table is one chunk."""
    return all(of.name in _ORDERED for of in key)


def where(names: Sequence[str], key: Sequence[MySQLType], chunk: Chunk) -> str:
    """The condition of a chunk, with its keyword; empty for the whole table."""
    parts = []
    if chunk.after is not None:
        parts.append(_beyond(names, _literals(key, chunk.after), ">", ">"))
    if chunk.upto is not None:
        parts.append(_beyond(names, _literals(key, chunk.upto), "<", "<="))
    return f" WHERE {' AND '.join(parts)}" if parts else ""


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


def order(names: Sequence[str]) -> str:
    return f" ORDER BY {', '.join(map(quoted, names))}"


def _beyond(names: Sequence[str], values: Sequence[str], strictly: str, at_last: str) -> str:
    """``(a, b) > (x, y)``, so that the server reads a range of the index: it does not for the
    short form."""
    columns = [quoted(name) for name in names]
    alternatives = []
    for depth, (name, value) in enumerate(zip(columns, values, strict=True)):
        sign = at_last if depth == len(columns) - 1 else strictly
        same = [f"{columns[at]} = {values[at]}" for at in range(depth)]
        alternatives.append(" AND ".join([*same, f"{name} {sign} {value}"]))
    if len(columns) == 1:
        return alternatives[0]
    bound = f"{columns[0]} {strictly}= {values[0]}"
    return f"{bound} AND (({') OR ('.join(alternatives)}))"


def _literals(key: Sequence[MySQLType], texts: Bound) -> list[str]:
    return [_text_literal(text, of) for text, of in zip(texts, key, strict=True)]


def _text_literal(text: bytes, of: MySQLType) -> str:
    """A text that the server sent, as it reads it back."""
    if of.name in TEXT_TYPES:
        return _words(text)
    if of.name in BINARY_TYPES:
        return _bytes(text)
    return f"'{text.decode('ascii')}'" if of.name in (*MOMENTS, "time") else text.decode("ascii")


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
