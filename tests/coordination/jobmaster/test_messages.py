"""The messages about workers as bytes."""

from __future__ import annotations

import json

import pytest

from coordination.jobmaster.messages import (
    CreateWorker,
    MalformedWorkerMessage,
    OperateTask,
    QueryStatus,
    StopWorker,
    WorkerMessage,
    WorkerReport,
    decode_worker_message,
    encode_worker_message,
)
from coordination.jobmaster.stages import OperateType, TaskStage, WorkerStage
from coordination.jobmaster.units import Unit
from coordination.model import CaptureID, JobID, TaskID, WorkerID

TASK, WORKER = TaskID("mysql-1"), WorkerID(7)
BODIES = (
    CreateWorker(
        task_id=TASK,
        worker_id=WORKER,
        epoch=3,
        unit=Unit.LOAD,
        task_mode="all",
        cfg_mod_revision=2,
        config={"routes": ["a", "ä"]},
        stage=TaskStage.PAUSED,
        stage_number=3,
        is_fresh=True,
        needs_ext_storage=True,
        resources=("/local/copy-mysql-1",),
    ),
    StopWorker(task_id=TASK, worker_id=WORKER, unless_online=True),
    QueryStatus(task_id=TASK, worker_id=WORKER),
    OperateTask(task_id=TASK, worker_id=WORKER, op=OperateType.RESUME, stage_number=4),
    WorkerReport(
        task_id=TASK,
        worker_id=WORKER,
        worker_stage=WorkerStage.ONLINE,
        task_stage=TaskStage.ERROR,
        stage_number=4,
        sequence=9,
        error="the server is gone",
        status={"rows": 5},
    ),
)


@pytest.mark.parametrize("body", BODIES, ids=lambda each: type(each).__name__)
def test_a_message_is_the_same_after_its_way_as_bytes(body: QueryStatus) -> None:
    message = WorkerMessage(
        sender=CaptureID("a"), to=CaptureID("b"), job_id=JobID("copy"), body=body
    )
    assert decode_worker_message(encode_worker_message(message)) == message


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "Nobody"},
        {"kind": None},
        {"body": []},
        {"body": {"task_id": "t"}},
        {"body": {"task_id": "t", "worker_id": "7"}},
        {"job": None, "body": None},
    ],
)
def test_what_is_no_message_is_refused(change: dict[str, object]) -> None:
    query = WorkerMessage(
        sender=CaptureID("a"), to=CaptureID("b"), job_id=JobID("copy"), body=BODIES[2]
    )
    found = {**json.loads(encode_worker_message(query)), **change}
    with pytest.raises(MalformedWorkerMessage):
        decode_worker_message(json.dumps(found).encode())
    with pytest.raises(MalformedWorkerMessage):
        decode_worker_message(b"\xff" + json.dumps(found).encode())
