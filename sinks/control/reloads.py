"""``_tidelake/reloads``: orders to load one table anew, and how far each is.

``tidelake table reload`` stores an order, and where `on-unknown-values` says so, the program
itself. The program that replicates the changefeed stops its
stream, carries the order out, and goes on. Rows carry no term: what an order does to a table is
named by ``order_id``, and done once.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Literal

from coordination.model import TableName
from sinks.control.columns import TEXT, from_rows, schema_of
from sinks.control.control_table import Change, ControlTable, TableView, replaced, rows_of

ReloadState = Literal["ordered", "copying", "loading", "done", "given up"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """The last order for a table. Identity: changefeed and table."""

    changefeed_id: Annotated[str, "the changefeed of the table"]
    schema_name: Annotated[str, "MySQL schema of the target"]
    table_name: Annotated[str, "MySQL table of the target"]
    order_id: Annotated[str, "the order's own: the table notes that it was loaded by it"]
    state: Annotated[ReloadState, TEXT, "ordered, copying, loading, done or given up"] = "ordered"
    ordered_at: Annotated[datetime, "when the operator ordered it"]
    rows: Annotated[int, "so many are copied"] = 0
    of_rows: Annotated[int, "of about so many, as the database estimates"] = 0
    updated_at: Annotated[datetime, "when the row was written"]
    error: Annotated[str | None, "why it was given up"] = None
    ddl_ts: Annotated[
        int | None, "commit-ts of the DDL for which the program has ordered it; null: an operator"
    ] = None

    @property
    def name(self) -> TableName:
        return TableName(self.schema_name, self.table_name)

    @property
    def is_open(self) -> bool:
        return self.state not in ("done", "given up")


SCHEMA = schema_of(Reload)


class Reloads:
    """Reads, orders and notes; safe to share between threads. Every call blocks for storage."""

    def __init__(self, warehouse: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._table = ControlTable(
            warehouse,
            "reloads",
            SCHEMA,
            storage_options,
            description="Tidelake: operators' orders to load a table anew",
        )

    def read(self, changefeed_id: str) -> dict[TableName, Reload]:
        """The changefeed's, by table; empty where none was ever ordered."""
        return self._table.read(lambda view: _of(view, changefeed_id)) or {}

    def next_open(self, changefeed_id: str) -> Reload | None:
        """The oldest order that is neither done nor given up."""
        rows = (each for each in self.read(changefeed_id).values() if each.is_open)
        return min(rows, key=lambda each: (each.ordered_at, each.order_id), default=None)

    def read_all(self) -> list[Reload]:
        return self._table.read(lambda view: from_rows(view.rows(), Reload)) or []

    def order(self, changefeed_id: str, name: TableName, ddl_ts: int | None = None) -> Reload:
        """Store an order, and return it. One that is open already stays as it is, and so does the
        last one where the program gives it a second time for one DDL (``ddl_ts``)."""
        now = datetime.now(UTC)
        ordered = Reload(
            changefeed_id=changefeed_id,
            schema_name=name.schema,
            table_name=name.table,
            order_id=uuid.uuid4().hex,
            ordered_at=now,
            updated_at=now,
            ddl_ts=ddl_ts,
        )

        def plan(view: TableView) -> Change | None:
            nonlocal ordered
            found = _of(view, changefeed_id)
            known = found.get(name)
            is_again = known is not None and ddl_ts is not None and known.ddl_ts == ddl_ts
            if known is not None and (known.is_open or is_again):
                ordered = known
                return None
            return replaced(view, changefeed_id, {**found, name: ordered}.values())

        self._table.commit(plan, "store an operator's order in")
        return ordered

    def note(self, row: Reload) -> None:
        """Write how far the order is, unless it is over or another one came in its place."""

        def plan(view: TableView) -> Change | None:
            found = _of(view, row.changefeed_id)
            known = found.get(row.name)
            if known is None or known.order_id != row.order_id or not known.is_open:
                return None
            told = replace(row, updated_at=datetime.now(UTC))
            return replaced(view, row.changefeed_id, {**found, row.name: told}.values())

        self._table.commit(plan, "note a reload in")


def _of(view: TableView, changefeed_id: str) -> dict[TableName, Reload]:
    return {row.name: row for row in from_rows(rows_of(view, changefeed_id), Reload)}
