"""Tables whose rows a scan has met and that nobody has registered (docs/cluster.md 4).

A capture is told of its own spans only; of the others' it learns from their progress rows, which
are there before a table is anybody's span."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from coordination.model import TableName, Ts
from coordination.scheduler.messages import UnknownTable
from streaming.filter import TableFilter

LOOK_EVERY_S = 1.0


class UnknownTables:
    """One thread at a time. ``registered`` reads the progress rows."""

    def __init__(
        self, table_filter: TableFilter, registered: Callable[[], Collection[TableName]]
    ) -> None:
        self._filter = table_filter
        self._read_registered = registered
        self._settled: set[TableName] = set()  # registered, or left out by the filter
        self._unknown: dict[TableName, Ts] = {}
        self._looked_s = 0.0

    def meet(self, first_ts: Mapping[TableName, Ts], ours: Collection[TableName]) -> None:
        """The tables of a read, with the commit-ts of their first rows."""
        for name, ts in first_ts.items():
            if name in self._settled:
                continue
            if name in ours or not self._filter.selects(name):
                self._settled.add(name)
                continue
            self._unknown[name] = Ts(min(ts, self._unknown.get(name, ts)))
        self.look_again(ours, now_s=None)

    def look_again(self, ours: Collection[TableName], *, now_s: float | None) -> None:
        """Whether they have been registered meanwhile; not too often while nothing is read."""
        if not self._unknown or (now_s is not None and now_s - self._looked_s < LOOK_EVERY_S):
            return
        self._looked_s = now_s or self._looked_s
        registered = set(self._read_registered()) | set(ours)
        self._settled |= registered & self._unknown.keys()
        self._unknown = {n: ts for n, ts in self._unknown.items() if n not in registered}

    def found(self) -> tuple[UnknownTable, ...]:
        """In order, each with the commit-ts of its first row."""
        return tuple(
            UnknownTable(name.schema, name.table, ts) for name, ts in sorted(self._unknown.items())
        )
