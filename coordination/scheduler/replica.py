"""The port of a capture's tables: what the scheduler's agent asks of the data plane.

Nothing here blocks: a call begins slow work, and a later tick asks for its outcome.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from coordination.metadata.records import RunningError
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import Checkpoint, Span
from coordination.scheduler.table_status import TableStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The errors and warnings of a replica since the last call; an error stops the changefeed's
    run, a warning does not. ``concern``: the warning that still holds; its end ends it."""

    errors: tuple[RunningError, ...] = ()
    warnings: tuple[RunningError, ...] = ()
    concern: RunningError | None = None


class Replica(Protocol):
    """One changefeed's spans on one capture; it runs a streaming query while it has spans.

        add (prepare) ──► PREPARING ─► PREPARED ──add (write)──► REPLICATING
        remove ─────────► STOPPING ──no commit of it is under way──► STOPPED ──taken──► (Absent)

    Right before it commits, every write of a target is checked against the fence, the span's state
    and its limit ``min(L, barrier.limit_ts(table_id))``. As long as the barrier is None, nothing is
    written above the checkpoint that the span was added with.
    """

    def add_table_span(
        self, span: Span, checkpoint: Checkpoint, fence: int, *, is_prepare: bool
    ) -> None:
        """Begin to prepare a span, or to write one that is prepared, under this fence. Does nothing
        if the span's state does not allow it; after a second call the first fence stays."""
        ...

    def remove_table_span(self, table_id: int) -> None:
        """Begin to stop a span. Does nothing if it is not here."""
        ...

    def take_stopped(self, table_id: int) -> TableStatus | None:
        """If a span has stopped and nothing of it runs any more, forget it and return its last
        status; else None."""
        ...

    def get_table_span_count(self) -> int: ...

    def get_table_span_status(self, table_id: int) -> TableStatus:
        """The span's status; Absent if it is not here. Its ``fence`` is that of the last
        `add_table_span` that had an effect."""
        ...

    def take_changed(self) -> Collection[int]:
        """The table IDs whose status may have changed since the last call; others may be among
        them."""
        ...

    def get_read_positions(self) -> Mapping[str, int] | None:
        """How far all partitions were read (docs/cluster.md 7), which is the low water of spans
        that hold no rows back; not older than any status that was returned before."""
        ...

    def set_barrier(self, barrier: Barrier | None) -> None:
        """Replace the whole barrier. None changes nothing."""
        ...

    def take_trouble(self) -> Trouble: ...

    def close(self, *, drop: bool) -> None:
        """Begin to end; with `drop` trust is lost, and running work is cancelled. Idempotent."""
        ...

    def is_closed(self) -> bool:
        """Whether nothing of it runs any more."""
        ...
