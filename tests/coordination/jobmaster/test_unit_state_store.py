"""The workers and the ends of units in etcd: JSON, refusals and lost races; on a real etcd and on
the fake one (DM's TestUnitStateStore, TestCreateWorker, TestDuplicateFinishedState)."""

from __future__ import annotations

import json

import pytest

from coordination.jobmaster.job_writes import JobUpdateRefused, WorkerChanged
from coordination.jobmaster.records import Job, UnitState
from coordination.jobmaster.units import Unit
from coordination.metadata.errors import BrokenValue
from coordination.metadata.records import dump, load
from coordination.model import WorkerID
from tests.coordination.jobmaster.conftest import Store
from tests.coordination.jobmaster.jobs import AT, COPY, T1, T2, B, cfg, new, unit_state, unit_status


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
    assert copy.raw("unit-state")["CurrentUnitStatus"] == {
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
    assert copy.worker(T2) > copy.worker(T1)


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
    first = copy.worker()
    copy.commit(copy.found.writes().finish_worker(T1, first, {"rows": 5}, "later"))
    copy.commit(copy.found.writes().create_worker(new(unit=Unit.LOAD, replaces=first), AT))
    assert copy.worker() > first
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
    copy.commit(copy.found.writes().forget_worker(T1, copy.worker()))
    assert copy.unit_state.current == {}


def test_what_a_removed_task_has_finished_is_forgotten_with_its_worker(copy: Store) -> None:
    for task_id in (T1, T2):
        copy.commit(copy.found.writes().create_worker(new(task_id), AT))
        copy.commit(copy.found.writes().finish_worker(task_id, copy.worker(task_id), {}, AT))
    copy.operator.update(COPY, {T1: cfg()})
    copy.commit(copy.found.writes().forget_worker(T2, copy.worker(T2)))
    assert copy.unit_state.finished.keys() == {T1}


# TestDuplicateFinishedState


def test_a_unit_that_finishes_again_has_one_entry_that_of_its_last_run(copy: Store) -> None:
    for created, finished in (("1", "2"), ("3", "9")):
        copy.commit(copy.found.writes().create_worker(new(), created))
        last = copy.worker()
        for _ in range(2):
            copy.commit(copy.found.writes().finish_worker(T1, last, {}, finished))
        copy.commit(copy.found.writes().forget_worker(T1, last))
    [ended] = copy.unit_state.finished[T1]
    assert (ended.created_time, ended.finished_time, ended.worker_id) == ("3", "9", last)


def test_what_an_earlier_task_of_the_name_has_finished_is_forgotten(copy: Store) -> None:
    copy.commit(copy.found.writes().create_worker(new(), AT))
    copy.commit(copy.found.writes().finish_worker(T1, copy.worker(), {}, AT))
    copy.operator.update(COPY, {T2: cfg(filters=["x"])})
    copy.operator.update(COPY, {T1: cfg()})
    copy.commit(copy.found.writes().forget_worker(T1, copy.worker()))
    task = copy.job.tasks[T1]
    later = new(epoch=task.epoch, cfg_mod_revision=task.cfg.mod_revision)
    copy.commit(copy.found.writes().create_worker(later, AT))
    assert copy.unit_state.finished == {}


def test_a_late_end_of_an_old_worker_is_not_recorded(copy: Store) -> None:
    copy.commit(copy.found.writes().create_worker(new(), AT))
    copy.commit(copy.found.writes().finish_worker(T1, WorkerID(99), {}, AT))
    assert copy.unit_state.finished == {}
