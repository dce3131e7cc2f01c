"""What operators ask an owner for: posted from any thread, done at a tick, answered by a future.

    gRPC ── post ──► inbox ── tick: `carry_out` ──► the future has a result or an error

Pausing and the like is written to etcd by anybody (`metadata/operator.py`); these jobs have no keys
there (docs/cluster.md 15).
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from coordination.errors import TidelakeError
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.errors import CaptureNotFound, ChangefeedNotFound, MetadataError
from coordination.metadata.global_state import GlobalReactorState
from coordination.model import CaptureID, TableName, Ts
from coordination.owner.changefeed import ChangefeedOwner
from coordination.scheduler.coordinator import Coordinator

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """Even out a changefeed's spans. Result: None."""

    changefeed: ChangefeedName


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTable:
    """Result: None; the move itself comes later."""

    changefeed: ChangefeedName
    table: TableName
    dest: CaptureID


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainCapture:
    """Begin to empty a capture, or go on. Result: how many spans it still has; at least 1 while
    that is not known. Asked of the owner itself: it resigns first, so ask again. Refused where
    nobody else serves."""

    capture_id: CaptureID


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepCapture:
    """Take a drain back, as far as it is the owner's. Result: None."""

    capture_id: CaptureID


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryProcessors:
    """Result: a tuple of ``ProcessorRow``, by changefeed and table."""

    changefeed: ChangefeedName | None = None  # all


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorRow:
    """A span, and who has it."""

    changefeed: ChangefeedName
    table_id: int
    table: TableName
    state: str
    capture_id: CaptureID | None
    checkpoint_ts: Ts


OwnerJob = Rebalance | MoveTable | DrainCapture | KeepCapture | QueryProcessors


class NotOwner(TidelakeError):
    """The capture that was asked does not lead: find the one that does, and ask again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """What jobs are carried out on."""

    feeds: Mapping[ChangefeedName, ChangefeedOwner]
    self_id: CaptureID
    cluster: GlobalReactorState
    draining: set[CaptureID]  # that this owner was told to drain
    resign: Callable[[], None]


class OwnerJobs:
    """The inbox. Thread-safe."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._inbox: queue.SimpleQueue[tuple[OwnerJob, Future[Any]]] = queue.SimpleQueue()

    def post(self, job: OwnerJob) -> Future[Any]:
        """Done at the owner's next tick; fails with ``NotOwner`` where there is no owner."""
        future: Future[Any] = Future()
        self._inbox.put((job, future))
        self._wake()
        return future

    def carry_out(self, context: JobContext | None) -> None:
        """All that have come, by the coordination thread; None: we do not lead."""
        while not self._inbox.empty():
            job, future = self._inbox.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(carry_out(job, context))
            except Exception as error:  # noqa: BLE001 - it is the caller's
                future.set_exception(error)


def carry_out(job: OwnerJob, context: JobContext | None) -> object:
    """Do it, or begin to. Raises ``MetadataError`` for what cannot be done as asked."""
    if context is None:
        raise NotOwner("this capture does not lead the cluster (any more)")
    match job:
        case Rebalance():
            _running(context, job.changefeed).schedulers.rebalance_is_wanted = True
            logger.info("rebalance asked for changefeed_id=%s", job.changefeed.id)
        case MoveTable():
            coordinator = _running(context, job.changefeed)
            _check_capture(context, job.dest)
            coordinator.schedulers.move_table(_table_id(coordinator, job.table), job.dest)
            logger.info(
                "move asked for changefeed_id=%s table=%s to=%s",
                *(job.changefeed.id, job.table, job.dest),
            )
        case DrainCapture():
            return _drain(context, job.capture_id)
        case KeepCapture():
            _keep(context, job.capture_id)
        case QueryProcessors():
            return _processors(context, job.changefeed)
    return None


def _drain(context: JobContext, capture_id: CaptureID) -> int:
    _check_capture(context, capture_id)
    if not any(_serves(context, each) for each in context.cluster.captures if each != capture_id):
        raise MetadataError(
            f"no other capture serves the cluster: nobody could take the tables of {capture_id}, "
            "or lead. Start another `tidelake server` first; to end this one, stop its process"
        )
    if capture_id not in context.draining:
        context.draining.add(capture_id)
        logger.info("drain asked for capture_id=%s", capture_id)
    if capture_id == context.self_id:
        context.resign()
        return 1
    coordinators = [feed.coordinator for feed in context.feeds.values()]
    left = sum(1 if each is None else each.drain_capture(capture_id) for each in coordinators)
    if left == 0:
        logger.info("drained capture_id=%s", capture_id)
    return left


def _serves(context: JobContext, capture_id: CaptureID) -> bool:
    is_leaving = context.cluster.captures[capture_id].is_draining or capture_id in context.draining
    return not is_leaving and not context.cluster.is_gone(capture_id)


def _keep(context: JobContext, capture_id: CaptureID) -> None:
    _check_capture(context, capture_id)
    context.draining.discard(capture_id)
    for feed in context.feeds.values():
        if feed.coordinator is not None:
            feed.coordinator.schedulers.keep_capture(capture_id)
    logger.info("drain taken back capture_id=%s", capture_id)


def _processors(context: JobContext, wanted: ChangefeedName | None) -> tuple[ProcessorRow, ...]:
    rows = [
        ProcessorRow(
            changefeed=name,
            table_id=table_id,
            table=made.span.name,
            state=made.state.name.lower(),
            capture_id=made.primary,
            checkpoint_ts=made.checkpoint_ts,
        )
        for name, feed in sorted(context.feeds.items())
        if wanted in (None, name) and feed.coordinator is not None
        for table_id, made in feed.coordinator.replication.sets.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.changefeed, row.table)))


def _running(context: JobContext, name: ChangefeedName) -> Coordinator:
    feed = context.feeds.get(name)
    if feed is None:
        raise ChangefeedNotFound(f"there is no changefeed {name}")
    if feed.coordinator is None:
        raise MetadataError(f"changefeed {name} does not run (yet)")
    return feed.coordinator


def _check_capture(context: JobContext, capture_id: CaptureID) -> None:
    if capture_id not in context.cluster.captures:
        raise CaptureNotFound(f"no capture {capture_id} is registered")


def _table_id(coordinator: Coordinator, table: TableName) -> int:
    for table_id, span in coordinator.replication.tables.items():
        if span.name == table:
            return table_id
    raise MetadataError(f"the changefeed has no table {table}")
