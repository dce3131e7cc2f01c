"""The stages of a worker and of a task, and what follows from them: tables.

A *worker* is one run of a unit on one capture. It is created, comes online, and ends: its unit has
finished, or it is offline for any other reason. A *task* is what a worker works at: it runs, it is
paused by an operator, or an error holds it; the worker is online all the while.

                create            online             finished
    (none) ──────────► CREATING ─────────► ONLINE ─────────────► FINISHED
                          │  └───────────────┼────────────────────┘
                          └──── offline ─────┴─────────────────► OFFLINE
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final


class WorkerStage(StrEnum):
    CREATING = "Creating"
    ONLINE = "Online"
    FINISHED = "Finished"
    OFFLINE = "Offline"


# What a report may make of a worker's stage. Any other report is late, and changes nothing.
WORKER_STAGES: Final[Mapping[WorkerStage, frozenset[WorkerStage]]] = {
    WorkerStage.CREATING: frozenset(WorkerStage),
    WorkerStage.ONLINE: frozenset({WorkerStage.ONLINE, WorkerStage.FINISHED, WorkerStage.OFFLINE}),
    WorkerStage.FINISHED: frozenset(),
    WorkerStage.OFFLINE: frozenset(),
}


class TaskStage(StrEnum):
    INITING = "Initing"
    RUNNING = "Running"
    PAUSED = "Paused"
    FINISHED = "Finished"
    PAUSING = "Pausing"
    ERROR = "Error"
    UNSCHEDULED = "Unscheduled"  # no worker is online


class OperateType(StrEnum):
    """An order to the worker of a task."""

    PAUSE = "Pause"
    RESUME = "Resume"


class When(Enum):
    """When an order is given."""

    ALWAYS = 1
    # An operator has set the expected stage since the worker last followed it. Otherwise the error
    # is news for the operator, and an order would only try the same again.
    SET_SINCE = 2


@dataclass(frozen=True, slots=True)
class Operation:
    op: OperateType
    when: When


# (expected, reported) -> what the worker is told. Any other pair: nothing.
OPERATIONS: Final[Mapping[tuple[TaskStage, TaskStage], Operation]] = {
    (TaskStage.PAUSED, TaskStage.RUNNING): Operation(OperateType.PAUSE, When.ALWAYS),
    (TaskStage.PAUSED, TaskStage.ERROR): Operation(OperateType.PAUSE, When.ALWAYS),
    (TaskStage.RUNNING, TaskStage.PAUSED): Operation(OperateType.RESUME, When.ALWAYS),
    (TaskStage.RUNNING, TaskStage.ERROR): Operation(OperateType.RESUME, When.SET_SINCE),
}


def operation(
    expected: TaskStage, reported: TaskStage, *, expected_number: int, followed_number: int
) -> OperateType | None:
    """What to tell a worker; None: nothing. ``expected_number`` counts how often an operator has
    set the stage, and ``followed_number`` is the one that the worker has followed last. (DM
    compares the clocks of two machines.)"""
    found = OPERATIONS.get((expected, reported))
    if found is None or (found.when is When.SET_SINCE and expected_number <= followed_number):
        return None
    return found.op
