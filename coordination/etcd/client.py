"""What control needs of etcd, in its own words. `etcd3_client.py` implements it; tests have a fake.

Keys are text, values are bytes. Every call is bounded in time and raises
  ``TryAgain``       etcd was not reached or did not answer in time; a write may have happened
  ``LeaseGone``      the lease named in the call has expired or was revoked
  ``TidelakeError``  etcd refused: the message says what to do
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from coordination.model import LeaseID, Revision

MAX_TXN_OPS = 128  # etcd's default --max-txn-ops
NO_LEASE = LeaseID(0)
NOW = Revision(0)
Keys = str | tuple[str, ...]  # one, or several that are looked at as one


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    key: str
    value: bytes
    create_revision: Revision
    mod_revision: Revision
    lease: LeaseID = NO_LEASE


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeResult:
    """Key-values of one moment, in the order of their keys."""

    revision: Revision  # of the whole store at that moment: watch from the next one
    kvs: tuple[KeyValue, ...] = ()


@dataclass(frozen=True, slots=True)
class Compare:
    """One condition of a transaction: that a key's revision, or its value, is this one. A key that
    does not exist has revisions 0."""

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
    ttl_s: int  # as granted: etcd may give more than was asked for


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A key was put, or deleted (then the value is empty and mod_revision that of the deletion)."""

    kind: Literal["put", "delete"]
    kv: KeyValue


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchBatch:
    """What happened in one revision or several; `missed`: read again, history was compacted, or the
    stream broke and etcd may be another one."""

    revision: Revision
    events: tuple[WatchEvent, ...] = ()
    missed: bool = False


class Watch(Protocol):
    def cancel(self) -> None:
        """End it; idempotent. A callback that is under way may still finish."""
        ...


class EtcdClient(Protocol):
    """Thread-safe."""

    def cluster_id(self) -> str:
        """What etcd calls itself (hex): another one counts its revisions anew."""
        ...

    def range(self, key: Keys, *, prefix: bool = False) -> RangeResult:
        """The key, or all keys that begin with it; linearizable. Several: as of one moment (none
        may begin with another)."""
        ...

    def put(self, key: str, value: bytes, lease: LeaseID = NO_LEASE) -> Revision: ...

    def txn(self, compares: Sequence[Compare], then: Sequence[Op]) -> TxnResult:
        """Do `then` if all conditions hold, as one revision."""
        ...

    def grant(self, ttl_s: int) -> Lease: ...

    def keep_alive(self, lease: LeaseID, *, timeout_s: float) -> int:
        """Renew it once and return the seconds it now has; 0 if it is gone (not an error)."""
        ...

    def revoke(self, lease: LeaseID) -> None:
        """End it and delete its keys, in one revision; nothing if it is gone already."""
        ...

    def watch(
        self,
        key: Keys,
        callback: Callable[[WatchBatch], None],
        *,
        prefix: bool = False,
        start_revision: Revision = NOW,
    ) -> Watch:
        """Call back from another thread with what happens from that revision on: whole revisions,
        in order, also of several keys.

        Returns at once, also when etcd is down: it connects, and connects again, by itself. Silence
        proves nothing, so callers also read again from time to time.
        """
        ...

    def close(self) -> None: ...


def get(client: EtcdClient, key: str) -> KeyValue | None:
    """The one key, if it is there."""
    return next(iter(client.range(key).kvs), None)


def delete(client: EtcdClient, key: str) -> Revision:
    """Delete the one key; fine if it is not there."""
    return client.txn((), (Delete(key),)).revision


def prefix_end(prefix: str) -> bytes:
    """The first key after all keys that begin with the prefix, as etcd's `range_end`."""
    end = bytearray(prefix.encode())
    while end and end[-1] == 0xFF:
        end.pop()
    if not end:
        return b"\0"  # etcd: up to the last key
    end[-1] += 1
    return bytes(end)
