"""Merge the events of several watches on one stream into whole revisions. Pure.

    watch of /tidb/cdc/x/   5 ──── 7 ─────── 9      an event is held until every watch has sent
    watch of /tidelake/x/   5 ───────── 8           all up to its revision: 5, then 7 and 8, …
    progress                               9        … and 9 when etcd reports progress up to 9

etcd sends the events of one watch in order and whole revisions at a time, but does not order the
events of two watches. A transaction that wrote under both prefixes must not be seen by half.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordination.etcd.client import WatchEvent
from coordination.model import Revision


class WholeRevisions:
    """Holds back the events of one stream with so many watches until their revision is complete."""

    def __init__(self, watches: int) -> None:
        self._watches = watches
        self._known: dict[int, Revision] = {}  # watch ID -> it has sent all events up to there
        self._held: list[WatchEvent] = []
        self._delivered = Revision(0)

    @property
    def is_waiting(self) -> bool:
        """Whether events are held back; then the caller should ask etcd for progress."""
        return bool(self._held)

    def created(self, watch_id: int, before: Revision) -> None:
        """The watch was created, and will send the events after revision `before`."""
        self._known[watch_id] = before

    def progress(self, watch_id: int, revision: Revision) -> None:
        """The watch has sent all events up to the revision; with an ID that no watch has, all
        watches have."""
        for each in [watch_id] if watch_id in self._known else self._known:
            self._known[each] = max(self._known[each], revision)

    def add(self, watch_id: int, events: Sequence[WatchEvent]) -> bool:
        """Add the events that a watch sent. Returns False if a revision of theirs was delivered
        already, without them: etcd before 3.4.25 and 3.5.8 may report progress too early."""
        if events[0].kv.mod_revision <= self._delivered:
            return False
        self._held += events
        self.progress(watch_id, events[-1].kv.mod_revision)
        return True

    def take(self) -> tuple[WatchEvent, ...]:
        """Take out the events of all revisions that are complete by now, in order."""
        if len(self._known) < self._watches:
            return ()
        upto = min(self._known.values())
        ready = [each for each in self._held if each.kv.mod_revision <= upto]
        if not ready:
            return ()
        self._held = [each for each in self._held if each.kv.mod_revision > upto]
        ready.sort(key=lambda each: each.kv.mod_revision)
        self._delivered = ready[-1].kv.mod_revision
        return tuple(ready)
