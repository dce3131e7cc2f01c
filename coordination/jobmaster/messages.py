"""What the job master and the captures' executors tell each other. `Transport` carries it.

    master ── CreateWorker, StopWorker, OperateTask, QueryStatus ──► executor
    master ◄── WorkerReport ── executor

Every order names its worker, and an executor answers every order with a report on that worker. So
an order that was lost is sent again with the next heartbeat, and one that comes twice or late has
no second effect: a worker ID that an executor has seen begins nothing again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from operator import index
from typing import Any, Final

from coordination.errors import TidelakeError
from coordination.jobmaster.stages import OperateType, TaskStage, WorkerStage
from coordination.jobmaster.units import Unit
from coordination.model import CaptureID, JobID, TaskID, WorkerID


class MalformedWorkerMessage(TidelakeError):
    """Bytes that are no message of this version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateWorker:
    """Begin a unit. ``stage`` is the one that an operator wants: a paused task begins paused.
    Checkpoints of another ``epoch`` of the task are not its own."""

    task_id: TaskID
    worker_id: WorkerID
    epoch: int
    unit: Unit
    task_mode: str
    cfg_mod_revision: int
    config: Mapping[str, Any] = field(default_factory=dict)
    stage: TaskStage
    stage_number: int
    is_fresh: bool
    needs_ext_storage: bool
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWorker:
    """``unless_online``: only if it has not come online yet."""

    task_id: TaskID
    worker_id: WorkerID
    unless_online: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    task_id: TaskID
    worker_id: WorkerID


@dataclass(frozen=True, slots=True, kw_only=True)
class OperateTask:
    """``stage_number``: as in `records.Task`. An executor follows no lower one than the last."""

    task_id: TaskID
    worker_id: WorkerID
    op: OperateType
    stage_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """One worker as its executor has it. A worker's reports are numbered by ``sequence``.
    ``status`` says what the unit has done, for people."""

    task_id: TaskID
    worker_id: WorkerID
    worker_stage: WorkerStage
    task_stage: TaskStage = TaskStage.UNSCHEDULED
    stage_number: int = 0
    sequence: int = 0
    error: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)


Order = CreateWorker | StopWorker | QueryStatus | OperateTask
Body = Order | WorkerReport


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMessage:
    sender: CaptureID
    to: CaptureID
    job_id: JobID
    body: Body


_KINDS: Final = {
    kind.__name__: kind
    for kind in (CreateWorker, StopWorker, QueryStatus, OperateTask, WorkerReport)
}
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "unit": Unit,
    "stage": TaskStage,
    "task_stage": TaskStage,
    "worker_stage": WorkerStage,
    "op": OperateType,
    "resources": tuple,
    "unless_online": bool,
    "is_fresh": bool,
    "needs_ext_storage": bool,
    "config": dict,
    "status": dict,
    **dict.fromkeys(("worker_id", "epoch", "cfg_mod_revision", "stage_number", "sequence"), index),
}


def encode_worker_message(message: WorkerMessage) -> bytes:
    """The message as JSON."""
    head = {"from": message.sender, "to": message.to, "job": message.job_id}
    kind = type(message.body).__name__
    return json.dumps({**head, "kind": kind, "body": asdict(message.body)}).encode()


def decode_worker_message(data: bytes) -> WorkerMessage:
    """Raises ``MalformedWorkerMessage``."""
    try:
        found = json.loads(data)
        kind, body = _KINDS[found["kind"]], found["body"]
        known = {
            each.name: _READ.get(each.name, _same)(body[each.name])
            for each in fields(kind)
            if each.name in body
        }
        return WorkerMessage(
            sender=CaptureID(str(found["from"])),
            to=CaptureID(str(found["to"])),
            job_id=JobID(str(found["job"])),
            body=kind(**known),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedWorkerMessage(f"not a message about a worker: {error!r}") from error


def _same(value: Any) -> Any:
    return value
