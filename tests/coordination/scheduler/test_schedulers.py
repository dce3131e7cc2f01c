"""Who is to have which span, and which of six opinions counts."""

from __future__ import annotations

import random
from collections import Counter

from coordination.model import CaptureID, TermNumber, Ts
from coordination.scheduler.capture_manager import CaptureState, CaptureStatus
from coordination.scheduler.replication_manager import ReplicationManager, Schedule, ScheduleTask
from coordination.scheduler.schedulers import Schedulers, SchedulerSettings
from coordination.scheduler.table_status import Statuses, TableState, TableStatus
from tests.coordination.scheduler.cluster import span

READY, STOPPING = CaptureState.INITIALIZED, CaptureState.STOPPING


def schedulers(seed: int = 1, **changes: float) -> Schedulers:
    settings = SchedulerSettings(**changes)  # type: ignore[arg-type]
    return Schedulers(settings, random.Random(seed))


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
        reported[CaptureID(name)] = Statuses.of(
            TableStatus(table, TableState.REPLICATING, Ts(100)) for table in tables
        )
    for table in range(1, number + missing + 1):
        made.add_table(span(table), Ts(100))
    made.initialize(reported, Ts(100))
    return made


def moved(schedule: Schedule) -> Counter:
    return Counter(task.dest for task in schedule.tasks)


def test_basic_gives_missing_spans_in_turns_in_batches():
    scheduler, spans = schedulers(add_table_batch_size=4), replication(missing=7)
    ready = captures(a=READY, b=READY, c=STOPPING)
    first = scheduler.schedule(ready, spans, 0)
    assert (first.scheduler, first.is_burst) == ("basic", True)
    assert moved(first) == {"a": 2, "b": 2}
    spans.handle_schedule(first)
    second = scheduler.schedule(ready, spans, 0)
    assert len(second.tasks) == 3
    spans.handle_schedule(second)
    assert not scheduler.schedule(ready, spans, 0).tasks


def test_basic_waits_when_nobody_may_have_spans():
    assert not schedulers().schedule(captures(a=STOPPING), replication(missing=1), 0).tasks


def test_basic_gives_a_span_to_where_an_operator_had_placed_it():
    placed = {1: CaptureID("b"), 2: CaptureID("b"), 3: CaptureID("gone")}
    scheduler = Schedulers(SchedulerSettings(), random.Random(1), placed=placed)
    tasks = scheduler.schedule(captures(a=READY, b=READY), replication(missing=3), 0).tasks
    assert [task.dest for task in tasks[:2]] == ["b", "b"]
    assert tasks[2].dest in {"a", "b"}


def test_basic_removes_dropped_tables():
    spans = replication(a=3)
    spans.remove_table(2)
    scheduler = schedulers()
    schedule = scheduler.schedule(captures(a=READY), spans, 0)
    assert schedule.tasks == [ScheduleTask(2, None)]
    spans.handle_schedule(schedule)
    assert not scheduler.schedule(captures(a=READY), spans, 0).tasks


def test_basic_does_not_give_a_span_to_who_has_yet_to_stop_it():
    spans = replication(a=1)
    spans.handle_capture_removed(CaptureID("a"))
    spans.handle_report(CaptureID("b"), Statuses.of([TableStatus(1, TableState.STOPPING)]))
    scheduler = schedulers()
    for _ in range(4):
        schedule = scheduler.schedule(captures(b=READY, c=READY), spans, 0)
        assert schedule.tasks == [ScheduleTask(1, CaptureID("c"))]
    assert not scheduler.schedule(captures(b=READY), spans, 0).tasks


