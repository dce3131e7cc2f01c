"""The states of a capture's spans, and what is seen of them when."""

from __future__ import annotations

import pytest

from coordination.model import Ts
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import Checkpoint, Span, stored_table_id
from coordination.scheduler.table_status import TableState
from streaming.apply.commit_guard import CommitWithdrawn
from streaming.spans.assigned_spans import AppliedSpan, AssignedSpans, Assignment

SPAN = Span(stored_table_id(1, "shop", "a", 5), "shop", "a")
AT = Checkpoint(Ts(10), Ts(12))
FIRST, SECOND, THIRD = 1 << 32 | 1, 1 << 32 | 2, 1 << 32 | 3


def applied(ts: int) -> AppliedSpan:
    return AppliedSpan(checkpoint_ts=Ts(ts), resolved_ts=Ts(ts))


def read_to(ts: int) -> dict[str, int]:
    return {"shop/0": ts}


def state(held: AssignedSpans) -> TableState:
    return held.status(SPAN.table_id).state


def _stopped_at(held: AssignedSpans) -> int | None:
    stopped = held.take_stopped(SPAN.table_id)
    return stopped and stopped.checkpoint_ts


def replicating(limit: int | None = 100) -> tuple[AssignedSpans, Assignment]:
    held = AssignedSpans()
    if limit is not None:
        held.set_barrier(Barrier(Ts(limit)))
    held.add(SPAN, AT, FIRST, is_prepare=True)
    (assignment,) = held.assignments()
    held.prepared(assignment)
    held.add(SPAN, AT, SECOND, is_prepare=False)
    (assignment,) = held.assignments()
    held.opened(assignment, applied(10))
    return held, assignment


def test_a_span_is_prepared_first_and_written_when_it_is_asked_for_again():
    held = AssignedSpans()
    held.add(SPAN, AT, FIRST, is_prepare=True)
    assert state(held) is TableState.PREPARING
    (assignment,) = held.assignments()
    assert not assignment.is_to_write
    held.opened(assignment, applied(10))
    assert state(held) is TableState.PREPARING  # not without its rows
    held.prepared(assignment)
    held.add(SPAN, Checkpoint(Ts(20), Ts(20)), SECOND, is_prepare=False)
    held.add(SPAN, Checkpoint(Ts(30), Ts(30)), THIRD, is_prepare=False)  # it was asked for already
    assert state(held) is TableState.PREPARED
    (assignment,) = held.assignments()
    assert (assignment.is_to_write, assignment.fence, assignment.checkpoint_ts) == (
        True,
        SECOND,
        20,
    )
    held.opened(assignment, applied(25))
    assert state(held) is TableState.REPLICATING
    assert held.status(SPAN.table_id).checkpoint_ts == 25


def test_what_was_told_before_it_was_opened_is_old_news():
    held = AssignedSpans()
    held.add(SPAN, AT, FIRST, is_prepare=True)
    (assignment,) = held.assignments()
    held.prepared(assignment)
    held.publish([(assignment, applied(10)._replace(delta_version=3))], read_to(12))
    held.add(SPAN, Checkpoint(Ts(20), Ts(20)), SECOND, is_prepare=False)
    (assignment,) = held.assignments()
    held.opened(assignment, applied(20)._replace(delta_version=7))
    held.take_changed()
    status = held.status(SPAN.table_id)
    assert (status.checkpoint_ts, status.delta_version) == (20, 7)


def test_a_span_that_has_stopped_says_all_that_it_knew():
    held, assignment = replicating()
    held.begin_commit(assignment, Ts(50))
    held.end_commit(assignment, applied(50)._replace(delta_version=7, dead_letters=2))
    held.remove(SPAN.table_id)
    last = held.take_stopped(SPAN.table_id)
    assert last is not None
    assert last.state is TableState.STOPPED
    assert (last.checkpoint_ts, last.delta_version, last.dead_letters) == (50, 7, 2)
    assert state(held) is TableState.ABSENT


def test_without_a_barrier_nothing_may_be_written():
    held, assignment = replicating(limit=None)
    assert held.limit(assignment) is None
    with pytest.raises(CommitWithdrawn):
        held.begin_commit(assignment, Ts(11))


def test_no_barrier_loosens_the_one_before():
    held, assignment = replicating(limit=50)
    assert not held.set_barrier(None)
    assert held.limit(assignment) == 50
    held.set_barrier(Barrier(Ts(60), {SPAN.table_id: Ts(55)}))
    assert held.limit(assignment) == 55
    held.set_barrier(Barrier(Ts(40)))
    with pytest.raises(CommitWithdrawn, match="fell to 40"):
        held.begin_commit(assignment, Ts(41))


