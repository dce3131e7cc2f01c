"""The exchange without a network, and over the fake one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from coordination.model import CaptureID
from coordination.scheduler.messages import encode
from coordination.scheduler.transport import (
    FORGET_S,
    MAX_SENDERS,
    Batch,
    Frame,
    MessageExchange,
    Parcel,
    dump_batch,
    load_batch,
    load_messages,
)
from tests.contracts.transport_contract import (
    A,
    B,
    C,
    TransportContract,
    dispatch,
    heartbeat,
    numbers,
)
from tests.fakes.fake_transport import FakeNetwork, FakeTransport, Faults


class FakeCaptures:
    """Captures on one FakeNetwork; time passes only in `wait` and `pass_time`."""

    def __init__(self, seed: int = 0, faults: Faults | None = None) -> None:
        self.network = FakeNetwork(seed, faults or Faults())
        self.addresses: dict[str, str] = {}
        self._woken: set[str] = set()

    def start(self, capture_id: CaptureID, *, at: str | None = None) -> FakeTransport:
        address = at or f"host-{capture_id}-{len(self.addresses)}:8300"
        self.addresses[capture_id] = address
        return self.network.transport(
            address,
            capture_id,
            resolve=self.addresses.get,  # type: ignore[arg-type]
            wake=lambda: self._woken.add(address),
        )

    def address(self, transport: FakeTransport) -> str:
        return transport.address

    def set_address(self, capture_id: CaptureID, address: str | None) -> None:
        if address is None:
            self.addresses.pop(capture_id, None)
        else:
            self.addresses[capture_id] = address

    def is_woken(self, transport: FakeTransport) -> bool:
        was_woken = transport.address in self._woken
        self._woken.discard(transport.address)
        return was_woken

    def lose(self, chance: float) -> None:
        self.network.faults = replace(self.network.faults, message_loss=chance, loss=chance)

    def wait(self, until: Callable[[], bool], *, patience_s: float = 1000.0) -> None:
        deadline = self.network.now_s + patience_s
        while not until():
            assert self.network.now_s < deadline, "it does not come"
            self.network.advance(0.01)

    def pass_time(self, seconds: float) -> None:
        self.network.advance(seconds)


class TestFakeTransport(TransportContract):
    @pytest.fixture
    def captures(self) -> FakeCaptures:
        return FakeCaptures()


EVIL = Faults(
    loss=0.1, message_loss=0.2, duplication=0.3, late=0.3, late_s=8.0, delay_s=0.001, jitter_s=0.2
)


class TestFaults:
    @pytest.mark.parametrize("seed", range(30))
    def test_once_and_in_order_whatever_the_network_does(self, seed: int) -> None:
        captures = FakeCaptures(seed, EVIL)
        network, dice = captures.network, random.Random(seed)
        transports = {name: captures.start(name) for name in (A, B, C)}
        sent: dict[tuple[str, str], list[int]] = {}
        got: dict[tuple[str, str], list[int]] = {}
        for number in range(150):
            sender, to = dice.sample([A, B, C], 2)
            transports[sender].send([dispatch(number, sender, to)])
            sent.setdefault((sender, to), []).append(number)
            if dice.random() < 0.05:
                network.cut(transports[sender].address, transports[to].address)
            if dice.random() < 0.1:
                network.heal()
            if dice.random() < 0.05:
                network.stopped.add(transports[to].address)
            if dice.random() < 0.1:
                for address in sorted(network.stopped):
                    network.resume(address)
            network.advance(dice.random())
        network.faults = Faults()
        network.heal()
        for address in sorted(network.stopped):
            network.resume(address)
        network.advance(60.0)
        for transport in transports.values():
            for message in transport.receive():
                got.setdefault((message.sender, message.to), []).extend(numbers([message]))
        assert got == sent

    def test_a_seed_replays(self) -> None:
        def run(seed: int) -> list[float]:
            captures = FakeCaptures(seed, EVIL)
            a, b = captures.start(A), captures.start(B)
            times = []
            for number in range(30):
                a.send([dispatch(number)])
                captures.pass_time(0.5)
                times += [captures.network.now_s + n for n in numbers(b.receive())]
            return times

        assert run(1) == run(1) != run(2)

    def test_a_one_way_cut_repeats_but_delivers_once(self) -> None:
        captures = FakeCaptures()
        a, b = captures.start(A), captures.start(B)
        captures.network.cut_one_way(b.address, a.address)  # answers do not come back
        a.send([dispatch(1)])
        captures.pass_time(20.0)
        assert numbers(b.receive()) == [1]
        captures.network.heal(a.address, b.address)
        a.send([dispatch(2)])
        captures.pass_time(20.0)
        assert numbers(b.receive()) == [2]

    def test_nothing_reaches_a_stopped_capture_before_it_goes_on(self) -> None:
        captures = FakeCaptures()
        a, b = captures.start(A), captures.start(B)
        captures.network.stopped.add(b.address)
        a.send([dispatch(1)])
        b.send([dispatch(2, B, A)])
        captures.pass_time(30.0)
        assert (a.receive(), b.receive()) == ([], [])
        captures.network.resume(b.address)
        captures.pass_time(5.0)
        assert (numbers(a.receive()), numbers(b.receive())) == ([2], [1])

    def test_a_peer_without_an_address_is_forgotten(self) -> None:
        captures = FakeCaptures()
        a = captures.start(A)
        a.send([dispatch(1)])
        captures.pass_time(FORGET_S - 2)
        assert a.exchange._outboxes
        captures.pass_time(4)
        assert not a.exchange._outboxes
        captures.pass_time(5)
        assert captures.network.next_event_s() is None  # and nothing is tried any more


def exchange(capture_id: CaptureID, *, session: int = 1) -> MessageExchange:
    return MessageExchange(capture_id, session=session, address="h:1")


def accept(receiver: MessageExchange, parcel: Parcel) -> int | None:
    batch = load_batch(parcel.data)
    return receiver.accept(batch, load_messages(batch))


def only(parcels: list[Parcel]) -> Parcel:
    (parcel,) = parcels
    return parcel


def posted(sender: MessageExchange, *wanted: int, now_s: float = 0.0) -> Parcel:
    sender.post([dispatch(number) for number in wanted], now_s)
    return only(sender.take_due(now_s))


class TestExchange:
    def test_a_late_batch_of_an_earlier_session_is_not_taken(self) -> None:
        a, b = exchange(A), exchange(B)
        old = posted(a, 1, 2)
        a.settle(old, None, 0.0)  # as if b had not been there yet
        a.post([dispatch(3)], 5.0)
        new = only(a.take_due(5.0))
        assert accept(b, new) == 1
        accept(b, old)
        assert numbers(b.take()) == [3]

    def test_what_comes_late_to_a_restarted_peer_does_not_make_it_wait_for_ever(self) -> None:
        a, b = exchange(A), exchange(B)
        late = posted(a, 1)
        a.settle(late, accept(b, late), 0.0)
        lost = posted(a, 2)
        a.settle(lost, accept(b, lost), 0.0)
        b = exchange(B)  # and knows nothing
        accept(b, late)
        assert accept(b, posted(a, 3)) == 3
        assert numbers(b.take()) == [1, 3]

    def test_a_reset_begins_anew_with_every_sender(self) -> None:
        a, b = exchange(A), exchange(B)
        a.post([dispatch(1, A, C), dispatch(2, A, B)], 0.0)  # C is what b is going to be
        first, second = a.take_due(0.0)
        assert accept(b, second) == 1
        b.set_self(C)
        assert accept(b, first) == 1
        assert numbers(b.take()) == [1]

    def test_answers_to_a_former_self_or_session_change_nothing(self) -> None:
        a = exchange(A)
        old = posted(a, 1)
        a.set_self(C)
        a.post([dispatch(2, C)], 0.0)
        new = only(a.take_due(0.0))
        a.settle(old, 1, 0.0)
        a.fail(old, 0.0)
        assert a.next_due_s() is None  # the new one is still under way
        a.fail(new, 0.0)
        assert a.next_due_s() is not None

    def test_a_gap_is_not_passed_over(self) -> None:
        a, b = exchange(A), exchange(B)
        whole = posted(a, 1, 2, 3)
        batch = load_batch(whole.data)
        gap = dump_batch(replace(batch, frames=batch.frames[::2]))
        assert accept(b, whole._replace(data=gap)) == 1
        assert accept(b, whole) == 3
        assert numbers(b.take()) == [1, 2, 3]

    def test_a_full_inbox_takes_the_rest_later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("coordination.scheduler.transport.MAX_INBOX_COUNT", 2)
        a, b = exchange(A), exchange(B)
        parcel = posted(a, 1, 2, 3)
        answer = accept(b, parcel)
        assert answer == 2
        a.settle(parcel, answer, 0.0)
        assert b.post([dispatch(9, B, B)], 0.0) is False  # not to itself either
        assert numbers(b.take()) == [1, 2]
        accept(b, only(a.take_due(0.0)))
        assert numbers(b.take()) == [3]

    def test_a_malformed_message_holds_nothing_up(self) -> None:
        b = exchange(B)
        frames = (
            Frame(1, b"{}"),
            Frame(2, encode(dispatch(5, C, B))),  # not of who says that it sent it
            Frame(3, encode(dispatch(6, A, C))),  # not for us
            Frame(4, encode(dispatch(7, A, B))),
        )
        batch = Batch(sender=A, address="", to=B, session=1, base=1, frames=frames)
        assert b.accept(batch, load_messages(batch)) == 4
        assert numbers(b.take()) == [7]

    def test_nobody_yet_rejects_all(self) -> None:
        nobody = MessageExchange(None)
        assert accept(nobody, posted(exchange(A), 1)) is None
        nobody.post([dispatch(1)], 0.0)
        assert nobody.take_due(0.0) == []

    def test_a_message_that_no_receiver_would_take_is_dropped(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("coordination.scheduler.transport.MAX_BATCH_RECEIVED_BYTES", 1000)
        a = exchange(A)
        a.post([dispatch(1)], 0.0)
        a.post([heartbeat(2, A, CaptureID("b" * 600))], 0.0)
        assert len(a.take_due(0.0)) == 1

    def test_memory_of_an_unreachable_peer_is_bounded(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("coordination.scheduler.transport.MAX_OUTBOX_BYTES", 100_000)
        a = exchange(A)
        a.post([dispatch(1)], 0.0)
        parcel = only(a.take_due(0.0))
        for number in range(2000):
            a.post([heartbeat(number)], 0.0)
        a.fail(parcel, 0.0)
        parcel = only(a.take_due(9.0))
        assert len(parcel.data) < 110_000
        b = exchange(B)
        accept(b, parcel)
        first, *rest = numbers(b.take())
        assert first == 1  # what was under way, and the newest
        assert rest == list(range(2000 - len(rest), 2000))

    def test_peers_and_senders_of_the_past_are_forgotten(self) -> None:
        a, b = exchange(A), exchange(B)
        for number in range(MAX_SENDERS + 50):
            sender_id = CaptureID(f"capture-{number}")
            sender = exchange(sender_id)
            sender.post([dispatch(1, sender_id, B)], 0.0)
            accept(b, only(sender.take_due(0.0)))
            to = CaptureID(f"peer-{number}")
            a.post([dispatch(1, A, to)], 0.0)
            a.settle(only(a.take_due(0.0)), 1, 0.0)
        assert len(b._expected) == MAX_SENDERS
        assert len(a._outboxes) == MAX_SENDERS + 50
        a.take_due(FORGET_S + 1)
        assert not a._outboxes
