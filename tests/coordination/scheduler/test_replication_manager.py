"""Spans and tasks: fences, limits, captures that go, the checkpoint."""

from __future__ import annotations

import pytest

from coordination.model import CaptureID, TermNumber, Ts, fence_number
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import AddTable, Checkpoint, RemoveTable
from coordination.scheduler.replication_manager import ReplicationManager, Schedule, ScheduleTask
from coordination.scheduler.replication_set import MultiplePrimaries, ReplicationState
from coordination.scheduler.table_status import Statuses, TableState, TableStatus
from tests.coordination.scheduler.cluster import span

S, R = TableState, ReplicationState
A, B, C = CaptureID("a"), CaptureID("b"), CaptureID("c")
FAR = Barrier(Ts(10_000))


def tasks(*wanted: tuple[int, CaptureID | None], is_burst: bool = False) -> Schedule:
    return Schedule("test", [ScheduleTask(*each) for each in wanted], is_burst)


def status(table: int, state: TableState, ts: int = 0, resolved: int = 0) -> TableStatus:
    return TableStatus(table, state, Ts(ts), Ts(resolved or ts))


def manager(tables: int = 0, *, limit: int = 10, **reported: dict) -> ReplicationManager:
    made = ReplicationManager(term=TermNumber(3), max_task_concurrency=limit)
    for table in range(1, tables + 1):
        made.add_table(span(table), Ts(100))
    told = {CaptureID(c): Statuses.of(each.values()) for c, each in reported.items()}
    made.initialize(told, Ts(100))
    return made


def replicated(tables: int = 3, *, limit: int = 10) -> ReplicationManager:
    """All on A."""
    reported = {table: status(table, S.REPLICATING, 100) for table in range(1, tables + 1)}
    return manager(tables, limit=limit, a=reported)


def test_adding_a_table_numbers_its_assignments():
    made = manager(1)
    made.handle_schedule(tasks((1, A)))
    assert made.take_outbox() == [
        (A, AddTable(span=span(1), is_secondary=True, checkpoint=Checkpoint(Ts(100), Ts(100)),
                     fence=fence_number(3, 1)))
    ]  # fmt: skip
    made.handle_report(A, Statuses.of([status(1, S.ABSENT)]))
    made.handle_report(A, Statuses.of([status(1, S.PREPARED)]))
    (_, again), (_, commit) = made.take_outbox()
    assert (again.is_secondary, again.fence) == (True, fence_number(3, 2))
    assert (commit.is_secondary, commit.fence) == (False, fence_number(3, 3))
    made.handle_report(A, Statuses.of([status(1, S.REPLICATING, 120)]))
    assert made.is_settled
    assert made.sets[1].state is R.REPLICATING


def test_removing_a_table_has_the_fence_of_the_last_assignment():
    made = replicated(1)
    made.remove_table(1)
    assert set(made.dropped) == {1}
    made.handle_schedule(tasks((1, None), is_burst=True))
    assert made.take_outbox() == [(A, RemoveTable(table_id=1, fence=fence_number(3, 0)))]
    assert set(made.running) == {1}
    made.handle_report(A, Statuses.of([status(1, S.STOPPED, 130)]))
    assert made.sets == {}
    assert made.is_settled


def test_moving_a_table():
    made = replicated(1)
    made.handle_schedule(tasks((1, B)))
    assert set(made.running) == {1}
    made.handle_report(B, Statuses.of([status(1, S.PREPARED)]))
    made.handle_report(A, Statuses.of([status(1, S.STOPPED, 150)]))
    outbox = made.take_outbox()
    assert [(to, type(body)) for to, body in outbox] == [
        (B, AddTable), (A, RemoveTable), (B, AddTable),
    ]  # fmt: skip
    assert outbox[-1][1].checkpoint == (150, 150)
    made.handle_report(B, Statuses.of([status(1, S.REPLICATING, 150)]))
    assert not made.running
    assert made.held == {A: set(), B: {1}}


def test_a_table_is_told_to_be_at_a_point_by_who_wrote_it_there():
    made = replicated(2)
    made.handle_report(A, Statuses.of([status(2, S.REPLICATING, 150)]))
    made.handle_schedule(tasks((1, B)))
    made.handle_report(B, Statuses.of([status(1, S.PREPARED)]))
    last = status(1, S.STOPPED, 150)._replace(delta_version=7)
    made.handle_report(A, Statuses.of([last]))
    assert made.advance_checkpoint(FAR) == (150, 150)
    assert not made.is_reported(Ts(150))  # but by one that is gone, and B has not opened it yet
    assert made.sets[1].delta_version == 7
    made.handle_report(B, Statuses.of([status(1, S.REPLICATING, 150)]))
    assert made.is_reported(Ts(150))
    assert not made.is_reported(Ts(151))


def test_only_so_many_tasks_run_at_a_time():
    made = replicated(4, limit=2)
    made.handle_schedule(tasks(*[(table, B) for table in (1, 2, 3)]))
    assert set(made.running) == {1, 2}
    assert made.is_full
    made.handle_schedule(tasks((1, C)))
    assert made.sets[1].secondary == B, "a table has one task at a time"


def test_a_burst_is_not_held_back():
    made = replicated(4, limit=2)
    made.handle_schedule(tasks(*[(table, B) for table in (1, 2, 3, 4)], is_burst=True))
    assert set(made.running) == {1, 2, 3, 4}
    made = manager(4, limit=2)
    made.handle_schedule(tasks(*[(table, B) for table in (1, 2, 3, 4)], is_burst=True))
    assert set(made.running) == {1, 2, 3, 4}


