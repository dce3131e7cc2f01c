"""Jobs and unit states in etcd: keys, JSON, refusals and lost races; on a real etcd and on the fake
one (DM's TestJobStore, TestUnitStateStore, TestOperateTask, TestDuplicateFinishedState)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from coordination.etcd import keys
from coordination.etcd.client import delete, get
from coordination.jobmaster.job_writes import (
    JobExists,
    JobNotFound,
    JobUpdateRefused,
    WorkerChanged,
)
from coordination.jobmaster.jobs_state import read_jobs
from coordination.jobmaster.records import Job, UnitState
from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.units import Unit, UnknownTaskMode
from coordination.jobmaster.worker_manager import NewWorker, Unread
from coordination.metadata.errors import BrokenValue
from coordination.metadata.records import dump, load
from coordination.model import CaptureID, JobID, TaskID, WorkerID
from tests.coordination.jobmaster.conftest import Store
from tests.coordination.jobmaster.jobs import COPY, T1, T2, A, B, cfg, unit_state, unit_status

RUNNING, PAUSED = TaskStage.RUNNING, TaskStage.PAUSED
AT = "2026-11-26T10:00:00Z"


@pytest.fixture
def copy(store: Store) -> Store:
    store.operator.create(COPY, {T1: cfg(), T2: cfg(filters=["x"])})
    return store


def stages(store: Store) -> dict[TaskID, TaskStage]:
    return {task_id: each.stage for task_id, each in store.job.tasks.items()}


def new(
    task_id: TaskID = T1, unit: Unit = Unit.DUMP, capture: CaptureID = A, **fields: object
) -> NewWorker:
    made = NewWorker(
        task_id=task_id, unit=unit, is_fresh=True, capture_id=capture, epoch=1, cfg_mod_revision=0
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def worker(store: Store, task_id: TaskID = T1) -> WorkerID:
    return store.unit_state.current[task_id].worker_id


def raw(store: Store, kind: str) -> dict[str, object]:
    found = get(store.client, f"/tidelake/{store.id}/data-flow/dm/{kind}/copy")
    assert found is not None
    return dict(json.loads(found.value))


# TestJobStore


def test_a_job_lies_under_dms_key_with_dms_fields(copy: Store) -> None:
    assert raw(copy, "job") == {
        "Tasks": {
            "mysql-1": {
                "Cfg": {"TaskMode": "all", "ModRevision": 0, "config": {}},
                "Stage": "Running",
                "stage-number": 0,
                "epoch": 1,
            },
            "mysql-2": {
                "Cfg": {"TaskMode": "all", "ModRevision": 0, "config": {"filters": ["x"]}},
                "Stage": "Running",
                "stage-number": 0,
                "epoch": 1,
            },
        },
        "Deleting": False,
        "ModRevision": 0,
        "epoch": 1,
    }
    assert raw(copy, "unit-state") == {"FinishedUnitStatus": {}, "CurrentUnitStatus": {}}


def test_nothing_can_be_asked_of_a_job_that_is_not_there(store: Store) -> None:
    operator = store.operator
    for call in (operator.pause, operator.resume, operator.stop, operator.read):
        with pytest.raises(JobNotFound, match="no job copy"):
            call(COPY)
    with pytest.raises(JobNotFound):
        operator.update(COPY, {T1: cfg()})


def test_a_name_is_taken_once(copy: Store) -> None:
    with pytest.raises(JobExists, match="copy"):
        copy.operator.create(COPY, {T1: cfg()})
    copy.operator.create(JobID("other"), {T1: cfg()})
    assert list(read_jobs(copy.client, copy.id)) == ["copy", "other"]


def test_stages_are_set_of_all_tasks_or_of_those_that_are_named(copy: Store) -> None:
    operator = copy.operator
    assert stages(copy) == {T1: RUNNING, T2: RUNNING}
    operator.pause(COPY)
    assert stages(copy) == {T1: PAUSED, T2: PAUSED}
    operator.resume(COPY, [T2])
    assert stages(copy) == {T1: PAUSED, T2: RUNNING}
    assert [each.stage_number for each in copy.job.tasks.values()] == [1, 2]


@pytest.mark.parametrize("named", [["nobody"], [T1, "nobody"]])
def test_a_task_that_is_not_there_refuses_the_whole_order(copy: Store, named: list[str]) -> None:
    with pytest.raises(JobUpdateRefused, match="job copy has no task nobody"):
        copy.operator.pause(COPY, map(TaskID, named))
    assert stages(copy) == {T1: RUNNING, T2: RUNNING}


def test_an_update_keeps_stages_and_counts_up_what_has_changed(copy: Store) -> None:
    copy.operator.pause(COPY, [T1])
    copy.operator.update(COPY, {T1: cfg(routes=["r"]), T2: cfg(filters=["x"])})
    job = copy.job
    assert stages(copy) == {T1: PAUSED, T2: RUNNING}
    assert job.mod_revision == 1
    assert job.tasks[T1].cfg == cfg("all", 1, routes=["r"])
    # DM starts the workers of all tasks again; one that is the same goes on here
    assert job.tasks[T2].cfg.mod_revision == 0


def test_a_task_that_comes_back_is_another_one(copy: Store) -> None:
    copy.operator.update(COPY, {T1: cfg()})
    assert list(copy.job.tasks) == [T1]
    copy.operator.update(COPY, {T1: cfg(), T2: cfg(filters=["x"])})
    assert copy.job.tasks[T2].cfg.mod_revision == 2
    assert copy.job.tasks[T2].epoch > copy.job.tasks[T1].epoch == 1
    assert copy.job.tasks[T1].cfg.mod_revision == 0


def test_a_mode_becomes_only_one_that_begins_with_its_units(store: Store) -> None:
    store.operator.create(COPY, {T1: cfg("full")})
    store.operator.update(COPY, {T1: cfg("all")})
    assert store.job.tasks[T1].cfg.task_mode == "all"
    for mode in ("incremental", "full", "load&sync"):
        with pytest.raises(JobUpdateRefused, match="stop the job and start it anew"):
            store.operator.update(COPY, {T1: cfg(mode)})


def test_an_unknown_mode_is_refused_before_anything_is_written(store: Store) -> None:
    with pytest.raises(UnknownTaskMode):
        store.operator.create(COPY, {T1: cfg("everything")})
    assert read_jobs(store.client, store.id) == {}
    store.operator.create(COPY, {T1: cfg()})
    with pytest.raises(UnknownTaskMode):
        store.operator.update(COPY, {T1: cfg("everything")})


def test_a_job_that_is_being_deleted_is_not_changed_any_more(copy: Store) -> None:
    copy.operator.stop(COPY)
    copy.operator.stop(COPY)
    assert copy.job.deleting
    for refused in (
        lambda: copy.operator.pause(COPY),
        lambda: copy.operator.resume(COPY, [T1]),
        lambda: copy.operator.update(COPY, {T1: cfg()}),
    ):
        with pytest.raises(JobUpdateRefused, match="being deleted"):
            refused()


def test_a_job_that_was_created_anew_is_another_one(copy: Store) -> None:
    before = copy.found.writes()
    copy.operator.stop(COPY)
    copy.commit(copy.found.writes().delete_job())
    copy.operator.create(COPY, {T1: cfg()})
    assert copy.job.epoch > before.epoch
    for write in (
        before.mark_deleting(),
        before.update_stages((), PAUSED),
        before.create_worker(new(), AT),
        before.finish_worker(T1, WorkerID(1), {}, AT),
    ):
        with pytest.raises(JobNotFound):
            copy.commit(write)
    with pytest.raises(JobUpdateRefused):
        copy.commit(before.delete_job())
    assert not copy.job.deleting


# TestUnitStateStore, TestCreateWorker


def test_a_unit_state_is_the_same_after_its_way_through_etcd() -> None:
    dump_status, load_status = unit_status(T1, 3), unit_status(T1, 4, Unit.LOAD, B)
    state = unit_state(load_status, unit_status(T2, 5), finished=[dump_status])
    assert load(UnitState, dump(state)) == state
    later = json.loads(dump(state))
    later["later"] = {"a": 1}
    later["CurrentUnitStatus"]["mysql-1"]["later"] = 2
    assert json.loads(dump(load(UnitState, json.dumps(later).encode()))) == later


@pytest.mark.parametrize(
    "value",
    [
        b'{"CurrentUnitStatus":{"t":{"Unit":"copy"}}}',
        b'{"CurrentUnitStatus":{"t":{}}}',
        b'{"CurrentUnitStatus":[1]}',
        b"[]",
        b"",
    ],
)
def test_what_is_no_unit_state_is_refused(value: bytes) -> None:
    with pytest.raises(BrokenValue):
        load(UnitState, value)


@pytest.mark.parametrize("stage", ["Sleeping", "", 2])
def test_an_unknown_stage_is_refused(stage: object) -> None:
    value = {"Tasks": {"t": {"Cfg": {"TaskMode": "all"}, "Stage": stage}}}
    with pytest.raises(BrokenValue):
        load(Job, json.dumps(value).encode())


def test_a_worker_is_in_etcd_before_it_begins(copy: Store) -> None:
    copy.commit(copy.found.writes().create_worker(new(), AT))
    assert raw(copy, "unit-state")["CurrentUnitStatus"] == {
        "mysql-1": {
            "Unit": "dump",
            "Task": "mysql-1",
            "CreatedTime": AT,
            "CfgModRevision": 0,
            "worker-id": 2,  # the job's epoch was 1: one counter of the cluster
            "capture": "a",
            "epoch": 1,
            "is-fresh": True,
        }
    }


def test_a_task_has_one_worker(copy: Store) -> None:
    copy.commit(copy.found.writes().create_worker(new(), AT))
    for again in (new(capture=B), new(unit=Unit.LOAD, replaces=WorkerID(99))):
        with pytest.raises(WorkerChanged):
            copy.commit(copy.found.writes().create_worker(again, AT))
    copy.commit(copy.found.writes().create_worker(new(T2, capture=B), AT))
    assert worker(copy, T2) > worker(copy, T1)


def test_no_worker_is_created_for_a_task_that_was_changed_meanwhile(copy: Store) -> None:
    found = copy.found.writes()
    copy.operator.update(COPY, {T1: cfg(routes=["r"])})
    for outdated in (new(), new(T2), new(cfg_mod_revision=1, epoch=9)):
        with pytest.raises(JobUpdateRefused, match="was changed"):
            copy.commit(found.create_worker(outdated, AT))
    copy.operator.stop(COPY)
    with pytest.raises(JobUpdateRefused):
        copy.commit(found.create_worker(new(cfg_mod_revision=1), AT))
    assert copy.unit_state.current == {}


def test_the_next_units_worker_replaces_the_one_that_has_finished(copy: Store) -> None:
    copy.commit(copy.found.writes().create_worker(new(), AT))
    first = worker(copy)
    copy.commit(copy.found.writes().finish_worker(T1, first, {"rows": 5}, "later"))
    copy.commit(copy.found.writes().create_worker(new(unit=Unit.LOAD, replaces=first), AT))
    assert worker(copy) > first
    [ended] = copy.unit_state.finished[T1]
    assert (ended.unit, ended.status, ended.created_time, ended.finished_time) == (
        Unit.DUMP,
        {"rows": 5},
        AT,
        "later",
    )


def test_a_worker_is_forgotten_by_its_own_id_alone(copy: Store) -> None:
    copy.commit(copy.found.writes().create_worker(new(), AT))
    copy.commit(copy.found.writes().forget_worker(T1, WorkerID(99)))
    assert T1 in copy.unit_state.current
    copy.commit(copy.found.writes().forget_worker(T1, worker(copy)))
    assert copy.unit_state.current == {}


def test_what_a_removed_task_has_finished_is_forgotten_with_its_worker(copy: Store) -> None:
    for task_id in (T1, T2):
        copy.commit(copy.found.writes().create_worker(new(task_id), AT))
        copy.commit(copy.found.writes().finish_worker(task_id, worker(copy, task_id), {}, AT))
    copy.operator.update(COPY, {T1: cfg()})
    copy.commit(copy.found.writes().forget_worker(T2, worker(copy, T2)))
    assert copy.unit_state.finished.keys() == {T1}


# TestDuplicateFinishedState


def test_a_unit_that_finishes_again_has_one_entry_that_of_its_last_run(copy: Store) -> None:
    for created, finished in (("1", "2"), ("3", "9")):
        copy.commit(copy.found.writes().create_worker(new(), created))
        last = worker(copy)
        for _ in range(2):
            copy.commit(copy.found.writes().finish_worker(T1, last, {}, finished))
        copy.commit(copy.found.writes().forget_worker(T1, last))
    [ended] = copy.unit_state.finished[T1]
    assert (ended.created_time, ended.finished_time, ended.worker_id) == ("3", "9", last)


def test_what_an_earlier_task_of_the_name_has_finished_is_forgotten(copy: Store) -> None:
    copy.commit(copy.found.writes().create_worker(new(), AT))
    copy.commit(copy.found.writes().finish_worker(T1, worker(copy), {}, AT))
    copy.operator.update(COPY, {T2: cfg(filters=["x"])})
    copy.operator.update(COPY, {T1: cfg()})
    copy.commit(copy.found.writes().forget_worker(T1, worker(copy)))
    task = copy.job.tasks[T1]
    later = new(epoch=task.epoch, cfg_mod_revision=task.cfg.mod_revision)
    copy.commit(copy.found.writes().create_worker(later, AT))
    assert copy.unit_state.finished == {}


def test_a_late_end_of_an_old_worker_is_not_recorded(copy: Store) -> None:
    copy.commit(copy.found.writes().create_worker(new(), AT))
    copy.commit(copy.found.writes().finish_worker(T1, WorkerID(99), {}, AT))
    assert copy.unit_state.finished == {}


# the end of a job


def test_a_job_is_deleted_when_nothing_of_it_runs(copy: Store) -> None:
    copy.commit(copy.found.writes().create_worker(new(), AT))
    with pytest.raises(JobUpdateRefused, match="not being deleted"):
        copy.commit(copy.found.writes().delete_job())
    copy.operator.stop(COPY)
    with pytest.raises(JobUpdateRefused, match="workers of job copy may run"):
        copy.commit(copy.found.writes().delete_job())
    with pytest.raises(JobExists, match="not ended yet"):
        copy.operator.create(COPY, {T1: cfg()})
    copy.commit(copy.found.writes().forget_worker(T1, worker(copy)))
    copy.commit(copy.found.writes().delete_job())
    assert read_jobs(copy.client, copy.id) == {}


def test_a_job_that_somebody_deleted_keeps_its_name_while_its_workers_run(copy: Store) -> None:
    copy.commit(copy.found.writes().create_worker(new(), AT))
    writes, last = copy.found.writes(), worker(copy)
    delete(copy.client, keys.job_key(copy.id, COPY))
    with pytest.raises(JobExists, match="earlier job"):
        copy.operator.create(COPY, {T1: cfg()})
    copy.commit(writes.forget_worker(T1, last))
    copy.commit(writes.delete_job())
    copy.operator.create(COPY, {T1: cfg()})


# values that cannot be read


def test_a_broken_value_leaves_the_last_good_one_and_is_told(copy: Store) -> None:
    state = read_jobs(copy.client, copy.id)[COPY]
    key = keys.job_key(copy.id, COPY)
    good = get(copy.client, key)
    assert good is not None
    with pytest.raises(BrokenValue):
        state.update(key, replace(good, value=b"{"))
    assert isinstance(state.job, Job)
    assert key in state.unread
    state.update(key, good)
    assert not state.unread


def test_without_a_good_value_nothing_is_known(copy: Store) -> None:
    copy.client.put(keys.job_key(copy.id, COPY), b"{")
    copy.client.put(keys.unit_state_key(copy.id, COPY), b"[]")
    state = read_jobs(copy.client, copy.id)[COPY]
    assert isinstance(state.job, Unread)
    assert isinstance(state.unit_state, Unread)
    with pytest.raises(BrokenValue, match="cannot be read"):
        copy.operator.pause(COPY)
