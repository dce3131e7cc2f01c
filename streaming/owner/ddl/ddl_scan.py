"""The owner's knowledge of its tables and DDLs, and the part of it that the coordination gets."""

from __future__ import annotations

from dataclasses import dataclass

from coordination.model import TableName, Ts
from coordination.scheduler.barrier import PendingDdl
from streaming.changefeed.replicated_table import ReplicatedTable, span_of
from streaming.changefeed.table_registry import TableRegistry
from streaming.owner.ddl.plan import DdlPlan
from streaming.source.positions import Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """A table that was made, and from where its rows must be read."""

    table: ReplicatedTable
    low_water: Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlScanResult:
    """Every DDL at or below ``position_ts`` is behind us, except for the blocked one and those that
    follow it."""

    position_ts: Ts
    made: tuple[NewTable, ...]
    removed: tuple[int, ...]  # table IDs of spans that a DDL has ended
    plan: DdlPlan

    @property
    def blocked_at(self) -> Ts | None:
        """The ts at which tables wait for a DDL: it has not happened to them."""
        blocked = self.plan.blocked
        return Ts(blocked.commit_ts - 1) if blocked is not None else None


def pending_ddls(
    known: DdlScanResult, spans: TableRegistry, incarnation: int
) -> tuple[PendingDdl, ...]:
    """The DDLs for which tables wait. A DDL that runs on some tables holds those alone. All tables
    wait for the DDL after it, and for one that brings a table back. A table that waits for an
    operator holds no other one."""
    plan = known.plan

    def ids(*names: TableName) -> list[int]:
        return [span_of(spans[name], incarnation).table_id for name in names]

    pending = [
        PendingDdl(commit_ts=Ts(at_ts - 1), table_ids=ids(name), is_held=True)
        for name, at_ts in (held.place for held in plan.held)
    ]
    if known.blocked_at is not None:
        names = ids(*plan.runs.names) if plan.runs is not None else []
        pending.append(PendingDdl(commit_ts=known.blocked_at, table_ids=names or None))
    if plan.next_limit is not None and plan.runs is not None and plan.runs.names:
        pending.append(PendingDdl(commit_ts=plan.next_limit, table_ids=None))
    return tuple(pending)
