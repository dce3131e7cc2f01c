"""The port to etcd: what the control plane needs of it. `etcd3_client.py` implements it; tests have
a fake.

Keys are text, values are bytes. Every call blocks for a bounded time and raises
  ``TryAgain``       etcd was not reached or did not answer in time; a write may have happened
  ``LeaseGone``      the lease named in the call has expired or was revoked
  ``TidelakeError``  etcd refused the request: the message says what to do
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from coordination.model import LeaseID, Revision

MAX_TXN_OPS = 128  # etcd's default --max-txn-ops
NO_LEASE = LeaseID(0)
NOW = Revision(0)
Keys = str | tuple[str, ...]  # one key or prefix, or several that are read as of one revision


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    key: str
    value: bytes
    create_revision: Revision
    mod_revision: Revision
    lease: LeaseID = NO_LEASE


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeResult:
    """Key-values as of one revision, in the order of their keys."""

    revision: Revision  # of the whole store at that moment: watch from the next one
    kvs: tuple[KeyValue, ...] = ()


@dataclass(frozen=True, slots=True)
class Compare:
    """One condition of a transaction: a key's create- or mod-revision, or its value, equals the
    operand. Both revisions of a key that does not exist are 0."""

    key: str
    target: Literal["create", "mod", "value"]
    operand: int | bytes  # bytes for "value"


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    lease: LeaseID = NO_LEASE


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


Op = Put | Delete


@dataclass(frozen=True, slots=True)
class TxnResult:
    succeeded: bool
    revision: Revision  # of the store after the transaction


@dataclass(frozen=True, slots=True)
class Lease:
    id: LeaseID
    ttl_s: int  # as granted, which may be more than was asked for


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A key was put or deleted. After a deletion the value is empty, and the mod-revision is that
    of the deletion."""

    kind: Literal["put", "delete"]
    kv: KeyValue


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchBatch:
    """The events of one or several revisions. With `missed` the receiver must read all keys again:
    history was compacted, or the stream broke and another etcd may have answered since."""

    events: tuple[WatchEvent, ...] = ()
    missed: bool = False


class Watch(Protocol):
    def cancel(self) -> None:
        """End the watch; idempotent. A callback that is running may still finish afterwards."""
        ...


class EtcdClient(Protocol):
    """A connection to etcd. May be used from any thread."""

    def cluster_id(self) -> str:
        """The ID of the etcd cluster (hex). Revisions of different etcd clusters cannot be
        compared."""
        ...

    def range(self, key: Keys, *, prefix: bool = False) -> RangeResult:
        """Read the key, or with `prefix` all keys that begin with it; linearizable. Several keys
        or prefixes are read as of one revision; none of them may begin with another."""
        ...

    def put(self, key: str, value: bytes, lease: LeaseID = NO_LEASE) -> Revision: ...

    def txn(self, compares: Sequence[Compare], then: Sequence[Op]) -> TxnResult:
        """Do all of `then`, as one revision, if all conditions hold; else nothing."""
        ...

    def grant(self, ttl_s: int) -> Lease: ...

    def keep_alive(self, lease: LeaseID, *, timeout_s: float) -> int:
        """Renew the lease once and return the seconds it has left; 0 if it is gone (no error)."""
        ...

    def revoke(self, lease: LeaseID) -> None:
        """End the lease and delete its keys, in one revision; does nothing if it is gone."""
        ...

    def watch(
        self,
        key: Keys,
        callback: Callable[[WatchBatch], None],
        *,
        prefix: bool = False,
        start_revision: Revision = NOW,
    ) -> Watch:
        """Call `callback` from another thread with all events from `start_revision` on: whole
        revisions, in order, also across several keys.

        Returns at once, also when etcd is down: the watch connects and reconnects by itself. A
        watch without events does not prove that nothing changed, so callers must also read the
        keys again from time to time.
        """
        ...

    def close(self) -> None: ...


def get(client: EtcdClient, key: str) -> KeyValue | None:
    """Read one key; None if it does not exist."""
    return next(iter(client.range(key).kvs), None)


def delete(client: EtcdClient, key: str) -> Revision:
    """Delete one key; no error if it does not exist."""
    return client.txn((), (Delete(key),)).revision


def prefix_end(prefix: str) -> bytes:
    """etcd's `range_end` for a prefix: the first key after all keys that begin with it."""
    end = bytearray(prefix.encode())
    end[-1] += 1  # no byte of UTF-8 is 0xFF
    return bytes(end)
