"""Masters, executors and etcd together: a job from its creation to its end; on the fake etcd and on
a real one (DM's TestWorkerManager, TestTaskManager, TestCheckpointLifeCycle)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.etcd import keys
from coordination.etcd.client import EtcdClient, get
from coordination.jobmaster.jobs_state import read_jobs
from coordination.jobmaster.records import Job
from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.units import Unit
from coordination.metadata.records import dump, load
from coordination.model import CaptureID, TaskID
from tests.coordination.jobmaster.cluster import GRACE_S, STEP_S, Cluster
from tests.coordination.jobmaster.jobs import COPY, T1, T2, A, B, cfg
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd
from tests.fakes.fake_units import CHUNKS


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.etcd)])
def client(request: pytest.FixtureRequest) -> EtcdClient:
    if request.param == "real":
        return request.getfixturevalue("real_client")  # type: ignore[no-any-return]
    return FakeEtcd(FakeClock())


@pytest.fixture
def cluster(client: EtcdClient) -> Cluster:
    return Cluster(client)


def until(cluster: Cluster, what: object, seconds: float = 60.0) -> None:
    """Step until the callable is true."""
    assert callable(what)
    for _ in range(int(seconds / STEP_S)):
        if what():
            return
        cluster.step()
    raise AssertionError(f"not within {seconds:g} s: {cluster.where()}, {cluster.master.problems}")


def syncs(cluster: Cluster, *task_ids: TaskID) -> bool:
    """Whether these tasks, or all of the job, are in sync."""
    if not cluster.reactor.masters:
        return False
    where = cluster.where()
    return bool(where) and all(
        where.get(each, ("", "", ""))[1:] == ("sync", "Online") for each in task_ids or where
    )


def test_a_job_goes_through_its_units_on_several_captures(cluster: Cluster) -> None:
    cluster.operator.create(COPY, {T1: cfg(), T2: cfg("full")})
    until(cluster, lambda: syncs(cluster, T1) and len(cluster.copy(T2).finished) == 2)
    assert {each[0] for each in cluster.where().values()} == {A, B}
    cluster.step(40)
    assert len(cluster.copy(T1).began) == 3  # creation happens once
    assert len(cluster.copy(T2).began) == 2
    assert cluster.copy(T1).done[Unit.SYNC] > 100
    assert cluster.master.problems == {}
    ended = cluster.operator.read(COPY).unit_state
    assert [each.unit for each in ended.finished[T2]] == [Unit.DUMP, Unit.LOAD]  # type: ignore[union-attr]
    assert ended.finished[T2][0].status == {"chunks": CHUNKS}  # type: ignore[union-attr]


def test_a_dead_captures_unit_begins_again_elsewhere_where_it_was(cluster: Cluster) -> None:
    cluster.operator.create(COPY, {T1: cfg(), T2: cfg()})
    until(cluster, lambda: syncs(cluster))
    dead = cluster.where()[T1][0]
    before = cluster.copy().done[Unit.SYNC]
    cluster.kill(dead)
    cluster.step(GRACE_S - 1)
    assert cluster.where()[T1][0] == dead  # it may still write
    until(cluster, lambda: syncs(cluster, T1) and cluster.where()[T1][0] != dead, 10)
    cluster.step(1)
    assert cluster.copy().done[Unit.SYNC] > before
    assert cluster.copy().done[Unit.DUMP] == CHUNKS


def test_a_new_master_goes_on_with_the_workers_that_are_there(cluster: Cluster) -> None:
    cluster.operator.create(COPY, {T1: cfg(), T2: cfg("dump")})
    until(cluster, lambda: syncs(cluster, T1))
    before, began = cluster.where(), list(cluster.copy().began)
    cluster.lead()
    until(cluster, lambda: cluster.reactor.masters and cluster.where() == before, 10)
    cluster.step(40)
    assert cluster.copy().began == began
    assert len(cluster.copy(T2).began) == 1
    assert cluster.master.tasks.task_status(T2).stage is TaskStage.FINISHED


def test_a_master_that_died_between_record_and_order_leaves_no_second_worker(
    cluster: Cluster,
) -> None:
    cluster.network.loss = 1.0
    cluster.operator.create(COPY, {T1: cfg()})
    cluster.step(2)
    [status] = cluster.operator.read(COPY).unit_state.current.values()  # type: ignore[union-attr]
    assert cluster.copy().began == []
    cluster.lead()
    cluster.network.loss = 0.0
    until(cluster, lambda: cluster.copy().began)
    assert cluster.copy().began == [status.worker_id]


def test_pause_and_resume_reach_the_units(cluster: Cluster) -> None:
    cluster.operator.create(COPY, {T1: cfg(), T2: cfg()})
    until(cluster, lambda: syncs(cluster))
    cluster.operator.pause(COPY, [T1])
    cluster.step(2)
    paused, running = cluster.copy(T1).done[Unit.SYNC], cluster.copy(T2).done[Unit.SYNC]
    cluster.step(5)
    assert cluster.copy(T1).done[Unit.SYNC] == paused
    assert cluster.copy(T2).done[Unit.SYNC] > running
    cluster.operator.resume(COPY)
    cluster.step(2)
    assert cluster.copy(T1).done[Unit.SYNC] > paused


def test_a_task_that_was_paused_before_it_began_does_nothing(cluster: Cluster) -> None:
    cluster.operator.create(COPY, {T1: cfg()})
    cluster.operator.pause(COPY)
    cluster.step(20)
    assert cluster.where()[T1][2] == "Online"
    assert cluster.copy().done == {}


def test_an_error_holds_a_task_until_an_operator_resumes_it(cluster: Cluster) -> None:
    cluster.operator.create(COPY, {T1: cfg()})
    until(cluster, lambda: syncs(cluster))
    node = cluster.nodes[cluster.where()[T1][0]]
    node.units.opened[-1].fail("the binlog is purged")
    cluster.step(40)
    status = cluster.master.tasks.task_status(T1)
    assert (status.stage, status.error) == (TaskStage.ERROR, "the binlog is purged")
    cluster.operator.resume(COPY)
    cluster.step(2)
    assert cluster.master.tasks.task_status(T1).stage is TaskStage.RUNNING


def test_an_update_starts_the_workers_again_that_it_changes_where_they_were(
    cluster: Cluster,
) -> None:
    cluster.operator.create(COPY, {T1: cfg(), T2: cfg()})
    until(cluster, lambda: syncs(cluster))
    other = list(cluster.copy(T2).began)
    cluster.operator.update(COPY, {T1: cfg(filters=["f"]), T2: cfg()})
    until(cluster, lambda: len(cluster.copy(T1).began) == 4 and syncs(cluster), 10)
    assert cluster.master.workers.workers[T1].cfg_mod_revision == 1
    assert cluster.copy(T2).began == other
    cluster.operator.update(COPY, {T2: cfg()})
    until(cluster, lambda: cluster.where().keys() == {T2}, 10)
    cluster.step(1)
    assert all(each.is_closed for each in cluster.nodes[A].units.opened if each.key[1] == T1)


def test_a_drained_captures_workers_go_on_elsewhere(cluster: Cluster) -> None:
    cluster.operator.create(COPY, {T1: cfg(), T2: cfg()})
    until(cluster, lambda: syncs(cluster))
    cluster.start(A, is_draining=True)
    until(cluster, lambda: {each[0] for each in cluster.where().values()} == {B})
    until(cluster, lambda: syncs(cluster))
    assert cluster.nodes[A].executor.is_closed


def test_a_deleted_job_ends_with_its_workers_its_checkpoints_and_its_keys(
    cluster: Cluster,
) -> None:
    cluster.operator.create(COPY, {T1: cfg(), T2: cfg("dump")})
    until(cluster, lambda: syncs(cluster, T1))
    cluster.checkpoints.fails = 1.0
    cluster.operator.stop(COPY)
    cluster.step(5)
    assert all(node.executor.is_closed for node in cluster.nodes.values())
    assert read_jobs(cluster.client, cluster.id)[COPY].job is not None
    assert "not removed yet: the lake does not answer" in next(
        iter(cluster.master.problems.values())
    )
    cluster.checkpoints.fails = 0.0
    until(cluster, lambda: not cluster.reactor.masters, 15)
    assert read_jobs(cluster.client, cluster.id) == {}
    assert cluster.copies.tasks == {}
    cluster.operator.create(COPY, {T1: cfg()})
    until(cluster, lambda: cluster.copy().done.get(Unit.DUMP) == CHUNKS)


def test_checkpoints_that_cannot_be_read_are_asked_for_again(cluster: Cluster) -> None:
    cluster.checkpoints.fails = 1.0
    cluster.operator.create(COPY, {T1: cfg()})
    cluster.step(5)
    assert cluster.where() == {}
    assert cluster.master.problems[T1] == "the lake does not answer"
    cluster.checkpoints.fails = 0.0
    until(cluster, lambda: cluster.where(), 12)


def test_a_capture_that_cannot_begin_a_unit_leaves_no_status(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        node.units.refuses = "the user may not SELECT"
    cluster.operator.create(COPY, {T1: cfg()})
    cluster.step(3)
    assert cluster.where() == {}
    assert cluster.operator.read(COPY).unit_state.current == {}  # type: ignore[union-attr]
    assert cluster.master.problems[T1] == "its last worker ended: the user may not SELECT"
    for node in cluster.nodes.values():
        node.units.refuses = ""
    until(cluster, lambda: cluster.where(), 12)
    cluster.step(2)
    assert cluster.master.problems == {}


@pytest.mark.parametrize("is_new_master", [False, True])
def test_a_job_that_cannot_be_read_stops_nobody(cluster: Cluster, is_new_master: bool) -> None:
    """DM's slip: a read error of the store stops every worker."""
    cluster.operator.create(COPY, {T1: cfg()})
    until(cluster, lambda: syncs(cluster))
    key = keys.job_key(cluster.id, COPY)
    good = get(cluster.client, key)
    assert good is not None
    cluster.client.put(key, b"{")
    if is_new_master:
        cluster.lead()
    before = cluster.copy().done[Unit.SYNC]
    cluster.step(60)
    assert cluster.copy().done[Unit.SYNC] >= before + 200
    assert len(cluster.copy().began) == 3
    assert "cannot be read, its workers go on" in next(iter(cluster.master.problems.values()))
    cluster.client.put(key, dump(replace(load(Job, good.value), deleting=True)))
    until(cluster, lambda: not cluster.reactor.masters, 15)


