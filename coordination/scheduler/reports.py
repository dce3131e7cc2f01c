"""The statuses of an agent's spans, sent in full once and as changes after that
(docs/cluster.md 17).

    agent   SpanReports   observe(status) ─► sequence + 1 when it differs from the last one
                          since(seen)     ─► what changed after response `seen`; 0: everything
    owner   ReportView    apply(response) ─► the rows that are new; `seen` for the next heartbeat

The owner names the last response that it has applied, and gets what has changed since. So nothing
is missed if a response is lost, late, doubled or out of order. The checksum is over all spans of
the agent; if the owner's copy has another one, the owner asks for the full list again. Sequences
belong to one processor epoch.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from coordination.scheduler.messages import DispatchTableResponse, HeartbeatResponse
from coordination.scheduler.table_status import Statuses, TableState, TableStatus, weight

_ABSENT: Final = TableState.ABSENT
_WRAP: Final = 2**64  # sums of weights


class SpanReports:
    """The agent's half. A span that is gone is kept as Absent until the owner has applied a
    response that says so."""

    def __init__(self) -> None:
        self.sequence = 1  # 0 is what the owner sends for "nothing seen"
        self._sum = 0
        self._last: dict[int, tuple[int, TableStatus]] = {}  # in the order of their last change
        self._gone: dict[int, int] = {}  # table ID -> sequence at which it became Absent

    @property
    def checksum(self) -> int:
        return self._sum % _WRAP

    def observe(self, status: TableStatus) -> None:
        table_id = status.table_id
        before = self._last.get(table_id)
        if before is None:
            if status.state is _ABSENT:
                return
        elif before[1] == status:
            return
        else:
            del self._last[table_id]  # to the end
            self._sum -= weight(before[1])
        self.sequence += 1
        self._sum += weight(status)
        self._last[table_id] = (self.sequence, status)
        if status.state is _ABSENT:
            self._gone[table_id] = self.sequence
        else:
            self._gone.pop(table_id, None)

    def since(self, seen: int) -> tuple[TableStatus, ...]:
        """The statuses that changed after response ``seen``, oldest change first; with 0 all spans
        that are not Absent. Spans whose absence the owner has seen are forgotten."""
        self._forget(seen)
        if seen == 0:
            return tuple(s for _, s in self._last.values() if s.state is not _ABSENT)
        changed = []
        for sequence, status in reversed(self._last.values()):
            if sequence <= seen:
                break
            changed.append(status)
        return tuple(reversed(changed))

    def last(self, table_id: int) -> TableStatus | None:
        entry = self._last.get(table_id)
        return entry and entry[1]

    def _forget(self, seen: int) -> None:
        for table_id in [t for t, sequence in self._gone.items() if sequence <= seen]:
            del self._gone[table_id], self._last[table_id]


class ReportView:
    """The owner's half: its copy of one agent's spans, for one processor epoch."""

    __slots__ = ("_ahead", "_newest", "_sum", "seen", "statuses")

    def __init__(self) -> None:
        self.seen = 0
        self._newest = 0  # as `seen`, but not set to 0 when the full list is asked for again
        self.statuses = Statuses.of(())
        self._sum = 0
        self._ahead: dict[int, int] = {}  # dispatch responses newer than `seen`: table -> sequence

    def apply(self, response: HeartbeatResponse) -> Statuses | None:
        """Apply a response; returns the rows to act on, or None if the response is old or builds on
        one that was lost.

        For a full list, an Absent row is added for each span that it no longer names."""
        if response.sequence < self._newest or response.since > self.seen:
            return None
        rows = response.statuses
        if response.since == 0:
            is_gone = np.isin(self.statuses.table_ids, rows.table_ids, invert=True)
            rows = rows.beside(self.statuses.where(is_gone).absent())
        self._store(rows)
        self.seen = self._newest = response.sequence
        if self._sum != response.checksum:
            self.seen = 0  # the next heartbeat asks for everything
        return self._news(rows, response.sequence) if self._ahead else rows

    def apply_dispatched(self, response: DispatchTableResponse) -> bool:
        """Whether a dispatch response is new: nothing newer was received for its span. Its status
        is not stored here; the next heartbeat response brings it too."""
        table_id, sequence = response.status.table_id, response.sequence
        if sequence <= max(self._newest, self._ahead.get(table_id, 0)):
            return False
        self._ahead[table_id] = sequence
        return True

    def _store(self, rows: Statuses) -> None:
        if not rows:
            return
        held = self.statuses
        places = np.searchsorted(held.table_ids, rows.table_ids)
        is_held = places < len(held)
        is_held[is_held] = held.table_ids[places[is_held]] == rows.table_ids[is_held]
        places = places[is_held]
        self._sum -= Statuses(held.numbers[places], held.notes[places]).checksum()
        self._sum = (self._sum + rows.checksum()) % _WRAP
        held.numbers[places] = rows.numbers[is_held]
        held.notes[places] = rows.notes[is_held]
        if not is_held.all():
            held = held.beside(rows.where(~is_held))
        is_here = held.states != _ABSENT
        self.statuses = held if is_here.all() else held.where(is_here)

    def _news(self, rows: Statuses, sequence: int) -> Statuses:
        self._ahead = {t: ahead for t, ahead in self._ahead.items() if ahead > sequence}
        return rows.where(np.isin(rows.table_ids, [*self._ahead], invert=True))
