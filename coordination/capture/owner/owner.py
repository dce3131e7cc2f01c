"""The owner role of the elected capture: all changefeeds of the cluster, tick by tick.

    tick: bootstrap ─► jobs ─► release what dead captures owned ─► each changefeed ─► cleanup

The elected capture is the controller, and launches every changefeed at itself (docs/cluster.md 12).
The next elected capture takes over: it releases the schedule rows of dead captures, and tells
living captures that still own a changefeed to stop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from coordination.capture.context import SessionContext
from coordination.capture.owner.changefeed_owner import ChangefeedOwner
from coordination.capture.owner.operator_jobs import JobContext, OwnerJobs, Workers
from coordination.etcd import keys
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.global_state import GlobalReactorState
from coordination.model import CaptureID, Ownership
from coordination.orchestrator.transaction import Patch
from coordination.scheduler.messages import Message

logger = logging.getLogger(__name__)

MAX_INBOX = 10_000  # messages of one changefeed that are kept while the owner does not tick


class OwnerReactor:
    """The reactor of one leadership, made anew each time the capture is elected. One thread.
    ``wake`` has the next tick come soon; any thread."""

    def __init__(
        self,
        role: SessionContext,
        ownership: Ownership,
        jobs: OwnerJobs,
        *,
        wake: Callable[[], None],
        workers: Workers,
    ) -> None:
        self.wants_to_resign = False  # it was asked to be drained
        self._role = role
        self._ownership = ownership
        self._jobs = jobs
        self._wake = wake
        self._is_waiting = True  # for something of which nobody tells
        self.feeds: dict[ChangefeedName, ChangefeedOwner] = {}
        self._leaving: list[ChangefeedOwner] = []  # still ending; their keys are gone from etcd
        self._inboxes: dict[str, list[Message]] = {}
        self._outbox: list[Message] = []
        self._gone: set[CaptureID] = set()  # dead, and within their grace
        self.draining: set[CaptureID] = set()  # asked for by operators
        self._workers = workers

    @property
    def is_closed(self) -> bool:
        return all(feed.is_closed for feed in (*self.feeds.values(), *self._leaving))

    def post(self, messages: Sequence[Message]) -> None:
        """Take messages from agents; the next tick, which comes soon, reads them. More than
        ``MAX_INBOX`` of a changefeed are dropped."""
        for message in messages:
            inbox = self._inboxes.setdefault(message.changefeed_id, [])
            if len(inbox) < MAX_INBOX:
                inbox.append(message)
        if messages:
            self._wake()

    @property
    def due_at(self) -> float:
        """When the next tick is due though nothing happens; monotonic."""
        if self._is_waiting or self._jobs.has_some:
            return float("-inf")
        return min((feed.due_at for feed in self.feeds.values()), default=float("inf"))

    def take_outbox(self) -> list[Message]:
        taken, self._outbox = self._outbox, []
        return taken

    def close(self, *, drop: bool) -> None:
        for feed in (*self.feeds.values(), *self._leaving):
            feed.close(drop=drop)

    def tick(self, state: GlobalReactorState, now_s: float) -> None:
        self._bootstrap(state)
        self._jobs.carry_out(
            JobContext(
                feeds=self.feeds,
                self_id=self._role.id,
                cluster=state,
                draining=self.draining,
                workers=self._workers,
                resign=self._resign,
            )
        )
        self._take_from_the_dead(state)
        self._tick_feeds(state, now_s)
        self._inboxes.clear()
        state.remove_stale_positions()
        self._is_waiting = bool(self._leaving) or not state.is_settled(now_s)

    def _resign(self) -> None:
        self.wants_to_resign = True

    def _bootstrap(self, state: GlobalReactorState) -> None:
        """Write the key with the version of the metadata, which TiCDC's tools expect of a cluster.
        An existing version stays. This happens in each tick, since the patches of one may be
        lost."""
        key = keys.meta_version_key(self._role.capture.cluster_id)
        state.add_group((Patch(key, lambda old: old or keys.META_VERSION),))

    def _take_from_the_dead(self, state: GlobalReactorState) -> None:
        """Release the changefeeds that dead captures owned. There is no need to wait: their writes
        are refused by the launch in etcd and by the term in Delta. (Their spans wait for the
        grace.)"""
        rows = (each.schedule for each in state.changefeeds.values())
        owners = {row.owner for row in rows if row is not None and row.owner is not None}
        self._say_who_is_gone(state)
        for dead in sorted(each for each in owners if state.is_gone(each)):
            state.add_group(*(each.writes().release_dead(dead) for each in state.owned_by(dead)))

    def _say_who_is_gone(self, state: GlobalReactorState) -> None:
        gone = {each for each in state.captures if state.is_gone(each)}
        for each in sorted(gone - self._gone):
            logger.info(
                "capture %s at %s is gone: other captures prepare its tables, and get them in "
                "%.0f s, when it surely writes no more",
                *(each, state.captures[each].address, self._role.capture.grace_s),
            )
        self._gone = gone

    def _tick_feeds(self, state: GlobalReactorState, now_s: float) -> None:
        for name in [each for each in self.feeds if each not in state.changefeeds]:
            self._leaving.append(self.feeds.pop(name))
            self._leaving[-1].close(drop=False)
        self._leaving = [feed for feed in self._leaving if not feed.is_closed]
        for leaving in self._leaving:
            leaving.check_end(now_s)
        for name, changefeed in sorted(state.changefeeds.items()):
            feed = self.feeds.get(name)
            if feed is None:
                if any(each.name == name for each in self._leaving):
                    continue  # its last run has not ended yet
                feed = self.feeds[name] = ChangefeedOwner(
                    name, self._role, self._ownership, self._wake
                )
            inbox = self._inboxes.get(name.id, ())
            self._outbox += feed.tick(changefeed, inbox, state, now_s)
