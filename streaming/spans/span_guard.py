"""Permission to write a span: only while the capture is trusted and holds the span, and only up to
the span's limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coordination.model import TableName, Ts
from streaming.spans.assigned_spans import AppliedSpan, AssignedSpans, Assignment
from streaming.stream.role_context import RoleContext


class SpanGuard:
    """Implements ``streaming.apply.commit_guard.CommitGuard``. ``grant`` tells it under which
    assignments the next writes were planned. A write whose assignment or fence is not the span's
    current one any more is dropped (CommitWithdrawn), even if the span is here again.
    """

    def __init__(
        self,
        context: RoleContext,
        held: AssignedSpans,
        applied: Callable[[Assignment], AppliedSpan],
    ) -> None:
        """``applied``: asked how far a span is, right after a write of it has ended."""
        self._changefeed_id = context.changefeed.id
        self._trust = context.trust
        self._stream = context.stream
        self._held = held
        self._applied = applied
        self._granted: dict[TableName, Assignment] = {}

    @property
    def capture_id(self) -> str:
        return self._trust.identity.capture_id

    def grant(self, assignments: Mapping[TableName, Assignment]) -> None:
        self._granted = dict(assignments)

    def check(self) -> None:
        self._trust.check()

    def begin(self, name: TableName, limit: Ts) -> None:
        self._trust.check()
        self._held.begin_commit(self._granted[name], limit)

    def ended(self, name: TableName) -> None:
        assignment = self._granted[name]
        self._held.end_commit(assignment, self._applied(assignment))
        self._stream.get_on()

    def signature(self, name: TableName) -> Mapping[str, object]:
        return {
            "changefeed": self._changefeed_id,
            "capture": self._trust.identity.capture_id,
            "epoch": self._trust.identity.epoch,
            "fence": self._granted[name].fence,
        }
