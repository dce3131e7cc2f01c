"""Captures: alive, initialised, ending."""

from __future__ import annotations

from coordination.model import CaptureID, ProcessorEpoch, Ts
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.capture_manager import (
    SILENT_TICKS,
    CaptureManager,
    CaptureState,
)
from coordination.scheduler.messages import (
    Body,
    DispatchTableResponse,
    Heartbeat,
    HeartbeatResponse,
    Liveness,
    Message,
)
from coordination.scheduler.table_status import Statuses, TableState, TableStatus, checksum
from tests.coordination.scheduler.cluster import CHANGEFEED_EPOCH, FEED

A, B = CaptureID("a"), CaptureID("b")
BARRIER = Barrier(Ts(900))
ONE = TableStatus(1, TableState.REPLICATING, Ts(5), Ts(5))
TWO = TableStatus(2, TableState.PREPARED, Ts(5), Ts(5))


def manager(*alive: CaptureID, heartbeat_tick: int = 1) -> CaptureManager:
    made = CaptureManager(owner_id=A, heartbeat_tick=heartbeat_tick)
    made.handle_alive_captures(alive)
    return made


def message(body: Body, sender: CaptureID = A, epoch: str = "e1") -> Message:
    return Message(
        version="1",
        launch=5,
        processor_epoch=ProcessorEpoch(epoch),
        changefeed_epoch=CHANGEFEED_EPOCH,
        sender=sender,
        to=A,
        changefeed_id=FEED,
        body=body,
    )


def answer(*statuses: TableStatus, **fields: object) -> HeartbeatResponse:
    base: dict = {"liveness": Liveness.ALIVE, "sequence": 5, "since": 0}
    return HeartbeatResponse(
        **{"statuses": Statuses.of(statuses), "checksum": checksum(statuses), **base, **fields}
    )


def beat(made: CaptureManager, times: int = 1) -> list[tuple[CaptureID, Heartbeat]]:
    for _ in range(times):
        sent = made.next_heartbeats({}, (), BARRIER, 0.0, is_awaiting=True)
    return sent


def test_captures_are_initialized_when_each_has_answered():
    made = manager(A, B)
    assert not made.is_all_initialized
    assert made.handle_messages([message(answer(ONE))]) == [(A, [ONE])]
    assert not made.is_all_initialized
    made.handle_messages([message(answer(), B)])
    assert made.is_all_initialized
    assert made.captures[A].is_owner
    assert not made.captures[B].is_owner


def test_who_was_never_reached_is_waited_for_a_little_and_gets_nothing():
    """A capture that others cannot call must not stop the scheduling; one that may have spans
    must."""
    made = manager()
    made.handle_alive_captures([A, B], unreached={B})
    made.handle_messages([message(answer(ONE))])
    assert not made.is_all_initialized  # it may be about to answer
    beat(made, times=SILENT_TICKS)
    assert made.is_all_initialized
    assert list(made.initialized) == [A]
    assert [to for to, _ in beat(made)] == [A, B]  # it is called all the same
    made.handle_alive_captures([A, B], unreached=set())
    assert not made.is_all_initialized  # another owner has reached it
    made.handle_messages([message(answer(TWO), B)])
    assert made.is_all_initialized
    assert list(made.initialized) == [A, B]


def test_without_captures_none_has_answered():
    assert not manager().is_all_initialized


def test_captures_come_and_go_with_etcd():
    made = manager(A)
    made.handle_messages([message(answer())])
    assert made.handle_alive_captures([A, B]) == []
    assert made.captures[B].state is CaptureState.UNINITIALIZED
    assert made.handle_alive_captures([B]) == [A]
    assert made.handle_messages([message(answer(ONE))]) == [], "it is gone"


def test_every_heartbeat_has_the_barrier_what_was_seen_and_what_is_asked_for():
    made = manager(A, B)
    made.handle_messages([message(answer(ONE))])
    assert made.next_heartbeats({A: [3, 4]}, B, BARRIER, 0.0, is_awaiting=True) == [
        (A, Heartbeat(seen=5, table_ids=(3, 4), barrier=BARRIER)),
        (B, Heartbeat(is_stopping=True, barrier=BARRIER)),
    ]


def test_heartbeats_have_their_ticks():
    made = manager(A, heartbeat_tick=2)
    sent = [made.next_heartbeats({}, (), BARRIER, 0.0, is_awaiting=True) for _ in range(6)]
    assert [len(heartbeats) for heartbeats in sent] == [0, 1, 0, 1, 0, 1]


def test_a_heartbeat_a_second_is_enough_while_nothing_is_awaited():
    made = manager(A, heartbeat_tick=2)
    sent = [
        made.next_heartbeats({}, (), BARRIER, tick * 0.25, is_awaiting=False) for tick in range(9)
    ]
    assert [len(heartbeats) for heartbeats in sent] == [1, 0, 0, 0, 1, 0, 0, 0, 1]
    assert made.next_heartbeats({}, (), Barrier(Ts(901)), 2.1, is_awaiting=False), "rows wait"


def test_liveness_makes_a_capture_stopping_until_a_drain_is_taken_back():
    made = manager(A)
    made.handle_messages([message(answer(liveness=Liveness.STOPPING))])
    assert made.captures[A].state is CaptureState.STOPPING
    assert made.is_all_initialized
    made.handle_messages([message(answer(sequence=6))])
    assert made.captures[A].state is CaptureState.INITIALIZED


def test_an_answer_of_another_epoch_than_the_first_is_not_of_this_owners_agent():
    made = manager(A)
    assert made.handle_messages([message(answer(ONE), epoch="e2")]) == [(A, [ONE])]
    assert made.handle_messages([message(answer(sequence=9), epoch="e1")]) == []
    assert made.captures[A].epoch == "e2"


def test_changes_of_an_unknown_epoch_are_not_a_list():
    made = manager(A)
    assert made.handle_messages([message(answer(ONE, since=3))]) == []
    assert made.captures[A].state is CaptureState.UNINITIALIZED


def test_dispatch_responses_count_in_the_known_epoch_only():
    made = manager(A)
    done = DispatchTableResponse(status=TWO, sequence=7)
    assert made.handle_messages([message(done)]) == []
    made.handle_messages([message(answer(ONE))])
    assert made.handle_messages([message(done, epoch="e2")]) == []
    assert made.handle_messages([message(done)]) == [(A, (TWO,))]
    assert made.handle_messages([message(done)]) == [], "its double"


def test_what_owners_say_is_not_for_owners():
    assert manager(A).handle_messages([message(Heartbeat())]) == []


def test_a_scan_is_kept_until_the_next_one():
    made = manager(A)
    made.handle_messages([message(answer(read_positions={"shop/0": 7}))])
    made.handle_messages([message(answer(sequence=6))])
    assert made.captures[A].read_positions == {"shop/0": 7}


def test_a_barrier_that_has_moved_does_not_wait_for_the_next_heartbeat():
    made, moved = manager(A, heartbeat_tick=2), Barrier(Ts(901))
    sent = [
        made.next_heartbeats({}, (), barrier, 0.0, is_awaiting=True)
        for barrier in (BARRIER, BARRIER, moved, moved, moved)
    ]
    told = [[heartbeat.barrier for _, heartbeat in each] for each in sent]
    assert told == [[], [BARRIER], [moved], [moved], []]
