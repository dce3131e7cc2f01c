"""A `Transport` in memory: messages are lost, doubled and late by chance, in a time that is set.

They travel as bytes. Without chances it keeps the contract; with them it is harsher."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from coordination.model import CaptureID
from coordination.scheduler.messages import Heartbeat
from coordination.transport.transport import PeerMessage, dump_message, load_message


class FakeNetwork:
    def __init__(self, rng: random.Random, least_s: float = 0.0) -> None:
        """``least_s``: what each message takes."""
        self.loss = self.double = self.late = 0.0
        self.bare = 0.0  # heartbeats that come without their barrier, as TiCDC's may
        self.sees: Callable[[PeerMessage], None] = lambda _: None  # whatever is sent
        self.late_s = 4.0
        self.cuts: set[frozenset[str]] = set()  # pairs of nodes
        self.now_s = 0.0
        self.agents: dict[CaptureID, FakeTransport] = {}
        self.rng = rng
        self._least_s = least_s
        self._under_way: list[tuple[float, int, str, CaptureID, bytes]] = []
        self._order = count()

    def advance_to(self, now_s: float) -> None:
        self.now_s = now_s
        while self._under_way and self._under_way[0][0] <= now_s:
            _, _, node, to, data = heapq.heappop(self._under_way)
            receiver = self.agents.get(to)
            if receiver is not None and frozenset((node, receiver.node)) not in self.cuts:
                receiver.inbox.append(load_message(data))
                receiver.wake()

    def carry(self, node: str, message: PeerMessage) -> None:
        rng = self.rng
        if rng.random() < self.loss:
            return
        if isinstance(message.body, Heartbeat) and rng.random() < self.bare:
            message = replace(message, body=replace(message.body, barrier=None))
        data = dump_message(message)
        for _ in range(1 + (rng.random() < self.double)):
            late_s = rng.random() * self.late_s if rng.random() < self.late else 0.0
            at = self.now_s + self._least_s + late_s
            heapq.heappush(self._under_way, (at, next(self._order), node, message.to, data))


class FakeTransport:
    """`Transport` on a FakeNetwork."""

    def __init__(self, network: FakeNetwork, node: str, wake: Callable[[], None]) -> None:
        self.node = node
        self.wake = wake
        self.inbox: list[PeerMessage] = []
        self._network = network
        self._self: CaptureID | None = None

    def set_self(self, capture_id: CaptureID) -> None:
        self.close()
        self._self = capture_id
        self.inbox.clear()
        self._network.agents[capture_id] = self

    def send(self, messages: Sequence[PeerMessage]) -> None:
        for message in messages:
            if message.sender != self._self:
                continue
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
            self._network.agents.pop(self._self, None)
            self._self = None