def test_drain_moves_to_who_has_the_fewest_within_the_limit():
    scheduler, spans = schedulers(max_task_concurrency=3), replication(a=5, b=1, c=2)
    scheduler.drain_capture(CaptureID("a"))
    scheduler.drain_capture(CaptureID("b"))
    assert scheduler.drain_target == "a", "one at a time"
    assert scheduler.draining == {"a", "b"}
    schedule = scheduler.schedule(captures(a=READY, b=READY, c=READY), spans, 0)
    assert (schedule.scheduler, schedule.is_burst) == ("drain", False)
    assert moved(schedule) == {"b": 2, "c": 1}
    assert {task.table_id for task in schedule.tasks} == {1, 2, 3}


def test_drain_spreads_evenly():
    scheduler, spans = schedulers(max_task_concurrency=100), replication(a=12, b=4, c=4)
    scheduler.drain_capture(CaptureID("a"))
    schedule = scheduler.schedule(captures(a=READY, b=READY, c=READY), spans, 0)
    assert moved(schedule) == {"b": 6, "c": 6}


def test_drain_takes_captures_that_say_they_end_but_not_the_owner():
    scheduler, spans = schedulers(), replication(owner=2, b=2, c=2)
    ending = captures(owner=STOPPING, b=STOPPING, c=READY)
    assert moved(scheduler.schedule(ending, spans, 0)) == {"c": 2}
    assert scheduler.drain_target == "b"
    scheduler = schedulers()
    assert not scheduler.schedule(captures(owner=STOPPING, c=READY), spans, 0).tasks
    assert scheduler.drain_target is None


def test_drain_waits_until_all_is_settled_and_ends_when_it_is_empty():
    scheduler, spans = schedulers(), replication(a=2, b=2)
    ready = captures(a=READY, b=STOPPING)
    scheduler.drain_capture(CaptureID("b"))
    spans.handle_report(CaptureID("a"), Statuses.of([TableStatus(3, TableState.STOPPING)]))
    assert not scheduler.schedule(ready, spans, 0).tasks
    assert scheduler.drain_target == "b"
    scheduler.schedule(ready, replication(a=4), 0)
    assert scheduler.drain_target is None


def test_drain_gives_up_when_nobody_is_left_to_move_to():
    scheduler = schedulers()
    scheduler.drain_capture(CaptureID("a"))
    assert not scheduler.schedule(captures(a=READY, b=STOPPING), replication(a=2), 0).tasks
    assert scheduler.drain_target is None
    assert scheduler.draining == set()


def test_a_move_is_asked_for_until_it_is_under_way():
    scheduler, spans = schedulers(), replication(a=2, b=0)
    ready = captures(a=READY, b=READY)
    scheduler.move_table(1, CaptureID("b"))
    wanted = Schedule("move", [ScheduleTask(1, CaptureID("b"))])
    assert scheduler.schedule(ready, spans, 0) == wanted
    assert scheduler.schedule(ready, spans, 0) == wanted
    spans.handle_schedule(wanted)
    assert not scheduler.schedule(ready, spans, 0).tasks
    assert scheduler.moves == {}


def test_a_move_that_has_become_pointless_is_forgotten():
    scheduler, spans = schedulers(), replication(a=3)
    for table, dest in ((1, "gone"), (2, "b"), (3, "a"), (9, "a")):
        scheduler.move_table(table, CaptureID(dest))
    assert not scheduler.schedule(captures(a=READY, b=STOPPING), spans, 0).tasks
    assert scheduler.moves == {}
    assert scheduler.placed == {3: "a"}


def test_a_move_waits_for_a_table_that_is_on_its_way():
    scheduler, spans = schedulers(), replication(missing=1)
    scheduler.move_table(1, CaptureID("b"))
    ready = captures(a=READY, b=READY)
    spans.handle_schedule(Schedule("basic", [ScheduleTask(1, CaptureID("a"))]))
    assert not scheduler.schedule(ready, spans, 0).tasks
    assert scheduler.moves == {1: "b"}


