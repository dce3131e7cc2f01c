"""A network of captures in virtual time, whose faults come from a seeded dice.

What is sent goes through the real `MessageExchange` and its bytes; only gRPC is played here. Whole
batches and answers are lost, late (and so in another order), doubled, or cut off. Nothing happens
but in `send` and `advance_to`, so that a seed replays.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from coordination.model import CaptureID
from coordination.scheduler.messages import Message
from coordination.scheduler.transport import (
    MessageExchange,
    Parcel,
    dump_answer,
    dump_batch,
    load_answer,
    load_batch,
    load_messages,
)

Resolve = Callable[[CaptureID], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Chances of each batch and of each answer, and seconds; the defaults are a good network."""

    loss: float = 0.0  # the sender learns nothing until its call times out
    message_loss: float = 0.0  # of each message in a batch; the rest arrives
    duplication: float = 0.0  # it arrives twice, at different times
    late: float = 0.0  # it takes up to `late_s` more, and others overtake it
    late_s: float = 5.0
    delay_s: float = 0.001  # every way takes from here
    jitter_s: float = 0.001  # to so much more
    timeout_s: float = 3.0


GOOD = Faults()


class FakeNetwork:
    """`faults` may be changed at any time. Addresses are what transports are known by."""

    def __init__(self, seed: int = 0, faults: Faults = GOOD, now_s: float = 0.0) -> None:
        self.now_s = now_s
        self.faults = faults
        self.rng = random.Random(seed)
        self.stopped: set[str] = set()  # SIGSTOP: what comes waits, nothing goes
        self._cuts: set[tuple[str, str]] = set()
        self._transports: dict[str, FakeTransport] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._sessions = count(1, 1_000_000)

    def transport(
        self,
        address: str,
        capture_id: CaptureID | None,
        *,
        resolve: Resolve,
        wake: Callable[[], None] = lambda: None,
    ) -> FakeTransport:
        """Listen at the address, which nobody else may do."""
        assert address not in self._transports, f"{address} is in use"
        exchange = MessageExchange(capture_id, address=address, session=next(self._sessions))
        made = self._transports[address] = FakeTransport(self, exchange, resolve, wake)
        return made

    def cut(self, a: str, b: str) -> None:
        """Nothing passes between the two addresses any more, what is under way neither."""
        self._cuts |= {(a, b), (b, a)}

    def cut_one_way(self, sender: str, receiver: str) -> None:
        self._cuts.add((sender, receiver))

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """One pair, or all."""
        self._cuts = set() if a is None or b is None else self._cuts - {(a, b), (b, a)}

    def resume(self, address: str) -> None:
        """After it was in `stopped`."""
        self.stopped.discard(address)
        if address in self._transports:
            self.after(0.0, self._transports[address].pump)

    def next_event_s(self) -> float | None:
        return self._events[0][0] if self._events else None

    def advance_to(self, now_s: float) -> None:
        """All that happens up to then, in its order; at one moment, first come first served."""
        while self._events and self._events[0][0] <= now_s:
            at_s, _, action = heapq.heappop(self._events)
            self.now_s = max(self.now_s, at_s)
            action()
        self.now_s = max(self.now_s, now_s)

    def advance(self, seconds: float) -> None:
        self.advance_to(self.now_s + seconds)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_s + seconds, next(self._order), action))

    def carry(self, sender: str, receiver: str, arrive: Callable[[], None]) -> None:
        """One way through the network, with all that can happen to it there."""
        faults = self.faults
        for _ in range(1 + self._happens(faults.duplication)):
            if self._happens(faults.loss):
                continue
            delay_s = faults.delay_s + self.rng.random() * faults.jitter_s
            if self._happens(faults.late):
                delay_s += self.rng.random() * faults.late_s
            self.after(delay_s, lambda: self._arrive(sender, receiver, arrive))

    def _arrive(self, sender: str, receiver: str, arrive: Callable[[], None]) -> None:
        if (sender, receiver) in self._cuts:
            return
        if receiver in self.stopped:
            self.after(0.1, lambda: self._arrive(sender, receiver, arrive))
            return
        arrive()

    def without_lost_messages(self, data: bytes) -> bytes:
        if not self.faults.message_loss:
            return data
        batch = load_batch(data)
        kept = tuple(f for f in batch.frames if not self._happens(self.faults.message_loss))
        return dump_batch(replace(batch, frames=kept))

    def at(self, address: str) -> FakeTransport | None:
        return self._transports.get(address)

    def remove(self, address: str) -> None:
        self._transports.pop(address, None)

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self.rng.random() < chance


class FakeTransport:
    """`Transport` on a FakeNetwork. `close` is also what a crash does: nothing is flushed."""

    def __init__(
        self,
        network: FakeNetwork,
        exchange: MessageExchange,
        resolve: Resolve,
        wake: Callable[[], None],
    ) -> None:
        self.exchange = exchange
        self.address = exchange.address
        self._network = network
        self._resolve = resolve
        self._wake = wake
        self._is_closed = False
        self._pump_at_s: float | None = None

    def send(self, messages: Sequence[Message]) -> None:
        if self._is_closed:
            return
        if self.exchange.post(messages, self._network.now_s):
            self._wake()
        self.pump()

    def receive(self) -> list[Message]:
        return self.exchange.take()

    def set_self(self, capture_id: CaptureID) -> None:
        self.exchange.set_self(capture_id)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._network.remove(self.address)

    def pump(self) -> None:
        """What the sender thread does in a pass."""
        now_s = self._network.now_s
        if self._is_closed or self.address in self._network.stopped:
            return
        for parcel in self.exchange.take_due(now_s):
            self._dispatch(parcel)
        due_s = self.exchange.next_due_s()
        if due_s is not None and (self._pump_at_s is None or due_s < self._pump_at_s):
            self._pump_at_s = due_s
            self._network.after(max(0.0, due_s - now_s), self._pump_again)

    def _pump_again(self) -> None:
        self._pump_at_s = None
        self.pump()

    def _dispatch(self, parcel: Parcel) -> None:
        address = self._resolve(parcel.to)
        if address is None:
            self.exchange.fail(parcel, self._network.now_s, has_address=False)
            return
        call = _Call(self, parcel)
        data = self._network.without_lost_messages(parcel.data)
        self._network.carry(self.address, address, lambda: self._reach(address, data, call))
        self._network.after(self._network.faults.timeout_s, call.fail)

    def _reach(self, address: str, data: bytes, call: _Call) -> None:
        peer = self._network.at(address)
        if peer is None:  # the connection is refused, and that is known soon
            self._network.carry(address, self.address, call.fail)
            return
        reply = peer.deliver(data)
        self._network.carry(address, self.address, lambda: call.succeed(load_answer(reply)))

    def deliver(self, data: bytes) -> bytes:
        """What the server does with a batch."""
        batch = load_batch(data)
        received = self.exchange.accept(batch, load_messages(batch))
        if self.exchange.inbox:
            self._wake()
        return dump_answer(received)


class _Call:
    """Ends once: with its first answer, or when it is over."""

    def __init__(self, transport: FakeTransport, parcel: Parcel) -> None:
        self._transport = transport
        self._parcel: Parcel | None = parcel

    def succeed(self, received: int | None) -> None:
        if self._parcel is not None:
            parcel, self._parcel = self._parcel, None
            transport = self._transport
            transport.exchange.settle(parcel, received, transport._network.now_s)
            transport.pump()

    def fail(self) -> None:
        if self._parcel is not None:
            parcel, self._parcel = self._parcel, None
            transport = self._transport
            transport.exchange.fail(parcel, transport._network.now_s)
            transport.pump()
