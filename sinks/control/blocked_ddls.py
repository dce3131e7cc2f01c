"""``_tidelake/blocked_ddls``: DDLs that could not be run, and operators' decisions about them.

An owner notes a DDL for which a table waits, or before it stops for it. ``tidelake ddl skip|apply``
adds an operator's decision, which this owner or the next one carries out. A decision counts for one
table and commit-ts, and for ever: after a rewind the DDL comes again. Rows carry no term: they say
what was read, which is true whoever has read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from coordination.errors import ConfigError
from coordination.model import TableName, Ts
from sinks.control.columns import TEXT, from_rows, schema_of
from sinks.control.control_table import Change, ControlTable, TableView, replaced, rows_of

DdlAction = Literal["skip", "apply"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedDdl:
    """A DDL for which its table waits, or that has stopped its changefeed. Identity: changefeed,
    table and commit-ts."""

    changefeed_id: Annotated[str, "the changefeed that it stops, or whose table waits"]
    schema_name: Annotated[str, "MySQL schema"]
    table_name: Annotated[str, "MySQL table; empty: the DDL is about the schema"]
    commit_ts: Annotated[int, "TSO of the DDL"]
    query: Annotated[str, "the statement as it was sent, without passwords"]
    reason: Annotated[str, "why it cannot be run"]
    noted_at: Annotated[datetime | None, "when the last wait for it began"] = None
    action: Annotated[
        DdlAction | None, TEXT, "skip or apply, as an operator decided; null: it blocks"
    ] = None
    sql: Annotated[str | None, "apply runs this in its place; null: the statement itself"] = None
    ordered_at: Annotated[datetime | None, "when the operator decided"] = None

    @property
    def name(self) -> TableName:
        return TableName(self.schema_name, self.table_name)

    @property
    def place(self) -> tuple[TableName, Ts]:
        return self.name, Ts(self.commit_ts)


SCHEMA = schema_of(BlockedDdl)


class BlockedDdls:
    """Reads, notes and orders; safe to share between threads."""

    def __init__(self, warehouse: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._table = ControlTable(
            warehouse,
            "blocked_ddls",
            SCHEMA,
            storage_options,
            description="Tidelake: DDLs that could not be run, and operators' decisions",
        )

    def read(self, changefeed_id: str) -> dict[tuple[TableName, Ts], BlockedDdl]:
        """The changefeed's, by table and commit-ts; empty where none has ever blocked."""
        return self._table.read(lambda view: _of(view, changefeed_id)) or {}

    def read_all(self) -> list[BlockedDdl]:
        rows = self._table.read(lambda view: from_rows(view.rows(), BlockedDdl)) or []
        return sorted(rows, key=lambda row: (row.changefeed_id, row.commit_ts, str(row.name)))

    def note(self, row: BlockedDdl) -> None:
        """It blocks. An operator's word stays, and so does the statement that it is about."""

        def plan(view: TableView) -> Change:
            found = _of(view, row.changefeed_id)
            known = found.get(row.place, row)
            noted = replace(known, reason=row.reason, noted_at=_later_than(known.ordered_at))
            return replaced(view, row.changefeed_id, {**found, row.place: noted}.values())

        self._table.commit(plan, "note a DDL in")

    def order(
        self,
        changefeed_id: str,
        place: tuple[TableName, Ts],
        action: DdlAction,
        sql: str | None = None,
    ) -> BlockedDdl:
        """Stores an operator's decision and returns the row as it is then. The same decision twice
        is one commit, unless the DDL blocks again since the first. Raises ConfigError where no such
        DDL has been noted."""
        known = self.read(changefeed_id).get(place)
        if known is None:
            name, commit_ts = place
            raise ConfigError(
                f"no DDL of {name} at commit-ts {commit_ts} has blocked changefeed "
                f"{changefeed_id}: `tidelake ddl list` shows those that have"
            )
        ordered = known

        def plan(view: TableView) -> Change | None:
            nonlocal ordered
            found = _of(view, changefeed_id)
            ordered = found[place]
            said_at, noted_at = ordered.ordered_at, ordered.noted_at
            is_done = said_at is not None and noted_at is not None and noted_at <= said_at
            if is_done and (ordered.action, ordered.sql) == (action, sql):
                return None
            ordered = replace(ordered, action=action, sql=sql, ordered_at=_later_than(noted_at))
            return replaced(view, changefeed_id, {**found, place: ordered}.values())

        self._table.commit(plan, "store an operator's word in")
        return ordered


def _of(view: TableView, changefeed_id: str) -> dict[tuple[TableName, Ts], BlockedDdl]:
    return {row.place: row for row in from_rows(rows_of(view, changefeed_id), BlockedDdl)}


def _later_than(before: datetime | None) -> datetime:
    """Now, or just above ``before``: an operator's clock and an owner's are two, and which came
    last counts."""
    now = datetime.now(UTC)
    return now if before is None else max(now, before + timedelta(microseconds=1))
