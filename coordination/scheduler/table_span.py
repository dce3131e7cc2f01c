"""One span on one capture: the task that the owner gave, carried out step by step (docs/states.md).

    AddTable     Absent ─► Preparing ─► Prepared ──(is_secondary: done)
                                           └─────► Replicating (done)
    RemoveTable  Preparing, Prepared, Replicating ─► Stopping ─► Stopped ─► Absent (done)

The state itself is the executor's: these tables only say what to ask of it in which state. What it
is asked never blocks; a task that cannot go on waits for the next poll. A span has one task at a
time, and a new one is ignored while it has one: the owner sends again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from coordination.scheduler.messages import (
    AddTable,
    Checkpoint,
    DispatchTableRequest,
    RemoveTable,
    Scan,
    Span,
    TableState,
    TableStatus,
)


class TableExecutor(Protocol):
    """The data side of an agent: implemented by `streaming`. No method blocks."""

    def add_table_span(
        self, span: Span, checkpoint: Checkpoint, fence: int, *, is_prepare: bool
    ) -> bool:
        """Begin to prepare a span, or to write it with this fence; False: not now, ask again."""
        ...

    def is_add_table_span_finished(self, table_id: int, *, is_prepare: bool) -> bool:
        """Whether it is Prepared (or Replicating) by now."""
        ...

    def remove_table_span(self, table_id: int) -> bool:
        """Begin to stop it; False: not now, ask again."""
        ...

    def is_remove_table_span_finished(self, table_id: int) -> TableStatus | None:
        """Its last status when nothing of it runs any more, and forget it; else None."""
        ...

    def get_table_span_count(self) -> int: ...

    def get_table_span_status(self, table_id: int) -> TableStatus:
        """Absent if it is not here. ``fence`` is that of the last `add_table_span`."""
        ...

    def take_changed(self) -> Collection[int]:
        """The table IDs whose status may have changed since the last call; too many is fine."""
        ...

    def get_scan(self) -> Scan | None:
        """How far the envelopes were read. Not older than any status that was given out."""
        ...


class TaskResponse(NamedTuple):
    status: TableStatus
    is_remove: bool


class _Step(Enum):
    """What one row of a table decided."""

    WAIT = auto()
    GO_ON = auto()  # look at the state again, if it has changed
    RESPOND = auto()
    DONE = auto()  # respond, and that is the end of the task


class TableSpan:
    """A span and its task, if it has one."""

    __slots__ = ("_executor", "_is_processed", "_stopped", "span", "task")

    def __init__(self, span: Span, executor: TableExecutor) -> None:
        self.span = span
        self.task: DispatchTableRequest | None = None
        self._executor = executor
        self._is_processed = False  # the executor was asked to write it
        self._stopped: TableStatus | None = None

    def inject(self, task: DispatchTableRequest) -> bool:
        """Take a task; False, and nothing changes, while there is one."""
        if self.task is not None:
            return False
        self.task, self._is_processed, self._stopped = task, False, None
        return True

    def poll(self) -> TaskResponse | None:
        """Go on with the task as far as it goes now. Whatever the executor raises comes out."""
        before: TableState | None = None
        while (task := self.task) is not None:
            state = self._executor.get_table_span_status(self.span.table_id).state
            if state is before:
                return None
            rows = ADD_ROWS if isinstance(task, AddTable) else REMOVE_ROWS
            assert state in rows, f"an executor reports state {state!r}"
            step, before = rows[state](self), state
            if step is _Step.DONE:
                self.task = None
            if step in (_Step.DONE, _Step.RESPOND):
                return self._response(task)
            if step is _Step.WAIT:
                return None
        return None

    def status(self) -> TableStatus:
        """As the owner is to see it: Stopping as soon as it is to be removed. What it has applied
        was resolved: one that has not read yet promises its checkpoint."""
        status = self._executor.get_table_span_status(self.span.table_id)
        if status.resolved_ts < status.checkpoint_ts:
            status = status._replace(resolved_ts=status.checkpoint_ts)
        if status.state is not TableState.ABSENT and isinstance(self.task, RemoveTable):
            return status._replace(state=TableState.STOPPING)
        return status

    def _response(self, task: DispatchTableRequest) -> TaskResponse:
        if (stopped := self._stopped) is not None:
            resolved_ts = max(stopped.resolved_ts, stopped.checkpoint_ts)
            status = stopped._replace(state=TableState.STOPPED, resolved_ts=resolved_ts)
        else:
            status = self.status()
        return TaskResponse(status, isinstance(task, RemoveTable))

    def failed(self) -> TaskResponse | None:
        """What to say of a step that raised. The task stays."""
        return self._response(self.task) if isinstance(self.task, AddTable) else None

    # The rows for AddTable.

    def _begin(self) -> _Step:
        return _Step.GO_ON if self._add(is_prepare=self._task.is_secondary) else _Step.RESPOND

    def _await_prepared(self) -> _Step:
        finished = self._is_finished(is_prepare=self._task.is_secondary)
        return _Step.GO_ON if finished else _Step.WAIT

    def _prepared(self) -> _Step:
        if self._task.is_secondary:
            return _Step.DONE
        self._is_processed = self._is_processed or self._add(is_prepare=False)
        is_finished = self._is_processed and self._is_finished(is_prepare=False)
        return _Step.GO_ON if is_finished else _Step.RESPOND

    @property
    def _task(self) -> AddTable:
        assert isinstance(self.task, AddTable)
        return self.task

    def _add(self, *, is_prepare: bool) -> bool:
        task = self._task
        return self._executor.add_table_span(
            task.span, task.checkpoint, task.fence, is_prepare=is_prepare
        )

    def _is_finished(self, *, is_prepare: bool) -> bool:
        return self._executor.is_add_table_span_finished(self.span.table_id, is_prepare=is_prepare)

    # The rows for RemoveTable.

    def _stop(self) -> _Step:
        begun = self._executor.remove_table_span(self.span.table_id)
        return _Step.GO_ON if begun else _Step.RESPOND

    def _await_stopped(self) -> _Step:
        self._stopped = self._executor.is_remove_table_span_finished(self.span.table_id)
        return _Step.RESPOND if self._stopped is None else _Step.DONE

    def _done(self) -> _Step:
        return _Step.DONE


_Rows = Mapping[TableState, Callable[[TableSpan], _Step]]

ADD_ROWS: Final[_Rows] = {
    TableState.ABSENT: TableSpan._begin,
    TableState.PREPARING: TableSpan._await_prepared,
    TableState.PREPARED: TableSpan._prepared,
    TableState.REPLICATING: TableSpan._done,
    TableState.STOPPING: TableSpan._done,  # what is being stopped cannot be added
    TableState.STOPPED: TableSpan._done,
}
REMOVE_ROWS: Final[_Rows] = {
    TableState.ABSENT: TableSpan._done,
    TableState.PREPARING: TableSpan._stop,
    TableState.PREPARED: TableSpan._stop,
    TableState.REPLICATING: TableSpan._stop,
    TableState.STOPPING: TableSpan._await_stopped,
    TableState.STOPPED: TableSpan._await_stopped,
}


class TableSpans:
    """The spans of one agent, and the newest fence that each was ever given here.

    Fences outlive spans and owners: a late AddTable cannot bring back what was taken away."""

    def __init__(self, executor: TableExecutor) -> None:
        self._executor = executor
        self._spans: dict[int, TableSpan] = {}
        self._busy: dict[int, TableSpan] = {}  # those with a task
        self._polled: dict[int, TableSpan] = {}  # those that had one since the last look
        self._fences: dict[int, int] = {}

    def accept(self, request: DispatchTableRequest) -> bool:
        """Take a dispatch; False if it is late, has nothing to remove, or finds a task under way.

        Its fence counts as seen in any case."""
        is_add = isinstance(request, AddTable)
        table_id = request.span.table_id if isinstance(request, AddTable) else request.table_id
        seen = self._fences.get(table_id, 0)
        # a remove has the number of the last assignment, not one of its own
        if request.fence < seen or (is_add and request.fence == seen):
            return False
        self._fences[table_id] = request.fence
        span = self._spans.get(table_id)
        if span is None and isinstance(request, AddTable) and request.is_secondary:
            # a commit goes on from what was prepared; without that it is late, and none may write
            span = self._spans[table_id] = TableSpan(request.span, self._executor)
        if span is None or not span.inject(request):
            return False
        self._busy[table_id] = span
        return True

    def poll(self) -> tuple[list[TaskResponse], list[Exception]]:
        """Go on with every task. A task that fails does not keep the others from going on."""
        responses: list[TaskResponse] = []
        errors: list[Exception] = []
        for span in self._busy.values():
            try:
                response = span.poll()
            except Exception as error:  # noqa: BLE001  (the caller tells the changefeed)
                errors.append(error)
                response = span.failed()
            if response is not None:
                responses.append(response)
        self._polled.update(self._busy)
        self._busy = {t: span for t, span in self._busy.items() if span.task is not None}
        return responses, errors

    def take_changed(self) -> Iterator[TableStatus]:
        """The spans that may have changed since the last call. One that is Absent is dropped, with
        its task: the owner will see that it is Absent, and decide anew."""
        changed = {**dict.fromkeys(self._executor.take_changed()), **self._polled}
        self._polled.clear()
        for table_id in changed:
            span = self._spans.get(table_id)
            if span is None:
                continue
            status = span.status()
            if status.state is TableState.ABSENT:
                del self._spans[table_id]
                self._busy.pop(table_id, None)
            yield status
