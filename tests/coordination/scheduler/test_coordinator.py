"""The coordinator: whom it listens to, the order of a tick, the changefeed's checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.model import CaptureID, ChangefeedID, Ts
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import (
    AddTable,
    Heartbeat,
    HeartbeatResponse,
    Liveness,
    Message,
)
from coordination.scheduler.replication_set import MultiplePrimaries, ReplicationState
from coordination.scheduler.table_status import Statuses, TableState, TableStatus, checksum
from tests.coordination.scheduler.cluster import Cluster, make_coordinator, span
from tests.coordination.scheduler.test_capture_manager import message

A, B = CaptureID("a"), CaptureID("b")
BARRIER = Barrier(Ts(1_000))


def answer(*statuses: TableStatus, sender: CaptureID = A, **fields: object) -> Message:
    base: dict = {"liveness": Liveness.ALIVE, "sequence": 5, "since": 0}
    body = HeartbeatResponse(
        **{"statuses": Statuses.of(statuses), "checksum": checksum(statuses), **base, **fields}
    )
    return message(body, sender)


def replicating(table: int, ts: int) -> TableStatus:
    return TableStatus(table, TableState.REPLICATING, Ts(ts), Ts(ts))


def bodies(tick, kind: type) -> list:
    return [(m.to, m.body) for m in tick.outbox if isinstance(m.body, kind)]


def test_heartbeats_come_first_and_nothing_is_scheduled_before_all_have_answered():
    made = make_coordinator()
    made.add_table(span(1), Ts(100))
    tick = made.poll([], [A, B], BARRIER, 0.0)
    assert bodies(tick, Heartbeat) == [
        (A, Heartbeat(barrier=BARRIER)),
        (B, Heartbeat(barrier=BARRIER)),
    ]
    assert {m.processor_epoch for m in tick.outbox} == {""}
    assert not tick.can_proceed
    tick = made.poll([answer()], [A, B], BARRIER, 0.1)
    assert len(tick.outbox) == 2
    tick = made.poll([answer(sender=B)], [A, B], BARRIER, 0.2)
    ((to, add),) = bodies(tick, AddTable)
    assert add.span == span(1)
    assert [m.processor_epoch for m in tick.outbox if m.body == add] == ["e1"]
    asked = dict(bodies(tick, Heartbeat))
    assert asked[to].table_ids == (1,), "what is under way is asked for"


@pytest.mark.parametrize(
    "changes",
    [
        {"to": B},
        {"changefeed_id": ChangefeedID("other")},
        {"launch": 4},
        {"launch": 6},
        {"changefeed_epoch": 6},
    ],
    ids=str,
)
def test_what_is_not_for_this_owner_is_dropped(changes):
    made, good = make_coordinator(), answer()
    made.poll([replace(good, **changes)], [A], BARRIER, 0.0)
    made.poll([replace(good, **changes)], [A], BARRIER, 0.1)
    assert not made.captures.is_all_initialized
    made.poll([good], [A], BARRIER, 0.2)
    assert made.captures.is_all_initialized


def started(*tables: int, **reported: list[TableStatus]):
    """A coordinator whose captures have all answered."""
    made = make_coordinator()
    for table in tables:
        made.add_table(span(table), Ts(100))
    alive = [CaptureID(name) for name in reported]
    made.poll([], alive, BARRIER, 0.0)
    answers = [answer(*statuses, sender=CaptureID(name)) for name, statuses in reported.items()]
    made.poll(answers, alive, BARRIER, 0.1)
    return made, alive


def test_the_checkpoint_advances_and_never_falls():
    made, alive = started(1, a=[replicating(1, 150)])
    tick = made.poll([], alive, BARRIER, 0.2)
    assert (tick.checkpoint, tick.can_proceed) == ((150, 150), True)
    made.add_table(span(2), Ts(0))
    tick = made.poll([], alive, BARRIER, 0.3)
    assert tick.checkpoint == (150, 150)
    assert made.replication.sets[2].checkpoint_ts == 150, "a table starts at the checkpoint"
    tick = made.poll([], alive, Barrier(Ts(120)), 0.4)
    assert tick.checkpoint == (150, 150)


def test_a_table_that_waits_for_an_operator_holds_the_checkpoint_and_not_the_others():
    made, alive = started(1, 2, a=[replicating(1, 120), replicating(2, 150)])
    barrier = Barrier(Ts(140), {1: Ts(120)})
    tick = made.poll([], alive, barrier, 0.2, held={1})
    assert (tick.checkpoint.checkpoint_ts, tick.others_ts) == (120, 140)
    assert made.poll([], alive, barrier, 0.3, held={1, 2}).others_ts == 140, "no table is left"
    tick = made.poll([], alive, barrier, 0.4)
    assert tick.others_ts == 120, "it goes on, and the others' DDLs wait for it again"


def test_a_capture_that_joins_pauses_scheduling_but_not_the_checkpoint():
    made, _ = started(1, a=[replicating(1, 150)])
    made.poll([], [A, B], BARRIER, 0.2)
    made.add_table(span(2), Ts(100))
    advanced = answer(replicating(1, 170), sequence=6, since=5, checksum=0)
    tick = made.poll([advanced], [A, B], BARRIER, 0.3)
    assert bodies(tick, AddTable) == []
    tick = made.poll([answer(sender=B)], [A, B], BARRIER, 0.4)
    assert len(bodies(tick, AddTable)) == 1


def test_a_capture_that_goes_is_replaced_at_once():
    made, _ = started(1, a=[], b=[replicating(1, 150)])
    tick = made.poll([], [A], BARRIER, 0.2)
    ((to, add),) = bodies(tick, AddTable)
    assert to == A
    assert add.checkpoint == (150, 150)


def test_it_awaits_the_captures_until_every_row_and_span_is_where_it_belongs():
    cluster = Cluster("ab", 4)

    def awaits() -> bool:
        assert cluster.last is not None
        return cluster.last.is_awaiting

    cluster.tick(20)
    assert cluster.is_settled
    assert awaits(), "the rows up to the barrier"
    cluster.advance(cluster.barrier.global_barrier_ts)
    cluster.tick(5)
    assert not awaits()
    cluster.barrier = Barrier(Ts(cluster.barrier.global_barrier_ts + 1))
    cluster.tick(5)
    assert awaits()
    cluster.advance(cluster.barrier.global_barrier_ts)
    cluster.tick(5)
    assert not awaits()
    cluster.die("b")
    cluster.tick(1)
    assert awaits(), "the dead one's spans"
    cluster.bury("b")
    cluster.tick(20)
    assert not awaits()
    cluster.start("c")
    cluster.tick(1)
    assert awaits(), "its answer"


def test_draining_says_how_many_spans_are_left():
    cluster = Cluster("ab", 4)
    drain = cluster.coordinator.drain_capture
    assert drain(CaptureID("b")) == 1, "not known yet"
    cluster.tick(20)
    assert drain(CaptureID("b")) == 2
    assert drain(CaptureID("a")) == 2
    assert cluster.coordinator.schedulers.drain_target == "b"
    cluster.tick(30)
    assert drain(CaptureID("b")) == 0
    cluster = Cluster("a", 2)
    cluster.tick(20)
    assert drain(CaptureID("nobody")) == 0
    cluster.coordinator.drain_capture(CaptureID("a"))
    assert cluster.coordinator.schedulers.drain_target is None, "there is nobody else"


def test_without_tables_and_scans_the_barrier_is_the_checkpoint():
    made, alive = started(a=[])
    assert made.poll([], alive, BARRIER, 0.2).checkpoint == (1_000, 1_000)


def test_two_who_write_one_span_stop_the_changefeed():
    with pytest.raises(MultiplePrimaries):
        started(1, a=[replicating(1, 150)], b=[replicating(1, 150)])


def test_progress_tells_who_has_a_span_under_which_epoch():
    made, _ = started(1, 2, a=[replicating(1, 150)])
    first = {one.span.table_id: one for one in made.take_progress()}
    assert (first[1].state, first[1].capture_id, first[1].epoch) == (
        ReplicationState.REPLICATING, A, "e1",
    )  # fmt: skip
    assert first[1].checkpoint == (150, 150)
    assert (first[2].state, first[2].capture_id) == (ReplicationState.PREPARE, None)
    assert not made.take_progress()


def test_a_message_to_a_capture_that_went_in_this_tick_is_not_sent():
    made, _ = started(1, a=[], b=[replicating(1, 150)])
    made.schedulers.move_table(1, A)
    tick = made.poll([], [B], BARRIER, 0.2)
    assert {m.to for m in tick.outbox} == {B}
