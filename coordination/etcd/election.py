"""Who leads: the candidate whose key has the lowest create-revision under the prefix.

    enter ──► waiting for the key right before ours ──gone──► leading ──resign──► out
                 ▲            │
                 └── watch, or the re-read every few seconds (a silent watch proves nothing)

Each candidate waits for its predecessor alone, so a change of leader wakes one and not all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from coordination.errors import LeaseGone
from coordination.etcd.client import (
    Compare,
    Delete,
    EtcdClient,
    KeyValue,
    Put,
    Watch,
    WatchBatch,
    get,
)
from coordination.model import LeaseID, Revision

REREAD_S: Final = 2.0  # how late a lost watch event is noticed


def predecessor(candidates: Iterable[KeyValue], create_revision: Revision) -> KeyValue | None:
    """The candidate right before that one; None: it leads."""
    earlier = (each for each in candidates if each.create_revision < create_revision)
    return max(earlier, key=lambda each: each.create_revision, default=None)


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
        self._key = f"{prefix}{lease:x}"
        self._value = value
        self._wake = wake
        self._lease = lease
        self._revision = Revision(0)
        self._is_in = False
        self._is_woken = False
        self._look_at = float("-inf")
        self._watch: Watch | None = None
        self._watched = ""

    @property
    def key(self) -> str:
        return self._key

    @property
    def revision(self) -> Revision:
        """The create-revision of our key; 0 while it is not there."""
        return self._revision if self._is_in else Revision(0)

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
        if self._revision:
            ours = Compare(self._key, "create", "=", self._revision)
            self._client.txn((ours,), (Delete(self._key),))
        self._revision = Revision(0)
        self._is_in = False

    def close(self) -> None:
        """Look no more; the key goes with the lease."""
        self.leads = False
        self._look_at = float("-inf")
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _enter(self) -> None:
        """Stand in the queue; a place that we have is kept."""
        absent = Compare(self._key, "create", "=", 0)
        self._client.txn((absent,), (Put(self._key, self._value, self._lease),))
        found = get(self._client, self._key)  # a try before this one may have put it
        if found is None:
            raise LeaseGone("our election key went as soon as it was put")
        self._revision = found.create_revision

    def _look(self) -> None:
        if not self._is_in:
            self._enter()
            self._is_in = True
        found = self._client.range(self._prefix, prefix=True)
        if not any(
            (each.key, each.create_revision) == (self._key, self.revision) for each in found.kvs
        ):
            self.close()  # deleted by hand: the lease decides whether we may stand again
            self._is_in = False
            return
        before = predecessor(found.kvs, self.revision)
        self._watch_key(self._key if before is None else before.key, found.revision)
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
