"""The units of a task, in the order of its mode: where it begins, where it goes on, what it needs.

    all          dump ─► load ─► sync          full  dump ─► load
    load&sync    load ─► sync                  dump  dump
    incremental  sync

Pure; the modes are DM's, and so are the rules for storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from coordination.errors import TidelakeError
from coordination.model import JobID, TaskID


class Unit(StrEnum):
    DUMP = "dump"
    LOAD = "load"
    SYNC = "sync"


class TaskMode(StrEnum):
    ALL = "all"
    FULL = "full"
    INCREMENTAL = "incremental"
    DUMP = "dump"
    LOAD_SYNC = "load&sync"


UNIT_SEQUENCE: Final[Mapping[TaskMode, tuple[Unit, ...]]] = {
    TaskMode.ALL: (Unit.DUMP, Unit.LOAD, Unit.SYNC),
    TaskMode.FULL: (Unit.DUMP, Unit.LOAD),
    TaskMode.INCREMENTAL: (Unit.SYNC,),
    TaskMode.DUMP: (Unit.DUMP,),
    TaskMode.LOAD_SYNC: (Unit.LOAD, Unit.SYNC),
}


class UnknownTaskMode(TidelakeError):
    """A task mode that this program does not know (the original panics)."""


class UnitOutsideMode(TidelakeError):
    """A worker runs a unit that the task's mode does not have (the original begins anew)."""


def unit_sequence(task_mode: str) -> tuple[Unit, ...]:
    """The units of that mode, in their order. Raises ``UnknownTaskMode``."""
    try:
        return UNIT_SEQUENCE[TaskMode(task_mode)]
    except ValueError:
        known = ", ".join(TaskMode)
        raise UnknownTaskMode(f"task-mode {task_mode!r} is not known: use one of {known}") from None


def next_unit(task_mode: str, finished: Unit) -> Unit | None:
    """The unit after one that has finished; None after the last one. Raises ``UnitOutsideMode``."""
    sequence = unit_sequence(task_mode)
    if finished not in sequence:
        raise UnitOutsideMode(
            f"its last unit was {finished}, which task-mode {task_mode!r} does not have: "
            "give it a mode with that unit, or stop the job and start it anew"
        )
    rest = sequence[sequence.index(finished) + 1 :]
    return rest[0] if rest else None


def extends(task_mode: str, earlier_mode: str) -> bool:
    """Whether a task of the earlier mode can go on in this one: it begins with the same units."""
    earlier = unit_sequence(earlier_mode)
    return unit_sequence(task_mode)[: len(earlier)] == earlier


def needs_ext_storage(unit: Unit, *, is_fresh: bool) -> bool:
    """Whether the unit reads or writes staged files."""
    return unit is not Unit.SYNC or is_fresh


def local_resources(
    job_id: JobID, task_id: TaskID, task_mode: str, unit: Unit, *, is_fresh: bool
) -> tuple[str, ...]:
    """The staged files of an earlier unit that this one goes on from. Such a worker is placed where
    the earlier unit was, if that capture may take it."""
    is_first = unit_sequence(task_mode)[0] is unit
    if is_first or (unit is Unit.SYNC and not is_fresh):
        return ()
    return (f"/local/{job_id}-{task_id}",)
