"""The whole cluster as etcd has it: captures, changefeeds, upstreams, who leads.

    capture's key:   put ──► alive ──deleted──► gone, still counted ──grace over──► removed (hook)
                               ▲                      │
                               └──────── put ◄────────┘

The grace absorbs a quick return, and gives a write that the dead capture began time to end
(`coordination/deadline.py`). It is counted from the first tick after the deletion was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

from coordination import deadline
from coordination.etcd import keys
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.changefeed_state import ChangefeedReactorState
from coordination.metadata.errors import BrokenValue
from coordination.metadata.model import (
    CaptureProgress,
    UpstreamInfo,
    load,
    load_progress,
)
from coordination.metadata.record_patch import unless_refused
from coordination.model import CaptureID, CaptureInfo, LeaseID
from coordination.orchestrator.patch import PatchGroup
from coordination.orchestrator.reactor import Update

K = TypeVar("K")
V = TypeVar("V")


class Role(StrEnum):
    """Whose state it is."""

    OWNER = "owner"
    PROCESSOR = "processor"


class GlobalReactorState:
    """Of one thread. `broken` has keys whose values nobody understands, with the reason: one bad
    value must not end the cluster's work (TiCDC's worker ends)."""

    def __init__(
        self,
        cluster_id: str,
        *,
        role: Role,
        removal_grace_s: float,
        on_capture_added: Callable[[CaptureID, str], None] = lambda _id, _address: None,
        on_capture_removed: Callable[[CaptureID], None] = lambda _id: None,
    ) -> None:
        """`on_capture_added` gets the address too, and is called again if that changes."""
        self.role = role
        self.candidates: dict[LeaseID, CaptureID] = {}  # for controller
        self.captures: dict[CaptureID, CaptureInfo] = {}  # those within their grace too
        self.capture_progress: dict[CaptureID, CaptureProgress] = {}
        self.upstreams: dict[tuple[str, int], UpstreamInfo] = {}  # by namespace and ID
        self.changefeeds: dict[ChangefeedName, ChangefeedReactorState] = {}
        self.last_epoch = 0
        self.broken: dict[str, str] = {}
        self._cluster_id = cluster_id
        self._grace_s = removal_grace_s
        self._on_capture_added = on_capture_added
        self._on_capture_removed = on_capture_removed
        self._gone_at: dict[CaptureID, float | None] = {}  # None: since the last tick
        self._began_at: float | None = None
        self._groups: list[PatchGroup] = []

    def update(self, update: Update) -> None:
        """Take over a key; what is not this cluster's is passed by."""
        key, value = update.key, update.value
        parsed = keys.parse_key(self._cluster_id, key)
        if parsed is None:
            return
        self.broken.pop(key, None)
        if isinstance(
            parsed,
            keys.ChangefeedInfoOf | keys.ChangefeedStatusOf | keys.ScheduleOf | keys.TaskPositionOf,
        ):
            self._update_changefeed(parsed.name, update)
            return
        try:
            self._take_in(parsed, value)
        except (BrokenValue, ValueError, KeyError, TypeError) as error:
            self.broken[key] = str(error)

    def update_pending_change(self, now_s: float) -> None:
        """Let go of captures whose grace is over."""
        if self._began_at is None:
            self._began_at = now_s
        for capture_id, gone_at in sorted(self._gone_at.items()):
            if gone_at is None:
                self._gone_at[capture_id] = now_s
            elif deadline.is_given_away(gone_at, self._grace_s, now_s):
                del self._gone_at[capture_id]
                del self.captures[capture_id]
                self._on_capture_removed(capture_id)

    def take_patches(self) -> list[PatchGroup]:
        groups, self._groups = self._groups, []
        for _, changefeed in sorted(self.changefeeds.items()):
            groups += changefeed.take_patches()
        return groups

    def add_group(self, *groups: PatchGroup) -> None:
        """Have each in one transaction, before those of single changefeeds; one that refuses does
        nothing."""
        self._groups += (unless_refused(group) for group in groups)

    def is_gone(self, capture_id: CaptureID) -> bool:
        """Whether its key is gone, though it still counts: nothing new may be given to it."""
        return capture_id in self._gone_at or capture_id not in self.captures

    def knows_the_dead(self, now_s: float) -> bool:
        """Whether every capture that died before this state began has had its grace by now.

        Until then a new owner may not give away what no living capture reports: it cannot see who
        had it, and how lately that one died.
        """
        began_at = self._began_at
        return began_at is not None and deadline.is_given_away(began_at, self._grace_s, now_s)

    def remove_stale_positions(self) -> None:
        """Have what captures reported deleted, once they or the changefeed are gone for good."""
        for _, changefeed in sorted(self.changefeeds.items()):
            changefeed.remove_stale_positions(self.captures)

    def _update_changefeed(self, name: ChangefeedName, update: Update) -> None:
        changefeed = self.changefeeds.get(name)
        if changefeed is None:
            changefeed = self.changefeeds[name] = ChangefeedReactorState(self._cluster_id, name)
        changefeed.update(update)
        if changefeed.is_empty:
            del self.changefeeds[name]

    def _take_in(self, parsed: keys.Parsed, value: bytes | None) -> None:
        match parsed:
            case keys.CaptureOf(capture_id):
                self._update_capture(capture_id, value)
            case keys.Election(lease):
                _put(self.candidates, lease, None if value is None else CaptureID(value.decode()))
            case keys.Upstream(upstream_id, namespace):
                info = None if value is None else load(UpstreamInfo, value)
                _put(self.upstreams, (namespace, upstream_id), info)
            case keys.CaptureProgressOf(capture_id):
                progress = None if value is None else load_progress(value)
                _put(self.capture_progress, capture_id, progress)
            case keys.LastEpoch():
                self.last_epoch = 0 if value is None else int(value)
            case _:
                pass

    def _update_capture(self, capture_id: CaptureID, value: bytes | None) -> None:
        before = self.captures.get(capture_id)
        if value is None:
            if before is not None:
                self._gone_at.setdefault(capture_id, None)
            return
        info = keys.load_capture_info(value)
        self._gone_at.pop(capture_id, None)
        self.captures[capture_id] = info
        if before is None or before.address != info.address:
            self._on_capture_added(capture_id, info.address)


def _put(table: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
