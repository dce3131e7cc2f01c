"""The tables of a changefeed as values, by name (rules 5 and 8). Nothing here asks a table's log:
`TableOpener` does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from coordination.model import TableName, Ts
from sinks.types.table_schema import TableSchema
from streaming.changefeed.replicated_table import NO_DDL, NOTHING_SHOWN, ReplicatedTable


class Tables(dict[TableName, ReplicatedTable]):
    """All known tables, by name. Changed by one thread only; a change is one assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.shown_ts = NOTHING_SHOWN  # of all tables: no cut at or below is one
        self.ended: dict[TableName, Ts] = {}  # dropped ones: what is of them at or below is old

    def put(self, span: ReplicatedTable) -> None:
        """Add or replace a span. Its checkpoint never falls."""
        known = self.get(span.name)
        assert known is None or known.checkpoint <= span.checkpoint, (
            f"checkpoint of {span.name} fell"
        )
        self[span.name] = span
        self.shown_ts = Ts(max(self.shown_ts, span.shown_ts))

    def end(self, name: TableName, at_ts: Ts) -> None:
        """A DDL has dropped the table. A table that is made again is another one."""
        self.pop(name, None)
        self.ended[name] = at_ts

    def last_ddls(self) -> dict[TableName, Ts]:
        """Up to where DDLs have run on each name, those of dropped tables included."""
        last = dict(self.ended)
        for name, table in self.items():
            last[name] = Ts(max(table.last_ddl_ts, table.created_ts, last.get(name, NO_DDL)))
        return last

    def schemas(self) -> dict[TableName, TableSchema | None]:
        """The schema of each span; None for one without a target."""
        return {span.name: span.target.schema if span.target else None for span in self.values()}

    def open_names(self, names: Iterable[TableName]) -> set[TableName]:
        """The names of tables whose columns nobody knows yet."""
        return {name for name in names if name not in self or not self[name].is_settled}

    def idle_to(self, limit: Ts, names: Iterable[TableName]) -> None:
        """Every span of these without an unapplied change is at ``limit`` too: no commit, only
        progress (rule 5)."""
        for name in names:
            span = self[name]
            if span.checkpoint < limit:
                self.put(replace(span, checkpoint=limit))
