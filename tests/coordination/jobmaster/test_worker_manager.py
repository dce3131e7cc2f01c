"""WorkerManager: what is known of workers, and what a check decides. Tests of DM's that are meant
here are named in the headings; its slips are at the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.jobmaster.ports import CheckpointStatus
from coordination.jobmaster.records import Job, Task
from coordination.jobmaster.stages import WorkerStage
from coordination.jobmaster.units import Unit
from coordination.jobmaster.worker_manager import (
    HEARTBEAT_S,
    RETRY_S,
    Unread,
    WorkerCheck,
    WorkerManager,
)
from coordination.model import CaptureID, TaskID, WorkerID
from tests.coordination.jobmaster.jobs import (
    COPY,
    T1,
    T2,
    A,
    B,
    C,
    FixedCheckpoints,
    captures,
    cfg,
    job,
    report,
    unit_state,
    unit_status,
)

CREATING, ONLINE = WorkerStage.CREATING, WorkerStage.ONLINE
FINISHED, OFFLINE = WorkerStage.FINISHED, WorkerStage.OFFLINE
BOTH = unit_state(unit_status(T1, 1), unit_status(T2, 2, capture=B))


def made(*stages: WorkerStage, unit: Unit = Unit.DUMP) -> WorkerManager:
    """Workers 1 and 2 of the tasks, in these stages since second 0."""
    manager = WorkerManager(COPY)
    current = [unit_status(T1, 1, unit), unit_status(T2, 2, unit, B)][: len(stages)]
    manager.follow(unit_state(*current), 0.0)
    for number, stage in enumerate(stages, 1):
        manager.update_worker_status(report((T1, T2)[number - 1], number, stage), 0.0)
    return manager


def check(
    manager: WorkerManager,
    wanted: Job | Unread | None,
    now_s: float = 1.0,
    *,
    checkpoints: FixedCheckpoints | None = None,
    able: tuple[CaptureID, ...] = (A, B),
) -> WorkerCheck:
    return manager.check(wanted, captures(*able), checkpoints or FixedCheckpoints(), now_s)


def stages(manager: WorkerManager) -> dict[TaskID, WorkerStage]:
    return {task_id: each.stage for task_id, each in manager.workers.items()}


# TestUpdateWorkerStatus: etcd says which workers there are, reports say in which stage


def test_workers_come_from_etcd_and_their_stages_from_reports() -> None:
    manager = WorkerManager(COPY)
    assert manager.workers == {}
    assert manager.all_tombstone
    manager.follow(BOTH, 0.0)
    assert stages(manager) == {T1: CREATING, T2: CREATING}
    assert not manager.all_tombstone
    for number, stage in enumerate((ONLINE, OFFLINE), 1):
        assert manager.update_worker_status(report(T1, 1, stage, number), 1.0)
        manager.follow(BOTH, 2.0)
        assert stages(manager) == {T1: stage, T2: CREATING}
    manager.update_worker_status(report(T2, 2, FINISHED), 2.0)
    assert manager.all_tombstone


def test_a_new_master_knows_the_workers_and_what_has_finished() -> None:
    manager = WorkerManager(COPY)
    load = unit_status(T2, 4, Unit.LOAD)
    manager.follow(unit_state(unit_status(T1, 3), load, finished=[load]), 0.0)
    assert stages(manager) == {T1: CREATING, T2: FINISHED}
    assert manager.workers[T2].id == 4


def test_a_worker_that_etcd_does_not_have_any_more_is_gone() -> None:
    manager = made(ONLINE, ONLINE)
    manager.follow(unit_state(unit_status(T2, 2)), 1.0)
    assert stages(manager) == {T2: ONLINE}
    assert not manager.update_worker_status(report(T1, 1, ONLINE, 9), 1.0)


@pytest.mark.parametrize("ended", [FINISHED, OFFLINE])
@pytest.mark.parametrize("late", list(WorkerStage))
def test_nothing_follows_the_end_of_a_worker(ended: WorkerStage, late: WorkerStage) -> None:
    manager = made(ended)
    assert not manager.update_worker_status(report(T1, 1, late, 2), 1.0)
    assert stages(manager) == {T1: ended}


def test_an_earlier_report_changes_nothing() -> None:
    manager = made(CREATING)
    manager.update_worker_status(report(T1, 1, ONLINE, 5), 1.0)
    assert not manager.update_worker_status(report(T1, 1, OFFLINE, 4), 2.0)
    assert not manager.update_worker_status(report(T1, 1, CREATING, 6), 2.0)
    assert manager.workers[T1].heard_at == 1.0


# TestClearWorkerStatus: who is removed, who is stopped


def test_the_offline_are_removed_and_the_living_stay() -> None:
    manager = made(OFFLINE, ONLINE)
    done = check(manager, job(T2))
    assert [each.id for each in done.forgotten] == [1]
    assert stages(manager) == {T2: ONLINE}
    assert not done.stopped


@pytest.mark.parametrize("stage", [CREATING, ONLINE])
def test_a_worker_of_an_older_configuration_is_stopped(stage: WorkerStage) -> None:
    manager = made(stage, stage)
    done = check(manager, Job(tasks={T1: Task(cfg=cfg()), T2: Task(cfg=cfg(revision=1))}))
    assert done.stopped == {T2: 2}
    assert check(manager, job(T1, T2, revision=1)).stopped == {T1: 1, T2: 2}


def test_a_worker_without_a_task_is_stopped_and_stays_until_it_is_offline() -> None:
    manager = made(ONLINE, ONLINE)
    assert check(manager, job(T1)).stopped == {T2: 2}
    assert check(manager, job(T1)).stopped == {T2: 2}  # a stop that was lost is sent again
    manager.update_worker_status(report(T2, 2, OFFLINE, 2), 1.0)
    assert [each.id for each in check(manager, job(T1)).forgotten] == [2]
    assert stages(manager) == {T1: ONLINE}


def test_what_has_finished_is_stopped_by_nothing() -> None:
    manager = made(FINISHED, ONLINE)
    assert check(manager, job(T1, T2, mode="dump", revision=1)).stopped == {T2: 2}
    gone = check(manager, job(T2, mode="dump", revision=1))
    assert gone.stopped == {T2: 2}
    assert [each.id for each in gone.forgotten] == [1]


@pytest.mark.parametrize("wanted", [None, job(T1, T2, deleting=True)])
def test_all_workers_of_a_deleted_job_are_stopped_once_and_for_all(wanted: Job | None) -> None:
    manager = made(ONLINE, FINISHED)
    done = check(manager, wanted)
    assert done.stopped == {T1: 1}
    assert [each.id for each in done.forgotten] == [2]
    assert not done.created
    manager.update_worker_status(report(T1, 1, OFFLINE, 2), 1.0)
    assert [each.id for each in check(manager, wanted).forgotten] == [1]
    assert manager.workers == {}
    assert check(manager, wanted) == WorkerCheck()


def test_a_creation_without_an_answer_is_told_to_stop_after_two_heartbeats() -> None:
    manager = made(CREATING)
    almost = check(manager, job(T1), 2 * HEARTBEAT_S - 0.1)
    assert not almost.cancelled
    assert almost.next_at == 2 * HEARTBEAT_S
    late = check(manager, job(T1), 2 * HEARTBEAT_S)
    assert late.cancelled == {T1: 1}
    assert late.problems == {T1: "capture a does not answer, which was to begin the unit dump"}
    # DM forgets it here, though it may begin yet: then there are two
    assert not late.forgotten
    assert not late.created
    assert manager.update_worker_status(report(T1, 1, OFFLINE), 7.0)
    done = check(manager, job(T1), 7.0)
    assert [each.id for each in done.forgotten] == [1]
    assert [each.unit for each in done.created] == [Unit.DUMP]


def test_a_creation_that_goes_on_has_not_failed() -> None:
    manager = made(CREATING)
    manager.update_worker_status(report(T1, 1, CREATING, 2), 5.0)
    assert not check(manager, job(T1), 9.0).cancelled


# TestCreateWorker, TestCheckAndScheduleWorkers: which worker each task needs


def test_tasks_without_a_worker_get_one_each_spread_over_the_captures() -> None:
    done = check(made(), job(T1, T2))
    assert [(each.task_id, each.unit, each.is_fresh) for each in done.created] == [
        (T1, Unit.DUMP, True),
        (T2, Unit.DUMP, True),
    ]
    assert {each.capture_id for each in done.created} == {A, B}
    assert all(each.replaces is None and each.cfg_mod_revision == 0 for each in done.created)


def test_a_task_goes_on_where_its_checkpoints_are() -> None:
    found = FixedCheckpoints(
        {
            T1: {Unit.DUMP: CheckpointStatus.FINISHED, Unit.LOAD: CheckpointStatus.RUNNING},
            T2: {Unit.SYNC: CheckpointStatus.RUNNING},
        }
    )
    done = check(made(), job(T1, T2), checkpoints=found)
    assert [(each.unit, each.is_fresh) for each in done.created] == [
        (Unit.LOAD, False),
        (Unit.SYNC, False),
    ]


def test_one_task_whose_checkpoints_cannot_be_read_keeps_no_other_one_waiting() -> None:
    found = FixedCheckpoints()
    found.errors[T1] = "no connection to the lake"
    done = check(made(), job(T1, T2), checkpoints=found)
    assert [each.task_id for each in done.created] == [T2]
    assert done.problems == {T1: "no connection to the lake"}


def test_checkpoints_that_are_being_read_are_waited_for() -> None:
    found = FixedCheckpoints()
    found.pending.add(T1)
    done = check(made(), job(T1), checkpoints=found)
    assert done.is_waiting
    assert not done.created
    assert not done.problems


@pytest.mark.parametrize("stage", [CREATING, ONLINE])
def test_a_worker_as_expected_is_left_alone_and_nothing_is_read(stage: WorkerStage) -> None:
    found = FixedCheckpoints()
    done = check(made(stage), job(T1), checkpoints=found)
    assert done == WorkerCheck(next_at=done.next_at)
    assert found.asked == []


def test_the_next_unit_follows_one_that_has_finished() -> None:
    [load] = check(made(FINISHED), job(T1)).created
    assert (load.unit, load.is_fresh, load.replaces) == (Unit.LOAD, True, 1)
    assert load.capture_id == A  # where the dump has staged its files
    [sync] = check(made(FINISHED, unit=Unit.LOAD), job(T1)).created
    assert (sync.unit, sync.is_fresh) == (Unit.SYNC, True)


@pytest.mark.parametrize(
    ("mode", "unit"), [("full", Unit.LOAD), ("dump", Unit.DUMP), ("all", Unit.SYNC)]
)
def test_nothing_follows_the_last_unit(mode: str, unit: Unit) -> None:
    assert check(made(FINISHED, unit=unit), job(T1, mode=mode)) == WorkerCheck()


def test_a_finished_task_goes_on_when_its_mode_gets_more_units() -> None:
    done = check(made(FINISHED, unit=Unit.LOAD), job(T1, mode="all", revision=1))
    [sync] = done.created
    assert (sync.unit, sync.cfg_mod_revision) == (Unit.SYNC, 1)


def test_no_worker_is_created_where_no_capture_may_take_it() -> None:
    done = check(made(), job(T1), able=())
    assert not done.created
    assert done.problems == {T1: "no capture is there that may run the unit dump"}


def test_a_worker_goes_away_from_a_capture_that_drains_if_another_one_is_there() -> None:
    manager = made(ONLINE, ONLINE)
    draining = {"draining": frozenset({A}), "counted": frozenset({A, B})}
    stopped = manager.check(job(T1, T2), captures(B, **draining), FixedCheckpoints(), 1.0).stopped
    assert stopped == {T1: 1}
    alone = manager.check(job(T1, T2), captures(**draining), FixedCheckpoints(), 1.0)
    assert not alone.stopped


# TestWorkerManager: a dead capture's unit begins again elsewhere where it was


def test_a_dead_captures_unit_begins_again_elsewhere_where_it_was() -> None:
    manager = made(ONLINE, ONLINE, unit=Unit.LOAD)
    found = FixedCheckpoints({T1: {Unit.LOAD: CheckpointStatus.RUNNING}})
    within_grace = captures(B, C, counted=frozenset({A, B, C}))
    assert manager.lose(within_grace) == []
    assert check(manager, job(T1, T2), checkpoints=found).created == []
    assert [each.id for each in manager.lose(captures(B, C))] == [1]
    done = check(manager, job(T1, T2), checkpoints=found, able=(B, C))
    [load] = done.created
    assert (load.unit, load.is_fresh, load.capture_id) == (Unit.LOAD, False, B)
    assert [each.id for each in done.forgotten] == [1]


def test_a_new_master_waits_for_the_grace_of_those_that_died_before_it() -> None:
    manager = made(CREATING)
    assert manager.lose(captures(B, knows_the_dead=False)) == []
    assert [each.id for each in manager.lose(captures(B))] == [1]


def test_what_has_finished_is_not_lost_with_its_capture() -> None:
    manager = made(FINISHED)
    assert manager.lose(captures(B)) == []
    [load] = check(manager, job(T1), able=(B,)).created
    assert (load.unit, load.capture_id) == (Unit.LOAD, B)


def test_a_worker_that_ended_with_an_error_is_begun_again_after_a_while() -> None:
    manager = made(ONLINE)
    manager.update_worker_status(report(T1, 1, OFFLINE, 2, error="no route to host"), 100.0)
    done = check(manager, job(T1), 100.0)
    assert not done.created
    assert done.problems == {T1: "its last worker ended: no route to host"}
    assert done.next_at == 100.0 + RETRY_S
    assert len(check(manager, job(T1), 100.0 + RETRY_S).created) == 1


# the original's slips


def test_a_job_that_cannot_be_read_stops_nobody() -> None:
    manager = made(ONLINE, CREATING)
    assert check(manager, Unread("not JSON"), 100.0) == WorkerCheck()
    assert stages(manager) == {T1: ONLINE, T2: CREATING}


def test_a_late_report_of_an_old_worker_replaces_no_new_one() -> None:
    manager = made(ONLINE)
    manager.follow(unit_state(unit_status(T1, 3, Unit.LOAD, B)), 1.0)
    before = manager.workers[T1]
    for stage in WorkerStage:
        assert not manager.update_worker_status(report(T1, 1, stage, 99), 2.0)
    assert manager.workers[T1] == before


def test_an_unknown_mode_is_a_problem_of_its_task_alone() -> None:
    wanted = job(T1, T2)
    wanted = replace(wanted, tasks={**wanted.tasks, T1: Task(cfg=cfg("everything"))})
    done = check(made(), wanted)
    assert "task-mode 'everything' is not known" in done.problems[T1]
    assert [each.task_id for each in done.created] == [T2]


def test_a_unit_outside_its_mode_is_a_problem_and_begins_nothing() -> None:
    done = check(made(FINISHED, unit=Unit.DUMP), job(T1, mode="incremental"))
    assert "last unit was dump" in done.problems[T1]
    assert not done.created
    assert not done.stopped


def test_a_creation_that_was_refused_leaves_no_status() -> None:
    manager = made(CREATING)
    manager.update_worker_status(report(T1, 1, OFFLINE, error="no rights"), 1.0)
    done = check(manager, job(T1))
    assert [each.id for each in done.forgotten] == [WorkerID(1)]
    assert manager.workers == {}
