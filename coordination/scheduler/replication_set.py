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
from typing import Final

from coordination.errors import TidelakeError
from coordination.model import CaptureID, Ts
from coordination.scheduler.messages import Checkpoint, Span, TableState, TableStatus


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

_LIVE: Final = frozenset(
    {TableState.PREPARING, TableState.PREPARED, TableState.REPLICATING, TableState.STOPPING}
)


class ReplicationSet:
    """Mutable, and small: an owner has one for each of its spans."""

    __slots__ = (
        "checkpoint_ts",
        "delta_version",
        "primary",
        "resolved_ts",
        "secondary",
        "span",
        "state",
        "status",
        "undetermined",
    )

    def __init__(self, span: Span, checkpoint_ts: Ts) -> None:
        self.span = span
        self.state = ReplicationState.ABSENT
        self.primary: CaptureID | None = None
        self.secondary: CaptureID | None = None
        self.undetermined: tuple[CaptureID, ...] = ()
        self.checkpoint_ts = checkpoint_ts
        self.resolved_ts = checkpoint_ts
        self.delta_version: int | None = None  # the newest that was told
        self.status: TableStatus | None = None  # the last one of a primary

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
        made.state = made._built_state(is_prepared=bool(prepared))
        return made

    def _built_state(self, *, is_prepared: bool) -> ReplicationState:
        if self.secondary is not None:
            return ReplicationState.COMMIT if is_prepared else ReplicationState.PREPARE
        if self.primary is not None:
            return ReplicationState.REPLICATING
        return ReplicationState.REMOVING if self.undetermined else ReplicationState.ABSENT

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
        while True:
            rows = ROWS.get((self.state, self.role(capture_id)), OUTSIDE)
            row = rows.get(status.state)
            if row is None or not row(self, status, capture_id, orders):
                return orders

    def handle_add_table(self, capture_id: CaptureID) -> list[Order]:
        """Only from Absent, and not to a capture that has yet to stop it; else nothing happens."""
        if self.state is not ReplicationState.ABSENT or self.role(capture_id) is not None:
            return []
        return self._prepare(capture_id)

    def handle_move_table(self, dest: CaptureID) -> list[Order]:
        """Only from Replicating, to a capture that has nothing of it; else nothing happens."""
        if self.state is not ReplicationState.REPLICATING or self.role(dest) is not None:
            return []
        return self._prepare(dest)

    def handle_remove_table(self) -> list[Order]:
        """Only from Replicating (and from Absent, where nothing is to be told): else try later."""
        if self.state is ReplicationState.ABSENT:
            self.state = ReplicationState.REMOVING
            return [RemoveOrder(capture_id) for capture_id in self.undetermined]
        if self.state is not ReplicationState.REPLICATING:
            return []
        self.state = ReplicationState.REMOVING
        return [RemoveOrder(capture_id) for capture_id in self.holders]

    def handle_capture_shutdown(self, capture_id: CaptureID) -> list[Order]:
        """The capture is no more: nothing of it writes (docs/cluster.md 18 is the caller's)."""
        if self.role(capture_id) is None:
            return []
        return self.poll(TableStatus(self.span.table_id, TableState.STOPPED), capture_id)

    def handle_capture_restart(self, capture_id: CaptureID, status: TableStatus) -> list[Order]:
        """The capture's agent was made anew. What it still has of the span is to be stopped before
        anybody else writes it."""
        if self.role(capture_id) is None or status.state not in _LIVE:
            return self.handle_capture_shutdown(capture_id)
        was_primary = self.primary == capture_id
        if self.state is ReplicationState.REMOVING:
            return self.poll(status, capture_id)
        self.undetermined = tuple(c for c in self.undetermined if c != capture_id)
        if was_primary:
            self.primary = None
        elif self.secondary == capture_id:
            self.secondary = None
        self.undetermined += (capture_id,)
        self._fall_back()
        return self.poll(status, capture_id)

    def _prepare(self, capture_id: CaptureID) -> list[Order]:
        self.secondary, self.state = capture_id, ReplicationState.PREPARE
        return self.poll(TableStatus(self.span.table_id, TableState.ABSENT), capture_id)

    def _fall_back(self) -> None:
        """After a holder was cleared: where a set without a secondary, or a primary, belongs."""
        if self.secondary is None:
            is_held = self.primary is not None
            self.state = ReplicationState.REPLICATING if is_held else ReplicationState.ABSENT

    # The rows. Each returns whether to look again, at the state that it made.

    def _send_prepare(self, _: TableStatus, capture_id: CaptureID, orders: list[Order]) -> bool:
        orders.append(AddOrder(capture_id, is_secondary=True))
        return False

    def _commit(self, _: TableStatus, __: CaptureID, ___: list[Order]) -> bool:
        self.state = ReplicationState.COMMIT
        return True

    def _lose_secondary(self, _: TableStatus, __: CaptureID, ___: list[Order]) -> bool:
        self.secondary = None
        self._fall_back()
        return False

    def _lose_committed(self, _: TableStatus, __: CaptureID, ___: list[Order]) -> bool:
        """With a primary that may have been told to stop, stay: it decides by what it reports."""
        self.secondary = None
        if self.primary is None:
            self.state = ReplicationState.ABSENT
        return False

    def _update(self, status: TableStatus, _: CaptureID, __: list[Order]) -> bool:
        self.advance_checkpoint(status)
        self.status = status
        return False

    def _doubt_primary(self, status: TableStatus, capture_id: CaptureID, _: list[Order]) -> bool:
        """It stops, though nobody asked it to, and may write until it has."""
        self.advance_checkpoint(status)
        self.primary = None
        self.undetermined += (capture_id,)
        return False

    def _lose_primary(self, status: TableStatus, _: CaptureID, orders: list[Order]) -> bool:
        self.advance_checkpoint(status)
        self.primary = None
        if self.state is ReplicationState.COMMIT and self.secondary is not None:
            self._promote(orders)
        else:
            self._fall_back()
        return False

    def _hand_over(self, _: TableStatus, __: CaptureID, orders: list[Order]) -> bool:
        if self.primary is not None:
            orders.append(RemoveOrder(self.primary))
        else:
            self._promote(orders)
        return False

    def _promote(self, orders: list[Order]) -> None:
        """The one place where a secondary becomes a writer; nothing while anybody else may be."""
        if self.primary is None and not self.undetermined and self.secondary is not None:
            self.primary, self.secondary = self.secondary, None
            self.status = None
            orders.append(AddOrder(self.primary, is_secondary=False))

    def _resend_commit(self, _: TableStatus, capture_id: CaptureID, orders: list[Order]) -> bool:
        if self.secondary is None and not self.undetermined:
            orders.append(AddOrder(capture_id, is_secondary=False))
        return False

    def _replicating(self, status: TableStatus, capture_id: CaptureID, orders: list[Order]) -> bool:
        self.advance_checkpoint(status)
        self.status = status
        if self.secondary is not None:
            orders.append(RemoveOrder(capture_id))
            return False
        self.state = ReplicationState.REPLICATING
        return False

    def _take_over(self, status: TableStatus, capture_id: CaptureID, orders: list[Order]) -> bool:
        """Written already: the last owner's order was under way. Fine if nobody else can write."""
        if self.primary is not None or self.undetermined:
            return self._refuse_primary(status, capture_id, orders)
        self.primary, self.secondary = capture_id, None
        return True

    def _refuse_primary(self, _: TableStatus, capture_id: CaptureID, __: list[Order]) -> bool:
        raise self._multiple_primaries(self.primary or CaptureID("none"), capture_id)

    def _expel(self, _: TableStatus, capture_id: CaptureID, orders: list[Order]) -> bool:
        orders.append(RemoveOrder(capture_id))
        return self._suspect(_, capture_id, orders)

    def _suspect(self, _: TableStatus, capture_id: CaptureID, __: list[Order]) -> bool:
        if self.role(capture_id) is None:
            self.undetermined += (capture_id,)
        return False

    def _clear(self, status: TableStatus, capture_id: CaptureID, _: list[Order]) -> bool:
        """Somebody has stopped whose end changes nothing but that it is no longer in the way."""
        if self.role(capture_id) is not None:
            self.advance_checkpoint(status)
        self.primary = None if self.primary == capture_id else self.primary
        self.secondary = None if self.secondary == capture_id else self.secondary
        self.undetermined = tuple(c for c in self.undetermined if c != capture_id)
        return False

    def _send_remove(self, status: TableStatus, capture_id: CaptureID, orders: list[Order]) -> bool:
        if capture_id == self.primary:
            self.advance_checkpoint(status)
        orders.append(RemoveOrder(capture_id))
        return False

    def _multiple_primaries(self, known: CaptureID, other: CaptureID) -> MultiplePrimaries:
        return MultiplePrimaries(
            f"captures {known} and {other} both replicate table {self.span.name}"
            f" (state {self.state.name}, table ID {self.span.table_id})"
        )


_Rows = Mapping[TableState, Callable[[ReplicationSet, TableStatus, CaptureID, list[Order]], bool]]
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