def test_rebalance_evens_out_at_once_when_asked_to():
    scheduler, spans = schedulers(), replication(a=30, b=3)
    ready = captures(a=READY, b=READY, c=READY)
    assert not scheduler.schedule(ready, spans, 0).tasks
    scheduler.rebalance_is_wanted = True
    schedule = scheduler.schedule(ready, spans, 0)
    assert (schedule.scheduler, schedule.is_burst) == ("rebalance", True)
    assert moved(schedule) == {"b": 8, "c": 11}
    assert not scheduler.schedule(ready, spans, 0).tasks


def test_balance_looks_at_intervals_and_then_until_it_is_even():
    scheduler = schedulers(max_task_concurrency=5)
    spans, ready = replication(a=20), captures(a=READY, b=READY)
    assert not scheduler.schedule(ready, spans, 0).tasks
    assert not scheduler.schedule(ready, spans, 59).tasks
    assert moved(scheduler.schedule(ready, spans, 60)) == {"b": 5}
    assert moved(scheduler.schedule(ready, spans, 60.1)) == {"b": 5}, "there is more to move"
    even = replication(a=10, b=10)
    assert not scheduler.schedule(ready, even, 60.2).tasks
    assert not scheduler.schedule(ready, spans, 61).tasks


def test_balance_does_nothing_while_somebody_ends():
    scheduler = schedulers(check_balance_interval_s=0)
    states = captures(a=READY, b=READY, owner=STOPPING)
    assert not scheduler.schedule(states, replication(a=20), 1).tasks


def test_balance_picks_its_victims_at_random_but_by_seed():
    def victims(seed: int) -> set[int]:
        scheduler = schedulers(seed, max_task_concurrency=5, check_balance_interval_s=0)
        schedule = scheduler.schedule(captures(a=READY, b=READY), replication(a=20), 1)
        return {task.table_id for task in schedule.tasks}

    assert victims(1) == victims(1) != victims(2)


def test_balance_leaves_what_was_placed_by_hand_until_a_rebalance_is_asked_for():
    made, ready = schedulers(check_balance_interval_s=0), captures(a=READY, b=READY)
    for table in (1, 2, 3, 4, 5, 9):
        made.move_table(table, CaptureID("a"))
    made.schedule(ready, replication(a=4, b=8), 1)
    spans = replication(a=8, b=0)  # 9 is not where it was placed: it is gone
    for now_s in range(2, 20):
        tasks = made.schedule(ready, spans, now_s).tasks
        assert {task.table_id for task in tasks} <= {6, 7, 8}
        assert len(tasks) == 3, "as near to even as may be"
    made.rebalance_is_wanted = True
    assert moved(made.schedule(ready, spans, 20)) == {"b": 4}
    assert made.placed == {}


def test_the_first_scheduler_that_wants_something_wins():
    everything = schedulers(check_balance_interval_s=0)
    ready = captures(a=READY, b=READY, c=READY)
    everything.rebalance_is_wanted = True
    everything.move_table(1, CaptureID("c"))
    everything.drain_capture(CaptureID("b"))
    spans = replication(a=20, b=2, missing=1)
    assert everything.schedule(ready, spans, 1).scheduler == "basic"
    spans = replication(a=20, b=2)
    assert {t.table_id for t in everything.schedule(ready, spans, 2).tasks} == {21, 22}, "drain"
    everything.drain_target = None
    assert everything.schedule(ready, spans, 3).tasks == [ScheduleTask(1, CaptureID("c"))]
    everything.moves.clear()
    assert everything.schedule(ready, spans, 4).scheduler == "rebalance"
    assert everything.schedule(ready, spans, 5).scheduler == "balance"


def test_all_but_basic_wait_while_as_many_tasks_run_as_may():
    everything, ready = schedulers(), captures(a=READY, b=READY)
    spans = replication(a=30)
    spans.handle_schedule(
        Schedule("move", [ScheduleTask(table, CaptureID("b")) for table in range(1, 11)])
    )
    everything.move_table(20, CaptureID("b"))
    assert not everything.schedule(ready, spans, 1).tasks
    spans.add_table(span(99), Ts(100))
    assert everything.schedule(ready, spans, 1).scheduler == "basic"
