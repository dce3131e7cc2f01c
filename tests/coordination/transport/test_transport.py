"""What a transport does with messages, over real sockets; what waits for a peer; its bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from coordination.model import CaptureID
from coordination.scheduler.messages import MalformedMessage
from coordination.transport import grpc_transport
from coordination.transport.grpc_transport import _Peer
from coordination.transport.transport import (
    Batch,
    dump_answer,
    dump_batch,
    dump_message,
    is_rejected,
    load_batch,
    load_messages,
)
from tests.coordination.transport.grpc_captures import (
    A,
    B,
    C,
    GrpcCaptures,
    big_response,
    dispatch,
    heartbeat,
    numbers,
)


@pytest.fixture
def captures() -> Iterator[GrpcCaptures]:
    made = GrpcCaptures()
    yield made
    made.close()


class TestDelivery:
    def test_messages_arrive_whole_in_order_and_once(self, captures: GrpcCaptures) -> None:
        a, b = captures.start(A), captures.start(B)
        sent = [dispatch(n) if n % 3 else heartbeat(n) for n in range(200)]
        for begin in range(0, 200, 10):
            a.send(sent[begin : begin + 10])
        assert captures.receive(b, 200) == sent
        time.sleep(0.2)
        assert (a.receive(), b.receive()) == ([], [])

    def test_both_ways_and_between_several(self, captures: GrpcCaptures) -> None:
        a, b, c = captures.start(A), captures.start(B), captures.start(C)
        a.send([dispatch(1, A, B), dispatch(2, A, C)])
        b.send([dispatch(3, B, A), dispatch(4, B, C)])
        c.send([dispatch(5, C, A), dispatch(6, C, B)])
        for transport, expected in ((a, [3, 5]), (b, [1, 6]), (c, [2, 4])):
            assert sorted(numbers(captures.receive(transport, 2))) == expected

    def test_messages_to_itself_arrive_at_once(self, captures: GrpcCaptures) -> None:
        a = captures.start(A)
        a.send([dispatch(1, A, A), heartbeat(2, A, A)])
        assert captures.is_woken(a)
        assert numbers(a.receive()) == [1, 2]

    def test_who_receives_is_woken(self, captures: GrpcCaptures) -> None:
        a, b = captures.start(A), captures.start(B)
        assert not captures.is_woken(b)
        a.send([dispatch(1)])
        captures.wait(lambda: captures.is_woken(b))
        assert numbers(b.receive()) == [1]

    def test_what_is_sent_to_nobody_is_lost_and_what_comes_after_arrives(
        self, captures: GrpcCaptures
    ) -> None:
        a = captures.start(A)
        a.send([dispatch(1)])
        b = captures.start(B)
        a.send([dispatch(2)])
        assert numbers(captures.receive(b, 1)) == [2]

    def test_a_peer_that_was_started_again_is_reached_again(self, captures: GrpcCaptures) -> None:
        a, b = captures.start(A), captures.start(B)
        a.send([dispatch(1)])
        assert numbers(captures.receive(b, 1)) == [1]
        address = captures.address(b)
        b.close()
        a.send([dispatch(2)])
        b = captures.start(B, at=address)
        captures.get_through(a, b, dispatch(3))
        b.send([dispatch(4, B, A)])
        assert numbers(captures.receive(a, 1)) == [4]

    def test_another_capture_at_the_address_gets_nothing_of_the_old_one(
        self, captures: GrpcCaptures
    ) -> None:
        a, b = captures.start(A), captures.start(B)
        a.send([dispatch(1)])
        captures.receive(b, 1)
        address = captures.address(b)
        b.close()
        c = captures.start(C, at=address)
        captures.set_address(B, address)  # etcd still has B's record
        captures.get_through(a, c, dispatch(3, A, C))
        a.send([dispatch(2)])
        time.sleep(0.3)
        assert c.receive() == []

    def test_a_reset_capture_drops_what_was_for_and_of_its_old_self(
        self, captures: GrpcCaptures
    ) -> None:
        a, b = captures.start(A), captures.start(B)
        a.send([dispatch(1)])
        captures.wait(lambda: captures.is_woken(b))
        b.set_self(C)
        captures.set_address(C, captures.address(b))
        assert b.receive() == []
        a.send([dispatch(2)])  # still to B
        b.send([dispatch(3, B, A)])  # still from B
        time.sleep(0.3)
        a.send([dispatch(4, A, C)])
        b.send([dispatch(5, C, A)])
        assert numbers(captures.receive(b, 1)) == [4]
        assert numbers(captures.receive(a, 1)) == [5]

    def test_a_capture_that_moved_is_found_at_its_new_address(self, captures: GrpcCaptures) -> None:
        a, b = captures.start(A), captures.start(B)
        a.send([dispatch(1)])
        captures.receive(b, 1)
        b.close()
        b = captures.start(B)
        a.send([dispatch(2)])
        assert numbers(captures.receive(b, 1)) == [2]

    def test_a_heartbeat_of_ten_thousand_spans(self, captures: GrpcCaptures) -> None:
        a, b = captures.start(A), captures.start(B)
        sent = big_response(10_000)
        a.send([sent, sent])
        assert captures.receive(b, 2) == [sent, sent]

    def test_a_full_inbox_takes_no_more(
        self, captures: GrpcCaptures, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(grpc_transport, "MAX_INBOX_COUNT", 2)
        a, b = captures.start(A), captures.start(B)
        a.send([dispatch(1), dispatch(2)])
        captures.wait(lambda: len(b._inbox) == 2)
        b.send([dispatch(3, B, B)])
        a.send([dispatch(4)])
        captures.wait(lambda: not any(each.is_under_way for each in a._peers.values()))
        assert numbers(b.receive()) == [1, 2]
        a.send([dispatch(5)])
        assert numbers(captures.receive(b, 1)) == [5]

    def test_a_closed_transport_is_silent(self, captures: GrpcCaptures) -> None:
        a = captures.start(A)
        a.close()
        a.close()
        a.send([dispatch(1), dispatch(2, A, A)])
        assert a.receive() == []


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {
        "MAX_BATCH_COUNT": 4,
        "MAX_BATCH_BYTES": 10,
        "MAX_WAITING_COUNT": 6,
        "MAX_WAITING_BYTES": 30,
    }
    for name, limit in limits.items():
        monkeypatch.setattr(grpc_transport, name, limit)


def peer(*offered: bytes) -> _Peer:
    made = _Peer()
    for data in offered:
        made.offer(data)
    return made


@pytest.mark.usefixtures("small")
class TestWhatWaits:
    def test_the_oldest_goes_when_there_are_too_many(self) -> None:
        made = peer(*[f"d{n}".encode() for n in range(1, 9)])
        assert made.take() == [b"d3", b"d4", b"d5", b"d6"]
        assert made.take() == [b"d7", b"d8"]

    def test_bytes_are_bounded(self) -> None:
        made = peer(*[b"h" * 9] * 5)
        assert (made.size, len(made.waiting)) == (27, 3)
        made.offer(b"d" * 31)
        assert (made.size, len(made.waiting)) == (0, 0)

    def test_batches_are_small_and_a_large_message_goes_alone(self) -> None:
        made = peer(b"d" * 24, b"d1", b"d2", b"d3")
        batches = []
        while made.waiting:
            batches.append([len(data) for data in made.take()])
        assert batches == [[24], [2, 2, 2]]
        assert made.size == 0


class TestBytes:
    BATCH = Batch(sender=A, address="h:1", to=B, messages=(b"x\n", b""))

    def test_round_trips(self) -> None:
        assert load_batch(dump_batch(self.BATCH)) == self.BATCH

    @pytest.mark.parametrize("is_it", [False, True])
    def test_an_answer_says_whether_the_batch_is_rejected(self, is_it: bool) -> None:
        assert is_rejected(dump_answer(is_rejected=is_it)) is is_it

    def test_a_malformed_message_holds_nothing_up(self) -> None:
        messages = (
            b"",
            b"{}",
            b"s{}",
            b"w{}",
            dump_message(dispatch(5, C, B)),  # not of who says that it sent it
            dump_message(dispatch(6, A, C)),  # not for us
            dump_message(dispatch(7, A, B)),
        )
        batch = Batch(sender=A, address="", to=B, messages=messages)
        assert numbers(load_messages(batch)) == [7]

    def test_every_cut_off_batch_is_malformed(self) -> None:
        data = dump_batch(self.BATCH)
        ends = [data.index(b"\n") + 1]  # a batch may be empty, or end between two messages
        ends += [ends[0] + 4 + 2]
        for end in range(len(data)):
            if end not in ends:
                with pytest.raises(MalformedMessage):
                    load_batch(data[:end])

    @pytest.mark.parametrize("wrong", [b"", b"[]", b"null", b"\xff"])
    def test_malformed_answers_and_batches(self, wrong: bytes) -> None:
        with pytest.raises(MalformedMessage):
            is_rejected(wrong)
        with pytest.raises(MalformedMessage):
            load_batch(wrong + b"\n")


def test_nobody_yet_rejects_all(captures: GrpcCaptures) -> None:
    a = captures.start(A)
    nobody = captures.start(B)
    nobody._self = None
    a.send([dispatch(1)])
    nobody.send([dispatch(2, B, A), dispatch(3, CaptureID("x"), A)])
    time.sleep(0.2)
    assert (a.receive(), nobody.receive()) == ([], [])
