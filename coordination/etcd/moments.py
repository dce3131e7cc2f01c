"""Whole moments out of several watches on one stream. Pure.

    watch of /tidb/cdc/x/   5 ──── 7 ─────── 9      held until every watch is known to have told
    watch of /tidelake/x/   5 ───────── 8           all up to there: 5, then 7 and 8, …
    progress                               9        … and with etcd's word that all is told, 9

etcd tells the events of one watch in order, whole revisions at a time, but promises nothing of two
of them. A transaction that wrote under both prefixes must not be seen by half.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordination.etcd.client import WatchEvent
from coordination.model import Revision


class Moments:
    """Of one stream with so many watches."""

    def __init__(self, watches: int) -> None:
        self._watches = watches
        self._known: dict[int, Revision] = {}  # watch ID -> it has told all up to there
        self._held: list[WatchEvent] = []
        self._delivered = Revision(0)

    @property
    def is_waiting(self) -> bool:
        """Whether events are held back: ask for progress."""
        return bool(self._held)

    def created(self, watch_id: int, before: Revision) -> None:
        """It tells what came after that revision."""
        self._known[watch_id] = before

    def progress(self, watch_id: int, revision: Revision) -> None:
        """All up to there was told, of that watch, or of all of them if it is none's ID."""
        for each in [watch_id] if watch_id in self._known else self._known:
            self._known[each] = max(self._known[each], revision)

    def add(self, watch_id: int, events: Sequence[WatchEvent]) -> bool:
        """False if they belong to a revision that was delivered without them: some versions of
        etcd (before 3.4.25 and 3.5.8) speak of progress too early."""
        if events[0].kv.mod_revision <= self._delivered:
            return False
        self._held += events
        self.progress(watch_id, events[-1].kv.mod_revision)
        return True

    def take(self) -> tuple[WatchEvent, ...]:
        """What is complete by now, in order."""
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
