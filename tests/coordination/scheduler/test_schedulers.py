"""Who is to have which span, and which of five opinions counts."""

from __future__ import annotations

import random
from collections import Counter

from coordination.model import CaptureID, TermNumber, Ts
from coordination.scheduler.capture_manager import CaptureState, CaptureStatus
from coordination.scheduler.messages import TableState, TableStatus
from coordination.scheduler.replication_manager import ReplicationManager
from coordination.scheduler.schedule_task import AddTask, BurstBalance, MoveTask, RemoveTask
from coordination.scheduler.schedulers import (
    BalanceScheduler,
    BasicScheduler,
    DrainCaptureScheduler,
    MoveTableScheduler,
    RebalanceScheduler,
    Schedulers,
)
from tests.coordination.scheduler.cluster import span

READY, STOPPING = CaptureState.INITIALIZED, CaptureState.STOPPING


def captures(**states: CaptureState) -> dict[CaptureID, CaptureStatus]:
    made = {}
    for name, state in states.items():
        made[CaptureID(name)] = CaptureStatus(CaptureID(name), is_owner=name == "owner")
        made[CaptureID(name)].state = state
    return made


def replication(missing: int = 0, **held: int) -> ReplicationManager:
    """So many spans on each capture, and so many on none."""
    made = ReplicationManager(term=TermNumber(1), max_task_concurrency=10)
    reported, number = {}, 0
    for name, spans in held.items():
        tables = range(number + 1, number + spans + 1)
        number += spans
        reported[CaptureID(name)] = {
            table: TableStatus(table, TableState.REPLICATING, Ts(100)) for table in tables
        }
    for table in range(1, number + missing + 1):
        made.add_table(span(table), Ts(100))
    made.initialize(reported, Ts(100))
    return made


def moved(tasks: list) -> Counter:
    (burst,) = tasks if isinstance(tasks[0], BurstBalance) else [BurstBalance(tuple(tasks))]
    return Counter(task.dest for task in burst.tasks)


def test_basic_gives_missing_spans_in_turns_in_batches():
    scheduler, spans = BasicScheduler(4), replication(missing=7)
    ready = captures(a=READY, b=READY, c=STOPPING)
    (burst,) = scheduler.schedule(ready, spans, 0)
    assert all(isinstance(task, AddTask) for task in burst.tasks)
    assert Counter(task.capture_id for task in burst.tasks) == {"a": 2, "b": 2}
    spans.handle_tasks([burst])
    (burst,) = scheduler.schedule(ready, spans, 0)
    assert len(burst.tasks) == 3
    spans.handle_tasks([burst])
    assert scheduler.schedule(ready, spans, 0) == []


def test_basic_waits_when_nobody_may_have_spans():
    assert BasicScheduler(4).schedule(captures(a=STOPPING), replication(missing=1), 0) == []


def test_basic_removes_dropped_tables():
    spans = replication(a=3)
    spans.remove_table(2)
    scheduler = BasicScheduler(4)
    (burst,) = scheduler.schedule(captures(a=READY), spans, 0)
    assert burst.tasks == (RemoveTask(2),)
    spans.handle_tasks([burst])
    assert scheduler.schedule(captures(a=READY), spans, 0) == []


def test_basic_does_not_give_a_span_to_who_has_yet_to_stop_it():
    spans = replication(a=1)
    spans.handle_capture_removed(CaptureID("a"))
    spans.handle_report(CaptureID("b"), [TableStatus(1, TableState.STOPPING)])
    scheduler = BasicScheduler(4)
    for _ in range(4):
        (burst,) = scheduler.schedule(captures(b=READY, c=READY), spans, 0)
        assert burst.tasks == (AddTask(1, CaptureID("c")),)
    assert scheduler.schedule(captures(b=READY), spans, 0) == []


