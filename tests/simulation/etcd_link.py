"""One capture's way to etcd: it can be cut, watches are a little late, and answers get lost: of
what was done, of what is done later, and of what never is."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from coordination.errors import LeaseGone, TryAgain
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
from coordination.model import LeaseID, Revision
from tests.fakes.fake_etcd import FakeEtcd
from tests.fakes.fake_warehouse import require

ALL = 1000  # batches of a watch
LATE_S = 6.0  # a transaction is under way no longer than that


@dataclass(frozen=True)
class Sender:
    """A worker at the moment when it sends a transaction. ``depends_on``: what its reactor went
    by; ``ticks`` of the reactor until then."""

    worker: object
    depends_on: tuple[Compare, ...]
    ticks: int


@dataclass(frozen=True)
class _UnderWay:
    lands_at: float
    compares: tuple[Compare, ...]
    then: tuple[Op, ...]
    sender: Sender | None


class EtcdLink:
    def __init__(
        self, etcd: FakeEtcd, rng: random.Random, now: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.is_cut = False
        self.lost_answers = 0.0
        self.late_watches = 0.3
        self.sender: Sender | None = None  # of the next transaction
        self.ticks: dict[object, int] = {}  # of reactors, by worker
        self._etcd = etcd
        self._rng = rng
        self._now = now
        self._watches: list[_LinkWatch] = []
        self._under_way: list[_UnderWay] = []

    def deliver(self) -> None:
        """Let what the watches have arrive, or not yet."""
        if not self.is_cut:
            for watch in self._watches:
                if self._rng.random() >= self.late_watches:
                    watch.deliver(self._rng.choice((1, 2, ALL, ALL)))

    def land(self, *, at_once: bool = False) -> None:
        """What nobody waits for any more is done, whatever has become of its sender."""
        due = [each for each in self._under_way if at_once or each.lands_at <= self._now()]
        self._under_way = [each for each in self._under_way if each not in due]
        for each in due:
            with suppress(TryAgain, LeaseGone):
                result = self._do(each.compares, each.then, each.sender)
                if each.sender is not None and result.succeeded:
                    require(
                        self.ticks.get(each.sender.worker, 0) == each.sender.ticks,
                        "a transaction takes effect after its reactor was asked again without it",
                    )

    def cut(self) -> None:
        self.is_cut = True
        for watch in self._watches:
            watch.disconnect()

    def heal_if_cut(self) -> None:
        if self.is_cut:
            self.is_cut = False
            for watch in self._watches:
                watch.connect()

    def break_off(self) -> None:
        """Another etcd is there: what was under way is lost, and watches are made again."""
        self._under_way.clear()
        if not self.is_cut:
            self.cut()
            self.heal_if_cut()

    def cluster_id(self) -> str:
        self._enter()
        return self._etcd.cluster_id()

    def range(self, key: Keys, *, prefix: bool = False) -> RangeResult:
        self._enter()
        return self._etcd.range(key, prefix=prefix)

    def put(self, key: str, value: bytes, lease: LeaseID = NO_LEASE) -> Revision:
        return self.txn((), (Put(key, value, lease),)).revision

    def txn(self, compares: Sequence[Compare], then: Sequence[Op]) -> TxnResult:
        self._enter()
        asked = (tuple(compares), tuple(then), self.sender)
        if not self._is_lost():
            return self._do(*asked)
        fate = self._rng.choice(("done", "late", "late", "never"))
        if fate == "done":
            self._do(*asked)
        elif fate == "late":
            self._under_way.append(_UnderWay(self._now() + self._rng.random() * LATE_S, *asked))
        raise TryAgain("the answer got lost")

    def grant(self, ttl_s: int) -> Lease:
        self._enter()
        lease = self._etcd.grant(ttl_s)
        self._may_lose_answer()
        return lease

    def keep_alive(self, lease: LeaseID, *, timeout_s: float) -> int:
        self._enter()
        return self._etcd.keep_alive(lease, timeout_s=timeout_s)

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

    def _do(
        self,
        compares: tuple[Compare, ...],
        then: tuple[Op, ...],
        sender: Sender | None,
    ) -> TxnResult:
        depends_on = sender.depends_on if sender is not None else ()
        passed = [each.key for each in depends_on if not self._etcd.holds(each)]
        result = self._etcd.txn(compares, then)
        require(
            not (result.succeeded and passed),
            f"I8: a transaction takes effect though what it depends on has changed: {passed}",
        )
        return result

    def _enter(self) -> None:
        if self.is_cut:
            raise TryAgain("this capture cannot reach etcd")

    def _is_lost(self) -> bool:
        return bool(self.lost_answers) and self._rng.random() < self.lost_answers

    def _may_lose_answer(self) -> None:
        if self._is_lost():
            raise TryAgain("the answer got lost")


class _LinkWatch:
    """Reconnects from the revision after the last one that it has delivered, and says so."""

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
        self._is_remade = False
        self._inner: Watch | None = None
        self._queue: list[WatchBatch] = []

    def connect(self) -> None:
        if not self.is_cancelled:
            if self._is_remade:
                self._queue.append(WatchBatch(missed=True))
            self._is_remade = True
            self._inner = self._etcd.watch(
                self._key, self._queue.append, prefix=self._prefix, start_revision=self._next
            )

    def disconnect(self) -> None:
        self._queue.clear()
        if self._inner is not None:
            self._inner.cancel()
            self._inner = None

    def deliver(self, most: int) -> None:
        queue = self._queue[:most]
        del self._queue[:most]
        for batch in queue:
            if self.is_cancelled:
                return
            for event in batch.events:
                self._next = Revision(max(self._next, event.kv.mod_revision + 1))
            self._callback(batch)

    def cancel(self) -> None:
        self.is_cancelled = True
        self.disconnect()
