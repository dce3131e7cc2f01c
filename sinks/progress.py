"""``_tidelake/progress``: one row per span, always current: how fresh is a table?

A batch's rows go in one commit, refused unless the version that it follows holds our term. Within
one incarnation a checkpoint never falls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from coordination.errors import TidelakeError
from coordination.model import TableName, tso_time
from sinks.control_schema import from_rows
from sinks.control_table import Change, ControlTable, TableView, column, replaced, rows_of
from sinks.txn import check_term, claim_term

WHOLE_TABLE = "(-inf, +inf)"
STOPPED = "stopped"  # of a table that nobody fills any more, until somebody does

SCHEMA = pa.schema(
    [
        column("changefeed_id", pa.string(), "the changefeed that fills the table"),
        column("incarnation", pa.int32(), "of the changefeed; counted up by a rewind"),
        column("schema_name", pa.string(), "MySQL schema"),
        column("table_name", pa.string(), "MySQL table"),
        column("generation", pa.int32(), "of the table; counted up by DROP and re-create"),
        column("span", pa.string(), "the part of the table; for now all of it"),
        column(
            "state",
            pa.string(),
            "replicating, warning (no key, or no column) … or stopped: nobody fills it",
        ),
        column("checkpoint_ts", pa.int64(), "TSO: every change at or below is in the table"),
        column("resolved_ts", pa.int64(), "TSO: what the source has promised so far"),
        column("checkpoint_time", pa.timestamp("us", tz="UTC"), "checkpoint_ts as a time"),
        column("delta_version", pa.int64(), "of the target table at the checkpoint"),
        column("engine", pa.string(), "that made the last commit: merge-on-write or spark"),
        column("dead_letters", pa.int64(), "messages of the table that could not be applied"),
        column(
            "source_offsets",
            pa.map_(pa.string(), pa.int64()),
            "topic/partition -> low-water offset",
        ),
        column("capture_id", pa.string(), "who wrote the row"),
        column("epoch", pa.string(), "that capture's session"),
        column("fence", pa.int64(), "term << 32 | assignment: orders the writers"),
        column("updated_at", pa.timestamp("us", tz="UTC"), "when the row was written"),
        column(
            "dropped_columns",
            pa.map_(pa.string(), pa.int64()),
            "column that the target lacks -> values dropped (on-unknown-column)",
        ),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRow:
    """A span's progress. ``updated_at`` is stamped by ``advance`` where it is None."""

    changefeed_id: str
    incarnation: int
    schema_name: str
    table_name: str
    generation: int
    span: str = WHOLE_TABLE
    state: str
    checkpoint_ts: int
    resolved_ts: int
    delta_version: int | None = None
    engine: str | None = None
    dead_letters: int = 0
    source_offsets: Mapping[str, int] = field(default_factory=dict)
    capture_id: str
    epoch: str
    fence: int
    updated_at: datetime | None = None
    dropped_columns: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> TableName:
        return TableName(self.schema_name, self.table_name)

    @property
    def checkpoint_time(self) -> datetime:
        """The checkpoint as a time of TiDB's clock."""
        return tso_time(self.checkpoint_ts)


class Progress:
    """Reads, claims and advances; safe to share between threads."""

    def __init__(self, warehouse: str, storage_options: Mapping[str, str] | None = None) -> None:
        description = "Tidelake: one row per table span, how far it is"
        self._table = ControlTable(
            warehouse, "progress", SCHEMA, storage_options, description=description
        )

    def claim(self, changefeed_id: str, term: int) -> None:
        """From here on only this term's rows count; TermRefused if a newer one was claimed."""
        claim_term(self._table, changefeed_id, term)

    def read(self, changefeed_id: str) -> dict[TableName, ProgressRow]:
        """The changefeed's rows, of whatever incarnation; empty when there are none."""
        return self._table.read(lambda view: _of(view, changefeed_id)) or {}

    def read_all(self) -> list[ProgressRow]:
        rows = self._table.read(lambda view: from_rows(view.rows(), ProgressRow))
        return sorted(
            rows or [], key=lambda row: (row.changefeed_id, row.name.schema, str(row.name))
        )

    def advance(self, rows: Sequence[ProgressRow], term: int) -> None:
        """Replace or add one changefeed's rows, by table, in one commit, or TermRefused.

        A span that was assigned in an earlier term keeps that term's fence."""
        if not rows:
            return
        changefeed_id = rows[0].changefeed_id
        assert all(row.changefeed_id == changefeed_id for row in rows)
        assert all(row.fence >> 32 <= term for row in rows)

        def plan(view: TableView) -> Change:
            check_term(self._table, view, changefeed_id, term)
            ours = _of(view, changefeed_id)
            for row in rows:
                self._refuse_to_fall(ours.get(row.name), row)
            stamp = datetime.now(UTC)
            ours |= {row.name: replace(row, updated_at=row.updated_at or stamp) for row in rows}
            return replaced(view, changefeed_id, ours.values())

        self._table.commit(plan, "advance the progress in")

    def stop(self, changefeed_id: str, term: int) -> None:
        """Say of all its tables that nobody fills them; TermRefused like ``advance``."""

        def plan(view: TableView) -> Change | None:
            check_term(self._table, view, changefeed_id, term)
            stored = view.rows()
            ours = pc.equal(stored["changefeed_id"], changefeed_id)
            states = pc.if_else(ours, STOPPED, stored["state"])
            if states.equals(stored["state"]):
                return None
            number = stored.schema.get_field_index("state")
            rows = stored.set_column(number, stored.schema.field(number), states)
            return Change(rows=rows.combine_chunks(), mode="overwrite")

        self._table.commit(plan, "stop the tables in")

    def _refuse_to_fall(self, stored: ProgressRow | None, row: ProgressRow) -> None:
        if stored is None:
            return
        before, after = ((r.incarnation, r.checkpoint_ts) for r in (stored, row))
        if after < before:
            raise TidelakeError(
                f"changefeed {row.changefeed_id}: refusing to move (incarnation, checkpoint-ts) of "
                f"{row.name} back from {before} to {after} in {self._table.uri}"
            )


def _of(view: TableView, changefeed_id: str) -> dict[TableName, ProgressRow]:
    found = from_rows(rows_of(view, changefeed_id), ProgressRow)
    return {row.name: row for row in found}