def test_drain_moves_to_who_has_the_fewest_within_the_limit():
    scheduler, spans = DrainCaptureScheduler(3), replication(a=5, b=1, c=2)
    assert scheduler.set_target(CaptureID("a"))
    assert not scheduler.set_target(CaptureID("b")), "one at a time"
    tasks = scheduler.schedule(captures(a=READY, b=READY, c=READY), spans, 0)
    assert moved(tasks) == {"b": 2, "c": 1}
    assert {task.table_id for task in tasks} == {1, 2, 3}


def test_drain_spreads_evenly():
    scheduler, spans = DrainCaptureScheduler(100), replication(a=12, b=4, c=4)
    scheduler.set_target(CaptureID("a"))
    tasks = scheduler.schedule(captures(a=READY, b=READY, c=READY), spans, 0)
    assert moved(tasks) == {"b": 6, "c": 6}


def test_drain_takes_captures_that_say_they_end_but_not_the_owner():
    scheduler, spans = DrainCaptureScheduler(10), replication(owner=2, b=2, c=2)
    ending = captures(owner=STOPPING, b=STOPPING, c=READY)
    assert moved(scheduler.schedule(ending, spans, 0)) == {"c": 2}
    assert scheduler.target == "b"
    scheduler = DrainCaptureScheduler(10)
    assert scheduler.schedule(captures(owner=STOPPING, c=READY), spans, 0) == []
    assert scheduler.target is None


def test_drain_waits_until_all_is_settled_and_ends_when_it_is_empty():
    scheduler, spans = DrainCaptureScheduler(10), replication(a=2, b=2)
    ready = captures(a=READY, b=READY)
    scheduler.set_target(CaptureID("a"))
    spans.handle_report(CaptureID("b"), [TableStatus(3, TableState.STOPPED)])
    assert scheduler.schedule(ready, spans, 0) == []
    assert scheduler.target == "a"
    scheduler.schedule(ready, replication(b=4), 0)
    assert scheduler.target is None


def test_drain_gives_up_when_nobody_is_left_to_move_to():
    scheduler = DrainCaptureScheduler(10)
    scheduler.set_target(CaptureID("a"))
    assert scheduler.schedule(captures(a=READY, b=STOPPING), replication(a=2), 0) == []
    assert scheduler.target is None


def test_a_move_is_asked_for_until_it_is_under_way():
    scheduler, spans = MoveTableScheduler(), replication(a=2, b=0)
    ready = captures(a=READY, b=READY)
    scheduler.move_table(1, CaptureID("b"))
    assert scheduler.schedule(ready, spans, 0) == [MoveTask(1, CaptureID("b"))]
    assert scheduler.schedule(ready, spans, 0) == [MoveTask(1, CaptureID("b"))]
    spans.handle_tasks([MoveTask(1, CaptureID("b"))])
    assert scheduler.schedule(ready, spans, 0) == []
    assert scheduler._moves == {}


def test_a_move_that_has_become_pointless_is_forgotten():
    scheduler, spans = MoveTableScheduler(), replication(a=3)
    for table, dest in ((1, "gone"), (2, "b"), (3, "a"), (9, "a")):
        scheduler.move_table(table, CaptureID(dest))
    assert scheduler.schedule(captures(a=READY, b=STOPPING), spans, 0) == []
    assert scheduler._moves == {}
    assert scheduler.placed == {3: "a"}


def test_a_move_waits_for_a_table_that_is_on_its_way():
    scheduler, spans = MoveTableScheduler(), replication(missing=1)
    scheduler.move_table(1, CaptureID("b"))
    assert scheduler.schedule(captures(a=READY, b=READY), spans, 0) == []
    assert scheduler._moves == {1: "b"}


def test_rebalance_evens_out_at_once_when_asked_to():
    scheduler, spans = RebalanceScheduler(random.Random(1), {}), replication(a=30, b=3)
    ready = captures(a=READY, b=READY, c=READY)
    assert scheduler.schedule(ready, spans, 0) == []
    scheduler.is_wanted = True
    assert moved(scheduler.schedule(ready, spans, 0)) == {"b": 8, "c": 11}
    assert scheduler.schedule(ready, spans, 0) == []


