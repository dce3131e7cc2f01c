"""An election: the candidate whose key has the lowest create-revision under the prefix leads.

    enter ──► waiting for the key right before ours ──gone──► leading ──resign──► out
                 ▲            │
                 └── watch, or the re-read every few seconds (a silent watch proves nothing)

Each candidate watches only the key right before its own, so a change of leader wakes one candidate
and not all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from coordination.errors import LeaseGone
from coordination.etcd.client import Compare, Delete, EtcdClient, Put, Watch, WatchBatch, get
from coordination.model import LeaseID, Revision

REREAD_S: Final = 2.0  # a lost watch event is noticed after at most this long


class Candidate:
    """One candidate in an election, for as long as its lease lives. Its owner calls `campaign` in
    a loop; that asks etcd only when the watch fired or the re-read is due. Used by one thread.

    out ──enter──► waiting ──nobody before us──► leading ──our key gone──► out, and in again
    """

    def __init__(
        self,
        client: EtcdClient,
        prefix: str,
        lease: LeaseID,
        value: bytes,
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called from the watch's thread when `campaign` should be called soon."""
        self.leads = False
        self._client = client
        self._prefix = prefix
        self.key = f"{prefix}{lease:x}"
        self.revision = Revision(0)  # the create-revision of our key; 0 while it is not there
        self._value = value
        self._wake = wake
        self._lease = lease
        self._is_woken = False
        self._look_at = float("-inf")
        self._watch: Watch | None = None
        self._watched = ""

    def campaign(self, now: float) -> float:
        """Ask etcd if that is due, and return the seconds until the next time. `now`: monotonic
        seconds. Raises ``TryAgain`` (what was known stays as it is) and ``LeaseGone``."""
        if self._is_woken or now >= self._look_at:
            self._is_woken = False
            self._look_at = now + REREAD_S
            self._look()
        return max(0.0, self._look_at - now)

    def resign(self) -> None:
        """Delete our key. The next `campaign` enters the queue again, at its end."""
        self.close()
        if self.revision:
            ours = Compare(self.key, "create", self.revision)
            self._client.txn((ours,), (Delete(self.key),))
        self.revision = Revision(0)

    def close(self) -> None:
        """Stop leading and watching; our key stays until its lease ends."""
        self.leads = False
        self._look_at = float("-inf")
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _enter(self) -> None:
        """Put our key, unless it exists already: a key that is put anew would lose its place in
        the queue. Raises ``LeaseGone``."""
        absent = Compare(self.key, "create", 0)
        self._client.txn((absent,), (Put(self.key, self._value, self._lease),))
        found = get(self._client, self.key)  # an earlier try without an answer may have put it
        if found is None:
            raise LeaseGone("our election key went as soon as it was put")
        self.revision = found.create_revision

    def _look(self) -> None:
        if not self.revision:
            self._enter()
        found = self._client.range(self._prefix, prefix=True)
        if (self.key, self.revision) not in [(kv.key, kv.create_revision) for kv in found.kvs]:
            self.close()  # our key was deleted by hand; if the lease lives, we enter again
            self.revision = Revision(0)
            return
        earlier = (kv for kv in found.kvs if kv.create_revision < self.revision)
        before = max(earlier, key=lambda kv: kv.create_revision, default=None)
        self._watch_key(self.key if before is None else before.key, found.revision)
        self.leads = before is None

    def _watch_key(self, key: str, seen: Revision) -> None:
        if self._watch is not None and key == self._watched:
            return
        if self._watch is not None:
            self._watch.cancel()
        self._watched = key
        self._watch = self._client.watch(key, self._woken, start_revision=Revision(seen + 1))

    def _woken(self, batch: WatchBatch) -> None:
        if batch.missed or batch.events:
            self._is_woken = True
            self._wake()
