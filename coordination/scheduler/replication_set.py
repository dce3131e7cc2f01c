"""One span as its owner sees it: who writes it, who prepares to, what to tell them
(docs/states.md).

    Absent ──add──► Prepare ──secondary Prepared──► Commit ──primary Replicating──► Replicating
                      ▲                               │                               │ │
                      └───────────── move ────────────┼───────────────────────────────┘ │
    Absent ◄── the last holder is gone ───────────────┘                     remove      ▼
    (removed) ◄── all holders have stopped ────────────────────────────────────────  Removing

A holder is the *primary* (it writes, or was told to), the *secondary* (it prepares) or
*undetermined*: it may still write, and nobody knows for whom. One rule is above all others: a
secondary is promoted only when there is neither a primary nor an undetermined holder, in one place
(`_promote`). Where TiCDC's would lose sight of somebody who may still write, this set keeps it as
undetermined: a primary that reports Stopping during Prepare, and a capture outside the set that
reports a span which it should not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from coordination.errors import TidelakeError
from coordination.model import CaptureID, Ts
from coordination.scheduler.messages import NO_TS, Checkpoint, Span, TableState, TableStatus


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
    """Two captures replicate one span: the changefeed stops."""


@dataclass(frozen=True, slots=True)
class AddOrder:
    capture_id: CaptureID
    is_secondary: bool


@dataclass(frozen=True, slots=True)
class RemoveOrder:
    capture_id: CaptureID


Order = AddOrder | RemoveOrder


class _Report(NamedTuple):
    """What a capture says of the span, and what to tell captures for it."""

    status: TableStatus
    capture_id: CaptureID
    orders: list[Order]


_LIVE: Final = frozenset(
    {TableState.PREPARING, TableState.PREPARED, TableState.REPLICATING, TableState.STOPPING}
)


@dataclass(slots=True, eq=False)
class ReplicationSet:
    """Mutable, and small: an owner has one for each of its spans."""

    span: Span
    checkpoint_ts: Ts
    resolved_ts: Ts = NO_TS
    state: ReplicationState = ReplicationState.ABSENT
    primary: CaptureID | None = None
    secondary: CaptureID | None = None
    undetermined: tuple[CaptureID, ...] = ()
    delta_version: int | None = None  # the newest that was told
    status: TableStatus | None = None  # the last one of a primary

    def __post_init__(self) -> None:
        self.resolved_ts = max(self.resolved_ts, self.checkpoint_ts)

    @classmethod
    def build(
        cls, span: Span, checkpoint_ts: Ts, statuses: Mapping[CaptureID, TableStatus]
    ) -> ReplicationSet:
        """From what all agents report, when an owner starts. Raises MultiplePrimaries."""
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
        # TiCDC keeps several secondaries; here all but the best one are sent away
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
        """Replicating on its primary, and nobody else has anything of it."""
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
        """No number of these ever falls."""
        self.checkpoint_ts = max(self.checkpoint_ts, status.checkpoint_ts)
        self.resolved_ts = max(self.resolved_ts, status.resolved_ts, self.checkpoint_ts)
        if status.delta_version is not None:
            self.delta_version = max(self.delta_version or 0, status.delta_version)

    # What can happen to it. Each returns what is to be sent.

    def poll(self, status: TableStatus, capture_id: CaptureID) -> list[Order]:
        """Take a report. Reports of one capture must come in the order in which they were made:
        an old "Absent" would give away a span that is written by now. Raises MultiplePrimaries."""
        orders: list[Order] = []
        rows = ROWS.get((self.state, self.role(capture_id)), OUTSIDE)
        if (row := rows.get(status.state)) is not None:
            row(self, _Report(status, capture_id, orders))
        return orders

    def handle_assign(self, dest: CaptureID) -> list[Order]:
        """Only from Absent and Replicating, to a capture that has nothing of it; else nothing
        happens."""
        if (
            self.state not in (ReplicationState.ABSENT, ReplicationState.REPLICATING)
            or self.role(dest) is not None
        ):
            return []
        self.secondary, self.state = dest, ReplicationState.PREPARE
        return self.poll(TableStatus(self.span.table_id, TableState.ABSENT), dest)

    def handle_remove(self) -> list[Order]:
        """Only from Absent and Replicating; else try later."""
        if self.state not in (ReplicationState.ABSENT, ReplicationState.REPLICATING):
            return []
        self.state = ReplicationState.REMOVING
        return [RemoveOrder(capture_id) for capture_id in self.holders]

    def handle_capture_shutdown(self, capture_id: CaptureID) -> list[Order]:
        """The capture is no more: nothing of it writes (docs/cluster.md 18 is the caller's)."""
        if self.role(capture_id) is None:
            return []
        return self.poll(TableStatus(self.span.table_id, TableState.STOPPED), capture_id)

    def _fall_back(self) -> None:
        """After a holder was cleared: where a set without a secondary, or a primary, belongs."""
        if self.secondary is None:
            is_held = self.primary is not None
            self.state = ReplicationState.REPLICATING if is_held else ReplicationState.ABSENT

    # The rows: what a report means.

    def _send_prepare(self, report: _Report) -> None:
        report.orders.append(AddOrder(report.capture_id, is_secondary=True))

    def _commit(self, report: _Report) -> None:
        self.state = ReplicationState.COMMIT
        self._hand_over(report)

    def _lose_secondary(self, _report: _Report) -> None:
        self.secondary = None
        self._fall_back()

    def _lose_committed(self, _report: _Report) -> None:
        """With a primary that may have been told to stop, stay: it decides by what it reports."""
        self.secondary = None
        if self.primary is None:
            self.state = ReplicationState.ABSENT

    def _update(self, report: _Report) -> None:
        self.advance_checkpoint(report.status)
        self.status = report.status

    def _doubt_primary(self, report: _Report) -> None:
        """It stops, though nobody asked it to, and may write until it has."""
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
        """The one place where a secondary becomes a writer; nothing while anybody else may be."""
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
        """Written already: the last owner's order was under way. Fine if nobody else can write."""
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
        """Somebody has stopped whose end changes nothing but that it is no longer in the way."""
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

# A report without a row is passed over. OUTSIDE is for undetermined captures and for those that
# have no role in the set, whatever its state is, but for Removing.
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
