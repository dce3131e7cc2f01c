"""One span as its owner sees it: which capture writes it, which one prepares to, and what to order
them (docs/states.md).

    Absent ──add──► Prepare ──secondary Prepared──► Commit ──primary Replicating──► Replicating
                      ▲                               │                               │ │
                      └───────────── move ────────────┼───────────────────────────────┘ │
    Absent ◄── the last holder is gone ───────────────┘                     remove      ▼
    (removed) ◄── all holders have stopped ────────────────────────────────────────  Removing

A holder is the *primary* (it writes, or was told to), the *secondary* (it prepares) or
*undetermined* (it may still write, though it is not the primary). The most important rule: a
secondary is promoted only when there is neither a primary nor an undetermined holder, and only in
`_promote`. TiCDC's set forgets two captures that may still write; this one keeps them as
undetermined: a primary that reports Stopping during Prepare, and a capture outside the set that
reports a span which it should not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from coordination.errors import TidelakeError
from coordination.model import NO_TS, CaptureID, Ts
from coordination.scheduler.messages import Checkpoint, Span
from coordination.scheduler.table_status import TableState, TableStatus


class ReplicationState(IntEnum):
    """The numbers are TiCDC's."""

    UNKNOWN = 0
    ABSENT = 1
    PREPARE = 2
    COMMIT = 3
    REPLICATING = 4
    REMOVING = 5


class CaptureRole(IntEnum):
    PRIMARY = 1
    SECONDARY = 2
    UNDETERMINED = 3


class MultiplePrimaries(TidelakeError):
    """Two captures replicate one span; the changefeed stops."""


@dataclass(frozen=True, slots=True)
class AddOrder:
    capture_id: CaptureID
    is_secondary: bool


@dataclass(frozen=True, slots=True)
class RemoveOrder:
    capture_id: CaptureID


Order = AddOrder | RemoveOrder


class _Report(NamedTuple):
    """A capture's report of the span, and the list for the orders that follow from it."""

    status: TableStatus
    capture_id: CaptureID
    orders: list[Order]


_LIVE: Final = frozenset(
    {TableState.PREPARING, TableState.PREPARED, TableState.REPLICATING, TableState.STOPPING}
)