def test_a_write_that_was_planned_before_the_span_had_its_fence_is_dropped():
    held = AssignedSpans()
    held.set_barrier(Barrier(Ts(100)))
    held.add(SPAN, AT, FIRST, is_prepare=True)
    (before,) = held.assignments()
    held.prepared(before)
    held.add(SPAN, AT, SECOND, is_prepare=False)
    held.opened(before, applied(10))
    with pytest.raises(CommitWithdrawn, match="fence"):
        held.begin_commit(before, Ts(20))


def test_a_write_that_was_planned_in_another_assignment_is_dropped():
    held, assignment = replicating()
    held.remove(SPAN.table_id)
    assert _stopped_at(held) == 10
    held.add(SPAN, AT, THIRD, is_prepare=False)
    with pytest.raises(CommitWithdrawn, match="not ours"):
        held.begin_commit(assignment, Ts(20))


def test_a_span_stops_at_once_unless_a_commit_of_it_is_under_way():
    held, _ = replicating()
    held.remove(SPAN.table_id)
    assert state(held) is TableState.STOPPED
    held.add(SPAN, AT, THIRD, is_prepare=True)  # not before it is seen to be gone
    assert state(held) is TableState.STOPPED

    held, assignment = replicating()
    held.begin_commit(assignment, Ts(20))
    held.remove(SPAN.table_id)
    assert state(held) is TableState.STOPPING
    assert held.take_stopped(SPAN.table_id) is None
    held.end_commit(assignment, applied(20))
    assert state(held) is TableState.STOPPED
    held.publish([(assignment, applied(30))], read_to(30))
    assert _stopped_at(held) == 20
    assert state(held) is TableState.ABSENT


def test_statuses_and_what_was_read_are_seen_in_one_piece():
    """Else a read position would be told that is ahead of what a span holds back."""
    held, assignment = replicating()
    held.publish([(assignment, applied(20))], read_to(20))
    held.take_changed()
    held.publish([(assignment, applied(30))], read_to(30))
    assert held.status(SPAN.table_id).checkpoint_ts == 20
    assert held.read_positions() == read_to(20)
    assert SPAN.table_id in held.take_changed()
    assert held.status(SPAN.table_id).checkpoint_ts == 30
    assert held.read_positions() == read_to(30)


def test_the_last_word_of_a_span_that_has_stopped_is_of_no_other_one():
    """The agent has looked at the others already, and tells how far was read after that."""
    held, assignment = replicating()
    other = Span(stored_table_id(1, "shop", "b", 5), "shop", "b")
    held.add(other, AT, THIRD, is_prepare=True)
    held.publish([(assignment, applied(20))], read_to(20))
    held.remove(other.table_id)
    assert other.table_id in held.take_changed()
    held_back = applied(30)._replace(source_positions=read_to(25))
    held.publish([(assignment, held_back)], read_to(30))
    assert held.take_stopped(other.table_id) is not None
    assert held.status(SPAN.table_id).checkpoint_ts == 20
    assert held.read_positions() == read_to(20)
    assert SPAN.table_id in held.take_changed()
    assert held.status(SPAN.table_id).source_positions == read_to(25)
    assert held.read_positions() == read_to(30)


def test_what_is_read_without_a_span_that_is_written_here_does_not_count():
    """A writer that begins anew joins a stream that is further on. Its span has to be caught up
    with, and was said to hold nothing back."""
    held, assignment = replicating()
    held.publish([(assignment, applied(20))], read_to(20))
    held.publish([], read_to(30))
    held.take_changed()
    assert held.read_positions() == read_to(20)
    held.publish([(assignment, applied(40))], read_to(40))
    held.take_changed()
    assert held.read_positions() == read_to(40)


def test_what_an_older_stay_has_done_is_not_told_of_a_newer_one():
    held, before = replicating()
    held.publish([(before, applied(90))], read_to(90))
    held.remove(SPAN.table_id)
    assert _stopped_at(held) == 90
    held.add(SPAN, Checkpoint(Ts(90), Ts(90)), THIRD, is_prepare=True)
    held.publish([(before, applied(95))], read_to(95))
    held.take_changed()
    assert held.status(SPAN.table_id).checkpoint_ts == 90


def test_a_table_that_was_made_again_waits_for_its_namesake_to_go():
    held, _ = replicating()
    again = Span(stored_table_id(1, "shop", "a", 99), "shop", "a")
    held.add(again, AT, THIRD, is_prepare=True)
    assert held.status(again.table_id).state is TableState.ABSENT
