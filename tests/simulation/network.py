"""What lies between the captures of a simulation: messages."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from coordination.model import CaptureID
from coordination.scheduler.messages import Heartbeat
from coordination.transport.transport import PeerMessage, dump_message, load_message


class RawNetwork:
    """Harsher than a `Transport` may be: single messages are lost, doubled, late, out of order.

    They travel as bytes, but for what a capture tells itself."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.loss = self.double = self.late = 0.0
        self.bare = 0.0  # heartbeats that come without their barrier, as TiCDC's may
        self.late_s = 4.0
        self.cuts: set[frozenset[str]] = set()
        self.now_s = 0.0
        self.nodes: dict[CaptureID, RawTransport] = {}
        self.sees: Callable[[PeerMessage], None] = lambda _: None  # whatever is sent
        self._under_way: list[tuple[float, int, str, CaptureID, bytes]] = []
        self._order = count()

    def transport(self, node: str, wake: Callable[[], None]) -> RawTransport:
        return RawTransport(self, node, wake)

    def advance_to(self, now_s: float) -> None:
        self.now_s = now_s
        while self._under_way and self._under_way[0][0] <= now_s:
            _, _, sender, to, data = heapq.heappop(self._under_way)
            receiver = self.nodes.get(to)
            if receiver is None or frozenset((sender, receiver.node)) in self.cuts:
                continue
            receiver.inbox.append(load_message(data))
            receiver.wake()

    def carry(self, sender: str, message: PeerMessage) -> None:
        rng = self.rng
        if rng.random() < self.loss:
            return
        if isinstance(message.body, Heartbeat) and rng.random() < self.bare:
            message = replace(message, body=replace(message.body, barrier=None))
        data = dump_message(message)
        for _ in range(1 + (rng.random() < self.double)):
            late_s = rng.random() * self.late_s if rng.random() < self.late else 0.0
            at = self.now_s + 0.01 + late_s
            heapq.heappush(self._under_way, (at, next(self._order), sender, message.to, data))


class RawTransport:
    """`Transport` on a RawNetwork."""

    def __init__(self, network: RawNetwork, node: str, wake: Callable[[], None]) -> None:
        self.node = node
        self.wake = wake
        self.inbox: list[PeerMessage] = []
        self._network = network
        self._self: CaptureID | None = None

    def set_self(self, capture_id: CaptureID) -> None:
        nodes = self._network.nodes
        if self._self is not None:
            nodes.pop(self._self, None)
        self._self = capture_id
        self.inbox.clear()
        nodes[capture_id] = self

    def send(self, messages: Sequence[PeerMessage]) -> None:
        for message in messages:
            self._network.sees(message)
            if message.to == self._self:
                self.inbox.append(message)
                self.wake()
            else:
                self._network.carry(self.node, message)

    def receive(self) -> list[PeerMessage]:
        inbox, self.inbox = self.inbox, []
        return inbox

    def close(self) -> None:
        if self._self is not None:
            self._network.nodes.pop(self._self, None)
