"""TaskManager: expected stages beside reported ones, and the table of operations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.jobmaster.messages import OperateTask
from coordination.jobmaster.records import Job
from coordination.jobmaster.stages import OperateType, TaskStage, operation
from coordination.jobmaster.task_manager import TaskManager, TaskStatus
from coordination.jobmaster.units import Unit
from coordination.model import TaskID, WorkerID
from tests.coordination.jobmaster.jobs import T1, T2, job

PAUSE, RESUME = OperateType.PAUSE, OperateType.RESUME


def status(
    task_id: TaskID,
    stage: TaskStage,
    worker_id: int = 1,
    sequence: int = 1,
    *,
    unit: Unit = Unit.DUMP,
) -> TaskStatus:
    return TaskStatus(
        task_id=task_id,
        worker_id=WorkerID(worker_id),
        unit=unit,
        stage=stage,
        sequence=sequence,
    )


def wanted(stage: TaskStage, number: int = 0, mode: str = "all") -> Job:
    found = job(T1, T2, mode=mode)
    tasks = {k: replace(each, stage=stage, stage_number=number) for k, each in found.tasks.items()}
    return replace(found, tasks=tasks)


# TestGenOp


@pytest.mark.parametrize(
    ("expected", "reported", "op"),
    [
        (TaskStage.PAUSED, TaskStage.RUNNING, PAUSE),
        (TaskStage.PAUSED, TaskStage.ERROR, PAUSE),
        (TaskStage.RUNNING, TaskStage.PAUSED, RESUME),
    ],
)
def test_operations_that_are_always_given(
    expected: TaskStage, reported: TaskStage, op: OperateType
) -> None:
    assert operation(expected, reported, expected_number=0, followed_number=0) is op


def test_nothing_else_is_an_operation() -> None:
    given = {
        (expected, reported)
        for expected in (TaskStage.RUNNING, TaskStage.PAUSED)
        for reported in TaskStage
        if operation(expected, reported, expected_number=9, followed_number=0) is not None
    }
    assert given == {
        (TaskStage.PAUSED, TaskStage.RUNNING),
        (TaskStage.PAUSED, TaskStage.ERROR),
        (TaskStage.RUNNING, TaskStage.PAUSED),
        (TaskStage.RUNNING, TaskStage.ERROR),
    }


def test_an_error_is_tried_again_only_if_an_operator_has_said_so_since() -> None:
    held = (TaskStage.RUNNING, TaskStage.ERROR)
    assert operation(*held, expected_number=2, followed_number=2) is None
    assert operation(*held, expected_number=3, followed_number=2) is RESUME


# TestUpdateTaskStatus


def test_reports_replace_each_other_and_a_task_without_a_worker_is_unscheduled() -> None:
    manager = TaskManager()
    assert manager.task_status(T1).stage is TaskStage.UNSCHEDULED
    manager.update_task_status(status(T1, TaskStage.RUNNING))
    manager.update_task_status(status(T2, TaskStage.RUNNING, 2))
    manager.update_task_status(status(T1, TaskStage.PAUSED, sequence=2))
    assert manager.task_status(T1).stage is TaskStage.PAUSED
    manager.unschedule(T1, WorkerID(1))
    assert manager.task_status(T1).stage is TaskStage.UNSCHEDULED
    assert manager.task_status(T2).stage is TaskStage.RUNNING
    manager.update_task_status(status(T1, TaskStage.RUNNING, 3, unit=Unit.LOAD))
    assert manager.task_status(T1).unit is Unit.LOAD


def test_a_late_report_and_one_of_an_old_worker_change_nothing() -> None:
    manager = TaskManager()
    manager.update_task_status(status(T1, TaskStage.RUNNING, 3, 5))
    manager.update_task_status(status(T1, TaskStage.PAUSED, 3, 4))
    manager.update_task_status(status(T1, TaskStage.PAUSED, 2, 9))
    manager.unschedule(T1, WorkerID(2))
    assert manager.task_status(T1) == status(T1, TaskStage.RUNNING, 3, 5)


# TestClearTaskStatus


def test_tasks_that_the_job_does_not_have_are_dropped() -> None:
    manager = TaskManager()
    for each in (T1, T2):
        manager.update_task_status(status(each, TaskStage.RUNNING))
    manager.check(job(T1))
    assert manager.tasks.keys() == {T1}
    manager.check(job(T1, TaskID("mysql-3")))
    assert manager.tasks.keys() == {T1}


@pytest.mark.parametrize("gone", [None, job(T1, deleting=True)])
def test_a_deleted_job_has_no_tasks(gone: Job | None) -> None:
    manager = TaskManager()
    manager.update_task_status(status(T1, TaskStage.RUNNING))
    assert not manager.check(gone).operations
    assert manager.tasks == {}


# TestCheckAndOperateTasks, TestTaskManager


def test_what_a_check_tells_the_workers() -> None:
    manager = TaskManager()
    running = wanted(TaskStage.RUNNING)
    assert manager.check(running).problems == dict.fromkeys((T1, T2), "no worker of it is online")
    for number, each in enumerate((T1, T2), 1):
        manager.update_task_status(status(each, TaskStage.RUNNING, number))
    assert not manager.check(running).operations
    assert not manager.check(running).problems
    manager.update_task_status(status(T2, TaskStage.PAUSED, 2, 2))
    [resume] = manager.check(running).operations
    assert resume == OperateTask(task_id=T2, worker_id=WorkerID(2), op=RESUME, stage_number=0)
    [pause] = manager.check(wanted(TaskStage.PAUSED, 1)).operations
    assert pause == OperateTask(task_id=T1, worker_id=WorkerID(1), op=PAUSE, stage_number=1)


def test_a_worker_that_went_offline_is_asked_for_nothing() -> None:
    manager = TaskManager()
    manager.update_task_status(status(T1, TaskStage.RUNNING))
    manager.unschedule(T1, WorkerID(1))
    done = manager.check(wanted(TaskStage.PAUSED))
    assert not done.operations
    assert T1 in done.problems


@pytest.mark.parametrize(
    ("mode", "unit", "ends"),
    [
        ("full", Unit.LOAD, True),
        ("full", Unit.DUMP, False),
        ("dump", Unit.DUMP, True),
        ("all", Unit.SYNC, False),
        ("load&sync", Unit.LOAD, False),
        ("nothing", Unit.DUMP, False),
    ],
)
def test_a_job_ends_when_the_last_unit_of_all_its_tasks_has_finished(
    mode: str, unit: Unit, ends: bool
) -> None:
    manager = TaskManager()
    both = wanted(TaskStage.RUNNING, mode=mode)
    assert not manager.all_finished(both)
    manager.update_task_status(status(T1, TaskStage.FINISHED, unit=unit))
    assert not manager.all_finished(both)
    manager.update_task_status(status(T2, TaskStage.FINISHED, 2, unit=unit))
    assert manager.all_finished(both) is ends


def test_a_job_without_tasks_has_no_end() -> None:
    assert not TaskManager().all_finished(job())
