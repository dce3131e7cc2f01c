"""A table's schema after an ALTER TABLE, and where each column of it comes from: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sinks.schema import TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """``sources``: for every delivered column of ``after``, in their order, the column of
    ``before`` that it comes from (in the spelling of ``before``), or None for an added one.

    ``fills``: by added column, what old rows show instead of NULL: text as canal-json would send it
    (``casts.cast_column`` reads it: an enum's index, a set's bitmask, bytes as ISO-8859-1), or
    ``schema.CURRENT_TIMESTAMP`` in a column of dates or times, the time of the DDL.
    """

    before: TableSchema
    after: TableSchema
    sources: Mapping[str, str | None]
    fills: Mapping[str, str]