@dataclass(slots=True, eq=False)
class ReplicationSet:
    """One span and its holders. Mutable, and small: an owner has one for each of its spans."""

    span: Span
    checkpoint_ts: Ts
    resolved_ts: Ts = NO_TS
    state: ReplicationState = ReplicationState.ABSENT
    primary: CaptureID | None = None
    secondary: CaptureID | None = None
    undetermined: tuple[CaptureID, ...] = ()
    delta_version: int | None = None  # the newest that was reported
    status: TableStatus | None = None  # the last one that a primary reported

    def __post_init__(self) -> None:
        self.resolved_ts = max(self.resolved_ts, self.checkpoint_ts)

    @classmethod
    def build(
        cls, span: Span, checkpoint_ts: Ts, statuses: Mapping[CaptureID, TableStatus]
    ) -> ReplicationSet:
        """The set of a span as all agents report it, when an owner starts. Raises
        MultiplePrimaries."""
        made = cls(span, checkpoint_ts)
        by_state: dict[TableState, list[CaptureID]] = {}
        for capture_id in sorted(statuses):
            by_state.setdefault(statuses[capture_id].state, []).append(capture_id)
            if statuses[capture_id].state in _LIVE:
                made.advance_checkpoint(statuses[capture_id])
        primaries = by_state.get(TableState.REPLICATING, [])
        if len(primaries) > 1:
            raise made._multiple_primaries(primaries[0], primaries[1])
        prepared = by_state.get(TableState.PREPARED, [])
        secondaries = [*prepared, *by_state.get(TableState.PREPARING, [])]
        made.primary = primaries[0] if primaries else None
        made.status = statuses[primaries[0]] if primaries else None
        # TiCDC keeps several secondaries; here all but the best one become undetermined
        made.secondary = secondaries[0] if secondaries else None
        made.undetermined = (*by_state.get(TableState.STOPPING, []), *secondaries[1:])
        if made.secondary is not None:
            made.state = ReplicationState.COMMIT if prepared else ReplicationState.PREPARE
        elif made.primary is not None:
            made.state = ReplicationState.REPLICATING
        elif made.undetermined:
            made.state = ReplicationState.REMOVING
        return made

    @property
    def holders(self) -> tuple[CaptureID, ...]:
        named = (self.primary, self.secondary, *self.undetermined)
        return tuple(capture_id for capture_id in named if capture_id is not None)

    @property
    def is_settled(self) -> bool:
        """Whether its primary replicates it, and no undetermined holder is left."""
        return self.state is ReplicationState.REPLICATING and not self.undetermined

    @property
    def has_removed(self) -> bool:
        return self.state is ReplicationState.REMOVING and not self.holders

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.checkpoint_ts, self.resolved_ts)

    def role(self, capture_id: CaptureID) -> CaptureRole | None:
        if capture_id == self.primary:
            return CaptureRole.PRIMARY
        if capture_id == self.secondary:
            return CaptureRole.SECONDARY
        return CaptureRole.UNDETERMINED if capture_id in self.undetermined else None

    def advance_checkpoint(self, status: TableStatus) -> None:
        """Take over the numbers of a status; none of them ever falls."""
        self.checkpoint_ts = max(self.checkpoint_ts, status.checkpoint_ts)
        self.resolved_ts = max(self.resolved_ts, status.resolved_ts, self.checkpoint_ts)
        if status.delta_version is not None:
            self.delta_version = max(self.delta_version or 0, status.delta_version)

    # What can happen to the span. Each method returns the orders to send.

    def poll(self, status: TableStatus, capture_id: CaptureID) -> list[Order]:
        """Take a report. Reports of one capture must come in the order in which they were made: an
        old "Absent" would have a span assigned again that the capture writes by now. Raises
        MultiplePrimaries."""
        orders: list[Order] = []
        rows = ROWS.get((self.state, self.role(capture_id)), OUTSIDE)
        if (row := rows.get(status.state)) is not None:
            row(self, _Report(status, capture_id, orders))
        return orders

    def handle_assign(self, dest: CaptureID) -> list[Order]:
        """Begin to move the span to `dest`. Does nothing unless the set is Absent or Replicating,
        and `dest` is no holder."""
        if (
            self.state not in (ReplicationState.ABSENT, ReplicationState.REPLICATING)
            or self.role(dest) is not None
        ):
            return []
        self.secondary, self.state = dest, ReplicationState.PREPARE
        return self.poll(TableStatus(self.span.table_id, TableState.ABSENT), dest)

    def handle_remove(self) -> list[Order]:
        """Begin to stop the span everywhere, whatever is under way: a capture that prepares a table
        which is gone by now never has it prepared."""
        if self.state is ReplicationState.REMOVING:
            return []
        self.state = ReplicationState.REMOVING
        return [RemoveOrder(capture_id) for capture_id in self.holders]

    def handle_capture_shutdown(self, capture_id: CaptureID) -> list[Order]:
        """The capture is gone and writes nothing more. The caller sees to that
        (docs/cluster.md 18)."""
        if self.role(capture_id) is None:
            return []
        return self.poll(TableStatus(self.span.table_id, TableState.STOPPED), capture_id)

    def _fall_back(self) -> None:
        """After a holder was cleared: a set without a secondary is Replicating if it has a primary,
        else Absent."""
        if self.secondary is None:
            is_held = self.primary is not None
            self.state = ReplicationState.REPLICATING if is_held else ReplicationState.ABSENT

    # The actions in the rows of the table below: what to do about a report.

    def _send_prepare(self, report: _Report) -> None:
        report.orders.append(AddOrder(report.capture_id, is_secondary=True))

    def _commit(self, report: _Report) -> None:
        self.state = ReplicationState.COMMIT
        self._hand_over(report)

    def _lose_secondary(self, _report: _Report) -> None:
        self.secondary = None
        self._fall_back()

    def _lose_committed(self, _report: _Report) -> None:
        """The secondary is gone in Commit. A primary, if there is one, may have been told to stop:
        then the set stays in Commit until the primary reports."""
        self.secondary = None
        if self.primary is None:
            self.state = ReplicationState.ABSENT

    def _update(self, report: _Report) -> None:
        self.advance_checkpoint(report.status)
        self.status = report.status

    def _doubt_primary(self, report: _Report) -> None:
        """The primary stops without having been told to, and may write until it has stopped."""
        self.advance_checkpoint(report.status)
        self.primary = None
        self.undetermined += (report.capture_id,)

    def _lose_primary(self, report: _Report) -> None:
        self.advance_checkpoint(report.status)
        self.primary = None
        if self.state is ReplicationState.COMMIT and self.secondary is not None:
            self._promote(report.orders)
        else:
            self._fall_back()

    def _hand_over(self, report: _Report) -> None:
        if self.primary is not None:
            report.orders.append(RemoveOrder(self.primary))
        else:
            self._promote(report.orders)

    def _promote(self, orders: list[Order]) -> None:
        """Make the secondary the primary: the only place where that is done. Does nothing while
        another capture may still write."""
        if self.primary is None and not self.undetermined and self.secondary is not None:
            self.primary, self.secondary = self.secondary, None
            self.status = None
            orders.append(AddOrder(self.primary, is_secondary=False))

    def _resend_commit(self, report: _Report) -> None:
        if self.secondary is None and not self.undetermined:
            report.orders.append(AddOrder(report.capture_id, is_secondary=False))

    def _replicating(self, report: _Report) -> None:
        self._update(report)
        if self.secondary is not None:
            report.orders.append(RemoveOrder(report.capture_id))
        else:
            self.state = ReplicationState.REPLICATING

    def _take_over(self, report: _Report) -> None:
        """The secondary writes already, since the last owner's order reached it. That is fine if no
        other capture can write."""
        if self.primary is not None or self.undetermined:
            self._refuse_primary(report)
        self.primary, self.secondary = report.capture_id, None
        self._replicating(report)

    def _refuse_primary(self, report: _Report) -> None:
        raise self._multiple_primaries(self.primary or CaptureID("none"), report.capture_id)

    def _expel(self, report: _Report) -> None:
        report.orders.append(RemoveOrder(report.capture_id))
        self._suspect(report)

    def _suspect(self, report: _Report) -> None:
        if self.role(report.capture_id) is None:
            self.undetermined += (report.capture_id,)

    def _clear(self, report: _Report) -> None:
        """A holder has stopped; it is taken out of the set, and nothing else changes."""
        capture_id = report.capture_id
        if self.role(capture_id) is not None:
            self.advance_checkpoint(report.status)
        self.primary = None if self.primary == capture_id else self.primary
        self.secondary = None if self.secondary == capture_id else self.secondary
        self.undetermined = tuple(c for c in self.undetermined if c != capture_id)

    def _send_remove(self, report: _Report) -> None:
        if report.capture_id == self.primary:
            self.advance_checkpoint(report.status)
        report.orders.append(RemoveOrder(report.capture_id))

    def _multiple_primaries(self, known: CaptureID, other: CaptureID) -> MultiplePrimaries:
        return MultiplePrimaries(
            f"captures {known} and {other} both replicate table {self.span.name}"
            f" (state {self.state.name}, table ID {self.span.table_id})"
        )