def test_a_unit_state_that_cannot_be_read_begins_and_stops_nothing(cluster: Cluster) -> None:
    cluster.operator.create(COPY, {T1: cfg()})
    until(cluster, lambda: syncs(cluster))
    cluster.client.put(keys.unit_state_key(cluster.id, COPY), b"{")
    cluster.lead()
    cluster.step(40)
    assert len(cluster.copy().began) == 3
    assert "its workers are not known" in next(iter(cluster.master.problems.values()))
    assert not cluster.nodes[A].executor.is_closed or not cluster.nodes[B].executor.is_closed


def test_what_one_worker_needs_sticks_to_no_configuration(cluster: Cluster) -> None:
    """DM's slip: NeedExtStorage, once set, stays in the cached job."""
    cluster.operator.create(COPY, {T1: cfg()})
    until(cluster, lambda: syncs(cluster))
    orders = []
    for node in cluster.nodes.values():
        orders += [each.order for each in node.units.opened if each.order.unit is Unit.SYNC]
    assert [each.needs_ext_storage for each in orders] == [True]
    cluster.operator.update(COPY, {T1: cfg(filters=["f"])})
    until(cluster, lambda: len(cluster.copy().began) == 4 and syncs(cluster), 10)
    [again] = [
        each.order
        for node in cluster.nodes.values()
        for each in node.units.opened
        if not each.is_closed
    ]
    assert (again.unit, again.is_fresh, again.needs_ext_storage) == (Unit.SYNC, False, False)
    assert again.resources == ()


def test_a_capture_that_does_not_answer_is_named(cluster: Cluster) -> None:
    cluster.network.cuts = {frozenset(("master", each)) for each in cluster.nodes}
    cluster.operator.create(COPY, {T1: cfg()})
    cluster.step(10)
    assert "does not answer" in cluster.master.problems[T1]
    cluster.network.cuts = set()
    until(cluster, lambda: cluster.copy().done, 12)
    assert CaptureID(cluster.where()[T1][0]) in cluster.nodes


def test_checks_are_thirty_seconds_apart_and_ten_while_there_is_a_problem(
    cluster: Cluster,
) -> None:
    cluster.operator.create(COPY, {T1: cfg()})
    until(cluster, lambda: syncs(cluster))
    cluster.step(2)
    now = cluster.clock.monotonic()
    assert 25 < cluster.master.check_at - now <= 30
    cluster.master.set_next_check_at(now + 100)
    assert cluster.master.check_at <= now + 30
    cluster.master.set_next_check_at(now + 1)
    cluster.step(1.5)
    assert cluster.master.check_at > now + 20
