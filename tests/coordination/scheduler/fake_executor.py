"""A data side that only keeps states; a test says when its streams get on."""

from __future__ import annotations

from collections.abc import Collection

from coordination.scheduler.messages import Checkpoint, Span
from coordination.scheduler.table_status import TableState, TableStatus

_LIVE = (TableState.PREPARING, TableState.PREPARED, TableState.REPLICATING)


class FakeExecutor:
    """``is_eager``: every step is finished at once."""

    def __init__(self, *, is_eager: bool = False) -> None:
        self.is_eager = is_eager
        self.statuses: dict[int, TableStatus] = {}
        self.calls: list[tuple[object, ...]] = []
        self.refuses = False  # nothing can be added now
        self.read_positions: dict[str, int] | None = None
        self._changed: set[int] = set()
        self._is_commit: set[int] = set()

    def put(self, table_id: int, state: TableState, **fields: object) -> None:
        """Bring a span into a state."""
        status = self.statuses.get(table_id) or TableStatus(table_id, state)
        self.statuses[table_id] = status._replace(state=state, **fields)
        self._changed.add(table_id)
        if state is TableState.ABSENT:
            del self.statuses[table_id]

    def get_on(self, table_id: int) -> None:
        """The next state of what is under way."""
        state = self.statuses[table_id].state
        if state is TableState.PREPARING:
            self.put(table_id, TableState.PREPARED)
        elif state is TableState.PREPARED and table_id in self._is_commit:
            self.put(table_id, TableState.REPLICATING)
        elif state is TableState.STOPPING:
            self.put(table_id, TableState.STOPPED)

    def writers(self) -> set[int]:
        """The spans that it may be writing, which is so until it has stopped."""
        return {
            table_id
            for table_id, status in self.statuses.items()
            if status.state is TableState.REPLICATING
            or (status.state in (*_LIVE, TableState.STOPPING) and table_id in self._is_commit)
        }

    def add_table_span(
        self, span: Span, checkpoint: Checkpoint, fence: int, *, is_prepare: bool
    ) -> None:
        table_id = span.table_id
        self.calls.append(("add", table_id, is_prepare, fence))
        if self.refuses:
            return
        at_ts, resolved_ts = checkpoint
        status = self.statuses.get(table_id)
        if status is None:
            self.put(
                table_id,
                TableState.PREPARING,
                checkpoint_ts=at_ts,
                resolved_ts=resolved_ts,
                fence=fence,
            )
        elif is_prepare or table_id in self._is_commit or status.state not in _LIVE:
            return
        else:
            ts = max(status.checkpoint_ts, at_ts)
            self.put(table_id, status.state, checkpoint_ts=ts, fence=fence)
        if not is_prepare:
            self._is_commit.add(table_id)
        if self.is_eager:
            self.get_on(table_id)

    def remove_table_span(self, table_id: int) -> None:
        self.calls.append(("remove", table_id))
        if table_id in self.statuses and self.statuses[table_id].state in _LIVE:
            self.put(table_id, TableState.STOPPING)
            if self.is_eager:
                self.get_on(table_id)

    def take_stopped(self, table_id: int) -> TableStatus | None:
        status = self.statuses[table_id]
        if status.state is not TableState.STOPPED:
            return None
        self.put(table_id, TableState.ABSENT)
        self._is_commit.discard(table_id)
        return status

    def get_table_span_count(self) -> int:
        return len(self.statuses)

    def get_table_span_status(self, table_id: int) -> TableStatus:
        return self.statuses.get(table_id) or TableStatus(table_id, TableState.ABSENT)

    def take_changed(self) -> Collection[int]:
        changed, self._changed = self._changed, set()
        return changed

    def get_read_positions(self) -> dict[str, int] | None:
        return self.read_positions
