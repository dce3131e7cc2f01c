"""What the control plane needs of the data plane: declared here, implemented by `streaming`.

    capture ─┬ DataPlane.open_replica ────────► Replica: this capture's spans of one changefeed
             ├ DataPlane.open_control_writer ─► ControlWriter: what only the changefeed's owner does
             ├ DataPlane.units ───────────────► Units: the units of jobs on this capture
             ├ DataPlane.checkpoint_agent ────► CheckpointAgent: how far the units of jobs are
             └ DataPlane.open_reloads ────────► Reloads: carries orders to load tables anew out

Nothing here blocks: a call begins slow work, and a later tick asks for its outcome. An
implementation calls `wake` (given to `open_*`), on any thread, when there is an outcome to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from coordination.jobmaster.ports import CheckpointAgent, Units
from coordination.metadata.records import ChangefeedInfo, FeedState
from coordination.model import NO_TS, ChangefeedID, Ownership, TermNumber, Ts
from coordination.scheduler.barrier import PendingDdl
from coordination.scheduler.coordinator import SpanProgress
from coordination.scheduler.messages import Span
from coordination.scheduler.replica import Replica
from coordination.trust.fence import Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredTable:
    """A table of the changefeed, applied up to ``start_ts`` (the most of its identity, its progress
    row and the request's checkpoint: docs/cluster.md 9)."""

    span: Span
    start_ts: Ts


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A term that was claimed in Delta, and the content of the control tables at that moment."""

    term: TermNumber
    checkpoint_ts: Ts
    tables: tuple[RegisteredTable, ...]
    published_ts: Ts = NO_TS  # the last sync point in the ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlScan:
    """Every DDL at or below ``position_ts`` is known; ``pending`` are those that have not run yet,
    in order. Every table with rows at or below it, and below the first of them, is registered
    too (docs/cluster.md 4)."""

    position_ts: Ts
    pending: tuple[PendingDdl, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What the control writer's work has changed since the last call."""

    added: tuple[RegisteredTable, ...] = ()  # by a DDL that ran, or found by its rows
    removed: tuple[int, ...] = ()  # table IDs
    published_ts: Ts | None = None  # the last sync point that is in the ledger
    is_finished: bool = False  # the control tables say that the changefeed has finished
    is_caught_up: bool = False  # all is read, and what is due is in the control tables
    awaits: str = ""  # what it waits for that an operator may not expect, in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """The values that the owner wants recorded in the progress rows, the changefeed's row and the
    ledger (docs/cluster.md 10, 11). Only the newest one counts; at most one commit a second is
    made."""

    checkpoint_ts: Ts
    resolved_ts: Ts
    spans: Sequence[SpanProgress] = ()  # those that changed since the last `record`
    # Low water of the spans without unapplied rows; the others have their own in their status.
    source_positions: Mapping[str, int] = field(default_factory=dict)
    read_positions: Mapping[str, int] = field(
        default_factory=dict
    )  # read and done with by captures
    finished: bool = False
    sync_point_ts: Ts | None = None  # every span is exactly here: publish it


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownState:
    """A changefeed's state in etcd, which the control tables show too."""

    state: FeedState = FeedState.NORMAL
    code: str = ""  # of the error or warning, and its message; empty in state normal
    message: str = ""


class ControlWriter(Protocol):
    """Does what only the owner of a changefeed does, in order, on a thread of its own: it claims
    the term, runs DDLs and writes control rows. It reads the topics too, and creates targets for
    the tables that it finds there.

    An error on that thread is raised by the next call of any method, and becomes the changefeed's
    error (an operator reads its message). ``TermRefused`` means that another owner has claimed a
    newer term: this one resigns (docs/cluster.md 13). ``TryAgain`` is never raised.
    """

    def claimed(self) -> Claim | None:
        """The claim; None until the term is claimed, which `open_control_writer` has begun."""
        ...

    def trouble(self) -> str | None:
        """Before the term is claimed: why the claim waits, or why it failed and is tried again. It
        is shown as a warning. Never raises."""
        ...

    def ddl_scan(self) -> DdlScan: ...

    def run_ddl(self, ddl: PendingDdl) -> None:
        """Begin to run a DDL that the checkpoint has reached. A second call for the same DDL does
        nothing."""
        ...

    def take_changes(self) -> Changes: ...

    def record(self, advance: Advance) -> None: ...

    def set_shown(self, shown: ShownState) -> None:
        """Set the state and message that the changefeed's next rows show, its last one too. Never
        raises."""
        ...

    def close(self, *, drop: bool) -> None:
        """Begin to end; unless `drop`, the last `record` is written first."""
        ...

    def is_closed(self) -> bool: ...


class Reloads(Protocol):
    """Carries out what operators have ordered of the changefeeds of databases, on a thread of its
    own: it pauses and resumes them in etcd, as an operator would."""

    def close(self) -> None:
        """Begin to end. What it has begun is left to the next leader's."""
        ...


Wake = Callable[[], None]


class DataPlane(Protocol):
    """One per process. Its calls get the trust in the capture's session."""

    def open_replica(self, info: ChangefeedInfo, trust: Trust, wake: Wake) -> Replica: ...

    def open_control_writer(
        self, info: ChangefeedInfo, trust: Trust, ownership: Ownership, wake: Wake
    ) -> ControlWriter: ...

    def show(
        self,
        info: ChangefeedInfo,
        trust: Trust,
        ownership: Ownership,
        shown: ShownState,
        wake: Wake,
    ) -> None:
        """Begin to write the state of a changefeed that has no open control writer to the control
        tables. That is tried until it is done (then `wake` is called), another `show` replaces it,
        or `withdraw` ends it.
        """
        ...

    def withdraw(self, changefeed_id: ChangefeedID) -> None:
        """End a `show` of this changefeed that is not written yet."""
        ...

    def units(self, trust: Trust) -> Units:
        """The units of one session of the capture: each asks the trust before it writes."""
        ...

    def checkpoint_agent(self, trust: Trust, wake: Wake) -> CheckpointAgent:
        """For one leadership. It asks the trust before it removes anything."""
        ...

    def open_reloads(self, trust: Trust) -> Reloads:
        """For one leadership of a cluster. They ask the trust before they write anything."""
        ...
