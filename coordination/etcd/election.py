"""Who leads: the candidate whose key has the lowest create-revision under the prefix.

    enter ──► waiting for the key right before ours ──gone──► leading ──resign──► out
                 ▲            │
                 └── watch, or the re-read every few seconds (a silent watch proves nothing)

Each candidate waits for its predecessor alone, so a change of leader wakes one and not all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coordination.errors import LeaseGone
from coordination.etcd.client import (
    Compare,
    Delete,
    EtcdClient,
    KeyValue,
    Put,
    WatchBatch,
    get,
)
from coordination.model import LeaseID, Revision

REREAD_S = 2.0  # how late a lost watch event is noticed


def predecessor(candidates: Iterable[KeyValue], create_revision: Revision) -> KeyValue | None:
    """The candidate right before that one; None: it leads."""
    earlier = (each for each in candidates if each.create_revision < create_revision)
    return max(earlier, key=lambda each: each.create_revision, default=None)


class Election:
    """One candidate's part in it, for as long as its lease lives. Not thread-safe."""

    def __init__(
        self, client: EtcdClient, prefix: str, lease: LeaseID, wake: Callable[[], None]
    ) -> None:
        """`wake` is called from another thread when it is worth looking again."""
        self._client = client
        self._prefix = prefix
        self._key = f"{prefix}{lease:x}"
        self._lease = lease
        self._wake = wake
        self._revision = Revision(0)

    @property
    def revision(self) -> Revision:
        """The create-revision of our key: it ranks owners. 0 before the first `campaign`."""
        return self._revision

    def campaign(self, value: bytes, wait: Callable[[float], None]) -> Revision:
        """Block until we lead; return the create-revision of our key.

        `wait(timeout_s)` returns when woken or when the time is over, and raises to end it all.
        May be called again after ``TryAgain``: our place in the queue is kept.
        """
        self._enter(value)
        while True:
            found = self._client.range(self._prefix, prefix=True)
            if not any(each.key == self._key for each in found.kvs):
                raise LeaseGone("our election key is gone before we won")
            before = predecessor(found.kvs, self._revision)
            if before is None:
                return self._revision
            self._await_deletion(before.key, found.revision, wait)

    def leads(self) -> bool:
        """Whether our key is still there as we put it (it may be deleted by hand)."""
        found = get(self._client, self._key)
        return found is not None and found.create_revision == self._revision

    def watch_own_key(self) -> Callable[[], None]:
        """Wake when our key changes; returns what ends it."""
        start = Revision(self._revision + 1)
        return self._client.watch(self._key, self._woken, start_revision=start).cancel

    def resign(self) -> None:
        """Delete our key, so that the next one leads at once; fine if it is not there."""
        if not self._revision:
            return
        ours = Compare(self._key, "create", "=", self._revision)
        self._client.txn((ours,), (Delete(self._key),))
        self._revision = Revision(0)

    def _enter(self, value: bytes) -> None:
        absent = Compare(self._key, "create", "=", 0)
        self._client.txn((absent,), (Put(self._key, value, self._lease),))
        found = get(self._client, self._key)  # a try before this one may have put it
        if found is None:
            raise LeaseGone("our election key went as soon as it was put")
        self._revision = found.create_revision

    def _await_deletion(self, key: str, revision: Revision, wait: Callable[[float], None]) -> None:
        watch = self._client.watch(key, self._woken, start_revision=Revision(revision + 1))
        try:
            while get(self._client, key) is not None:
                wait(REREAD_S)
        finally:
            watch.cancel()

    def _woken(self, batch: WatchBatch) -> None:
        if batch.missed or batch.events:
            self._wake()
