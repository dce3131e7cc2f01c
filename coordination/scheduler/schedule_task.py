"""What a scheduler can ask for: who is to have which span."""

from __future__ import annotations

from dataclasses import dataclass

from coordination.model import CaptureID


@dataclass(frozen=True, slots=True)
class AddTask:
    """Give a span that nobody has to a capture."""

    table_id: int
    capture_id: CaptureID


@dataclass(frozen=True, slots=True)
class RemoveTask:
    """Stop the span of a table that the changefeed has no more."""

    table_id: int


@dataclass(frozen=True, slots=True)
class MoveTask:
    table_id: int
    dest: CaptureID


TableTask = AddTask | RemoveTask | MoveTask


@dataclass(frozen=True, slots=True)
class BurstBalance:
    """Tasks that the limit on running tasks does not hold back."""

    tasks: tuple[TableTask, ...]


ScheduleTask = TableTask | BurstBalance


@dataclass(frozen=True, slots=True)
class BegunMove:
    """A table that has begun to go from one capture to another, for log lines."""

    table_id: int
    origin: CaptureID
    dest: CaptureID
    why: str  # the scheduler that wanted it
