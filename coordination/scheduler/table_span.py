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
from dataclasses import dataclass
from typing import Final, Protocol

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


@dataclass(frozen=True, slots=True)
class TaskError:
    """A step of a span's task failed; its changefeed has to know."""

    table_id: int
    error: Exception


@dataclass(frozen=True, slots=True)
class TaskResponse:
    status: TableStatus
    is_remove: bool


@dataclass(frozen=True, slots=True)
class _Step:
    """What one row of a table decided."""

    respond: bool = False
    done: bool = False
    go_on: bool = False  # look at the state again, if it has changed


_WAIT: Final = _Step()
_GO_ON: Final = _Step(go_on=True)
_RESPOND: Final = _Step(respond=True)
_DONE: Final = _Step(respond=True, done=True)


class TableSpan:
    """A span and its task, if it has one."""

    __slots__ = ("_is_processed", "_stopped", "span", "task")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.task: DispatchTableRequest | None = None
        self._is_processed = False  # the executor was asked to write it
        self._stopped: TableStatus | None = None

    def inject(self, task: DispatchTableRequest) -> bool:
        """Take a task; False, and nothing changes, while there is one."""
        if self.task is not None:
            return False
        self.task, self._is_processed, self._stopped = task, False, None
        return True

    def poll(self, executor: TableExecutor) -> TaskResponse | None:
        """Go on with the task as far as it goes now. Whatever the executor raises comes out."""
        while (task := self.task) is not None:
            state = executor.get_table_span_status(self.span.table_id).state
            step = _row(task, state)(self, executor)
            if step.done:
                self.task = None
            if step.respond:
                return self._response(executor, task)
            if not step.go_on:
                return None
            if executor.get_table_span_status(self.span.table_id).state == state:
                return None
        return None

    def status(self, executor: TableExecutor) -> TableStatus:
        """As the owner is to see it: Stopping as soon as it is to be removed."""
        status = _normal(executor.get_table_span_status(self.span.table_id))
        if status.state is not TableState.ABSENT and isinstance(self.task, RemoveTable):
            return status._replace(state=TableState.STOPPING)
        return status

    def _response(self, executor: TableExecutor, task: DispatchTableRequest) -> TaskResponse:
        status = _normal(executor.get_table_span_status(self.span.table_id))
        is_remove = isinstance(task, RemoveTable)
        if is_remove and self._stopped is not None:
            status = self._stopped._replace(state=TableState.STOPPED)
        elif is_remove and status.state is not TableState.ABSENT:
            status = status._replace(state=TableState.STOPPING)
        return TaskResponse(_normal(status), is_remove)

    def failed(self, executor: TableExecutor) -> TaskResponse | None:
        """What to say of a step that raised. The task stays."""
        return self._response(executor, self.task) if isinstance(self.task, AddTable) else None

    # The rows for AddTable.

    def _begin(self, executor: TableExecutor) -> _Step:
        task = self._add
        begun = executor.add_table_span(
            task.span, task.checkpoint, task.fence, is_prepare=task.is_secondary
        )
        return _GO_ON if begun else _RESPOND

    def _await_prepared(self, executor: TableExecutor) -> _Step:
        finished = executor.is_add_table_span_finished(
            self.span.table_id, is_prepare=self._add.is_secondary
        )
        return _GO_ON if finished else _WAIT

    def _prepared(self, executor: TableExecutor) -> _Step:
        if self._add.is_secondary:
            return _DONE
        if not self._is_processed:
            task = self._add
            if not executor.add_table_span(
                task.span, task.checkpoint, task.fence, is_prepare=False
            ):
                return _RESPOND
            self._is_processed = True
        finished = executor.is_add_table_span_finished(self.span.table_id, is_prepare=False)
        return _GO_ON if finished else _RESPOND

    @property
    def _add(self) -> AddTable:
        assert isinstance(self.task, AddTable)
        return self.task

    # The rows for RemoveTable.

    def _stop(self, executor: TableExecutor) -> _Step:
        return _GO_ON if executor.remove_table_span(self.span.table_id) else _RESPOND

    def _await_stopped(self, executor: TableExecutor) -> _Step:
        self._stopped = executor.is_remove_table_span_finished(self.span.table_id)
        return _RESPOND if self._stopped is None else _DONE

    def _done(self, _: TableExecutor) -> _Step:
        return _DONE


