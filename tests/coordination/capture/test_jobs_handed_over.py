"""Captures that die, leave, hang or lose their session in mid-unit: the unit begins again elsewhere
where it was. `Copies` watches that no two write one task, and that nothing is copied twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordination.capture import leader
from coordination.capture.owner.operator_jobs import JobContext
from coordination.errors import TidelakeError
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.jobmaster.units import Unit
from coordination.model import TaskID
from coordination.ports import Wake
from coordination.trust.fence import Trust
from tests.coordination.capture.live_captures import LiveCapture, LiveCaptures
from tests.coordination.jobmaster.jobs import COPY, T1, T2, cfg
from tests.fakes.fake_data_plane import FakeDataPlane
from tests.fakes.fake_units import CHUNKS, FakeCheckpoints, FakeUnit

pytestmark = pytest.mark.etcd


@pytest.fixture
def live(etcd: EmbeddedEtcd) -> Iterator[LiveCaptures]:
    captures = LiveCaptures(etcd.endpoint)
    yield captures
    captures.close()


def in_mid_dump(live: LiveCaptures, at: LiveCapture) -> tuple[TaskID, TaskID]:
    """Each of two captures has a dump that has done half of its chunks; the task at that capture
    comes first."""
    live.most_chunks = {Unit.DUMP: 2}
    live.operator.create(COPY, {T1: cfg("full"), T2: cfg("full")})
    live.until(lambda: all(live.copy(each).done.get(Unit.DUMP) == 2 for each in (T1, T2)))
    return (T1, T2) if live.where(T1) is at else (T2, T1)


def dumps(live: LiveCaptures, task_id: TaskID) -> list[FakeUnit]:
    return [each for each in live.copy(task_id).units if each.order.unit is Unit.DUMP]


def come_to_their_end(live: LiveCaptures) -> None:
    live.most_chunks.clear()
    for task_id in (T1, T2):
        live.until(lambda each=task_id: live.finished(each) == [Unit.DUMP, Unit.LOAD])
        assert live.copy(task_id).done == {Unit.DUMP: CHUNKS, Unit.LOAD: CHUNKS}


@pytest.mark.parametrize("is_leader", [False, True], ids=["another capture", "the leader"])
def test_a_dead_captures_unit_begins_again_elsewhere(live: LiveCaptures, is_leader: bool) -> None:
    one, two = live.start_two()
    dead, other = (one, two) if is_leader else (two, one)
    moves, stays = in_mid_dump(live, dead)
    live.kill(dead)
    live.until(lambda: len(dumps(live, moves)) == 2)
    assert live.where(moves) is other
    assert live.copy(moves).done == {Unit.DUMP: 2}
    come_to_their_end(live)
    assert len(dumps(live, stays)) == 1, "a new leader leaves the workers that run"


@pytest.mark.parametrize("is_leader", [False, True], ids=["another capture", "the leader"])
def test_a_lost_session_ends_the_captures_units(live: LiveCaptures, is_leader: bool) -> None:
    one, two = live.start_two()
    lost = one if is_leader else two
    moves, stays = in_mid_dump(live, lost)
    (unit,) = dumps(live, moves)
    former = lost.id
    live.lose_session(lost)
    live.until(lambda: unit.is_closed)
    live.until(lambda: lost.id not in (former, ""))
    come_to_their_end(live)
    assert len(dumps(live, moves)) == 2
    assert len(dumps(live, stays)) == 1


@pytest.mark.parametrize("is_leader", [False, True], ids=["another capture", "the leader"])
def test_a_capture_that_stops_gives_its_units_away_first(
    live: LiveCaptures, is_leader: bool
) -> None:
    one, two = live.start_two()
    leaving, other = (one, two) if is_leader else (two, one)
    moves, _ = in_mid_dump(live, leaving)
    (unit,) = dumps(live, moves)
    live.stop(leaving)
    assert unit.is_closed
    live.until(lambda: len(dumps(live, moves)) == 2)
    assert live.where(moves) is other
    come_to_their_end(live)


def test_a_drain_counts_the_workers_and_takes_them_away(live: LiveCaptures) -> None:
    one, two = live.start_two()
    moves, _ = in_mid_dump(live, two)
    drained = two.id

    def drain(owner: JobContext) -> int:
        return owner.drain(drained)

    assert one.server.jobs.post(drain).result(10.0) == 1
    live.until(lambda: one.server.jobs.post(drain).result(10.0) == 0)
    live.until(lambda: len(dumps(live, moves)) == 2)
    assert live.where(moves) is one
    come_to_their_end(live)


def test_a_unit_that_does_not_end_ends_its_capture(live: LiveCaptures) -> None:
    one = live.start("a")
    live.until(lambda: one.leads)
    two = live.start("b", stall_timeout_s=1.0)
    live.until(lambda: two.id in live.registered)
    moves, _ = in_mid_dump(live, two)
    for units in two.plane.unit_sets:
        units.hangs = True
    live.operator.update(COPY, {each: cfg("full", threads=2) for each in (T1, T2)})
    live.until(lambda: not two.thread.is_alive())
    (error,) = two.error
    assert isinstance(error, TidelakeError)
    assert "hangs" in str(error)
    live.kill(two)
    live.until(lambda: len(dumps(live, moves)) == 2)
    come_to_their_end(live)


class FailsOnce(FakeDataPlane):
    has_failed = False

    def checkpoint_agent(self, trust: Trust, wake: Wake) -> FakeCheckpoints:
        if not self.has_failed:
            self.has_failed = True
            raise RuntimeError("a bug")
        return super().checkpoint_agent(trust, wake)


def test_masters_that_fail_begin_anew_and_the_owner_goes_on(
    live: LiveCaptures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "MASTERS_PAUSE_S", 0.3)
    one = live.start("a", plane=FailsOnce)
    live.until(lambda: one.leads)
    capture = one.server.capture
    assert capture is not None
    leads_since = capture.leads_since
    live.operator.create(COPY, {T1: cfg("dump")})
    live.until(lambda: live.finished() == [Unit.DUMP])
    assert capture.leads_since == leads_since
