"""Every row of the table-span state table, and the fences of docs/cluster.md 2."""

from __future__ import annotations

import pytest

from coordination.model import Ts
from coordination.scheduler.messages import (
    AddTable,
    Checkpoint,
    RemoveTable,
    TableState,
    TableStatus,
)
from coordination.scheduler.table_span import ADD_ROWS, REMOVE_ROWS, TableSpan, TableSpans
from tests.coordination.scheduler.cluster import span
from tests.coordination.scheduler.fake_executor import FakeExecutor

S = TableState
PREPARE, COMMIT, REMOVE = "prepare", "commit", "remove"


def add(*, is_secondary: bool, fence: int = 1, table: int = 1, ts: int = 50) -> AddTable:
    checkpoint = Checkpoint(Ts(ts), Ts(ts))
    return AddTable(span=span(table), is_secondary=is_secondary, checkpoint=checkpoint, fence=fence)


def remove(*, fence: int = 9, table: int = 1) -> RemoveTable:
    return RemoveTable(table_id=table, fence=fence)


def task(kind: str) -> AddTable | RemoveTable:
    return remove() if kind == REMOVE else add(is_secondary=kind == PREPARE)


def placed(state: TableState, kind: str, **executor: bool) -> tuple[TableSpan, FakeExecutor]:
    """A span in a state, with a task that has not begun."""
    data = FakeExecutor()
    made = TableSpan(span(1), data)
    if state is not S.ABSENT:
        data.put(1, state, checkpoint_ts=Ts(60))
    for name, value in executor.items():
        setattr(data, name, value)
    made.inject(task(kind))
    return made, data


