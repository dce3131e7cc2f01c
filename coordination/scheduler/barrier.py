"""How far the spans may be applied: a hard upper bound that starts at the checkpoint
(docs/cluster.md 6).

    global_barrier_ts = min(DDL scan position, first pending DDL that blocks all tables,
                            next sync point, target-ts)
    a table's barrier = min(global_barrier_ts, the first pending DDL of that table)

A barrier is inclusive: rows at it are applied, nothing above it is. A pending DDL's barrier is its
own commit-ts: the DDL runs when the changefeed's checkpoint has reached it. Every DDL at or below
the scan position is known, so a span's barrier never has to fall below one that was sent before:
an old barrier that arrives late is tighter, never looser, than the newest one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from coordination.model import Ts

MAX_TABLE_BARRIERS: Final = 256  # in one heartbeat, as TiCDC; the DDLs after them hold all tables


@dataclass(frozen=True, slots=True)
class Barrier:
    """The barrier in a heartbeat. Tables that are not named have the global barrier."""

    global_barrier_ts: Ts
    table_barriers: Mapping[int, Ts] = field(default_factory=dict)  # by table ID

    def limit_ts(self, table_id: int) -> Ts:
        """The last commit-ts that this table may have applied."""
        return min(
            self.global_barrier_ts, self.table_barriers.get(table_id, self.global_barrier_ts)
        )

    @property
    def min_table_barrier_ts(self) -> Ts:
        """The barrier of the changefeed's checkpoint: the least of all tables."""
        return min(self.global_barrier_ts, *self.table_barriers.values(), self.global_barrier_ts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDdl:
    """A DDL that was read but has not run. ``table_ids`` is None if it blocks all tables.

    ``is_held``: it cannot run until an operator has said how to go on. Its tables wait for that,
    and nothing else waits: no other DDL of these tables is pending.
    """

    commit_ts: Ts
    table_ids: Collection[int] | None
    is_held: bool = False


def compute_barrier(
    *,
    checkpoint_ts: Ts,
    ddl_scan_ts: Ts,
    pending_ddls: Iterable[PendingDdl] = (),
    next_sync_point_ts: Ts | None = None,
    target_ts: Ts | None = None,
) -> Barrier:
    """The barrier of one owner tick; never below the changefeed's checkpoint.

    ``ddl_scan_ts``: every DDL at or below it is known (0: nothing was read)."""
    bounds = [bound for bound in (ddl_scan_ts, next_sync_point_ts, target_ts) if bound is not None]
    global_ts = min(bounds)
    tables: dict[int, Ts] = {}
    for ddl in sorted(pending_ddls, key=lambda ddl: ddl.commit_ts):
        if ddl.commit_ts >= global_ts:
            break
        news = None if ddl.table_ids is None else [t for t in ddl.table_ids if t not in tables]
        if news is None or len(tables) + len(news) > MAX_TABLE_BARRIERS:
            global_ts = ddl.commit_ts
            break
        tables.update(dict.fromkeys(news, ddl.commit_ts))
    return Barrier(
        max(global_ts, checkpoint_ts),
        {table_id: max(ts, checkpoint_ts) for table_id, ts in tables.items()},
    )
