"""The owner role of the elected capture: all changefeeds of the cluster, tick by tick.

    tick: bootstrap (once) ─► jobs ─► does every capture work with us?
                                          ─► the dead's ─► each changefeed ─► report ─► cleanup

The elected capture is the controller, and launches every changefeed at itself (docs/cluster.md 12).
Whoever is elected next takes over: rows of the dead are released, the living are told to let go.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from coordination.etcd import keys
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.global_state import GlobalReactorState
from coordination.model import CaptureID
from coordination.orchestrator.patch import Patch
from coordination.owner.changefeed import ChangefeedOwner, ClusterView, OwnerContext
from coordination.owner.jobs import JobContext, OwnerJobs
from coordination.owner.term import UNSEEN
from coordination.scheduler.messages import Message
from coordination.version import work_together

logger = logging.getLogger(__name__)

MAX_INBOX = 10_000  # messages of one changefeed, while etcd does not let the owner tick
REPORT_S = 5.0  # how old the progress is that a capture's death leaves behind, at most


class OwnerReactor:
    """One thread; one for each time that the capture is elected."""

    def __init__(self, context: OwnerContext, jobs: OwnerJobs) -> None:
        self.wants_to_resign = False  # it was asked to be drained
        self._context = context
        self._jobs = jobs
        self._feeds: dict[ChangefeedName, ChangefeedOwner] = {}
        self._leaving: list[ChangefeedOwner] = []  # of changefeeds that are gone from etcd
        self._inboxes: dict[str, list[Message]] = {}
        self._outbox: list[Message] = []
        self._is_bootstrapped = False
        self._misfits: list[CaptureID] = []  # captures that do not work together with this one
        self._draining: set[CaptureID] = set()  # as it was told
        self._report_at = float("-inf")

    @property
    def feeds(self) -> dict[ChangefeedName, ChangefeedOwner]:
        return self._feeds

    @property
    def is_closed(self) -> bool:
        return all(feed.is_closed for feed in (*self._feeds.values(), *self._leaving))

    def post(self, messages: Iterable[Message]) -> None:
        """From agents."""
        for message in messages:
            inbox = self._inboxes.setdefault(message.changefeed_id, [])
            if len(inbox) < MAX_INBOX:
                inbox.append(message)

    def take_outbox(self) -> list[Message]:
        taken, self._outbox = self._outbox, []
        return taken

    def close(self, *, drop: bool) -> None:
        for feed in (*self._feeds.values(), *self._leaving):
            feed.close(drop=drop)

    def tick(self, state: GlobalReactorState, now_s: float) -> None:
        self._bootstrap(state)
        self._jobs.carry_out(
            JobContext(
                feeds=self._feeds,
                self_id=self._context.role.id,
                captures=state.captures,
                is_gone=state.is_gone,
                draining=self._draining,
                resign=self._resign,
            )
        )
        if self._is_whole(state):
            self._take_from_the_dead(state)
            self._tick_feeds(state, now_s)
            self._report(state, now_s)
        self._inboxes.clear()
        state.remove_stale_positions()

    def _resign(self) -> None:
        self.wants_to_resign = True

    def _bootstrap(self, state: GlobalReactorState) -> None:
        """What TiCDC's tools expect of a cluster; later it may be migrated."""
        if self._is_bootstrapped:
            return
        self._is_bootstrapped = True
        key = keys.meta_version_key(self._context.role.cluster_id)
        state.add_group((Patch(key, lambda old: old or keys.META_VERSION),))

    def _is_whole(self, state: GlobalReactorState) -> bool:
        """Whether all captures understand each other. One that does not refuses to start (see
        `streaming/admission.py`); it may have started together with us."""
        ours = self._context.role.info.version
        misfits = [
            each.id for each in state.captures.values() if not work_together(ours, each.version)
        ]
        if misfits != self._misfits:
            self._misfits = misfits
            if misfits:
                shown = ", ".join(
                    f"{state.captures[each].version} at {state.captures[each].address}"
                    for each in misfits
                )
                logger.warning(
                    "nothing moves: captures do not work together with this one of version %s: %s",
                    *(ours, shown),
                )
            else:
                logger.info("all captures work together again")
        return not misfits

    def _take_from_the_dead(self, state: GlobalReactorState) -> None:
        """What they owned is free at once: their launches and terms fence them. (Their spans wait
        for the grace.)"""
        rows = [each.schedule for each in state.changefeeds.values() if each.schedule is not None]
        owners = {row.owner for row in rows if row.owner is not None}
        for capture_id in sorted({*owners, *state.capture_progress}):
            if state.is_gone(capture_id):
                self._context.controller.post_capture_offline(capture_id)

    def _report(self, state: GlobalReactorState, now_s: float) -> None:
        """How far what it owns is, as the processors have told it, for who takes over."""
        if now_s < self._report_at:
            return
        self._report_at = now_s + REPORT_S
        role = self._context.role
        progress = {
            each.uuid: each.status
            for each in state.changefeeds.values()
            if each.info is not None
            and each.status is not None
            and each.schedule is not None
            and each.schedule.owner == role.id
        }
        if progress != state.capture_progress.get(role.id, {}):
            self._context.capture.advance(progress)

    def _tick_feeds(self, state: GlobalReactorState, now_s: float) -> None:
        cluster = ClusterView(
            captures=state.captures.keys(),
            unreached={each.id for each in state.captures.values() if not each.is_reached},
            is_gone=state.is_gone,
            knows_the_dead=state.knows_the_dead(now_s),
        )
        for name in [each for each in self._feeds if each not in state.changefeeds]:
            self._leaving.append(self._feeds.pop(name))
            self._leaving[-1].close(drop=False)
        self._leaving = [feed for feed in self._leaving if not feed.is_closed]
        for leaving in self._leaving:
            leaving.check_end(now_s)
        for name, changefeed in sorted(state.changefeeds.items()):
            feed = self._feeds.get(name)
            if feed is None:
                if any(each.name == name for each in self._leaving):
                    continue  # its last run still ends
                feed = self._feeds[name] = ChangefeedOwner(name, self._context)
            inbox = self._inboxes.get(name.id, ())
            alive = self._alive(feed, cluster)
            self._outbox += feed.tick(changefeed, inbox, cluster, alive, now_s)

    def _alive(self, feed: ChangefeedOwner, cluster: ClusterView) -> set[CaptureID]:
        """Those who may have spans: the dead too, until their grace is over (docs/cluster.md
        18)."""
        alive = set(cluster.captures)
        if feed.waits_for_the_dead and not cluster.knows_the_dead:
            alive.add(UNSEEN)
        return alive
