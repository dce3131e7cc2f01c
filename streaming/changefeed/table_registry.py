"""The tables of a changefeed, and what opens them, in one: `Tables` and `TableOpener`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from conf.settings import DeltaSink
from coordination.model import TableName, Ts
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import ProgressRow
from sinks.target.engine_port import Target
from sinks.target.table_properties import DdlIdentity
from sinks.types.table_schema import TableSchema
from streaming.changefeed.replicated_table import NO_DDL, ReplicatedTable
from streaming.changefeed.schema_file import Definitions
from streaming.changefeed.schema_from_rows import Untold, WholeRow
from streaming.changefeed.table_opener import NO_MORE, TableOpener
from streaming.changefeed.tables import Tables
from streaming.changefeed.target_forms import WriteModes


class TableRegistry(Tables):
    """All known tables, by name. Changed by the batch thread only."""

    def __init__(
        self,
        sink: DeltaSink,
        row: ChangefeedRow,
        forms: WriteModes | None = None,
        defined: Definitions | None = None,
    ) -> None:
        """``defined``: what tables were at the start-ts, from the schema file."""
        super().__init__()
        self.opener = TableOpener(sink, row, forms, defined)
        self.uri, self.at, self.opened = self.opener.uri, self.opener.at, self.opener.opened
        self.come, self.ownership = self.opener.come, self.opener.ownership

    @property
    def forms(self) -> WriteModes:
        return self.opener.forms

    @property
    def defined(self) -> Definitions:
        return self.opener.defined

    @property
    def older_copies(self) -> dict[TableName, int]:
        return self.opener.older_copies

    def resume(self, rows: Mapping[TableName, ProgressRow]) -> None:
        """Take up the tables of these progress rows; those of an older incarnation are sealed
        first. Raises where one of them cannot go on."""
        for name, row in sorted(rows.items()):
            span = self.opener.resumed(name, row)
            if span.is_dropped:
                self.end(name, span.checkpoint)
            else:
                self.put(span)

    def refuse_brought_back(self, name: TableName, row: ProgressRow | None) -> None:
        """Raises TableBroughtBack where that was since the table was opened or its row written."""
        if name in self and row is not None:
            self.opener.refuse_brought_back(self[name], row)

    def create(
        self,
        name: TableName,
        schema: TableSchema,
        ddl: DdlIdentity,
        start: Ts,
        shape_ts: Ts = NO_DDL,
        *,
        also: Mapping[str, str] = NO_MORE,
    ) -> None:
        """See `TableOpener.created`."""
        self.put(self.opener.created(name, schema, ddl, start, shape_ts, also=also))

    def kept_target(self, kept: str, name: TableName) -> Target | None:
        """See `TableOpener.kept_target`."""
        return self.opener.kept_target(kept, name)

    def target_under(self, name: TableName, new_name: TableName) -> Target | None:
        """The target of a table that is renamed; None if it has none."""
        return self.opener.target_under(self[name], new_name)

    def renamed(self, name: TableName, new_name: TableName, at_ts: Ts) -> ReplicatedTable:
        """The table under its new name, as the DDL has made it. Not put yet."""
        return self.opener.renamed(self[name], new_name, at_ts)

    def look_again(self, name: TableName) -> ReplicatedTable:
        """The table as its log has it after a DDL; its checkpoint stays. Not put yet."""
        return self.opener.look_again(self[name])

    def make_from_rows(
        self,
        name: TableName,
        told: WholeRow | Untold,
        start: Ts,
        origins: Iterable[TableName] = (),
    ) -> None:
        """See `TableOpener.made_from_rows`."""
        self.put(self.opener.made_from_rows(name, told, start, origins, self.get(name)))
