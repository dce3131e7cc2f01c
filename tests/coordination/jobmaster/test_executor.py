"""Executor: the workers of one capture, whatever order its messages come in."""

from __future__ import annotations

from itertools import permutations

import pytest

from coordination.jobmaster.executor import Executor
from coordination.jobmaster.messages import (
    CreateWorker,
    OperateTask,
    Order,
    QueryStatus,
    StopWorker,
    WorkerMessage,
    WorkerReport,
)
from coordination.jobmaster.stages import OperateType, TaskStage, WorkerStage
from coordination.jobmaster.units import Unit
from coordination.model import CaptureID, WorkerID
from tests.coordination.jobmaster.jobs import COPY, T1
from tests.fakes.fake_units import CHUNKS, Copies, FakeUnits

MASTER, SELF = CaptureID("m"), CaptureID("a")
OFFLINE, ONLINE = WorkerStage.OFFLINE, WorkerStage.ONLINE
PAUSE, RESUME = OperateType.PAUSE, OperateType.RESUME


def create(
    worker_id: int = 1, unit: Unit = Unit.DUMP, stage: TaskStage = TaskStage.RUNNING
) -> CreateWorker:
    return CreateWorker(
        task_id=T1,
        worker_id=WorkerID(worker_id),
        epoch=1,
        unit=unit,
        task_mode="all",
        cfg_mod_revision=0,
        stage=stage,
        stage_number=0,
        is_fresh=True,
        needs_ext_storage=True,
    )


def stop(worker_id: int = 1, *, unless_online: bool = False) -> StopWorker:
    return StopWorker(task_id=T1, worker_id=WorkerID(worker_id), unless_online=unless_online)


def query(worker_id: int = 1) -> QueryStatus:
    return QueryStatus(task_id=T1, worker_id=WorkerID(worker_id))


def operate(op: OperateType, number: int, worker_id: int = 1) -> OperateTask:
    return OperateTask(task_id=T1, worker_id=WorkerID(worker_id), op=op, stage_number=number)


class Host:
    """An executor and its units."""

    def __init__(self) -> None:
        self.copies = Copies()
        self.units = FakeUnits(self.copies)
        self.executor = Executor(SELF, self.units, lambda: None)

    def tell(self, *orders: Order, sender: CaptureID = MASTER) -> list[WorkerReport]:
        """The reports on that, all to the sender."""
        inbox = [WorkerMessage(sender=sender, to=SELF, job_id=COPY, body=each) for each in orders]
        found = self.executor.tick(inbox)
        assert all((each.sender, each.to, each.job_id) == (SELF, MASTER, COPY) for each in found)
        return [each.body for each in found if isinstance(each.body, WorkerReport)]

    def turn(self, steps: int = 1) -> list[WorkerReport]:
        """Let the units get on; the reports on that."""
        found = []
        for _ in range(steps):
            self.units.step()
            found += self.tell()
        return found


@pytest.fixture
def host() -> Host:
    return Host()


def shown(reports: list[WorkerReport]) -> list[tuple[int, WorkerStage, TaskStage]]:
    return [(each.worker_id, each.worker_stage, each.task_stage) for each in reports]


def test_a_worker_begins_and_comes_online(host: Host) -> None:
    assert shown(host.tell(create())) == [(1, WorkerStage.CREATING, TaskStage.INITING)]
    assert shown(host.turn()) == [(1, ONLINE, TaskStage.RUNNING)]
    assert host.turn() == []  # progress is no news; it comes with the next answer
    [answer] = host.tell(query())
    assert answer.status == {"chunks": 1}


def test_the_reports_of_a_worker_are_numbered(host: Host) -> None:
    found = [*host.tell(create()), *host.turn(), *host.tell(query(), query())]
    assert [each.sequence for each in found] == [1, 2, 3, 4]


def test_a_doubled_order_has_no_second_effect(host: Host) -> None:
    assert len(host.tell(create(), create())) == 2
    assert len(host.units.opened) == 1
    host.turn()
    assert shown(host.tell(create())) == [(1, ONLINE, TaskStage.RUNNING)]


def test_a_finished_worker_is_reported_once_it_has_closed_and_again_when_asked(host: Host) -> None:
    host.tell(create())
    *_, finished = host.turn(CHUNKS + 3)
    assert shown([finished]) == [(1, WorkerStage.FINISHED, TaskStage.FINISHED)]
    assert host.executor.is_closed
    assert host.tell(create(), query(), stop()) == [finished] * 3


def test_a_stopped_worker_is_offline_once_it_has_closed(host: Host) -> None:
    host.units.slow_steps = 0
    host.tell(create())
    host.turn()
    assert shown(host.tell(stop())) == [(1, ONLINE, TaskStage.RUNNING)]
    assert shown(host.turn()) == [(1, OFFLINE, TaskStage.UNSCHEDULED)]
    assert shown(host.tell(create())) == [(1, OFFLINE, TaskStage.UNSCHEDULED)]


