"""What every Transport does: run over gRPC on real sockets, and over the fake network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from coordination.model import CaptureID, ChangefeedID, ProcessorEpoch, Revision, Ts
from coordination.scheduler.messages import (
    AddTable,
    Body,
    Checkpoint,
    Heartbeat,
    HeartbeatResponse,
    Liveness,
    Message,
    Span,
    TableState,
    TableStatus,
)
from coordination.scheduler.transport import Transport

A, B, C = CaptureID("capture-a"), CaptureID("capture-b"), CaptureID("capture-c")


def message(sender: str, to: str, body: Body) -> Message:
    return Message(
        version="1.0.0",
        owner_revision=Revision(5),
        processor_epoch=ProcessorEpoch("epoch"),
        changefeed_epoch=7,
        sender=CaptureID(sender),
        to=CaptureID(to),
        changefeed_id=ChangefeedID("shop"),
        body=body,
    )


def dispatch(number: int, sender: str = A, to: str = B) -> Message:
    """Told apart by its fence."""
    span = Span(1, "shop", "orders")
    checkpoint = Checkpoint(Ts(1), Ts(1))
    return message(
        sender,
        to,
        AddTable(span=span, is_secondary=False, checkpoint=checkpoint, fence=number),
    )


def heartbeat(number: int, sender: str = A, to: str = B) -> Message:
    return message(sender, to, Heartbeat(number=number))


def big_response(spans: int, sender: str = A, to: str = B) -> Message:
    statuses = tuple(
        TableStatus(table_id, TableState.REPLICATING, Ts(450_000_000_000_000_000 + table_id))
        for table_id in range(spans)
    )
    return message(
        sender,
        to,
        HeartbeatResponse(
            statuses=statuses, liveness=Liveness.ALIVE, sequence=1, since=0, checksum=0
        ),
    )


def numbers(messages: list[Message]) -> list[int]:
    found = []
    for each in messages:
        match each.body:
            case AddTable(fence=number) | Heartbeat(number=number):
                found.append(number)
            case _:
                raise AssertionError(each)
    return found


class Captures(Protocol):
    """Transports that find each other by capture ID."""

    def start(self, capture_id: CaptureID, *, at: str | None = None) -> Transport:
        """``at``: the address of an earlier one, which is closed."""
        ...

    def address(self, transport: Transport) -> str: ...

    def set_address(self, capture_id: CaptureID, address: str | None) -> None:
        """What `resolve` says from now on."""
        ...

    def is_woken(self, transport: Transport) -> bool:
        """Whether `wake` was called since the last question."""
        ...

    def lose(self, chance: float) -> None:
        """From now on, of each message, between transports that start after this."""
        ...

    def wait(self, until: Callable[[], bool], *, patience_s: float = 10.0) -> None:
        """Let time pass until it is so; fails if it never is."""
        ...

    def pass_time(self, seconds: float) -> None: ...


def receive(captures: Captures, transport: Transport, count: int) -> list[Message]:
    """Wait for so many."""
    received: list[Message] = []

    def enough() -> bool:
        received.extend(transport.receive())
        return len(received) >= count

    captures.wait(enough)
    return received


class TransportContract:
    """A subclass has the fixture `captures`."""

    def test_messages_arrive_whole_in_order_and_once(self, captures: Captures) -> None:
        a, b = captures.start(A), captures.start(B)
        sent = [dispatch(n) if n % 3 else heartbeat(n) for n in range(200)]
        for begin in range(0, 200, 10):
            a.send(sent[begin : begin + 10])
        assert receive(captures, b, 200) == sent
        captures.pass_time(0.2)
        assert (a.receive(), b.receive()) == ([], [])

    def test_both_ways_and_between_several(self, captures: Captures) -> None:
        a, b, c = captures.start(A), captures.start(B), captures.start(C)
        a.send([dispatch(1, A, B), dispatch(2, A, C)])
        b.send([dispatch(3, B, A), dispatch(4, B, C)])
        c.send([dispatch(5, C, A), dispatch(6, C, B)])
        for transport, expected in ((a, [3, 5]), (b, [1, 6]), (c, [2, 4])):
            assert sorted(numbers(receive(captures, transport, 2))) == expected

    def test_messages_to_itself_arrive_at_once(self, captures: Captures) -> None:
        a = captures.start(A)
        a.send([dispatch(1, A, A), heartbeat(2, A, A)])
        assert captures.is_woken(a)
        assert numbers(a.receive()) == [1, 2]

    def test_who_receives_is_woken(self, captures: Captures) -> None:
        a, b = captures.start(A), captures.start(B)
        assert not captures.is_woken(b)
        a.send([dispatch(1)])
        captures.wait(lambda: captures.is_woken(b))
        assert numbers(b.receive()) == [1]

    def test_what_is_sent_before_the_peer_is_there_arrives_later(self, captures: Captures) -> None:
        a = captures.start(A)
        a.send([dispatch(1)])
        captures.pass_time(0.2)
        a.send([dispatch(2)])
        b = captures.start(B)
        assert numbers(receive(captures, b, 2)) == [1, 2]

    def test_resent_after_a_restart_of_the_peer(self, captures: Captures) -> None:
        a, b = captures.start(A), captures.start(B)
        a.send([dispatch(1)])
        assert numbers(receive(captures, b, 1)) == [1]
        address = captures.address(b)
        b.close()
        a.send([dispatch(2), dispatch(3)])
        captures.pass_time(0.2)
        b = captures.start(B, at=address)
        assert numbers(receive(captures, b, 2)) == [2, 3]
        b.send([dispatch(4, B, A)])  # its numbers begin anew, and are not taken for old ones
        assert numbers(receive(captures, a, 1)) == [4]

    def test_another_capture_at_the_address_gets_nothing_of_the_old_one(
        self, captures: Captures
    ) -> None:
        a, b = captures.start(A), captures.start(B)
        a.send([dispatch(1)])
        receive(captures, b, 1)
        address = captures.address(b)
        b.close()
        a.send([dispatch(2)])
        c = captures.start(C, at=address)
        captures.set_address(B, address)  # etcd still has B's record
        captures.pass_time(0.5)
        assert c.receive() == []
        a.send([dispatch(3, A, C)])
        assert numbers(receive(captures, c, 1)) == [3]

    def test_a_reset_capture_drops_what_was_for_and_of_its_old_self(
        self, captures: Captures
    ) -> None:
        a, b = captures.start(A), captures.start(B)
        a.send([dispatch(1)])
        captures.wait(lambda: captures.is_woken(b))
        b.set_self(C)
        captures.set_address(C, captures.address(b))
        assert b.receive() == []
        a.send([dispatch(2)])  # still to B
        b.send([dispatch(3, B, A)])  # still from B
        captures.pass_time(0.5)
        a.send([dispatch(4, A, C)])
        b.send([dispatch(5, C, A)])
        assert numbers(receive(captures, b, 1)) == [4]
        assert numbers(receive(captures, a, 1)) == [5]

    def test_a_capture_that_moved_is_found_at_its_new_address(self, captures: Captures) -> None:
        a, b = captures.start(A), captures.start(B)
        a.send([dispatch(1)])
        receive(captures, b, 1)
        b.close()
        a.send([dispatch(2)])
        b = captures.start(B)
        assert numbers(receive(captures, b, 1)) == [2]

    def test_a_fifth_of_all_messages_lost_and_all_arrive_in_order(self, captures: Captures) -> None:
        captures.lose(0.2)
        a, b = captures.start(A), captures.start(B)
        for number in range(100):
            a.send([dispatch(2 * number), dispatch(2 * number + 1)])
            captures.pass_time(0.001)
        b.send([dispatch(number, B, A) for number in range(20)])
        assert numbers(receive(captures, b, 200)) == list(range(200))
        assert numbers(receive(captures, a, 20)) == list(range(20))

    def test_a_heartbeat_of_ten_thousand_spans(self, captures: Captures) -> None:
        a, b = captures.start(A), captures.start(B)
        sent = big_response(10_000)
        a.send([sent, sent])
        assert receive(captures, b, 2) == [sent, sent]

    def test_a_closed_transport_is_silent(self, captures: Captures) -> None:
        a = captures.start(A)
        a.close()
        a.close()
        a.send([dispatch(1), dispatch(2, A, A)])
        assert a.receive() == []
