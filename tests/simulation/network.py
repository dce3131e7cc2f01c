"""What lies between the captures of a simulation: messages, and each one's way to etcd."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from coordination.errors import TryAgain
from coordination.etcd.client import (
    NO_LEASE,
    NOW,
    Compare,
    Keys,
    Lease,
    Op,
    Put,
    RangeResult,
    TxnResult,
    Watch,
    WatchBatch,
)
from coordination.model import CaptureID, LeaseID, Revision
from coordination.scheduler.messages import Heartbeat, Message, decode, encode
from tests.fakes.fake_etcd import FakeEtcd


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
            receiver.inbox.append(decode(data))
            receiver.wake()

    def carry(self, sender: str, message: Message) -> None:
        rng = self.rng
        if rng.random() < self.loss:
            return
        if isinstance(message.body, Heartbeat) and rng.random() < self.bare:
            message = replace(message, body=replace(message.body, barrier=None))
        data = encode(message)
        for _ in range(1 + (rng.random() < self.double)):
            late_s = rng.random() * self.late_s if rng.random() < self.late else 0.0
            at = self.now_s + 0.01 + late_s
            heapq.heappush(self._under_way, (at, next(self._order), sender, message.to, data))


class RawTransport:
    """`Transport` on a RawNetwork."""

    def __init__(self, network: RawNetwork, node: str, wake: Callable[[], None]) -> None:
        self.node = node
        self.wake = wake
        self.inbox: list[Message] = []
        self._network = network
        self._self: CaptureID | None = None

    def set_self(self, capture_id: CaptureID) -> None:
        nodes = self._network.nodes
        if self._self is not None:
            nodes.pop(self._self, None)
        self._self = capture_id
        self.inbox.clear()
        nodes[capture_id] = self

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message.to == self._self:
                self.inbox.append(message)
                self.wake()
            else:
                self._network.carry(self.node, message)

    def receive(self) -> list[Message]:
        inbox, self.inbox = self.inbox, []
        return inbox

    def close(self) -> None:
        if self._self is not None:
            self._network.nodes.pop(self._self, None)


class EtcdLink:
    """One capture's way to etcd: it can be cut, answers get lost, watches are a little late."""

    def __init__(self, etcd: FakeEtcd, rng: random.Random) -> None:
        self.is_cut = False
        self.lost_answers = 0.0
        self.late_watches = 0.3
        self._etcd = etcd
        self._rng = rng
        self._watches: list[_LinkWatch] = []

    def deliver(self) -> None:
        """Let what the watches have arrive, or not yet."""
        if not self.is_cut:
            for watch in self._watches:
                if self._rng.random() >= self.late_watches:
                    watch.deliver()

    def cut(self) -> None:
        self.is_cut = True
        for watch in self._watches:
            watch.disconnect()

    def heal_if_cut(self) -> None:
        if self.is_cut:
            self.is_cut = False
            for watch in self._watches:
                watch.connect()

    def cluster_id(self) -> str:
        self._enter()
        return self._etcd.cluster_id()

    def range(self, key: Keys, *, prefix: bool = False) -> RangeResult:
        self._enter()
        return self._etcd.range(key, prefix=prefix)

    def put(self, key: str, value: bytes, lease: LeaseID = NO_LEASE) -> Revision:
        return self.txn((), (Put(key, value, lease),)).revision

    def txn(
        self, compares: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op] = ()
    ) -> TxnResult:
        self._enter()
        result = self._etcd.txn(compares, then, otherwise)
        self._may_lose_answer()
        return result

    def grant(self, ttl_s: int) -> Lease:
        self._enter()
        lease = self._etcd.grant(ttl_s)
        self._may_lose_answer()
        return lease

    def keep_alive(self, lease: LeaseID, *, timeout_s: float) -> int:
        self._enter()
        return self._etcd.keep_alive(lease, timeout_s=timeout_s)

    def time_to_live(self, lease: LeaseID) -> int:
        self._enter()
        return self._etcd.time_to_live(lease)

    def revoke(self, lease: LeaseID) -> None:
        self._enter()
        self._etcd.revoke(lease)
        self._may_lose_answer()

    def watch(
        self,
        key: Keys,
        callback: Callable[[WatchBatch], None],
        *,
        prefix: bool = False,
        start_revision: Revision = NOW,
    ) -> Watch:
        watch = _LinkWatch(self._etcd, key, prefix, callback, start_revision)
        self._watches = [each for each in self._watches if not each.is_cancelled]
        self._watches.append(watch)
        if not self.is_cut:
            watch.connect()
        return watch

    def close(self) -> None:
        for watch in self._watches:
            watch.cancel()

    def _enter(self) -> None:
        if self.is_cut:
            raise TryAgain("this capture cannot reach etcd")

    def _may_lose_answer(self) -> None:
        if self.lost_answers and self._rng.random() < self.lost_answers:
            raise TryAgain("the answer got lost")


class _LinkWatch:
    """Reconnects from the revision after the last one that it has delivered."""

    def __init__(
        self,
        etcd: FakeEtcd,
        key: Keys,
        prefix: bool,
        callback: Callable[[WatchBatch], None],
        start_revision: Revision,
    ) -> None:
        self.is_cancelled = False
        self._etcd = etcd
        self._key = key
        self._prefix = prefix
        self._callback = callback
        self._next = start_revision
        self._inner: Watch | None = None
        self._queue: list[WatchBatch] = []

    def connect(self) -> None:
        if not self.is_cancelled:
            self._inner = self._etcd.watch(
                self._key, self._queue.append, prefix=self._prefix, start_revision=self._next
            )

    def disconnect(self) -> None:
        self._queue.clear()
        if self._inner is not None:
            self._inner.cancel()
            self._inner = None

    def deliver(self) -> None:
        queue = list(self._queue)
        self._queue.clear()
        for batch in queue:
            if self.is_cancelled:
                return
            for event in batch.events:
                self._next = Revision(max(self._next, event.kv.mod_revision + 1))
            self._callback(batch)

    def cancel(self) -> None:
        self.is_cancelled = True
        self.disconnect()
