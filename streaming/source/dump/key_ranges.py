"""A range of a table's key as SQL: in the server's own order, without a value lost on the way.

Bounds are texts that the server itself wrote: numbers as they are, texts and bytes as the
hexadecimal digits of what is stored. A text's literal carries its character set, so the column's
collation compares it, and an index serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sinks.types.mysql_type import BINARY_TYPES, IDENTIFIER_TYPES, INTEGER_TYPES, TEXT_TYPES
from streaming.source.dump.cells import quoted, selected
from streaming.source.dump.source_table import SourceColumn, SourceTable

Bound = tuple[str, ...]  # of each key column


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows with ``after`` < key <= ``upto``; None: without an end on that side."""

    after: Bound | None
    upto: Bound | None

    def to_json(self) -> list[list[str] | None]:
        return [None if each is None else list(each) for each in (self.after, self.upto)]

    @classmethod
    def from_json(cls, ends: Sequence[Sequence[str] | None]) -> KeyRange:
        after, upto = (None if each is None else tuple(each) for each in ends)
        return cls(after, upto)


ALL_ROWS = KeyRange(None, None)


def rows_statement(table: SourceTable, of: KeyRange, limit: int | None) -> str:
    """The rows of a range, by the key; the first ``limit`` of them."""
    columns = ", ".join(selected(column.name, column.type) for column in table.columns)
    return _statement(table, columns, of, "" if limit is None else f" LIMIT {limit}")


def bound_statement(table: SourceTable, of: KeyRange, rows: int) -> str:
    """The key of the last of so many rows of a range; no row: it has fewer."""
    return _statement(table, _bound(table), of, f" LIMIT 1 OFFSET {rows - 1}")


def first_statement(table: SourceTable) -> str:
    """The first key; no row: the table is empty."""
    return _statement(table, _bound(table), ALL_ROWS, " LIMIT 1")


def last_statement(table: SourceTable) -> str:
    """The last key; no row: the table is empty."""
    order = ", ".join(f"{quoted(name)} DESC" for name in table.key)
    return f"SELECT {_bound(table)} {_from(table)} ORDER BY {order} LIMIT 1"


def is_integer_key(table: SourceTable) -> bool:
    """Whether numbers between two keys can be computed."""
    return len(table.key) == 1 and table.key_columns[0].type.name in INTEGER_TYPES


def _statement(table: SourceTable, what: str, of: KeyRange, limit: str) -> str:
    if not table.has_chunks:
        return f"SELECT {what} {_from(table)}{limit}"
    order = ", ".join(map(quoted, table.key))
    return f"SELECT {what} {_from(table)}{_where(table, of)} ORDER BY {order}{limit}"


def _from(table: SourceTable) -> str:
    """By the key's own index: an optimizer that sorts would read the whole table for each chunk."""
    name = f"{quoted(table.name.schema)}.{quoted(table.name.table)}"
    return f"FROM {name}" + (f" FORCE INDEX ({quoted(table.index)})" if table.has_chunks else "")


def _where(table: SourceTable, of: KeyRange) -> str:
    conditions = []
    if of.after is not None:
        conditions.append(_beyond(table.key_columns, of.after, ">", ">"))
    if of.upto is not None:
        conditions.append(_beyond(table.key_columns, of.upto, "<", "<="))
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _beyond(columns: Sequence[SourceColumn], bound: Bound, sign: str, last: str) -> str:
    """``(a, b) > (x, y)`` as servers find it in an index: the first column's bound stands alone."""
    condition = ""
    for column, text in reversed(list(zip(columns, bound, strict=True))):
        name, literal = quoted(column.name), _literal(column, text)
        if not condition:
            condition = f"{name} {last} {literal}"
        else:
            condition = f"({name} {sign} {literal} OR ({name} = {literal} AND {condition}))"
    if len(columns) > 1:
        first = f"{quoted(columns[0].name)} {sign}= {_literal(columns[0], bound[0])}"
        condition = f"{first} AND {condition}"
    return condition


def _bound(table: SourceTable) -> str:
    return ", ".join(_as_text(column) for column in table.key_columns)


def _as_text(column: SourceColumn) -> str:
    name = quoted(column.name)
    if column.type.name in (*TEXT_TYPES, *BINARY_TYPES):
        return f"HEX({name})"
    if column.type.name in ("bit", "enum", "set"):
        return f"CAST({name} + 0 AS CHAR)"  # by which they are sorted
    if column.type.name in ("float", "double"):
        return f"CAST(CAST({name} AS DOUBLE) AS CHAR)"
    return f"CAST({name} AS CHAR)"


def _literal(column: SourceColumn, text: str) -> str:
    if column.type.name in TEXT_TYPES:
        return f"_{column.charset} X'{text}'"
    if column.type.name in BINARY_TYPES:
        return f"X'{text}'"
    if column.type.name in ("date", "datetime", "timestamp", "time", *IDENTIFIER_TYPES):
        return f"'{text}'"
    if column.type.name in ("float", "double"):
        return text if "e" in text else f"{text}e0"
    return text
