"""What the control plane needs of the data plane: declared here, implemented by `streaming`.

    capture ── DataPlane.open_replica ──► Replica: this capture's spans of one changefeed
       └────── DataPlane.open_control_writer ─────► ControlWriter: what only the changefeed's owner
       does

Nothing here blocks: slow work is begun, and its outcome is looked for at a later tick. Whoever
implements these calls `wake` (given to `open_*`) from any thread when it is worth looking again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from coordination.fence import Fence
from coordination.metadata.model import ChangefeedInfo, FeedState, RunningError
from coordination.model import (
    CaptureID,
    ChangefeedID,
    Ownership,
    ProcessorEpoch,
    TermNumber,
    Ts,
)
from coordination.scheduler.barrier import Barrier, PendingDdl
from coordination.scheduler.coordinator import SpanProgress
from coordination.scheduler.messages import (
    NO_TS,
    Checkpoint,
    Scan,
    Span,
    TableStatus,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureIdentity:
    """Who writes: stands in progress rows and in the metadata of target commits."""

    capture_id: CaptureID
    epoch: ProcessorEpoch
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What went wrong since the last look; an error stops the changefeed's run, a warning does
    not."""

    errors: tuple[RunningError, ...] = ()
    warnings: tuple[RunningError, ...] = ()


class Replica(Protocol):
    """One changefeed's spans on one capture: a streaming query, when there is a span.

        add (prepare) ──► PREPARING ─► PREPARED ──add (write)──► REPLICATING
        remove ─────────► STOPPING ──no commit of it is under way──► STOPPED ──taken──► (Absent)

    Every write of a target is checked against the fence, the span's state and its limit
    ``min(L, barrier.limit_ts(table_id))`` right before it commits; below a barrier of None nothing
    is written above the checkpoint that the span was added with.
    """

    def add_table_span(
        self, span: Span, checkpoint: Checkpoint, fence: int, *, is_prepare: bool
    ) -> None:
        """Begin to prepare a span, or to write one that is prepared, with this fence. Nothing
        happens where that cannot be now: its state says so. Twice: the first fence stays."""
        ...

    def remove_table_span(self, table_id: int) -> None:
        """Begin to stop it; nothing if it is not here."""
        ...

    def take_stopped(self, table_id: int) -> TableStatus | None:
        """Its last status when nothing of it runs any more, and forget it; else None."""
        ...

    def get_table_span_count(self) -> int: ...

    def get_table_span_status(self, table_id: int) -> TableStatus:
        """Absent if it is not here. ``fence`` is that of the last `add_table_span` that counted."""
        ...

    def take_changed(self) -> Collection[int]:
        """The table IDs whose status may have changed since the last call; too many is fine."""
        ...

    def get_scan(self) -> Scan | None:
        """How far the envelopes were read. Not older than any status that was given out."""
        ...

    def set_barrier(self, barrier: Barrier | None) -> None:
        """Swapped whole; never loosened by None."""
        ...

    def take_trouble(self) -> Trouble: ...

    def close(self, *, drop: bool) -> None:
        """Begin to end; drop: trust is lost, cancel now. Idempotent."""
        ...

    def is_closed(self) -> bool:
        """Nothing of it runs any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredTable:
    """A table of the changefeed: applied up to ``start_ts`` (max of its identity, its progress row
    and the request's checkpoint: docs/cluster.md 9)."""

    span: Span
    start_ts: Ts


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A term that was claimed in Delta, and what the control tables held at that moment."""

    term: TermNumber
    checkpoint_ts: Ts
    tables: tuple[RegisteredTable, ...]
    published_ts: Ts = NO_TS  # the last sync point in the ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlScan:
    """Every DDL at or below ``position_ts`` is known; ``pending`` have not run yet, in order.

    ``has_rows``: so is every table that has rows there. Else captures' scans say that."""

    position_ts: Ts
    pending: tuple[PendingDdl, ...] = ()
    has_rows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What has come of begun work since the last look."""

    added: tuple[RegisteredTable, ...] = ()  # by a DDL that ran, or found by its rows
    removed: tuple[int, ...] = ()  # table IDs
    published_ts: Ts | None = None  # the last sync point that is in the ledger
    is_finished: bool = False  # and the control tables say so


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """What the owner wants recorded: progress rows, the changefeed's row, the ledger
    (docs/cluster.md 10, 11). Only the newest counts; at most one commit a second comes of it."""

    checkpoint_ts: Ts
    resolved_ts: Ts
    spans: Sequence[SpanProgress] = ()  # those that changed since the last `record`
    source_offsets: Mapping[str, int] = field(default_factory=dict)  # low water of spans that
    # hold nothing back; the others say their own
    read_offsets: Mapping[str, int] = field(default_factory=dict)  # the captures are done with
    finished: bool = False
    sync_point_ts: Ts | None = None  # every span is exactly here: publish it


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a changefeed stands in etcd: who reads the control tables is told the same."""

    state: FeedState = FeedState.NORMAL
    message: str = ""  # of the error or warning; empty in state normal


class ControlWriter(Protocol):
    """What only the owner of a changefeed does, on a thread of its own, in order. It reads the
    topics too, and makes targets of the tables that it finds there.

    Errors are raised by the next call of any method, and are the changefeed's (the message is what
    an operator reads): ``TermRefused`` means that another owner has claimed a newer term (resign,
    docs/cluster.md 13), ``TryAgain`` is never raised.
    """

    def claimed(self) -> Claim | None:
        """None until the term is claimed, which `open_control_writer` has begun."""
        ...

    def ddl_scan(self) -> DdlScan: ...

    def run_ddl(self, ddl: PendingDdl) -> None:
        """Begin; the checkpoint has reached it. Again for the same one: nothing happens."""
        ...

    def take_changes(self) -> Changes: ...

    def record(self, advance: Advance) -> None: ...

    def set_standing(self, standing: Standing) -> None:
        """What the changefeed's next rows say of it, its last one too. Never raises."""
        ...

    def close(self, *, drop: bool) -> None:
        """Begin to end; what was recorded last is written first unless `drop`."""
        ...

    def is_closed(self) -> bool: ...


Wake = Callable[[], None]


class DataPlane(Protocol):
    """One per process. The fence is the capture's: open while its session is trusted."""

    def open_replica(
        self, info: ChangefeedInfo, identity: CaptureIdentity, fence: Fence, wake: Wake
    ) -> Replica: ...

    def open_control_writer(
        self,
        *,
        info: ChangefeedInfo,
        identity: CaptureIdentity,
        ownership: Ownership,
        fence: Fence,
        wake: Wake,
    ) -> ControlWriter: ...

    def show(
        self,
        *,
        info: ChangefeedInfo,
        identity: CaptureIdentity,
        ownership: Ownership,
        fence: Fence,
        standing: Standing,
    ) -> None:
        """Begin to say in the control tables how a changefeed stands that no control writer is open
        for. It is tried until it is done, another standing is to be shown, or it is withdrawn."""
        ...

    def withdraw(self, changefeed_id: ChangefeedID) -> None:
        """What is not shown yet of it shall not be."""
        ...
