"""``_tidelake/progress``: one row per span. It tells users how fresh each table is.

The rows of one call are written in one commit, which is refused unless the version that it follows
holds our term. Within one incarnation a checkpoint never falls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated

import pyarrow as pa

from coordination.errors import TidelakeError
from coordination.model import TableName, tso_time
from sinks.control.columns import INT32, from_rows, schema_of, to_rows
from sinks.control.control_table import Change, ControlTable, TableView, replaced, rows_of
from sinks.control.terms import check_term, claim

WHOLE_TABLE = "(-inf, +inf)"
STOPPED = "stopped"  # no capture fills the table at present
BLOCKED = "blocked"  # an operator has to say how it goes on: a DDL cannot run, or ``error`` says it
DROPPED = "dropped"  # by a DDL at its checkpoint: rows and DDLs at or below it are old


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRow:
    """A span's progress. ``updated_at`` is stamped by ``advance`` where it is None."""

    changefeed_id: Annotated[str, "the changefeed that fills the table"]
    incarnation: Annotated[int, INT32, "the changefeed's; counted up by a rewind"]
    schema_name: Annotated[str, "MySQL schema"]
    table_name: Annotated[str, "MySQL table"]
    generation: Annotated[int, INT32, "always 1: a dropped table goes on in its log"]
    span: Annotated[str, "the part of the table; for now all of it"] = WHOLE_TABLE
    state: Annotated[
        str,
        "replicating, warning (no key, or no column, or error), blocked (by a DDL, or error) … "
        "stopped: nobody fills it; or dropped",
    ]
    checkpoint_ts: Annotated[int, "TSO: every change at or below is in the table"]
    resolved_ts: Annotated[int, "TSO: the source has sent everything up to it"]
    checkpoint_time: Annotated[datetime, "checkpoint_ts as a time"] = field(init=False)
    delta_version: Annotated[int | None, "the target table's version at the checkpoint"] = None
    engine: Annotated[str | None, "the one that made the last commit: merge-on-write or spark"] = (
        None
    )
    dead_letters: Annotated[int, "messages of the table that could not be applied"] = 0
    source_positions: Annotated[Mapping[str, int], "part -> low-water position"] = field(
        default_factory=dict
    )
    capture_id: Annotated[str, "the capture that has the table"]
    epoch: Annotated[str, "that capture's session"]
    fence: Annotated[int, "term << 32 | assignment: orders the writers"]
    updated_at: Annotated[datetime | None, "when the row was written"] = None
    dropped_columns: Annotated[
        Mapping[str, int], "column that the target lacks -> values dropped (on-unknown-column)"
    ] = field(default_factory=dict)
    null_dates: Annotated[
        Mapping[str, int], "column -> dates that Delta does not have, written as NULL (zero-date)"
    ] = field(default_factory=dict)
    error: Annotated[str | None, "why it does not go on, while it lasts; null: nothing"] = None
    identity_ts: Annotated[int | None, "TSO: the transaction identity its log was seen with"] = None
    lacks: Annotated[
        str | None, "rows of before that no copy has: it is not replicated, error says the ways on"
    ] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "checkpoint_time", tso_time(self.checkpoint_ts))

    @property
    def name(self) -> TableName:
        return TableName(self.schema_name, self.table_name)


SCHEMA = schema_of(ProgressRow)


class Progress:
    """Reads, claims and advances rows. Thread-safe; every call blocks for storage."""

    def __init__(self, warehouse: str, storage_options: Mapping[str, str] | None = None) -> None:
        description = "Tidelake: one row per table span, how far it is"
        self._table = ControlTable(
            warehouse, "progress", SCHEMA, storage_options, description=description
        )

    def claim(self, changefeed_id: str, term: int) -> None:
        """From here on only this term can write rows. Raises TermRefused if a newer one was
        claimed."""
        claim(self._table, changefeed_id, term)

    def read(self, changefeed_id: str) -> dict[TableName, ProgressRow]:
        """The changefeed's rows, of any incarnation; empty if there are none."""
        return self._table.read(lambda view: _of(view, changefeed_id)) or {}

    def read_all(self) -> list[ProgressRow]:
        rows = self._table.read(lambda view: from_rows(view.rows(), ProgressRow))
        return sorted(
            rows or [], key=lambda row: (row.changefeed_id, row.name.schema, str(row.name))
        )

    def advance(self, rows: Sequence[ProgressRow], term: int) -> None:
        """Replace or add rows of one changefeed, by table, in one commit. Raises TermRefused when
        the term is not ours any more, TidelakeError when a checkpoint would fall.

        ``fence`` may be of an earlier term: a span that was assigned then keeps it."""
        if not rows:
            return
        changefeed_id = rows[0].changefeed_id
        assert all(row.changefeed_id == changefeed_id for row in rows)
        assert all(row.fence >> 32 <= term for row in rows)
        ours = {row.name: row for row in rows}

        def plan(view: TableView) -> Change:
            check_term(self._table, view, changefeed_id, term)
            stored = view.rows()
            names = ("changefeed_id", "schema_name", "table_name", "lacks")
            asked = (*names, "incarnation", "checkpoint_ts")
            is_kept = []
            for owner, schema, table, lacks, *before in zip(
                *(stored[name].to_pylist() for name in asked), strict=True
            ):
                row = ours.get(TableName(schema, table)) if owner == changefeed_id else None
                is_kept.append(row is None)
                if row is not None and lacks is None:  # else it has nothing, and is copied now
                    self._refuse_to_fall(tuple(before), row)
            stamp = datetime.now(UTC)
            stamped = (replace(row, updated_at=row.updated_at or stamp) for row in ours.values())
            parts = [stored.filter(pa.array(is_kept, pa.bool_())), to_rows(stamped, stored.schema)]
            return Change(rows=pa.concat_tables(parts).combine_chunks(), mode="overwrite")

        self._table.commit(plan, "advance the progress in")

    def stop(self, changefeed_id: str, term: int) -> None:
        """Set the state of all the changefeed's rows to `stopped`. Raises TermRefused like
        ``advance``."""

        def plan(view: TableView) -> Change | None:
            check_term(self._table, view, changefeed_id, term)
            ours = _of(view, changefeed_id).values()
            if all(row.state in (STOPPED, DROPPED) for row in ours):
                return None
            stopped = [row if row.state == DROPPED else replace(row, state=STOPPED) for row in ours]
            return replaced(view, changefeed_id, stopped)

        self._table.commit(plan, "stop the tables in")

    def _refuse_to_fall(self, before: tuple[int, ...], row: ProgressRow) -> None:
        after = (row.incarnation, row.checkpoint_ts)
        if after < before:
            raise TidelakeError(
                f"changefeed {row.changefeed_id}: refusing to move (incarnation, checkpoint-ts) of "
                f"{row.name} back from {before} to {after} in {self._table.uri}"
            )


def _of(view: TableView, changefeed_id: str) -> dict[TableName, ProgressRow]:
    found = from_rows(rows_of(view, changefeed_id), ProgressRow)
    return {row.name: row for row in found}
