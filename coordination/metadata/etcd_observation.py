"""The observations of `observation.py` over etcd: who asks for the writes of `etcd_observation.py`.

What they read from and how they write is given to them:

    command line           etcd, at each call     a transaction at once (`ClientCommitter`)
    a server's reactors    the tick's state       with what the tick writes (`TickCommitter`)
    its other threads      etcd                   posted to the coordination thread, waited for

For a reactor a call returns before anything is written; the next ticks show what came of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from coordination.error_codes import GC_ERRORS
from coordination.etcd.client import Compare
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.capture_writes import progress_writes
from coordination.metadata.changefeed_writes import (
    ChangefeedWrites,
    create_writes,
    offline_writes,
)
from coordination.metadata.committer import Committer
from coordination.metadata.elector import EtcdElector, Wait
from coordination.metadata.errors import NotController, NotLaunched
from coordination.metadata.feed_state import Decision, FeedEvent
from coordination.metadata.model import (
    CaptureProgress,
    ChangefeedIdent,
    ChangefeedInfo,
    ChangefeedProgress,
    ChangefeedUUID,
    RunningError,
    UpstreamInfo,
)
from coordination.metadata.observation import Captures, ControllerObservation
from coordination.metadata.querier import StoredQuerier
from coordination.metadata.schedule import (
    NO_REVISION,
    SchedState,
    ScheduledChangefeed,
    ScheduleRow,
)
from coordination.model import CaptureID, CaptureInfo, Ts
from coordination.orchestrator.patch import PatchGroup
from coordination.orchestrator.reactor import GuardLost


class EtcdControllerObservation:
    """`guard` says what holds while this capture leads; without one it is an operator's, who may
    create, remove and clean up."""

    def __init__(
        self,
        querier: StoredQuerier,
        cluster_id: str,
        committer: Committer,
        guard: Callable[[], Compare | None] | None = None,
    ) -> None:
        self._querier = querier
        self._cluster_id = cluster_id
        self._committer = committer
        self._guard = guard
        self._lock = threading.Lock()
        self._captures: tuple[CaptureInfo, ...] = ()

    def create_changefeed(
        self, info: ChangefeedInfo, upstream: UpstreamInfo | None = None
    ) -> ChangefeedIdent:
        self._commit(create_writes(self._cluster_id, info, upstream))
        return self._querier.find_name(info.name).ident

    def remove_changefeed(self, uuid: ChangefeedUUID) -> None:
        self._commit(self._writes(uuid).remove())

    def cleanup_changefeed(self, uuid: ChangefeedUUID) -> None:
        writes = self._writes(uuid)
        self._commit(*writes.cleanup(self._querier.reporting(writes.name)))

    def refresh_captures(self) -> Captures:
        infos = tuple(self._querier.captures())
        with self._lock:
            before, self._captures = self._captures, infos
        return Captures(infos=infos, changed=infos != before)

    def set_owner(self, target: ScheduledChangefeed) -> None:
        self._commit_leading(self._writes(target.changefeed_uuid).set_owner(target))

    def post_capture_offline(self, capture_id: CaptureID) -> None:
        owned = [
            (self._of(each.ident.name, each.row), each.ident.uuid)
            for each in self._querier.stored()
            if each.row.owner == capture_id and each.row.state is not SchedState.REMOVED
        ]
        self._commit_leading(*offline_writes(self._cluster_id, capture_id, owned))

    def get_changefeed_schedule(self, uuid: ChangefeedUUID) -> ScheduledChangefeed:
        return self._querier.find(uuid).scheduled

    def schedule_snapshot(self) -> tuple[list[ScheduledChangefeed], list[CaptureInfo]]:
        schedule = [each.scheduled for each in self._querier.stored()]
        return schedule, list(self._querier.captures())

    def _writes(self, uuid: ChangefeedUUID) -> ChangefeedWrites:
        stored = self._querier.find(uuid)
        return self._of(stored.ident.name, stored.row)

    def _of(self, name: ChangefeedName, row: ScheduleRow) -> ChangefeedWrites:
        return ChangefeedWrites.of(self._cluster_id, name, row)

    def _commit_leading(self, *groups: PatchGroup) -> None:
        if self._guard is None:
            raise NotController("only the capture that leads may schedule changefeeds")
        self._commit(*groups)

    def _commit(self, *groups: PatchGroup) -> None:
        if self._guard is None:
            self._committer.commit(groups)
            return
        guard = self._guard()
        if guard is None:
            raise NotController("this capture does not lead")
        try:
            self._committer.commit(groups, (guard,))
        except GuardLost as error:
            raise NotController("this capture does not lead any more") from error


class EtcdOwnerObservation:
    """Of one launch; or an operator's (`writes` has no owner): pause, resume and update only."""

    def __init__(
        self, uuid: ChangefeedUUID, writes: ChangefeedWrites, committer: Committer
    ) -> None:
        self._uuid = uuid
        self._writes = writes
        self._committer = committer

    @classmethod
    def for_operator(
        cls, querier: StoredQuerier, cluster_id: str, committer: Committer, name: ChangefeedName
    ) -> EtcdOwnerObservation:
        """Of the present life of that name; raises ``ChangefeedNotFound``."""
        stored = querier.find_name(name)
        writes = ChangefeedWrites.of(cluster_id, name, stored.row)
        return cls(stored.ident.uuid, writes, committer)

    def self_uuid(self) -> ChangefeedUUID:
        return self._uuid

    def update_changefeed(self, info: ChangefeedInfo) -> None:
        self._committer.commit((self._writes.update(info),))

    def pause_changefeed(self) -> None:
        self._commit_feed_event(Decision(event=FeedEvent.STOP))

    def resume_changefeed(self, overwrite_checkpoint_ts: Ts | None = None) -> None:
        self._commit_feed_event(
            Decision(event=FeedEvent.RESUME, overwrite_checkpoint_ts=overwrite_checkpoint_ts)
        )

    def advance_changefeed(
        self, checkpoint_ts: Ts, min_table_barrier_ts: Ts, *, epoch: int
    ) -> None:
        self._check_owner()
        self._committer.commit(
            (self._writes.advance_checkpoint(checkpoint_ts, min_table_barrier_ts, epoch),)
        )

    def carry_out(self, decision: Decision) -> None:
        self._check_owner()
        self._commit_feed_event(decision)

    def retry_changefeed(self) -> None:
        self._move_owning(FeedEvent.RETRY)

    def set_changefeed_normal(self) -> None:
        self._move_owning(FeedEvent.ADVANCED)

    def set_changefeed_finished(self) -> None:
        self._move_owning(FeedEvent.FINISH)

    def set_changefeed_removed(self) -> None:
        self._move_owning(FeedEvent.REMOVE)

    def set_changefeed_failed(self, error: RunningError) -> None:
        is_gc = error.code in GC_ERRORS  # the only one that a paused changefeed can fail with
        self._move_owning(FeedEvent.GC_ERROR if is_gc else FeedEvent.UNRETRYABLE_ERROR, error)

    def set_changefeed_warning(self, warning: RunningError) -> None:
        self._move_owning(FeedEvent.WARNING, warning)

    def set_changefeed_pending(self, error: RunningError) -> None:
        self._move_owning(FeedEvent.ERROR, error)

    def _move_owning(self, event: FeedEvent, error: RunningError | None = None) -> None:
        self.carry_out(Decision(event=event, error=error))

    def _commit_feed_event(self, decision: Decision) -> None:
        self._committer.commit((self._writes.feed_event(decision),))

    def _check_owner(self) -> None:
        if self._writes.owner is None:
            raise NotLaunched(f"only the owner of changefeed {self._writes.name} may do that")


