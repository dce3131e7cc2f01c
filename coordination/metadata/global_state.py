"""The whole cluster as etcd has it: captures, changefeeds, candidates of the election.

    capture's key:   put ──► alive ──deleted──► gone, still counted ──grace over──► removed
                               ▲                      │
                               └──────── put ◄────────┘

During the grace a capture may come back without losing its spans, and a write that a dead capture
began has time to end (`coordination/trust/deadline.py`). The grace is counted from the first tick
after the deletion was seen.
"""

from __future__ import annotations

import logging

from coordination.etcd import keys
from coordination.etcd.client import KeyValue
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.changefeed_state import ChangefeedReactorState
from coordination.metadata.errors import BrokenValue
from coordination.model import CaptureID, CaptureInfo, LeaseID
from coordination.orchestrator.transaction import PatchGroup
from coordination.trust import deadline

logger = logging.getLogger(__name__)


class GlobalReactorState:
    """The state that a capture's reactors work on; belongs to one thread. A value that cannot be
    read must not end the cluster's work (TiCDC's worker ends): the last good value counts."""

    def __init__(self, cluster_id: str, *, removal_grace_s: float) -> None:
        self.candidates: set[LeaseID] = set()  # captures that stand for election as controller
        self.captures: dict[CaptureID, CaptureInfo] = {}  # with those that are in their grace
        self.changefeeds: dict[ChangefeedName, ChangefeedReactorState] = {}
        self._cluster_id = cluster_id
        self._grace_s = removal_grace_s
        self._gone_at: dict[CaptureID, float | None] = {}  # None: deleted since the last tick
        self._began_at: float | None = None
        self._groups: list[PatchGroup] = []

    def update(self, key: str, kv: KeyValue | None) -> None:
        """Take over a key (`kv` None: it was deleted). Keys of other clusters are ignored."""
        parsed = keys.parse_key(self._cluster_id, key)
        if parsed is None:
            return
        try:
            if parsed.name is not None:
                self._update_changefeed(parsed.name, key, parsed, kv)
            elif parsed.kind is keys.KeyKind.CAPTURE:
                self._update_capture(parsed.capture_id, kv)
            elif kv is None:
                self.candidates.discard(parsed.lease)
            else:
                self.candidates.add(parsed.lease)
        except (BrokenValue, ValueError, KeyError, TypeError) as error:
            logger.warning("a value in etcd is not understood key=%s: %s", key, error)

    def update_pending_change(self, now_s: float) -> None:
        """Remove the captures whose grace is over. `now_s` is on the monotonic clock."""
        if self._began_at is None:
            self._began_at = now_s
        for capture_id, gone_at in sorted(self._gone_at.items()):
            if gone_at is None:
                self._gone_at[capture_id] = now_s
            elif deadline.is_given_away(gone_at, self._grace_s, now_s):
                del self._gone_at[capture_id]
                del self.captures[capture_id]

    def take_patches(self) -> list[PatchGroup]:
        groups, self._groups = self._groups, []
        for _, changefeed in sorted(self.changefeeds.items()):
            groups += changefeed.take_patches()
        return groups

    def add_group(self, *groups: PatchGroup) -> None:
        """As ``ChangefeedReactorState.add_group``; these are written before the changefeeds'."""
        self._groups += groups

    def is_gone(self, capture_id: CaptureID) -> bool:
        """Whether the capture's key is gone, even if its grace is not over: it must be given no new
        work."""
        return capture_id in self._gone_at or capture_id not in self.captures

    def owned_by(self, capture_id: CaptureID) -> list[ChangefeedReactorState]:
        """The changefeeds that the capture owns, also those that it has been told to stop."""
        return [
            each
            for each in self.changefeeds.values()
            if each.info is not None
            and each.schedule is not None
            and each.schedule.owner == capture_id
        ]

    def knows_the_dead(self, now_s: float) -> bool:
        """Whether the grace is over for every capture that died before this state was first ticked.

        Until then a new owner must not assign spans that no living capture reports: a capture that
        had one may have died just before, and may still be writing.
        """
        began_at = self._began_at
        return began_at is not None and deadline.is_given_away(began_at, self._grace_s, now_s)

    def is_settled(self, now_s: float) -> bool:
        """Whether no capture's grace is running."""
        return not self._gone_at and self.knows_the_dead(now_s)

    def remove_stale_positions(self) -> None:
        """Have the reports deleted of captures whose grace is over and of deleted changefeeds."""
        for _, changefeed in sorted(self.changefeeds.items()):
            changefeed.remove_stale_positions(self.captures)

    def _update_changefeed(
        self, name: ChangefeedName, key: str, parsed: keys.ParsedKey, kv: KeyValue | None
    ) -> None:
        changefeed = self.changefeeds.get(name)
        if changefeed is None:
            changefeed = self.changefeeds[name] = ChangefeedReactorState(self._cluster_id, name)
        try:
            changefeed.update(key, parsed, kv)
        finally:
            if changefeed.is_empty:
                del self.changefeeds[name]

    def _update_capture(self, capture_id: CaptureID, kv: KeyValue | None) -> None:
        if kv is None:
            if capture_id in self.captures:
                self._gone_at.setdefault(capture_id, None)
            return
        self.captures[capture_id] = keys.load_capture_info(kv.value)
        self._gone_at.pop(capture_id, None)
