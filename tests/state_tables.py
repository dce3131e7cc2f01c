"""docs/states.md, from the tables that the product runs: ``python -m tests.state_tables``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

from coordination.jobmaster.stages import OPERATIONS, WORKER_STAGES, TaskStage, When, WorkerStage
from coordination.metadata.feed_state import NEW_EPOCH, TRANSITIONS
from coordination.metadata.records import FeedState
from coordination.scheduler.replication_set import OUTSIDE, ROWS
from coordination.scheduler.table_status import TableState

HEAD = """# States

`python -m tests.state_tables > docs/states.md` makes this page from the tables in the code, and a
test compares it. The last table names the functions that run; their docstrings say more."""
STATES = [state for state in FeedState if state is not FeedState.UNINITIALIZED]
REPORTS = [state for state in TableState if state is not TableState.UNKNOWN]


def page() -> str:
    """The page, without its last line break."""
    return "\n".join((HEAD, *_changefeed(), *_worker(), *_task(), *_replication_set()))


def _changefeed() -> Iterator[str]:
    yield "\n## A changefeed\n"
    yield "`coordination/metadata/feed_state.py`: what happens, and where it leads (or: refused).\n"
    yield _row("", *(str(state.value) for state in STATES))
    yield _line(len(STATES))
    for event, ways in TRANSITIONS.items():
        new = " (new epoch)" if event in NEW_EPOCH else ""
        places = (str(ways[state].value) if state in ways else "" for state in STATES)
        yield _row(event.value + new, *places)


def _worker() -> Iterator[str]:
    yield "\n## A worker of a job\n"
    yield "`coordination/jobmaster/stages.py`: what a report makes of a worker's stage. Empty: the"
    yield "report is late, and changes nothing.\n"
    yield _row("", *(each.value for each in WorkerStage))
    yield _line(len(WorkerStage))
    for stage, after in WORKER_STAGES.items():
        yield _row(stage.value, *(each.value if each in after else "" for each in WorkerStage))


def _task() -> Iterator[str]:
    yield "\n## A task of a job\n"
    yield "`coordination/jobmaster/stages.py`: what its worker is told, by the expected stage and"
    yield "the one that the worker reports. Empty: nothing.\n"
    yield _row("", *(each.value for each in TaskStage))
    yield _line(len(TaskStage))
    for expected in dict.fromkeys(pair[0] for pair in OPERATIONS):
        cells = (_order(expected, reported) for reported in TaskStage)
        yield _row(f"expected {expected.value}", *cells)


def _order(expected: TaskStage, reported: TaskStage) -> str:
    found = OPERATIONS.get((expected, reported))
    if found is None:
        return ""
    return f"{found.op.value}, if set since" if found.when is When.SET_SINCE else found.op.value


def _replication_set() -> Iterator[str]:
    yield "\n## A span at its owner\n"
    yield "`coordination/scheduler/replication_set.py`: what a capture's report means, by the set's"
    yield "state and that capture's part in it. Empty: nothing.\n"
    yield _row("", *map(_shown, REPORTS))
    yield _line(len(REPORTS))
    for (state, role), rows in ROWS.items():
        name = f"{_shown(state)}, {_shown(role) if role else 'any'}"
        yield _row(name, *(_step(rows, report) for report in REPORTS))
    yield _row("outside of it", *(_step(OUTSIDE, report) for report in REPORTS))


def _step(rows: Mapping[Any, Callable[..., Any]], state: Enum) -> str:
    return rows[state].__name__.strip("_").replace("_", " ") if state in rows else ""


def _shown(state: Enum) -> str:
    return state.name.capitalize()


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _line(columns: int) -> str:
    return "|---" * (columns + 1) + "|"


if __name__ == "__main__":
    print(page())