# state, task, executor -> calls, response's state (None: none), is the task done, state afterwards
ROWS = [
    (S.ABSENT, PREPARE, {"refuses": True}, ["add"], S.ABSENT, False, S.ABSENT),
    (S.ABSENT, COMMIT, {"refuses": True}, ["add"], S.ABSENT, False, S.ABSENT),
    (S.ABSENT, PREPARE, {}, ["add", "is_add_finished"], None, False, S.PREPARING),
    (S.ABSENT, PREPARE, {"is_eager": True}, ["add", "is_add_finished"], S.PREPARED, True,
     S.PREPARED),
    (S.ABSENT, COMMIT, {"is_eager": True}, ["add", "is_add_finished"], None, False, S.PREPARED),
    (S.PREPARING, PREPARE, {}, ["is_add_finished"], None, False, S.PREPARING),
    (S.PREPARING, COMMIT, {}, ["is_add_finished"], None, False, S.PREPARING),
    (S.PREPARING, PREPARE, {"is_eager": True}, ["is_add_finished"], S.PREPARED, True, S.PREPARED),
    (S.PREPARING, COMMIT, {"is_eager": True},
     ["is_add_finished", "add", "is_add_finished"], S.REPLICATING, True, S.REPLICATING),
    (S.PREPARED, PREPARE, {}, [], S.PREPARED, True, S.PREPARED),
    (S.PREPARED, COMMIT, {"refuses": True}, ["add"], S.PREPARED, False, S.PREPARED),
    (S.PREPARED, COMMIT, {}, ["add", "is_add_finished"], S.PREPARED, False, S.PREPARED),
    (S.PREPARED, COMMIT, {"is_eager": True}, ["add", "is_add_finished"], S.REPLICATING, True,
     S.REPLICATING),
    (S.REPLICATING, PREPARE, {}, [], S.REPLICATING, True, S.REPLICATING),
    (S.REPLICATING, COMMIT, {}, [], S.REPLICATING, True, S.REPLICATING),
    (S.STOPPING, PREPARE, {}, [], S.STOPPING, True, S.STOPPING),
    (S.STOPPING, COMMIT, {}, [], S.STOPPING, True, S.STOPPING),
    (S.STOPPED, PREPARE, {}, [], S.STOPPED, True, S.STOPPED),
    (S.STOPPED, COMMIT, {}, [], S.STOPPED, True, S.STOPPED),
    (S.ABSENT, REMOVE, {}, [], S.ABSENT, True, S.ABSENT),
    (S.STOPPING, REMOVE, {}, ["is_remove_finished"], S.STOPPING, False, S.STOPPING),
    (S.STOPPING, REMOVE, {"is_eager": True}, ["is_remove_finished"], S.STOPPED, True, S.ABSENT),
    (S.STOPPED, REMOVE, {}, ["is_remove_finished"], S.STOPPED, True, S.ABSENT),
    *[(state, REMOVE, {"refuses": True}, ["remove"], S.STOPPING, False, state)
      for state in (S.PREPARING, S.PREPARED, S.REPLICATING)],
    *[(state, REMOVE, {}, ["remove", "is_remove_finished"], S.STOPPING, False, S.STOPPING)
      for state in (S.PREPARING, S.PREPARED, S.REPLICATING)],
    *[(state, REMOVE, {"is_eager": True}, ["remove", "is_remove_finished"], S.STOPPED, True,
       S.ABSENT) for state in (S.PREPARING, S.PREPARED, S.REPLICATING)],
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_a_row(row):
    state, kind, executor, calls, says, done, after = row
    made, data = placed(state, kind, **executor)
    response = made.poll()
    assert [call[0] for call in data.calls] == calls
    assert (response and response.status.state) == says
    assert response is None or response.is_remove is (kind == REMOVE)
    assert (made.task is None) is done
    assert data.get_table_span_status(1).state == after


def test_every_state_has_its_rows():
    assert set(ADD_ROWS) == set(REMOVE_ROWS) == set(TableState) - {S.UNKNOWN}
    assert {(state, kind) for state, kind, *_ in ROWS} == {
        (state, kind) for state in ADD_ROWS for kind in (PREPARE, COMMIT, REMOVE)
    }


def test_a_state_that_is_none_is_a_bug():
    made, _ = placed(S.UNKNOWN, COMMIT)
    with pytest.raises(AssertionError):
        made.poll()


def test_an_executor_is_asked_to_write_once():
    made, data = placed(S.PREPARED, COMMIT)
    for _ in range(3):
        assert made.poll().status.state is S.PREPARED
    assert [call[0] for call in data.calls].count("add") == 1
    data.get_on(1)
    assert made.poll().status.state is S.REPLICATING


def test_what_is_removed_says_how_far_it_came():
    made, _ = placed(S.REPLICATING, REMOVE, is_eager=True)
    status = made.poll().status
    assert (status.checkpoint_ts, status.resolved_ts) == (60, 60), "resolved 0 means checkpoint"


def test_a_span_that_is_to_be_removed_shows_stopping():
    made, _ = placed(S.REPLICATING, REMOVE, refuses=True)
    assert made.status().state is S.STOPPING
    made.task = None
    assert made.status().state is S.REPLICATING


def test_a_second_task_is_ignored_while_there_is_one():
    made, _ = placed(S.PREPARED, COMMIT)
    assert not made.inject(remove())
    assert made.task == task(COMMIT)


def spans() -> tuple[TableSpans, FakeExecutor]:
    data = FakeExecutor()
    return TableSpans(data), data


def test_a_failing_task_is_reported_and_does_not_keep_the_others_from_going_on():
    made, data = spans()
    for table in (1, 2, 3):
        made.accept(add(is_secondary=True, table=table))
    data.fails = {1: RuntimeError("no space"), 2: ValueError("bad row")}
    responses, errors = made.poll()
    assert errors == list(data.fails.values())
    assert [r.status for r in responses] == [TableStatus(1, S.ABSENT), TableStatus(2, S.ABSENT)]
    assert data.statuses[3].state is S.PREPARING


def test_a_span_that_is_absent_after_a_poll_is_dropped_with_its_task():
    made, data = spans()
    data.refuses = True
    made.accept(add(is_secondary=True))
    made.poll()
    assert [s.state for s in made.take_changed()] == [S.ABSENT]
    assert made._spans == {}
    data.refuses = False
    assert made.accept(add(is_secondary=True, fence=2)), "the owner tries again"


def test_a_span_that_gets_lost_without_a_task_is_dropped():
    made, data = spans()
    made.accept(add(is_secondary=True))
    data.is_eager = True
    made.poll()
    list(made.take_changed())
    data.put(1, S.ABSENT)
    assert [s.state for s in made.take_changed()] == [S.ABSENT]
    assert made._spans == {}


def test_removing_an_unknown_span_is_ignored():
    made, data = spans()
    assert not made.accept(remove())
    assert made.poll() == ([], [])
    assert data.calls == []


def test_an_add_whose_fence_is_not_above_the_last_one_is_refused():
    made, data = spans()
    data.is_eager = True
    assert made.accept(add(is_secondary=True, fence=5))
    made.poll()
    assert not made.accept(add(is_secondary=False, fence=5))
    assert not made.accept(add(is_secondary=False, fence=4))
    assert made.accept(add(is_secondary=False, fence=6))
    made.poll()
    assert data.statuses[1].state is S.REPLICATING
    assert not made.accept(remove(fence=5)), "it was sent before the last assignment"
    assert made.accept(remove(fence=6))
    made.poll()
    list(made.take_changed())
    assert made._spans == {}
    assert not made.accept(add(is_secondary=True, fence=6)), "fences outlive their spans"


def test_a_fence_counts_as_seen_though_nothing_came_of_it():
    made, _ = spans()
    made.accept(remove(fence=7))
    assert made._fences == {1: 7}
    assert not made.accept(add(is_secondary=True, fence=7)), "it was taken back before it came"


def test_a_late_commit_of_a_span_that_is_gone_writes_nothing():
    made, data = spans()
    assert not made.accept(add(is_secondary=False, fence=3))
    made.poll()
    assert data.calls == []