_Row = Callable[[TableSpan, TableExecutor], _Step]


ADD_ROWS: Final[Mapping[TableState, _Row]] = {
    TableState.ABSENT: TableSpan._begin,
    TableState.PREPARING: TableSpan._await_prepared,
    TableState.PREPARED: TableSpan._prepared,
    TableState.REPLICATING: TableSpan._done,
    TableState.STOPPING: TableSpan._done,  # what is being stopped cannot be added
    TableState.STOPPED: TableSpan._done,
}
REMOVE_ROWS: Final[Mapping[TableState, _Row]] = {
    TableState.ABSENT: TableSpan._done,
    TableState.PREPARING: TableSpan._stop,
    TableState.PREPARED: TableSpan._stop,
    TableState.REPLICATING: TableSpan._stop,
    TableState.STOPPING: TableSpan._await_stopped,
    TableState.STOPPED: TableSpan._await_stopped,
}


def _row(task: DispatchTableRequest, state: TableState) -> _Row:
    rows = ADD_ROWS if isinstance(task, AddTable) else REMOVE_ROWS
    assert state in rows, f"an executor reports state {state!r}"
    return rows[state]


def _normal(status: TableStatus) -> TableStatus:
    """What a span has applied was resolved: one that has not read yet promises its checkpoint."""
    if status.resolved_ts < status.checkpoint_ts:
        return status._replace(resolved_ts=status.checkpoint_ts)
    return status


class TableSpans:
    """The spans of one agent, and the newest fence that each was ever given here.

    Fences outlive spans and owners: a late AddTable cannot bring back what was taken away."""

    def __init__(self, executor: TableExecutor) -> None:
        self._executor = executor
        self._spans: dict[int, TableSpan] = {}
        self._busy: dict[int, TableSpan] = {}  # those with a task
        self._polled: dict[int, TableSpan] = {}  # those that had one since the last look
        self._fences: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._spans)

    def fence(self, table_id: int) -> int:
        """The newest that was seen; 0 if none was."""
        return self._fences.get(table_id, 0)

    def accept(self, request: DispatchTableRequest) -> bool:
        """Take a dispatch; False if it is late, has nothing to remove, or finds a task under way.

        Its fence counts as seen in any case."""
        is_add = isinstance(request, AddTable)
        table_id = request.span.table_id if isinstance(request, AddTable) else request.table_id
        seen = self.fence(table_id)
        # a remove has the number of the last assignment, not one of its own
        if request.fence < seen or (is_add and request.fence == seen):
            return False
        self._fences[table_id] = request.fence
        span = self._spans.get(table_id)
        if span is None and isinstance(request, AddTable) and request.is_secondary:
            # a commit goes on from what was prepared; without that it is late, and none may write
            span = self._spans[table_id] = TableSpan(request.span)
        if span is None or not span.inject(request):
            return False
        self._busy[table_id] = span
        return True

    def poll(self) -> tuple[list[TaskResponse], list[TaskError]]:
        """Go on with every task. A task that fails does not keep the others from going on."""
        responses, errors = [], []
        for table_id, span in self._busy.items():
            try:
                response = span.poll(self._executor)
            except Exception as error:  # noqa: BLE001  (the caller tells the changefeed)
                errors.append(TaskError(table_id, error))
                response = span.failed(self._executor)
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
            status = span.status(self._executor)
            if status.state is TableState.ABSENT:
                del self._spans[table_id]
                self._busy.pop(table_id, None)
            yield status