def test_balance_looks_at_intervals_and_then_until_it_is_even():
    scheduler = BalanceScheduler(60, random.Random(1), 5, {})
    spans, ready = replication(a=20), captures(a=READY, b=READY)
    assert scheduler.schedule(ready, spans, 0) == []
    assert scheduler.schedule(ready, spans, 59) == []
    assert moved(scheduler.schedule(ready, spans, 60)) == {"b": 5}
    assert moved(scheduler.schedule(ready, spans, 60.1)) == {"b": 5}, "there is more to move"
    even = replication(a=10, b=10)
    assert scheduler.schedule(ready, even, 60.2) == []
    assert scheduler.schedule(ready, spans, 61) == []


def test_balance_does_nothing_while_somebody_ends():
    scheduler = BalanceScheduler(0, random.Random(1), 5, {})
    states = captures(a=READY, b=READY, c=STOPPING)
    assert scheduler.schedule(states, replication(a=20), 1) == []


def test_balance_picks_its_victims_at_random_but_by_seed():
    def victims(seed: int) -> set[int]:
        scheduler = BalanceScheduler(0, random.Random(seed), 5, {})
        tasks = scheduler.schedule(captures(a=READY, b=READY), replication(a=20), 1)
        return {task.table_id for task in tasks}

    assert victims(1) == victims(1) != victims(2)


def test_balance_leaves_what_was_placed_by_hand_until_a_rebalance_is_asked_for():
    made, ready = schedulers(), captures(a=READY, b=READY)
    for table in (1, 2, 3, 4, 5, 9):
        made.move_table.move_table(table, CaptureID("a"))
    made.schedule(ready, replication(a=4, b=8), 1)
    spans = replication(a=8, b=0)  # 9 is not where it was placed: it is gone
    for now_s in range(2, 20):
        tasks = made.schedule(ready, spans, now_s)
        assert {task.table_id for task in tasks} <= {6, 7, 8}
        assert len(tasks) == 3, "as near to even as may be"
    made.rebalance.is_wanted = True
    assert moved(made.schedule(ready, spans, 20)) == {"b": 4}
    assert made.move_table.placed == {}


def schedulers(**changes: float) -> Schedulers:
    settings = {
        "max_task_concurrency": 10, "add_table_batch_size": 50, "check_balance_interval_s": 0.0,
    }  # fmt: skip
    return Schedulers(**{**settings, **changes}, rng=random.Random(1))


def test_the_first_scheduler_that_wants_something_wins():
    everything, ready = schedulers(), captures(a=READY, b=READY, c=READY)
    spans = replication(a=20, b=2, missing=1)
    everything.rebalance.is_wanted = True
    everything.move_table.move_table(1, CaptureID("c"))
    everything.drain_capture.set_target(CaptureID("b"))
    first = everything.schedule(ready, spans, 1)
    assert isinstance(first[0], BurstBalance)
    assert isinstance(first[0].tasks[0], AddTask)
    spans = replication(a=20, b=2)
    assert {t.table_id for t in everything.schedule(ready, spans, 2)} == {21, 22}, "drain"
    everything.drain_capture.target = None
    assert everything.schedule(ready, spans, 3) == [MoveTask(1, CaptureID("c"))]
    everything.move_table._moves.clear()
    assert isinstance(everything.schedule(ready, spans, 4)[0], BurstBalance), "rebalance"
    assert isinstance(everything.schedule(ready, spans, 5)[0], MoveTask), "balance"


def test_all_but_basic_wait_while_as_many_tasks_run_as_may():
    everything, ready = schedulers(), captures(a=READY, b=READY)
    spans = replication(a=30)
    spans.handle_tasks([MoveTask(table, CaptureID("b")) for table in range(1, 11)])
    everything.move_table.move_table(20, CaptureID("b"))
    assert everything.schedule(ready, spans, 1) == []
    spans.add_table(span(99), Ts(100))
    assert isinstance(everything.schedule(ready, spans, 1)[0], BurstBalance)
