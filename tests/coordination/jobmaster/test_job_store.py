"""Jobs in etcd: keys, JSON, refusals and lost races; on a real etcd and on the fake one (DM's
TestJobStore, TestOperateTask)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.etcd import keys
from coordination.etcd.client import delete, get
from coordination.jobmaster.job_writes import (
    MAX_JOB_BYTES,
    MAX_STATUS_BYTES,
    MAX_TASKS,
    JobExists,
    JobNotFound,
    JobUpdateRefused,
)
from coordination.jobmaster.jobs_state import read_jobs
from coordination.jobmaster.records import Job
from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.units import Unit, UnknownTaskMode
from coordination.jobmaster.worker_manager import Unread
from coordination.metadata.errors import BrokenValue
from coordination.metadata.records import dump
from coordination.model import JobID, TaskID, WorkerID
from tests.coordination.jobmaster.conftest import Store
from tests.coordination.jobmaster.jobs import AT, COPY, T1, T2, cfg, new, unit_state, unit_status

RUNNING, PAUSED = TaskStage.RUNNING, TaskStage.PAUSED


def stages(store: Store) -> dict[TaskID, TaskStage]:
    return {task_id: each.stage for task_id, each in store.job.tasks.items()}


# TestJobStore


def test_a_job_lies_under_dms_key_with_dms_fields(copy: Store) -> None:
    assert copy.raw("job") == {
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
    assert copy.raw("unit-state") == {"FinishedUnitStatus": {}, "CurrentUnitStatus": {}}


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


def test_a_job_that_is_too_large_for_etcd_is_refused_in_one_line(store: Store) -> None:
    many = {TaskID(f"mysql-{number}"): cfg() for number in range(MAX_TASKS + 1)}
    with pytest.raises(JobUpdateRefused, match=r"201 tasks .* make several jobs of it"):
        store.operator.create(COPY, many)
    store.operator.create(COPY, dict(list(many.items())[:MAX_TASKS]))
    with pytest.raises(JobUpdateRefused, match="bytes of configuration"):
        store.operator.update(COPY, {T1: cfg(sql="x" * MAX_JOB_BYTES)})
    assert len(store.job.tasks) == MAX_TASKS


def test_all_units_of_the_largest_job_fit_into_etcd(store: Store) -> None:
    tasks = {TaskID(f"a-source-with-a-long-name-{number}"): cfg() for number in range(MAX_TASKS)}
    store.operator.create(COPY, tasks)
    status = {"rows": "9" * (MAX_STATUS_BYTES - 20)}
    state = store.unit_state
    workers = [
        unit_status(each, 2**40 + number, unit)
        for number, (each, unit) in enumerate((each, unit) for each in tasks for unit in Unit)
    ]
    large = unit_state(*workers, finished=workers)
    finished = {
        each: tuple(replace(ended, status=status) for ended in entries)
        for each, entries in large.finished.items()
    }
    store.client.put(keys.unit_state_key(store.id, COPY), dump(replace(state, finished=finished)))
    store.commit(store.found.writes().create_worker(new(next(iter(tasks))), AT))


def test_a_status_that_is_too_long_is_left_out(copy: Store) -> None:
    copy.commit(copy.found.writes().create_worker(new(), AT))
    long = {"tables": ["t"] * MAX_STATUS_BYTES}
    copy.commit(copy.found.writes().finish_worker(T1, copy.worker(), long, AT))
    assert copy.unit_state.finished[T1][0].status == {}


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
    copy.commit(copy.found.writes().forget_worker(T1, copy.worker()))
    copy.commit(copy.found.writes().delete_job())
    assert read_jobs(copy.client, copy.id) == {}


def test_a_job_that_somebody_deleted_keeps_its_name_while_its_workers_run(copy: Store) -> None:
    copy.commit(copy.found.writes().create_worker(new(), AT))
    writes, last = copy.found.writes(), copy.worker()
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