@pytest.mark.parametrize("first", [stop(), query(), operate(PAUSE, 1)])
def test_a_creation_that_comes_after_another_order_begins_nothing(host: Host, first: Order) -> None:
    assert shown(host.tell(first)) == [(1, OFFLINE, TaskStage.UNSCHEDULED)]
    assert shown(host.tell(create())) == [(1, OFFLINE, TaskStage.UNSCHEDULED)]
    assert host.executor.is_closed


@pytest.mark.parametrize("orders", list(permutations([create(1), create(2), stop(1)])))
def test_at_most_one_worker_of_a_task_runs_in_whatever_order(
    host: Host, orders: tuple[Order, ...]
) -> None:
    for order in (*orders, *orders):
        host.tell(order)
        host.turn()
        assert len([each for each in host.units.opened if not each.is_closed]) <= 1
    host.tell(create(2))
    host.turn(2)
    [last] = host.tell(query(2))
    assert last.worker_stage in (ONLINE, WorkerStage.FINISHED)


def test_a_new_worker_waits_until_the_one_before_it_has_ended(host: Host) -> None:
    host.tell(create(1))
    host.turn()
    assert host.tell(create(2)) == []
    assert shown(host.turn()) == [(1, OFFLINE, TaskStage.UNSCHEDULED)]
    assert shown(host.tell(create(2))) == [(2, WorkerStage.CREATING, TaskStage.INITING)]


def test_a_late_order_to_an_old_worker_touches_no_new_one(host: Host) -> None:
    host.tell(stop(1))
    host.tell(create(2))
    host.turn()
    for late in (stop(1), operate(PAUSE, 9, 1), create(1)):
        assert shown(host.tell(late)) == [(1, OFFLINE, TaskStage.UNSCHEDULED)]
    assert shown(host.tell(query(2))) == [(2, ONLINE, TaskStage.RUNNING)]


def test_a_worker_that_is_online_is_not_cancelled(host: Host) -> None:
    host.tell(create())
    host.turn()
    assert shown(host.tell(stop(unless_online=True))) == [(1, ONLINE, TaskStage.RUNNING)]
    assert host.turn() == []


def test_one_that_is_not_online_yet_is_cancelled(host: Host) -> None:
    host.units.slow_steps = 9
    host.tell(create())
    host.tell(stop(unless_online=True))
    assert shown(host.turn(20)) == [(1, OFFLINE, TaskStage.UNSCHEDULED)]
    assert shown(host.tell(stop(2, unless_online=True))) == [(2, OFFLINE, TaskStage.UNSCHEDULED)]


def test_pause_and_resume_are_followed_in_the_order_of_their_numbers(host: Host) -> None:
    host.tell(create())
    host.turn()
    assert shown(host.tell(operate(PAUSE, 1))) == [(1, ONLINE, TaskStage.PAUSED)]
    [resumed] = host.tell(operate(RESUME, 2))
    assert (resumed.task_stage, resumed.stage_number) == (TaskStage.RUNNING, 2)
    assert shown(host.tell(operate(PAUSE, 1))) == [(1, ONLINE, TaskStage.RUNNING)]  # late


def test_a_task_that_is_paused_begins_paused(host: Host) -> None:
    host.tell(create(stage=TaskStage.PAUSED))
    assert shown(host.turn(3)) == [(1, ONLINE, TaskStage.PAUSED)]
    assert host.copies.checkpoints((COPY, T1, 1)) == {}


def test_an_error_that_holds_a_task_is_told_at_once(host: Host) -> None:
    host.tell(create())
    host.turn()
    host.units.opened[0].fail("the binlog is purged")
    [held] = host.turn()
    assert (held.worker_stage, held.task_stage) == (ONLINE, TaskStage.ERROR)
    assert held.error == "the binlog is purged"


def test_a_unit_that_ends_of_itself_is_offline_with_its_error(host: Host) -> None:
    host.tell(create())
    host.turn()
    host.units.opened[0].die("out of memory")
    [ended] = host.turn()
    assert (ended.worker_stage, ended.error) == (OFFLINE, "out of memory")


def test_a_unit_that_cannot_be_opened_is_an_ended_worker(host: Host) -> None:
    host.units.refuses = "the user may not SELECT"
    [refused] = host.tell(create())
    assert (refused.worker_stage, refused.error) == (OFFLINE, "the user may not SELECT")
    host.units.refuses = ""
    assert host.tell(create()) == [refused]
    assert shown(host.tell(create(2))) == [(2, WorkerStage.CREATING, TaskStage.INITING)]


def test_a_capture_that_closes_stops_its_workers_and_takes_no_new_ones(host: Host) -> None:
    host.tell(create())
    host.turn()
    host.executor.close()
    assert not host.executor.is_closed
    assert shown(host.turn()) == [(1, OFFLINE, TaskStage.UNSCHEDULED)]
    assert host.executor.is_closed
    [refused] = host.tell(create(2))
    assert "no workers any more" in refused.error


def test_reports_go_to_the_capture_that_gave_the_last_order(host: Host) -> None:
    other = CaptureID("other")
    order = WorkerMessage(sender=other, to=SELF, job_id=COPY, body=create())
    [answer] = host.executor.tick([order])
    assert answer.to == other
    host.tell(query())
    assert len(host.turn()) == 1