_Rows = Mapping[TableState, Callable[[ReplicationSet, _Report], None]]
_Set, _T, _R = ReplicationSet, TableState, ReplicationState

# A report without a row is ignored. OUTSIDE is for captures that are undetermined or no holders,
# in every state of the set, but for undetermined ones in Removing.
OUTSIDE: Final[_Rows] = {
    _T.PREPARING: _Set._expel,
    _T.PREPARED: _Set._expel,
    _T.REPLICATING: _Set._expel,
    _T.STOPPING: _Set._suspect,
    _T.STOPPED: _Set._clear,
    _T.ABSENT: _Set._clear,
}
_REMOVING: Final[_Rows] = {
    _T.PREPARING: _Set._send_remove,
    _T.PREPARED: _Set._send_remove,
    _T.REPLICATING: _Set._send_remove,
    _T.STOPPED: _Set._clear,
    _T.ABSENT: _Set._clear,
}
ROWS: Final[Mapping[tuple[ReplicationState, CaptureRole | None], _Rows]] = {
    (_R.PREPARE, CaptureRole.SECONDARY): {
        _T.ABSENT: _Set._send_prepare,
        _T.PREPARED: _Set._commit,
        _T.REPLICATING: _Set._refuse_primary,
        _T.STOPPING: _Set._lose_secondary,
        _T.STOPPED: _Set._lose_secondary,
    },
    (_R.PREPARE, CaptureRole.PRIMARY): {
        _T.REPLICATING: _Set._update,
        _T.STOPPING: _Set._doubt_primary,
        _T.STOPPED: _Set._lose_primary,
        _T.ABSENT: _Set._lose_primary,
    },
    (_R.COMMIT, CaptureRole.SECONDARY): {
        _T.PREPARED: _Set._hand_over,
        _T.REPLICATING: _Set._take_over,
        _T.STOPPED: _Set._lose_committed,
        _T.ABSENT: _Set._lose_committed,
    },
    (_R.COMMIT, CaptureRole.PRIMARY): {
        _T.PREPARED: _Set._resend_commit,
        _T.REPLICATING: _Set._replicating,
        _T.STOPPING: _Set._update,
        _T.STOPPED: _Set._lose_primary,
        _T.ABSENT: _Set._lose_primary,
    },
    (_R.REPLICATING, CaptureRole.PRIMARY): {
        _T.REPLICATING: _Set._update,
        _T.STOPPED: _Set._lose_primary,
        _T.ABSENT: _Set._lose_primary,
    },
    (_R.REMOVING, CaptureRole.PRIMARY): _REMOVING,
    (_R.REMOVING, CaptureRole.SECONDARY): _REMOVING,
    (_R.REMOVING, CaptureRole.UNDETERMINED): _REMOVING,
}
