"""An owner's copy of an agent's spans equals them, whichever responses it gets."""

from __future__ import annotations

import random

import pytest

from coordination.model import Ts
from coordination.scheduler.messages import (
    DispatchTableResponse,
    HeartbeatResponse,
    Liveness,
)
from coordination.scheduler.reports import ReportView, SpanReports
from coordination.scheduler.table_status import Statuses, TableState, TableStatus, checksum

S = TableState


def status(table_id: int, checkpoint_ts: int = 1, state: TableState = S.REPLICATING) -> TableStatus:
    return TableStatus(table_id, state, Ts(checkpoint_ts), Ts(checkpoint_ts))


def answer(reports: SpanReports, seen: int) -> HeartbeatResponse:
    return HeartbeatResponse(
        statuses=Statuses.of(reports.since(seen)),
        liveness=Liveness.ALIVE,
        sequence=reports.sequence,
        since=seen,
        checksum=reports.checksum,
    )


def test_the_full_list_first_then_only_what_changed():
    reports, view = SpanReports(), ReportView()
    for table_id in (1, 2, 3):
        reports.observe(status(table_id))
    assert view.apply(answer(reports, view.seen)) == [status(1), status(2), status(3)]
    reports.observe(status(2))  # the same as before
    assert view.apply(answer(reports, view.seen)) == []
    reports.observe(status(2, 5))
    assert view.apply(answer(reports, view.seen)) == [status(2, 5)]
    assert view.statuses == [status(1), status(2, 5), status(3)]


def test_a_span_that_is_gone_is_told_until_the_owner_has_heard_of_it():
    reports, view = SpanReports(), ReportView()
    reports.observe(status(1))
    view.apply(answer(reports, 0))
    gone = status(1, state=S.ABSENT)
    reports.observe(gone)
    lost = answer(reports, view.seen)
    assert lost.statuses == (gone,)
    assert view.apply(answer(reports, view.seen)) == [gone]
    assert view.statuses == []
    answer(reports, view.seen)
    assert reports.last(1) is None, "forgotten once it was heard of"


def test_an_unknown_absent_span_is_nothing_to_tell():
    reports = SpanReports()
    reports.observe(status(1, state=S.ABSENT))
    assert answer(reports, 0).statuses == ()


def test_a_full_list_tells_what_it_no_longer_names():
    view, reports = ReportView(), SpanReports()
    reports.observe(status(1))
    reports.observe(status(2))
    view.apply(answer(reports, 0))
    reports.observe(status(1, state=S.ABSENT))
    assert view.apply(answer(reports, 0)) == [status(1)._replace(state=S.ABSENT), status(2)]


def test_a_copy_that_does_not_add_up_is_asked_for_again():
    reports, view = SpanReports(), ReportView()
    reports.observe(status(1))
    reports.observe(status(2, 9))
    view.apply(answer(reports, 0))
    view._store(Statuses.of([status(1, 7)]))
    reports.observe(status(2, 10))
    view.apply(answer(reports, view.seen))
    assert view.seen == 0
    view.apply(answer(reports, view.seen))
    assert view.seen == reports.sequence
    assert view.statuses == [status(1), status(2, 10)]


def test_while_everything_is_asked_for_again_an_old_full_list_is_not_news():
    reports, view = SpanReports(), ReportView()
    reports.observe(status(1))
    old = answer(reports, 0)
    reports.observe(status(1, 5))
    view.apply(answer(reports, 0))
    view.seen = 0
    assert view.apply(old) is None


def test_spans_cannot_swap_their_numbers_unseen():
    assert checksum([status(1, 5), status(2, 9)]) != checksum([status(1, 9), status(2, 5)])
    assert checksum([]) == checksum([status(1, state=S.ABSENT)]) == 0


def test_a_dispatch_response_is_ahead_of_older_heartbeats_and_behind_newer_ones():
    reports, view = SpanReports(), ReportView()
    reports.observe(status(1, state=S.PREPARING))
    view.apply(answer(reports, 0))
    reports.observe(status(1, 2, S.PREPARING))
    older = answer(reports, view.seen)
    reports.observe(status(1, 2, S.PREPARED))
    ahead = DispatchTableResponse(status=status(1, 2, S.PREPARED), sequence=reports.sequence)
    assert view.apply_dispatched(ahead)
    assert not view.apply_dispatched(ahead), "its double"
    assert view.apply(older) == [], "what it says of the span is old news"
    reports.observe(status(1, 3))
    assert view.apply(answer(reports, view.seen)) == [status(1, 3)]
    late = DispatchTableResponse(status=status(1), sequence=ahead.sequence)
    assert not view.apply_dispatched(late)


@pytest.mark.seeds(30)
def test_lost_late_doubled_responses_change_nothing_in_the_end(seed: int):
    rng = random.Random(seed)
    reports, view = SpanReports(), ReportView()
    wires: list[HeartbeatResponse] = []
    seens = [0]
    for ts in range(1, 200):
        for _ in range(rng.randrange(4)):
            state = rng.choice([S.PREPARING, S.REPLICATING, S.ABSENT])
            reports.observe(status(rng.randrange(8), ts, state))
        wires.append(answer(reports, rng.choice(seens[-3:])))
        rng.shuffle(wires)
        while wires and rng.random() < 0.6:
            view.apply(wires.pop() if rng.random() < 0.7 else rng.choice(wires))
        seens.append(view.seen)
        assert view.seen or not any(seens), "never out of step, so nothing is asked for twice"
        if view.seen == reports.sequence:
            assert view.statuses.checksum() == checksum(view.statuses) == reports.checksum
    view.apply(answer(reports, view.seen))
    assert view.statuses == Statuses.of(reports.since(0))
