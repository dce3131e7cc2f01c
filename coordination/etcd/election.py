"""Who leads: the candidate whose key has the lowest create-revision under the prefix.

    enter ──► waiting for the key right before ours ──gone──► leading ──resign──► out
                 ▲            │
                 └── watch, or the re-read every few seconds (a silent watch proves nothing)

Each candidate waits for its predecessor alone, so a change of leader wakes one and not all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from coordination.errors import LeaseGone
from coordination.etcd.client import (
    Compare,
    Delete,
    EtcdClient,
    Put,
    Watch,
    WatchBatch,
    get,
)
from coordination.model import LeaseID, Revision

REREAD_S: Final = 2.0  # how late a lost watch event is noticed


class Candidate:
    """One candidate's part in it, for as long as its lease lives; `campaign` looks when it is worth
    while. One thread.

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
        """`wake` is called from another thread when a pass is worth while."""
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
        """The seconds until the next look. Raises ``TryAgain`` (what was known stays), and
        ``LeaseGone``."""
        if self._is_woken or now >= self._look_at:
            self._is_woken = False
            self._look_at = now + REREAD_S
            self._look()
        return max(0.0, self._look_at - now)

    def resign(self) -> None:
        """Leave the queue; the next `campaign` enters it again, at its end."""
        self.close()
        if self.revision:
            ours = Compare(self.key, "create", self.revision)
            self._client.txn((ours,), (Delete(self.key),))
        self.revision = Revision(0)

    def close(self) -> None:
        """Look no more; the key goes with the lease."""
        self.leads = False
        self._look_at = float("-inf")
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _enter(self) -> None:
        """Stand in the queue; a place that we have is kept."""
        absent = Compare(self.key, "create", 0)
        self._client.txn((absent,), (Put(self.key, self._value, self._lease),))
        found = get(self._client, self.key)  # a try before this one may have put it
        if found is None:
            raise LeaseGone("our election key went as soon as it was put")
        self.revision = found.create_revision

    def _look(self) -> None:
        if not self.revision:
            self._enter()
        found = self._client.range(self._prefix, prefix=True)
        if (self.key, self.revision) not in [(kv.key, kv.create_revision) for kv in found.kvs]:
            self.close()  # deleted by hand: the lease decides whether we may stand again
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