def test_tasks_that_make_no_sense_do_nothing():
    made = replicated(1)
    made.handle_schedule(tasks((9, B), (1, A), (9, None)))
    assert made.take_outbox() == []
    assert made.is_settled


def test_a_capture_that_goes_leaves_its_spans_to_others():
    made = replicated(3)
    made.handle_schedule(tasks((1, B)))
    made.handle_capture_removed(A)
    assert [made.sets[table].state for table in (1, 2, 3)] == [R.PREPARE, R.ABSENT, R.ABSENT]
    assert set(made.absent) == {2, 3}
    assert made.held == {B: {1}}


def test_a_capture_that_goes_while_a_table_is_added_ends_the_task():
    made = manager(1)
    made.handle_schedule(tasks((1, A)))
    made.handle_capture_removed(A)
    assert not made.running
    assert set(made.absent) == {1}
    made.handle_schedule(tasks((1, B)))
    assert made.sets[1].secondary == B


def test_what_every_capture_of_a_tick_reports_counts_though_one_of_them_is_an_error():
    """TiCDC loses the error of the first one."""
    made = replicated(2)
    made.handle_schedule(tasks((1, B)))
    with pytest.raises(MultiplePrimaries):
        made.handle_report(B, Statuses.of([status(1, S.REPLICATING)]))


def test_a_span_without_a_set_is_a_stray_and_is_stopped():
    made = replicated(1)
    made.handle_report(B, Statuses.of([status(7, S.REPLICATING), status(8, S.ABSENT)]))
    assert made.take_outbox() == [(B, RemoveTable(table_id=7, fence=fence_number(3, 0)))]
    made.handle_report(B, Statuses.of([status(7, S.PREPARED)]))
    assert len(made.take_outbox()) == 1, "until it is gone"
    made.handle_report(B, Statuses.of([status(7, S.ABSENT)]))
    assert set(made.sets) == {1}


def test_a_table_that_a_last_owner_was_stopping_is_added_again_when_it_has_stopped():
    made = manager(1, a={1: status(1, S.STOPPING, 140)})
    assert made.sets[1].state is R.REMOVING
    assert made.missing == {}
    made.handle_report(A, Statuses.of([status(1, S.STOPPED, 150)]))
    assert made.missing == {1: 150}, "from where it had come to"


def test_a_table_dropped_and_registered_again_before_it_was_stopped():
    made = replicated(1)
    made.remove_table(1)
    made.add_table(span(1), Ts(100))
    assert not made.dropped
    assert made.is_settled
    made.remove_table(1)
    made.handle_schedule(tasks((1, None)))
    made.add_table(span(1), Ts(100))
    made.handle_report(A, Statuses.of([status(1, S.STOPPED, 150)]))
    assert made.missing == {1: 150}


def test_the_checkpoint_is_the_least_of_all_spans():
    made = replicated(3)
    made.handle_report(
        A, Statuses.of([status(1, S.REPLICATING, 130, 170), status(2, S.REPLICATING, 120, 160)])
    )
    assert made.advance_checkpoint(FAR) == (100, 100)
    made.handle_report(A, Statuses.of([status(3, S.REPLICATING, 125, 150)]))
    assert made.advance_checkpoint(FAR) == (120, 150)


def test_the_checkpoint_cannot_proceed_while_a_table_has_no_set():
    made = ReplicationManager(term=TermNumber(1), max_task_concurrency=10)
    assert made.advance_checkpoint(FAR) is None, "who has what is not known yet"
    made = replicated(2)
    made.add_table(span(3), Ts(100))
    assert made.advance_checkpoint(FAR) is None
    made.handle_schedule(tasks((3, B)))
    assert made.advance_checkpoint(FAR) == (100, 100)
    made.remove_table(3)
    assert made.advance_checkpoint(FAR) == (100, 100)


def test_a_dropped_table_does_not_hold_the_checkpoint():
    made = replicated(2)
    made.handle_report(A, Statuses.of([status(1, S.REPLICATING, 180)]))
    made.remove_table(2)
    assert made.advance_checkpoint(FAR) == (180, 180)


@pytest.mark.parametrize(
    ("barrier", "expected"),
    [
        (Barrier(Ts(150)), (150, 150)),
        (Barrier(Ts(300), {2: Ts(160)}), (160, 300)),
        (Barrier(Ts(900)), (200, 400)),
        (Barrier(Ts(300), {1: Ts(300)}), (200, 300)),
    ],
)
def test_barriers_cap_the_checkpoint(barrier, expected):
    made = replicated(2)
    made.handle_report(A, Statuses.of([status(t, S.REPLICATING, 200, 400) for t in (1, 2)]))
    assert made.advance_checkpoint(barrier) == expected


def test_without_tables_the_barrier_is_the_checkpoint():
    assert manager().advance_checkpoint(Barrier(Ts(300), {1: Ts(200)})) == (200, 300)


def test_what_advanced_is_told_once():
    made = replicated(3)
    assert len(made.sets.take_changed()) == 3
    made.handle_report(
        A, Statuses.of([status(2, S.REPLICATING, 130), status(3, S.REPLICATING, 100)])
    )
    assert [one.span.table_id for one in made.sets.take_changed()] in ([2], [2, 3])
    made.handle_report(A, Statuses.of([status(2, S.REPLICATING, 130)]))
    assert not made.sets.take_changed()
