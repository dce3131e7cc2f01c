"""By which shapes a capture casts the rows of a table that was rewound to below an ALTER TABLE."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from conf.settings import Changefeed
from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.control.schemas import SchemaRow
from sinks.ddl.past_schemas import PastSchema, older_shapes
from sinks.target.table_properties import DdlIdentity
from sinks.target.way_out import load_anew
from streaming.changefeed.replicated_table import ReplicatedTable, schema_row
from streaming.changefeed.schema_file import definitions_of

logger = logging.getLogger(__name__)

ReadRows = Callable[[TableName], Sequence[SchemaRow]]


class PastSchemaCache:
    """Reads them when they are first needed. For one thread."""

    def __init__(self, changefeed: Changefeed, read: ReadRows) -> None:
        self._changefeed = changefeed
        self._read = read
        self._all: dict[TableName, tuple[DdlIdentity, tuple[PastSchema, ...]]] = {}
        self._found: dict[TableName, tuple[DdlIdentity, tuple[PastSchema, ...]]] = {}

    def of(self, table: ReplicatedTable) -> tuple[PastSchema, ...]:
        """The shapes for rows above the table's checkpoint, as ``TableTask.older`` has them."""
        present = schema_row(table, self._changefeed.id)
        if present is None or present.commit_ts <= table.checkpoint + 1:
            self._found.pop(table.name, None)
            return ()
        assert table.shape is not None
        shape, found = self._found.get(table.name, (None, ()))
        if shape != table.shape:
            found = self._looked_up(table, present)
            self._found[table.name] = table.shape, found
        return found

    def all_of(self, table: ReplicatedTable) -> tuple[PastSchema, ...]:
        """The shapes for rows of any commit-ts."""
        present = schema_row(table, self._changefeed.id)
        return () if present is None else self._found_of(table, present)

    def behind(self, table: ReplicatedTable) -> dict[TableName, PastSchema]:
        """The shapes of upstream tables that have not had all DDLs of their target. Raises
        TidelakeError where such a shape is not known."""
        since = {name: ddls[0][0] for name, ddls in table.shards.behind.items() if ddls}
        if not since:
            return {}
        shape, shapes = self._all.get(table.name, (None, ()))
        if shape != table.shape and table.shape is not None:
            shapes = self.all_of(table)
            self._all[table.name] = table.shape, shapes
        found = {}
        for name, ts in since.items():
            then = next((each for each in shapes if each.last_ts >= ts - 1), None)
            if then is not None and not then.is_known:
                raise TidelakeError(
                    f"table {table.name}: rows of {name} have the columns from before the DDL at "
                    f"commit-ts {ts}, and _tidelake/schemas does not tell how they come into those "
                    f"of now: {load_anew(table.name)}"
                )
            if then is not None:  # else it has the present one
                found[name] = then
        return found

    def _looked_up(self, table: ReplicatedTable, present: SchemaRow) -> tuple[PastSchema, ...]:
        found = self._found_of(table, present)
        unknown = found[0] if found and not found[0].is_known else None
        if unknown is not None and unknown.last_ts > table.checkpoint:
            logger.warning(
                "rows that come again at or below commit-ts %d are cast by the columns that the "
                "table has now: _tidelake/schemas does not tell which it had then table=%s",
                *(unknown.last_ts, table.name),
            )
        return found

    def _found_of(self, table: ReplicatedTable, present: SchemaRow) -> tuple[PastSchema, ...]:
        assert table.target is not None
        stored = self._read(table.name)
        before = [row for row in stored if row.commit_ts < present.commit_ts]
        on_add_default = self._changefeed.on_add_default
        return older_shapes(
            [*before, present],
            table.target.schema,
            made_ts=table.created_ts,
            on_add_default="null" if table.target.is_log else on_add_default,
            file=definitions_of(self._changefeed).schema(table.name),
            choice=table.target.form.choice,
        )
