"""A table's schema before and after a DDL, and where each column's values come from. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sinks.types.mysql_type import MySQLType
from sinks.types.server_rules.conversion import ServerChange, same_values
from sinks.types.server_rules.session import ServerSession
from sinks.types.table_schema import Column, TableSchema
from sinks.types.type_changes import may_make_equal


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """``sources``: every delivered column of ``after``, in order -> the column of ``before`` from
    which it comes (in the spelling of ``before``), or None for an added one.

    ``fills``: added column -> what old rows show instead of NULL. It is text as canal-json would
    send it, for ``casts.cast_column`` (an enum's index, a set's bitmask, bytes as ISO-8859-1), or
    ``schema.CURRENT_TIMESTAMP`` in a column of dates or times: the time of the DDL.
    """

    before: TableSchema
    after: TableSchema
    sources: Mapping[str, str | None]
    fills: Mapping[str, str]
    session: ServerSession | None = None  # of a MySQL's or MariaDB's DDL: by its own rules

    def by_server(self, name: str) -> ServerChange | None:
        """How its server converts the old values of this column of ``after``; None: they stay, or
        TiDB's rules hold."""
        source = self.sources[name]
        if self.session is None or source is None:
            return None
        old, new = self.before.column(source), self.after.column(name)
        change = ServerChange(old=old, new=new, session=self.session)
        return change if not same_values(old, new) and change.is_other else None

    @property
    def loses_rows_of_a_set(self) -> bool:
        """Whether rows that all columns tell apart may be one by the new columns or key. The target
        has such rows once, however often they are upstream. A table made anew has none."""
        before, after = self.before, self.after
        if before.counts_rows and after.counts_rows:
            return False
        if not (before.key_is_row or after.key_is_row) or not any(self.sources.values()):
            return False
        lost = set(before.key) - set(self.sources.values())
        is_other = before.key_is_row != after.key_is_row or bool(lost)
        if self.session is not None:
            return is_other or any(self.by_server(name) for name in self.after.key)
        return is_other or any(may_make_equal(*types) for types in self.key_types())

    def key_types(self) -> Iterator[tuple[MySQLType, MySQLType]]:
        """The types of columns that stay in the key, before and after."""
        for name in self.after.key:
            source = self.sources[name]
            if source in self.before.key:
                yield self.before.column(source).stored, self.after.column(name).stored

    def refuse_recomputed(self) -> None:
        """Raises ValueError for a generated column whose stored values the server computes anew, by
        another expression or from other values: no log tells them."""
        if self.session is None:
            return
        for column in self.after.delivered:
            source = self.sources[column.name]
            old = None if source is None else self.before.column(source)
            if old is None or not (old.generated and column.generated):
                continue
            is_same = same_values(old, column) and old.expression == column.expression
            if not is_same or any(map(self._is_other, self._names_in(old))):
                raise ValueError(
                    f"{column.name} is computed from other columns, anew in old rows, whose values "
                    "are not sent"
                )

    def _names_in(self, generated: Column) -> Iterator[str]:
        """The columns of ``after`` from which it may be computed; all where nothing tells them."""
        words = {word.lower() for word in re.findall(r"[\w$]+", generated.expression)}
        for name, source in self.sources.items():
            if source is not None and (not words or source.lower() in words):
                yield name

    def _is_other(self, name: str) -> bool:
        column = self.after.column(name)
        return not column.generated and self.by_server(name) is not None
