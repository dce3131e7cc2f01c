"""Requests of operators to the owner: posted on any thread, done in a tick, answered by a future.

    gRPC ── post ──► inbox ── tick: `carry_out` ──► the future has a result or an error

A pause or a resume is written to etcd, which needs no owner (`metadata/changefeed_operator.py`).
The jobs here have no keys in etcd (docs/cluster.md 15).
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from coordination.capture.owner.changefeed_owner import ChangefeedOwner
from coordination.errors import TryAgain
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.errors import CaptureNotFound, ChangefeedNotFound, MetadataError
from coordination.metadata.feed_state import known_state
from coordination.metadata.global_state import GlobalReactorState
from coordination.model import CaptureID, JobID, TableName
from coordination.scheduler.coordinator import Coordinator

logger = logging.getLogger(__name__)

R = TypeVar("R")


class NotOwner(TryAgain):
    """The capture that was asked is not elected: find the elected one, and ask again."""


class NotYet(TryAgain):
    """The owner is taking the changefeed over, and cannot answer before that is done."""


class Workers(Protocol):
    """The workers of DM's jobs, as this leader knows them."""

    def count_workers(self, capture_id: CaptureID) -> int: ...

    def list_tasks(self, job_id: JobID | None) -> list[dict[str, Any]]:
        """As ``JobMasters.list_tasks``, of one job or of all. Raises ``NotYet``,
        ``JobNotFound``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """What a job may use of the owner; each public method is a job. Runs on the coordination
    thread. A job that cannot be done as asked raises a ``MetadataError``."""

    feeds: Mapping[ChangefeedName, ChangefeedOwner]
    self_id: CaptureID
    cluster: GlobalReactorState
    draining: set[CaptureID]  # the captures that this owner was told to drain
    workers: Workers
    resign: Callable[[], None]

    def rebalance(self, changefeed: ChangefeedName) -> None:
        """Have the scheduler spread the changefeed's spans evenly over the captures."""
        self._running(changefeed).schedulers.rebalance_is_wanted = True
        logger.info("rebalance asked for changefeed_id=%s", changefeed.id)

    def move_table(
        self, changefeed: ChangefeedName, table: TableName, dest: CaptureID
    ) -> CaptureID | None:
        """Ask the scheduler to move a table to `dest`. Returns at once, with the capture that has
        the table now, or None; the move comes later."""
        coordinator = self._running(changefeed)
        self._check_capture(dest)
        spans = coordinator.replication.tables
        table_id = next((each for each, span in spans.items() if span.name == table), None)
        if table_id is None:
            raise MetadataError(f"the changefeed has no table {table}")
        coordinator.schedulers.move_table(table_id, dest)
        logger.info("move asked for changefeed_id=%s table=%s to=%s", changefeed.id, table, dest)
        made = coordinator.replication.sets.get(table_id)
        return made.primary if made is not None else None

    def drain(self, capture_id: CaptureID) -> int:
        """Begin to drain a capture, or go on with it. Returns how many spans and workers of jobs it
        still has: at least 1 while the number is not known. If the capture is the owner itself, it
        resigns first; ask the next owner again. Raises ``MetadataError`` if no other capture takes
        tables."""
        self._check_capture(capture_id)
        if not any(self._serves(each) for each in self.cluster.captures if each != capture_id):
            raise MetadataError(
                "no other capture serves the cluster: nobody could take the tables of "
                f"{capture_id}, or lead. Start another `tidelake server` first; to end this one, "
                "stop its process"
            )
        if capture_id not in self.draining:
            self.draining.add(capture_id)
            logger.info("drain asked for capture_id=%s", capture_id)
        if capture_id == self.self_id:
            self.resign()
            return 1
        coordinators = [feed.coordinator for feed in self.feeds.values()]
        left = sum(1 if each is None else each.drain_capture(capture_id) for each in coordinators)
        left += self.workers.count_workers(capture_id)
        if left == 0:
            logger.info("drained capture_id=%s", capture_id)
        return left

    def why_unknown(self, capture_id: CaptureID) -> str:
        """Why `drain` could not say how many spans the capture has; empty where it could."""
        if capture_id == self.self_id:
            return (
                f"capture {capture_id} leads: it resigns first, and the next owner moves its tables"
            )
        taken_over = [name for name in self.feeds if self._is_taken_over(name)]
        if not taken_over:
            return ""
        names = ", ".join(str(each.id) for each in taken_over)
        return f"capture {self.self_id} leads, and is still taking over {names}"

    def keep(self, capture_id: CaptureID) -> None:
        """Take a drain back in this owner: it may give the capture spans again. (The capture's own
        side of it: ``Capture.serve_again``.)"""
        self._check_capture(capture_id)
        self.draining.discard(capture_id)
        for feed in self.feeds.values():
            if feed.coordinator is not None:
                feed.coordinator.schedulers.keep_capture(capture_id)
        logger.info("drain taken back capture_id=%s", capture_id)

    def list_processors(self, wanted: ChangefeedName | None = None) -> list[dict[str, Any]]:
        """The spans of one changefeed or of all, each with the capture that has it, in the order of
        the names. Raises ``NotYet`` while this owner does not know them."""
        if wanted is not None and wanted not in self.cluster.changefeeds:
            raise ChangefeedNotFound(f"there is no changefeed {wanted}")
        names = [each for each in sorted(self.cluster.changefeeds) if wanted in (None, each)]
        unknown = [str(each.id) for each in names if self._is_taken_over(each)]
        if unknown:
            raise NotYet(
                f"which captures have the tables of {', '.join(unknown)} is not known: capture "
                f"{self.self_id} leads, and is still taking over"
            )
        return [row for name in names for row in self._spans(name)]

    def list_tasks(self, job_id: JobID | None = None) -> list[dict[str, Any]]:
        """The tasks of one of DM's jobs, or of all: what is wanted, and what is so."""
        return self.workers.list_tasks(job_id)

    def _spans(self, name: ChangefeedName) -> list[dict[str, Any]]:
        feed = self.feeds.get(name)
        if feed is None or feed.coordinator is None:
            return []  # it does not run
        replication = feed.coordinator.replication
        found = [
            (made.span.name, made.state.name.lower(), made.primary, made.checkpoint_ts)
            for made in replication.sets.values()
        ]
        for table_id, start_ts in replication.missing.items():
            found.append((replication.tables[table_id].name, "absent", None, start_ts))
        return [
            {
                "changefeed": str(name.id),
                "table": str(table),
                "state": state,
                "capture": capture,
                "checkpoint_ts": checkpoint_ts,
            }
            for table, state, capture, checkpoint_ts in sorted(found, key=lambda each: each[0])
        ]

    def _is_taken_over(self, name: ChangefeedName) -> bool:
        """Whether the changefeed is to run, and this owner does not know its tables yet."""
        stored, feed = self.cluster.changefeeds.get(name), self.feeds.get(name)
        if stored is None or stored.info is None or not known_state(stored.info).is_running:
            return False
        coordinator = feed.coordinator if feed is not None else None
        return coordinator is None or not coordinator.replication.is_initialized

    def _serves(self, capture_id: CaptureID) -> bool:
        is_leaving = self.cluster.captures[capture_id].is_draining or capture_id in self.draining
        return not is_leaving and not self.cluster.is_gone(capture_id)

    def _running(self, name: ChangefeedName) -> Coordinator:
        stored, feed = self.cluster.changefeeds.get(name), self.feeds.get(name)
        if stored is None or stored.info is None:
            raise ChangefeedNotFound(f"there is no changefeed {name}")
        if self._is_taken_over(name):
            raise NotYet(
                f"capture {self.self_id} leads, and is still taking over changefeed {name}"
            )
        if feed is None or feed.coordinator is None:
            state = known_state(stored.info)
            raise MetadataError(f"changefeed {name} does not run: it is {state}")
        return feed.coordinator

    def _check_capture(self, capture_id: CaptureID) -> None:
        if capture_id not in self.cluster.captures:
            raise CaptureNotFound(f"no capture {capture_id} is registered")


OwnerJob = Callable[[JobContext], R]


class OwnerJobs:
    """The inbox of jobs. Thread-safe."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._inbox: queue.SimpleQueue[tuple[OwnerJob[Any], Future[Any]]] = queue.SimpleQueue()

    def post(self, job: OwnerJob[R]) -> Future[R]:
        """Have a job done in the owner's next tick. The future has its result or its error;
        ``NotOwner`` if this capture is not the owner."""
        future: Future[R] = Future()
        self._inbox.put((job, future))
        self._wake()
        return future

    @property
    def has_some(self) -> bool:
        return not self._inbox.empty()

    def carry_out(self, context: JobContext | None) -> None:
        """Do all jobs that were posted. Called on the coordination thread. With None (this capture
        is not the owner) they fail with ``NotOwner``."""
        while not self._inbox.empty():
            job, future = self._inbox.get()
            if not future.set_running_or_notify_cancel():
                continue
            if context is None:
                reason = "this capture does not lead the cluster (any more)"
                future.set_exception(NotOwner(reason))
                continue
            try:
                future.set_result(job(context))
            except Exception as error:  # noqa: BLE001 - the caller gets it
                future.set_exception(error)
