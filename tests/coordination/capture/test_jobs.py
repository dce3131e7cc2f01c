"""Jobs on captures with a real etcd and real gRPC: from a job's start to its end, and what an
operator does in between."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from coordination.jobmaster.job_writes import JobNotFound
from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.units import Unit
from coordination.model import JobID
from tests.coordination.capture.live_captures import LiveCaptures
from tests.coordination.jobmaster.jobs import COPY, T1, T2, cfg
from tests.fakes.fake_units import CHUNKS

pytestmark = pytest.mark.etcd


@pytest.fixture
def live(etcd: EmbeddedEtcd) -> Iterator[LiveCaptures]:
    captures = LiveCaptures(etcd.endpoint)
    yield captures
    captures.close()


def test_a_job_goes_from_its_start_to_its_end_over_two_captures(live: LiveCaptures) -> None:
    live.start_two()
    live.operator.create(COPY, {T1: cfg("full"), T2: cfg("full")})
    for task_id in (T1, T2):
        live.until(lambda task_id=task_id: live.finished(task_id) == [Unit.DUMP, Unit.LOAD])
        assert live.copy(task_id).done == {Unit.DUMP: CHUNKS, Unit.LOAD: CHUNKS}
        assert len(live.copy(task_id).units) == 2
    nodes = {str(unit).rsplit(" ", 1)[1] for each in (T1, T2) for unit in live.copy(each).units}
    assert nodes == {"a", "b"}, "both captures had work"
    live.operator.stop(COPY)
    live.until(lambda: live.job() is None)
    assert live.copies.tasks == {}, "its checkpoints are gone"


def test_messages_that_are_lost_delay_a_job_and_no_more(live: LiveCaptures) -> None:
    live.start("a", loss=0.3)
    live.start("b", loss=0.3)
    live.operator.create(COPY, {T1: cfg("full"), T2: cfg("all")})
    live.until(lambda: live.finished(T1) == [Unit.DUMP, Unit.LOAD])
    live.until(lambda: live.copy(T2).done.get(Unit.SYNC, 0) > 2)


def test_a_paused_task_stands_still_until_it_is_resumed(live: LiveCaptures) -> None:
    live.start_two()
    live.most_chunks = {Unit.DUMP: 2}
    live.operator.create(COPY, {T1: cfg("full")})
    live.until(lambda: live.copy().done.get(Unit.DUMP) == 2)
    unit = live.copy().units[0]
    live.operator.pause(COPY)
    live.until(lambda: unit.stage is TaskStage.PAUSED)
    live.most_chunks.clear()
    live.operator.resume(COPY)
    live.until(lambda: live.finished() == [Unit.DUMP, Unit.LOAD])
    assert live.copy().units[0] is unit
    assert len(live.copy().units) == 2, "a pause takes no worker away"


def test_an_error_is_tried_again_when_an_operator_says_so(live: LiveCaptures) -> None:
    live.start_two()
    live.most_chunks = {Unit.DUMP: 1}
    live.operator.create(COPY, {T1: cfg("full")})
    live.until(lambda: live.copy().done.get(Unit.DUMP) == 1)
    unit = live.copy().units[0]
    unit.fail("the server is gone")
    live.most_chunks.clear()
    live.operator.resume(COPY)
    live.until(lambda: live.finished() == [Unit.DUMP, Unit.LOAD])
    assert live.copy().units[0] is unit


def test_an_update_begins_the_unit_again_where_it_was(live: LiveCaptures) -> None:
    live.start_two()
    live.most_chunks = {Unit.DUMP: 2}
    live.operator.create(COPY, {T1: cfg("full"), T2: cfg("full")})
    live.until(lambda: all(live.copy(each).done.get(Unit.DUMP) == 2 for each in (T1, T2)))
    live.operator.update(COPY, {T1: cfg("full", threads=2), T2: cfg("full")})
    live.until(lambda: len(live.copy(T1).units) == 2)
    live.most_chunks.clear()
    for task_id in (T1, T2):
        live.until(lambda task_id=task_id: live.finished(task_id) == [Unit.DUMP, Unit.LOAD])
    first, second = (
        [unit.order.config for unit in live.copy(each).units if unit.order.unit is Unit.DUMP]
        for each in (T1, T2)
    )
    assert first == [{}, {"threads": 2}]
    assert len(second) == 1, "its configuration is the same, so its worker stays"


def test_a_job_that_is_stopped_in_mid_unit_leaves_nothing(live: LiveCaptures) -> None:
    live.start_two()
    live.operator.create(COPY, {T1: cfg("all"), T2: cfg("all")})
    live.until(lambda: live.copy(T1).done.get(Unit.SYNC, 0) > 2)
    live.operator.stop(COPY)
    live.until(lambda: live.job() is None)
    assert live.copies.tasks == {}
    assert live.unit_state().current == {}
    live.operator.create(COPY, {T1: cfg("dump")})
    live.until(lambda: live.finished() == [Unit.DUMP])


def test_the_leader_says_how_the_tasks_are(live: LiveCaptures) -> None:
    one, _ = live.start_two()
    live.most_chunks = {Unit.DUMP: 2}
    live.operator.create(COPY, {T1: cfg("full")})
    live.until(lambda: live.copy().done.get(Unit.DUMP) == 2)
    live.operator.pause(COPY)

    def row() -> dict[str, object]:
        (found,) = one.server.jobs.post(lambda owner: owner.list_tasks(COPY)).result(10.0)
        return found

    live.until(lambda: row()["stage"] == "Paused")
    live.until(lambda: row()["status"] == {"chunks": 2})
    assert row() == {
        "job": COPY,
        "task": T1,
        "mode": "full",
        "wanted": "Paused",
        "stage": "Paused",
        "unit": "dump",
        "worker": live.copy().units[0].order.worker_id,
        "worker_stage": "Online",
        "capture": live.where().id,
        "error": "",
        "problem": "",
        "status": {"chunks": 2},
    }
    json.dumps(row())  # it goes over gRPC
    assert one.server.jobs.post(lambda owner: owner.list_tasks()).result(10.0) == [row()]
    with pytest.raises(JobNotFound, match="there is no job other"):
        one.server.jobs.post(lambda owner: owner.list_tasks(JobID("other"))).result(10.0)


def test_a_run_has_no_jobs(live: LiveCaptures) -> None:
    alone = live.start("a", leads_jobs=False)
    live.until(lambda: alone.leads)
    live.operator.create(COPY, {T1: cfg("full")})
    reactor = alone.leader
    assert reactor is not None
    live.until(lambda: reactor._state is not None and COPY in reactor._state.jobs)
    assert reactor.masters is None
    live.stop(alone)
    assert live.unit_state().current == {}
    assert live.copies.tasks == {}