class EtcdCaptureObservation:
    """What one registered capture does, as long as its lease lives."""

    def __init__(
        self, elector: EtcdElector, querier: StoredQuerier, cluster_id: str, committer: Committer
    ) -> None:
        self._elector = elector
        self._cluster_id = cluster_id
        self._committer = committer
        self._querier = querier
        self._lock = threading.Lock()
        self._told: dict[ChangefeedUUID, ScheduledChangefeed] = {}

    def self_info(self) -> CaptureInfo:
        return self._elector.self_info()

    def run_election(self, on_take_control: Callable[[], None], wait: Wait) -> None:
        self._elector.run_election(on_take_control, wait)

    def get_controller(self) -> CaptureInfo:
        return self._elector.get_controller()

    def get_captures(self, *capture_ids: CaptureID) -> Sequence[CaptureInfo]:
        return self._elector.get_captures(*capture_ids)

    def run(self, controller_callback: Callable[[ControllerObservation], None], wait: Wait) -> None:
        controller = EtcdControllerObservation(
            self._querier, self._cluster_id, self._committer, lambda: self._elector.guard
        )
        self._elector.run_election(lambda: controller_callback(controller), wait)

    def advance(self, progress: CaptureProgress) -> None:
        known = {each.ident.uuid for each in self._querier.stored()}
        writes = progress_writes(self._cluster_id, self._id, progress, known)
        self._committer.commit((writes,))

    def owner_changes(self) -> Sequence[ScheduledChangefeed]:
        ours = {
            each.ident.uuid: each.scheduled
            for each in self._querier.stored()
            if each.row.owner == self._id and each.row.state is not SchedState.REMOVED
        }
        with self._lock:
            before, self._told = self._told, ours
        return _changes(before, ours)

    def on_owner_launched(self, uuid: ChangefeedUUID) -> EtcdOwnerObservation:
        stored = self._querier.find(uuid)
        if (stored.row.owner, stored.row.state) != (self._id, SchedState.LAUNCHED):
            raise NotLaunched(f"changefeed {stored.ident.name} is not launched at {self._id}")
        writes = ChangefeedWrites.of(self._cluster_id, stored.ident.name, stored.row, self._id)
        return EtcdOwnerObservation(uuid, writes, self._committer)

    def post_owner_removed(self, uuid: ChangefeedUUID, task_position: ChangefeedProgress) -> None:
        stored = self._querier.find(uuid)
        writes = ChangefeedWrites.of(self._cluster_id, stored.ident.name, stored.row)
        self._committer.commit((writes.release(self._id, lambda: task_position),))

    @property
    def _id(self) -> CaptureID:
        return self._elector.self_info().id


def _changes(
    before: dict[ChangefeedUUID, ScheduledChangefeed],
    ours: dict[ChangefeedUUID, ScheduledChangefeed],
) -> list[ScheduledChangefeed]:
    """What is new or other than it was; and, as removed, what is ours no more."""
    changed = [each for uuid, each in ours.items() if before.get(uuid) != each]
    lost = [
        replace(each, owner=None, owner_state=SchedState.REMOVED, row_revision=NO_REVISION)
        for uuid, each in before.items()
        if uuid not in ours
    ]
    return sorted((*changed, *lost), key=lambda each: each.changefeed_uuid)
