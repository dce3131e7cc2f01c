"""What job masters and executors need of the data plane: declared here, implemented by `streaming`.

    master ──── CheckpointAgent ─► where the units of a task have come to
    executor ── Units.open_unit ─► UnitHolder: one unit that runs on this capture

Nothing here blocks: a call begins slow work, and a later call shows its outcome. An implementation
calls `wake`, on any thread, when there is an outcome to look at.

A unit is *fresh* if it begins from nothing. DM's dump has no checkpoint and is always fresh; here a
dump that was killed goes on with its next chunk, and what it has staged is its checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from coordination.jobmaster.messages import CreateWorker
from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.units import Unit, next_unit, unit_sequence
from coordination.model import JobID, TaskID


class CheckpointStatus(StrEnum):
    """dump: of its manifest of staged files; load: of its row; sync: ``running`` if it has stored a
    position of the whole task."""

    ABSENT = "absent"
    INIT = "init"  # it was registered, and has done nothing yet
    RUNNING = "running"
    FINISHED = "finished"


Checkpoints = Mapping[Unit, CheckpointStatus]  # a unit that is missing has none

FRESH: Final[Mapping[Unit, frozenset[CheckpointStatus]]] = {
    Unit.DUMP: frozenset({CheckpointStatus.ABSENT, CheckpointStatus.INIT}),
    Unit.LOAD: frozenset({CheckpointStatus.ABSENT, CheckpointStatus.INIT}),
    Unit.SYNC: frozenset({CheckpointStatus.ABSENT}),
}


def is_fresh(checkpoints: Checkpoints, unit: Unit) -> bool:
    return checkpoints.get(unit, CheckpointStatus.ABSENT) in FRESH[unit]


def current_unit(task_mode: str, checkpoints: Checkpoints) -> tuple[Unit, bool]:
    """Where a task without a worker goes on, and whether that unit begins from nothing: with the
    last unit that has a checkpoint or, if that has finished, with the one after it; else with the
    first one. (DM begins a finished unit again.) Raises ``UnknownTaskMode``."""
    sequence = unit_sequence(task_mode)
    started = next((each for each in reversed(sequence) if not is_fresh(checkpoints, each)), None)
    if started is None:
        return sequence[0], True
    has_finished = checkpoints[started] is CheckpointStatus.FINISHED
    after = next_unit(task_mode, started) if has_finished else None
    return (started, False) if after is None else (after, True)


class CheckpointAgent(Protocol):
    """Reads the checkpoints of units, in the background. An agent is made for one leadership."""

    def checkpoints(self, job_id: JobID, task_id: TaskID, epoch: int) -> Checkpoints | None:
        """What the task has stored in that epoch (`records.Task`). The first call begins to read,
        and returns None. A later call returns what was read, or raises the error of the read; the
        call after that begins anew. So an answer is never older than the first call. The agent
        wakes its reactor when there is one."""
        ...

    def remove(self, job_id: JobID) -> bool:
        """Remove the checkpoints of all tasks of the job: the first call begins that. Whether it is
        done. Raises the error of a try that failed; the call after that tries again."""
        ...

    def close(self) -> None:
        """The leadership has ended: remove nothing more, and wake nobody. Idempotent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitReport:
    """How a unit is. ``error``: what holds it in stage ``ERROR``, or why it has closed of itself;
    one sentence. ``status`` is what it has done, for people: JSON of at most 1 KiB."""

    stage: TaskStage
    error: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)


class UnitHolder(Protocol):
    """One unit of one worker. Its methods do not raise."""

    def report(self) -> UnitReport: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None:
        """Begin to end; what was begun and can be kept is kept as its checkpoint."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether nothing of it runs or writes any more. It may close of itself, when it has
        failed for good."""
        ...


class Units(Protocol):
    def open_unit(self, job_id: JobID, order: CreateWorker, wake: Callable[[], None]) -> UnitHolder:
        """Begin a unit, paused if the order says so. Raises ``TidelakeError`` if it cannot."""
        ...
