"""A whole etcd in memory: revisions, leases on a clock, watches with history and compaction.

It passes the same contract suite as the real one, limits of a transaction included. Callbacks of
watches run in the thread that writes, after the write. `down` makes every call fail as an
unreachable server does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from coordination.errors import LeaseGone, TidelakeError, TryAgain
from coordination.etcd.client import (
    MAX_TXN_OPS,
    NO_LEASE,
    NOW,
    Compare,
    Delete,
    Keys,
    KeyValue,
    Lease,
    Op,
    Put,
    RangeResult,
    TxnResult,
    WatchBatch,
    WatchEvent,
)
from coordination.model import LeaseID, Revision
from coordination.trust.clock import Clock

Callback = Callable[[WatchBatch], None]
Delivery = tuple[Callback, WatchBatch]


@dataclass
class _Lease:
    ttl_s: int
    ends_at: float
    keys: set[str] = field(default_factory=set)


@dataclass(eq=False)
class _Watch:
    etcd: FakeEtcd
    key: Keys
    prefix: bool
    callback: Callback
    start: Revision

    def cancel(self) -> None:
        self.etcd.watches.discard(self)

    def wants(self, event: WatchEvent) -> bool:
        is_due = event.kv.mod_revision >= self.start
        return is_due and _is_of(event.kv.key, self.key, self.prefix)


class FakeEtcd:
    def __init__(
        self, clock: Clock, cluster_id: str = "f1", max_txn_ops: int = MAX_TXN_OPS
    ) -> None:
        self.down = False
        self._max_txn_ops = max_txn_ops
        self.watches: set[_Watch] = set()
        self._clock = clock
        self._cluster_id = cluster_id
        self._lock = threading.RLock()
        self._revision = 1
        self._compacted = 0
        self._kvs: dict[str, KeyValue] = {}
        self._history: list[WatchEvent] = []
        self._leases: dict[int, _Lease] = {}
        self._last_lease = 0x694D

    def cluster_id(self) -> str:
        self._enter()
        return self._cluster_id

    def range(self, key: Keys, *, prefix: bool = False) -> RangeResult:
        self._enter()
        with self._lock:
            found = sorted(k for k in self._kvs if _is_of(k, key, prefix))
            return RangeResult(
                revision=Revision(self._revision), kvs=tuple(self._kvs[each] for each in found)
            )

    def put(self, key: str, value: bytes, lease: LeaseID = NO_LEASE) -> Revision:
        return self.txn((), (Put(key, value, lease),)).revision

    def txn(self, compares: Sequence[Compare], then: Sequence[Op]) -> TxnResult:
        self._enter()
        if max(len(compares), len(then)) > self._max_txn_ops:
            raise TidelakeError("etcdserver: too many operations in txn request")
        with self._lock:
            succeeded = all(self.holds(compare) for compare in compares)
            deliveries = self._write(then if succeeded else ())
            result = TxnResult(succeeded, Revision(self._revision))
        _deliver(deliveries)
        return result

    def grant(self, ttl_s: int) -> Lease:
        self._enter()
        with self._lock:
            self._last_lease += 1
            self._leases[self._last_lease] = _Lease(ttl_s, self._clock.monotonic() + ttl_s)
            return Lease(LeaseID(self._last_lease), ttl_s)

    def keep_alive(self, lease: LeaseID, *, timeout_s: float) -> int:  # noqa: ARG002 - the port's
        self._enter()
        with self._lock:
            found = self._leases.get(lease)
            if found is None:
                return 0
            found.ends_at = self._clock.monotonic() + found.ttl_s
            return found.ttl_s

    def time_to_live(self, lease: LeaseID) -> int:
        self._enter()
        with self._lock:
            found = self._leases.get(lease)
            return -1 if found is None else int(found.ends_at - self._clock.monotonic())

    def revoke(self, lease: LeaseID) -> None:
        self._enter()
        self._end_lease(lease)

    def watch(
        self,
        key: Keys,
        callback: Callback,
        *,
        prefix: bool = False,
        start_revision: Revision = NOW,
    ) -> _Watch:
        watch = _Watch(self, key, prefix, callback, start_revision)
        with self._lock:
            deliveries: list[Delivery] = []
            if start_revision and start_revision <= self._compacted:
                missed = WatchBatch(missed=True)
                deliveries.append((callback, missed))
            if start_revision:
                start = max(start_revision, self._compacted)
                old = [each for each in self._history if each.kv.mod_revision >= start]
                deliveries += self._batches(watch, old)
            self.watches.add(watch)
        _deliver(deliveries)
        return watch

    def compact(self, revision: Revision) -> None:
        with self._lock:
            self._compacted = revision
            self._history = [each for each in self._history if each.kv.mod_revision >= revision]

    def back_up(self) -> Callable[[], None]:
        """What it gives puts everything back to where it is now, and breaks all watches."""
        with self._lock:
            revision, kvs, history = self._revision, dict(self._kvs), list(self._history)
            leases = {lease: (each.ttl_s, set(each.keys)) for lease, each in self._leases.items()}

        def restore() -> None:
            now = self._clock.monotonic()
            with self._lock:
                self._revision, self._kvs, self._history = revision, kvs, history
                self._compacted = min(self._compacted, revision)
                self._leases = {
                    lease: _Lease(ttl_s, now + ttl_s, held)
                    for lease, (ttl_s, held) in leases.items()
                }
                self.watches.clear()

        return restore

    def expire_leases(self) -> None:
        """Done by every call as well; for when nobody calls."""
        now = self._clock.monotonic()
        with self._lock:
            over = [lease for lease, each in self._leases.items() if each.ends_at <= now]
        for lease in over:
            self._end_lease(LeaseID(lease))

    def close(self) -> None:
        self.watches.clear()

    def _enter(self) -> None:
        if self.down:
            raise TryAgain("the fake etcd is down")
        self.expire_leases()

    def _end_lease(self, lease: LeaseID) -> None:
        with self._lock:
            found = self._leases.pop(lease, None)
            deliveries = self._write([Delete(key) for key in sorted(found.keys)]) if found else []
        _deliver(deliveries)

    def holds(self, compare: Compare) -> bool:
        kv = self._kvs.get(compare.key)
        if compare.target == "value":
            return kv is not None and kv.value == compare.operand  # as etcd: absent is not empty
        revision: int = getattr(kv, f"{compare.target}_revision") if kv else 0
        return revision == compare.operand

    def _write(self, ops: Sequence[Op]) -> list[Delivery]:
        for op in ops:
            if isinstance(op, Put) and op.lease and op.lease not in self._leases:
                raise LeaseGone("the lease has expired or was revoked")
        revision = Revision(self._revision + 1)
        events = [event for op in ops for event in self._apply(op, revision)]
        if not events:
            return []
        self._revision = revision
        self._history += events
        return [each for watch in tuple(self.watches) for each in self._batches(watch, events)]

    def _apply(self, op: Op, revision: Revision) -> list[WatchEvent]:
        before = self._kvs.get(op.key)
        if before is not None and before.lease in self._leases:
            self._leases[before.lease].keys.discard(op.key)
        if isinstance(op, Put):
            created = before.create_revision if before else revision
            kv = KeyValue(
                key=op.key,
                value=op.value,
                create_revision=created,
                mod_revision=revision,
                lease=op.lease,
            )
            if op.lease:
                self._leases[op.lease].keys.add(op.key)
            self._kvs[op.key] = kv
            return [WatchEvent("put", kv)]
        if before is None:
            return []
        del self._kvs[op.key]
        gone = replace(before, value=b"", create_revision=Revision(0), mod_revision=revision)
        return [WatchEvent("delete", replace(gone, lease=NO_LEASE))]

    def _batches(self, watch: _Watch, events: Sequence[WatchEvent]) -> list[Delivery]:
        wanted = tuple(each for each in events if watch.wants(each))
        if not wanted:
            return []
        batch = WatchBatch(events=wanted)
        return [(watch.callback, batch)]


def _deliver(deliveries: Sequence[Delivery]) -> None:
    for callback, batch in deliveries:
        callback(batch)


def _is_of(key: str, wanted: Keys, prefix: bool) -> bool:
    if prefix:
        return key.startswith(wanted)
    return key == wanted if isinstance(wanted, str) else key in wanted
